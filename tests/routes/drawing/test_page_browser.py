"""The page of routes in a real browser: Debian's chromium, driven by playwright."""

import re
import shutil
from xml.etree import ElementTree

import pytest

pytest.importorskip("playwright", reason="needs playwright: pip install weftformer[test]")

from playwright.sync_api import expect

from weftformer.routes.drawing.page import save_page
from weftformer.routes.offers import Offer
from weftformer.routes.plans import Candidate, Plan

from ..trees import made

CHROMIUM = shutil.which("chromium")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="needs the browser chromium: apt-get install chromium")

TARGET = "CC(=O)NCc1ccc(OC)cc1"
PHENOL = made("N#Cc1ccc(O)cc1", "N#Cc1ccc(Br)cc1")
LONG = made(TARGET, "CC(=O)O", made("NCc1ccc(OC)cc1", made("N#Cc1ccc(OC)cc1", PHENOL)))
SHORT = made(TARGET, "CC(=O)Cl", "NCc1ccc(OC)cc1")


def candidate(route, rank, missing, **fields):
    return Candidate(route.to_string(), -1.0 * rank, route.depth, route, missing=missing, rank=rank, **fields)


OFFERS = (
    Offer("CC(=O)Cl", price=9.5, unit="EUR", vendor="Acme, Ltd", catalogue_number="A-1"),
    Offer("NCc1ccc(OC)cc1", "HCl salt", "COc1ccc(CN)cc1.Cl"),
)
CANDIDATES = [
    candidate(LONG, 1, ("CC(=O)O",), forward_ranks=(1, 2, 0, None)),
    candidate(SHORT, 2, (), forward_ranks=(1,), offers=OFFERS),
    Candidate("x" * 300, -9, 1, rank=3),
]
PLANS = [
    Plan(TARGET, CANDIDATES),
    Plan("CCO", [candidate(made("CCO", "CC=O"), 1, None)]),
    Plan("C" * 90, problem="much too long " * 20 + "y" * 200),
]


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    path = tmp_path_factory.mktemp("page") / "routes.html"
    save_page(PLANS, path, title="Amides")
    return path.as_uri()


@pytest.fixture
def load(open_page, address):
    def load(*size, **settings):
        script = (
            "window.copied = []; Object.defineProperty(navigator, 'clipboard',"
            "{ value: { writeText: async text => { window.copied.push(text); } } })"
        )
        return open_page(address, *size, script=script, **settings)

    return load


def shown(page):
    """The routes in their order, those that are filtered out left out."""
    return page.locator(".route:not([hidden])").evaluate_all("found => found.map(route => route.id)")


def test_routes_are_sorted_and_filtered(load):
    page = load()
    assert shown(page) == ["t1-r1", "t1-r2", "t2-r1"]
    page.locator("#sort").select_option("predicted")
    assert shown(page) == ["t1-r2", "t1-r1", "t2-r1"]
    names = ["Last reaction: amide from an acid chloride", "Last reaction: amide coupling"]
    assert page.locator("#t1 h3:visible").all_inner_texts() == names
    page.locator("#grouped").uncheck()
    assert shown(page) == ["t1-r2", "t1-r1", "t2-r1"] and page.locator("h3:visible").count() == 0
    page.locator("#purchasable").check()
    assert shown(page) == ["t1-r2"] and page.locator("#count").inner_text() == "1 of 3 routes shown"
    assert page.locator("#t2 .none").is_visible() and page.locator("#t1 .none").is_hidden()
    page.evaluate("location.hash = 't2-r1'")  # a link to a route that is filtered out shows all
    expect(page.locator("#t2-r1 .view")).to_be_in_viewport()
    expect(page.locator("#count")).to_have_text("")
    assert shown(page) == ["t1-r1", "t1-r2", "t2-r1"] and page.locator("h3:visible").count() == 3
    page.locator("#most").select_option("1")
    assert shown(page) == ["t1-r2", "t2-r1"]
    page.locator("#most").select_option("")
    for words, found in {"N#Cc1ccc(Br)cc1": ["t1-r1"], "Amide coup": ["t1-r1"], "2.1": ["t2-r1"]}.items():
        page.locator("#find").fill(words)
        page.keyboard.press("Enter")  # does not leave the page
        assert shown(page) == found


def test_the_list_to_buy_is_that_of_the_routes_shown(load):
    page = load()
    page.locator("#buy > summary").click()
    page.locator('[data-buy="copy"]').click()
    leaves = ["CC(=O)Cl", "COc1ccc(CN)cc1", "N#Cc1ccc(Br)cc1", "CC=O", "CC(=O)O"]
    assert sorted(page.evaluate("copied")[0].split("\n")) == sorted(leaves)
    assert page.locator("#said").inner_text() == "Copied 5 SMILES"
    page.locator("#purchasable").check()
    assert page.locator("#needed").inner_text() == "2 starting materials"
    with page.expect_download() as download:
        page.locator('[data-buy="save"]').click()
    assert download.value.suggested_filename == "to-buy.csv"
    text = download.value.path().read_text(encoding="utf-8")
    assert text.splitlines() == [
        "smiles,in_stock,routes,form,sold_as,price,unit,vendor,catalogue_number",
        'CC(=O)Cl,yes,1.2,,,9.5,EUR,"Acme, Ltd",A-1',
        "COc1ccc(CN)cc1,yes,1.2,HCl salt,COc1ccc(CN)cc1.Cl,,,,",
    ]
    page.locator('[data-need="CC(=O)Cl"] a').click()
    expect(page.locator("#t1-r2 > details")).to_have_attribute("open", "")


def transform(page):
    """How far the first picture is moved, and how large it is."""
    style = page.locator(".view > svg:visible").first.evaluate("svg => svg.style.transform")
    return [float(value) for value in re.findall(r"-?[\d.]+", style)]


def test_a_picture_is_zoomed_copied_from_and_saved(load):
    page = load()
    before, shown = transform(page)[2], page.locator("#t1-r1 output")
    for button, factor in (("in", 1.25), ("out", 1), ("out", 0.8), ("fit", 1)):
        page.locator(f'#t1-r1 [data-do="{button}"]').click()
        assert transform(page)[-1] == pytest.approx(before * factor, rel=1e-3)
        assert shown.inner_text() == f"{round(before * factor * 100)} %"
    # with the wheel and Ctrl, what is under the pointer stays there
    leaf, fitted = page.locator('#t1-r1 [data-smiles="CC(=O)O"]:visible'), shown.inner_text()
    box = leaf.bounding_box()
    page.mouse.move(box["x"], box["y"])
    page.keyboard.down("Control")
    page.mouse.wheel(0, -60)
    page.keyboard.up("Control")
    expect(shown).not_to_have_text(fitted)
    after = leaf.bounding_box()
    assert (after["x"], after["y"]) == pytest.approx((box["x"], box["y"]), abs=1.5)
    # the keyboard reaches the target, the first of its molecules, after the five controls, and copies it
    page.locator("#t1-r1 > details > summary").focus()
    for key in (*["Tab"] * 6, "Enter"):
        page.keyboard.press(key)
    expect(page.locator("#said")).to_have_text(f"Copied {TARGET}")
    assert page.evaluate("copied") == [TARGET]
    with page.expect_download() as download:
        page.locator('#t1-r1 [data-do="save"]').click()
    assert download.value.suggested_filename == "target-1-rank-1.svg"
    text = download.value.path().read_text(encoding="utf-8")
    root = ElementTree.fromstring(text)
    assert root.tag == "{http://www.w3.org/2000/svg}svg" and "<use" not in text and " id=" not in text
    assert "tabindex" not in text and text.count('class="card"') == len(LONG.molecules())
