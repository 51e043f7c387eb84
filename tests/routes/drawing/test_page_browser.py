"""The page of routes in a real browser: Debian's chromium, driven by playwright."""

import re
import shutil
from xml.etree import ElementTree

import pytest

pytest.importorskip("rdkit")
pytest.importorskip("playwright", reason="needs playwright: pip install weftformer[test]")

from playwright.sync_api import expect

from weftformer.routes import Route
from weftformer.routes.drawing.page import save_page
from weftformer.routes.offers import Offer
from weftformer.routes.plans import Candidate, Plan

CHROMIUM = shutil.which("chromium")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="needs the browser chromium: apt-get install chromium")

TARGET = "CC(=O)NCc1ccc(OC)cc1"
LONG = Route(
    TARGET,
    (
        Route("CC(=O)O"),
        Route("NCc1ccc(OC)cc1", (Route("N#Cc1ccc(OC)cc1", (Route("N#Cc1ccc(O)cc1", (Route("N#Cc1ccc(Br)cc1"),)),)),)),
    ),
)
SHORT = Route(TARGET, (Route("CC(=O)Cl"), Route("NCc1ccc(OC)cc1")))


def candidate(route, rank, missing, **fields):
    return Candidate(route.to_string(), -1.0 * rank, route.depth, route, missing=missing, rank=rank, **fields)


OFFERS = (
    Offer("CC(=O)Cl", price=9.5, unit="EUR", vendor="Acme, Ltd", catalogue_number="A-1"),
    Offer("NCc1ccc(OC)cc1", "HCl salt", "COc1ccc(CN)cc1.Cl"),
)
PLANS = [
    Plan(
        TARGET,
        [
            candidate(LONG, 1, ("CC(=O)O",), forward_ranks=(1, 2, 0, None)),
            candidate(SHORT, 2, (), forward_ranks=(1,), offers=OFFERS),
            Candidate("x" * 300, -9, 1, rank=3),
        ],
    ),
    Plan("CCO", [candidate(Route("CCO", (Route("CC=O"),)), 1, None)]),
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


def transform(page, number=0):
    """How far the picture is moved, and how large it is."""
    style = page.locator(".view > svg:visible").nth(number).evaluate("svg => svg.style.transform")
    return [float(value) for value in re.findall(r"-?[\d.]+", style)]


def test_a_narrow_page_never_moves_sideways(load):
    width = 320
    page = load(width, 740)
    page.locator("#filters > summary").click()
    page.locator('[data-all="open"]').click()
    page.locator("#buy > summary").click()
    page.locator(".failed > summary").click()
    assert page.evaluate("document.documentElement.scrollWidth") == width
    assert page.evaluate("document.body.scrollWidth") <= width
    # letters stay large enough to be read: 13 pixels of the drawing, nine of the screen
    assert min(transform(page, number)[2] for number in range(3)) >= 0.72
    view = page.locator(".view").first.bounding_box()
    assert view["x"] >= 0 and view["x"] + view["width"] <= width


def test_zoom(load):
    page = load()
    start, fitted = transform(page), page.locator("#t1-r1 output").inner_text()
    before = start[2]
    for button, factor in (("in", 1.25), ("out", 1), ("out", 0.8), ("fit", 1)):
        page.locator(f'#t1-r1 [data-do="{button}"]').click()
        assert transform(page)[-1] == pytest.approx(before * factor, rel=1e-3)
        assert page.locator("#t1-r1 output").inner_text() == f"{round(before * factor * 100)} %"
    # with the wheel, what is under the pointer stays there; without Ctrl, the page scrolls
    leaf = page.locator('#t1-r1 [data-smiles="CC(=O)O"]:visible')
    box, scrolled = leaf.bounding_box(), page.evaluate("scrollY")
    page.mouse.move(box["x"], box["y"])
    page.keyboard.down("Control")
    page.mouse.wheel(0, -60)
    page.keyboard.up("Control")
    expect(page.locator("#t1-r1 output")).not_to_have_text(fitted)
    after = leaf.bounding_box()
    assert transform(page)[2] > before * 1.2
    assert (after["x"], after["y"]) == pytest.approx((box["x"], box["y"]), abs=1.5)
    assert page.evaluate("scrollY") == scrolled


def test_the_keyboard_reaches_and_copies_all(load):
    page = load(360, 740)
    page.locator("#t1-r1 > details > summary").focus()
    reached = []
    examples = page.locator("#t1-r1 .examples").count()
    assert examples == 2
    for _ in range(5 + len(LONG.molecules()) + examples + len(set(LONG.leaves()))):
        page.keyboard.press("Tab")
        reached.append(page.evaluate("document.activeElement.dataset"))
        if "smiles" in reached[-1] or "copy" in reached[-1]:
            page.keyboard.press("Enter")
    page.wait_for_timeout(50)
    assert [item.get("do") for item in reached[:4]] == ["out", "in", "fit", "save"]
    assert reached[4] == {"name": "target-1-rank-1"}
    wanted = [*LONG.molecules(), *LONG.leaves()]
    found = [item.get("smiles") or item.get("copy") for item in reached[5:]]
    assert [smiles for smiles in found if smiles] == wanted and found.count(None) == examples
    assert page.evaluate("copied") == wanted
    assert page.locator("#said").inner_text() == f"Copied {wanted[-1]}"


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
    for words, found in {
        "N#Cc1ccc(Br)cc1": ["t1-r1"],
        "Amide coup": ["t1-r1"],
        "2.1": ["t2-r1"],
        "nothing": [],
    }.items():
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


def test_a_saved_picture_stands_alone(load):
    page = load()
    with page.expect_download() as download:
        page.locator('#t1-r1 [data-do="save"]').click()
    assert download.value.suggested_filename == "target-1-rank-1.svg"
    text = download.value.path().read_text(encoding="utf-8")
    root = ElementTree.fromstring(text)
    assert root.tag == "{http://www.w3.org/2000/svg}svg" and "<use" not in text and " id=" not in text
    assert "tabindex" not in text and text.count('class="card"') == len(LONG.molecules())
    assert text.count("<path") > 20
