"""The page on which a route is built, in a real browser: each sentence of what it promises."""

import json
import re
from contextlib import contextmanager
from types import SimpleNamespace
from urllib.parse import quote

import pytest

pytest.importorskip("playwright", reason="needs playwright: pip install weftformer[test]")

from playwright.sync_api import expect

from weftformer.routes import Stock
from weftformer.routes.files import read_routes
from weftformer.routes.judging import Transformation
from weftformer.routes.server import RouteTask

from ...serving.conftest import running
from ..planning.test_pool import CHLORIDE, COUPLING

pytestmark = pytest.mark.integration

AMIDE, AMINE, ACID, CHLORIDE_OF_ACID = "CC(=O)NCc1ccccc1", "NCc1ccccc1", "CC(=O)O", "CC(=O)Cl"
# an amine from a nitrile
REDUCTION = "[c:2]-[CH2;D2;+0:1]-[NH2;D1;+0:3]>>[c:2]-[C;H0;D2;+0:1]#[N;H0;D1;+0:3]"
NITRILE = "N#Cc1ccccc1"
MOLFILE = """
  weft

  3  2  0  0  0  0  0  0  0  0999 V2000
    0.0000    0.0000    0.0000 C   0  0
    1.5000    0.0000    0.0000 C   0  0
    2.2500    1.2990    0.0000 O   0  0
  1  2  1  0
  2  3  1  0
M  END
"""

# A catalogue number that a spreadsheet would evaluate, and a page show.
HOSTILE = "=1+1<img src=x onerror=alert(1)>"


@pytest.fixture
def serve(planner, library, tmp_path, browser):
    """Start a server with a small library and a stock, and open its page in a tab."""
    library(
        ("O1", Transformation(COUPLING, 30)), ("Cl1", Transformation(CHLORIDE, 10)), ("", Transformation(REDUCTION, 5))
    )  # fmt: skip
    rows = f"{ACID},acetic acid,5,{HOSTILE}\n{NITRILE},benzonitrile,2,{HOSTILE}\n"
    (tmp_path / "stock.csv").write_text(f"smiles,name,price_usd,sku\n{rows}")
    wrong = []

    @contextmanager
    def serve(address="build", is_errors_expected=False, **settings):
        stock = Stock.from_file(tmp_path / "stock.csv", cache=False, progress=False)
        with running(RouteTask(planner, stock), **settings) as server:
            context = browser.new_context(viewport={"width": 1200, "height": 900}, accept_downloads=True)
            address_of_server = str(server.client.base_url)

            def tab(address=address):
                page = context.new_page()
                page.set_default_timeout(20_000)
                page.on(
                    "request",
                    lambda request: (
                        request.url.startswith((address_of_server, "data:", "blob:")) or wrong.append(request.url)
                    ),
                )
                page.on("pageerror", lambda error: wrong.append(str(error)))
                page.goto(f"{address_of_server}/{address}")
                return page

            yield SimpleNamespace(page=tab(), tab=tab, context=context, **vars(server))
            context.close()

    yield serve
    assert wrong == []


def begin(page, text=AMIDE):
    page.get_by_label("Target", exact=True).fill(text)
    page.get_by_role("button", name="Begin").click()
    return found(page)


def wish(page, smiles, name):
    card(page, smiles).get_by_text("Have or exclude").click()
    card(page, smiles).get_by_role("button", name=name).click()


def found(page):
    expect(page.locator("#state")).to_contain_text("reaction", timeout=60_000)
    return page.locator("article.card")


def molecule(page, smiles):
    return page.locator(f'#tree .molecule[data-smiles="{smiles}"]')


def card(page, smiles):
    return page.locator("article.card").filter(has=page.locator(f'.structure[title="{smiles}"]')).first


def use(page, smiles):
    found(page)
    card(page, smiles).get_by_role("button", name="Use this reaction").click()
    expect(molecule(page, smiles)).to_be_visible()


def session(page):
    return page.evaluate("JSON.parse(decodeURIComponent(location.hash.slice(1)))")


def test_a_click_opens_proposals_as_cards_and_choosing_one_grows_the_tree(serve):
    with serve() as server:
        page = server.page
        cards = begin(page)
        assert cards.count() >= 2
        first = cards.first
        expect(first).to_contain_text("amide coupling")
        expect(first).to_contain_text(re.compile(r"\d+ recorded"))
        expect(first).to_contain_text("3 recorded examples")
        expect(first.locator("svg")).to_have_count(2)  # drawn reactants
        expect(first.locator(".parts .in-stock")).to_contain_text("5.00 USD")
        expect(page.locator("#sum")).to_contain_text("0 steps")
        use(page, AMINE)
        expect(page.locator("#sum")).to_contain_text("1 step")
        expect(page.locator("#sum")).to_contain_text("1 open molecule")
        expect(page.locator("#sum")).to_contain_text("1 of 1 step recorded")
        expect(page.locator("#sum")).to_contain_text("Price: 5.00 USD for 1 of 2 starting materials")
        molecule(page, AMINE).click()
        use(page, NITRILE)
        expect(page.locator("#sum")).to_contain_text("0 open molecules")
        expect(page.locator("#sum")).to_contain_text("Price: 7.00 USD")
        molecule(page, AMIDE).click()  # the reaction of the route is marked
        found(page)
        expect(page.locator("article.chosen")).to_have_count(1)
        expect(page.locator("article.chosen")).to_contain_text("amide coupling")


def test_a_branch_is_undone_redone_and_removed(serve):
    with serve() as server:
        page = server.page
        begin(page)
        use(page, AMINE)
        molecule(page, AMINE).click()
        use(page, NITRILE)
        expect(page.get_by_role("button", name="Redo")).to_be_disabled()
        page.get_by_role("button", name="Undo").click()
        expect(molecule(page, NITRILE)).to_have_count(0)
        expect(molecule(page, AMINE)).to_be_visible()
        page.get_by_role("button", name="Redo").click()
        expect(molecule(page, NITRILE)).to_be_visible()
        molecule(page, AMIDE).click()
        page.get_by_role("button", name="Remove the branch").click()
        expect(page.locator("#tree .molecule")).to_have_count(1)
        page.get_by_role("button", name="Undo").click()
        expect(molecule(page, NITRILE)).to_be_visible()


def test_plan_the_rest_keeps_the_tree_and_searches_the_open_molecules(serve):
    with serve() as server:
        page, bodies = server.page, []
        page.on("request", lambda request: request.url.endswith("/plan") and bodies.append(request.post_data_json))
        begin(page)
        use(page, CHLORIDE_OF_ACID)
        page.get_by_role("button", name="Plan the rest").click()
        expect(molecule(page, NITRILE)).to_be_visible(timeout=60_000)
        expect(page.locator("#problem")).to_contain_text(
            f"to the stock was found for {CHLORIDE_OF_ACID}", timeout=60_000
        )
        tree = session(page)["route"]
        assert [child["smiles"] for child in tree["children"]] == [CHLORIDE_OF_ACID, AMINE]
        assert [body["targets"] for body in bodies] == [[CHLORIDE_OF_ACID], [AMINE]]
        assert all(AMIDE in body["forbidden"] for body in bodies)  # no molecule is made from itself
        page.get_by_role("button", name="Undo").click()  # all that was planned
        expect(page.locator("#tree .molecule")).to_have_count(3)


def test_wishes_hold_for_the_session_and_are_sent_with_each_request(serve):
    with serve() as server:
        page, bodies = server.page, []
        page.on("request", lambda request: request.method == "POST" and bodies.append(request.post_data_json))
        begin(page)
        wish(page, ACID, f"We have it: {AMINE}")
        expect(card(page, ACID).locator(".parts .in-stock")).to_have_count(2)
        expect(card(page, ACID)).to_contain_text("your own store")
        wish(page, CHLORIDE_OF_ACID, "Not this reaction")
        expect(card(page, CHLORIDE_OF_ACID)).to_have_count(0)
        expect(card(page, ACID)).to_be_visible()
        wish(page, ACID, f"Not this molecule: {ACID}")
        expect(page.locator("#state")).to_contain_text("reaction")
        expect(card(page, ACID)).to_have_count(0)
        wishes = [AMINE], [f"{CHLORIDE_OF_ACID}.{AMINE}>>{AMIDE}", ACID]
        assert all((body["have"], body["forbidden"]) == wishes for body in bodies[-2:])
        expect(page.locator("#wishes")).to_contain_text("1 at hand, 2 excluded")
        page.get_by_role("button", name=f"Allow again: {ACID}").click()
        expect(card(page, ACID)).to_be_visible()
        use(page, AMINE)
        expect(page.locator("#sum")).to_contain_text("0 open molecules")
        molecule(page, ACID).click()
        page.locator("#of").get_by_role("button", name="Not this molecule").click()
        expect(page.locator("#tree .molecule")).to_have_count(1)  # the step that needs it is gone


@pytest.mark.parametrize(
    ("text", "smiles"), [("O=C(C)NCc1ccccc1", AMIDE), ("Acetic Acid", ACID), (MOLFILE, "CCO")],
    ids=["SMILES", "name of the stock", "molfile"],
)  # fmt: skip
def test_a_target_is_pasted(serve, text, smiles):
    with serve() as server:
        begin(server.page, text)
        expect(molecule(server.page, smiles)).to_be_visible()
        begin_wrong = server.page.get_by_label("Target", exact=True)
        begin_wrong.fill("C1CC")
        server.page.keyboard.press("Enter")
        expect(server.page.locator("#problem")).to_contain_text("'C1CC' is not a molecule")
        expect(molecule(server.page, smiles)).to_be_visible()


def test_a_session_is_saved_opened_and_exported(serve, tmp_path):
    with serve() as server:
        page = server.page
        begin(page)
        wish(page, ACID, f"We have it: {AMINE}")
        use(page, AMINE)

        def saved(name, start):
            with page.expect_download() as download:
                start()
            download.value.save_as(tmp_path / name)
            return tmp_path / name

        file = saved("route.json", lambda: page.get_by_role("button", name="Save", exact=True).click())
        [route] = read_routes(file)  # Weft's form of a route
        assert route.leaves() == [ACID, AMINE] and json.loads(file.read_text())["have"] == [AMINE]
        for ending, part in {
            ".svg": "<svg", ".html": "<html", ".sdf": "V2000", ".rdf": "$RXN", ".csv": AMIDE, ".json": AMIDE,
            ".jsonl": AMIDE, ".summary.csv": AMIDE,
        }.items():  # fmt: skip
            file_of = saved(f"a{ending}", lambda: page.locator("#export").select_option(ending))  # noqa: B023
            assert part in file_of.read_text()
        assert saved("a.png", lambda: page.locator("#export").select_option(".png")).read_bytes()[:4] == b"\x89PNG"
        page.locator("#buy summary").click()
        page.wait_for_timeout(1500)  # Chromium refuses more than ten downloads in a row without a pause
        table = saved("buy.csv", lambda: page.get_by_role("button", name="Save as CSV").click()).read_text()
        assert f"{ACID},sold,,,,5.0,USD,,'{HOSTILE}" in table and page.locator("img").count() == 0
        assert f"{AMINE},sold,,,,,,your own store" in table
        other = server.tab("build")
        other.locator("#file").set_input_files(file)
        expect(molecule(other, AMINE)).to_be_visible()
        assert session(other) == session(page)


def test_the_address_holds_the_tree_and_two_tabs_do_not_meet(serve):
    with serve() as server:
        page = server.page
        begin(page)
        use(page, AMINE)
        other = server.context.new_page()
        other.goto(page.url)
        expect(molecule(other, AMINE)).to_be_visible()
        expect(other.get_by_label("Target", exact=True)).to_have_value(AMIDE)
        other.get_by_role("button", name="Begin").click()  # of the same target: the route stays
        found(other)
        expect(molecule(other, AMINE)).to_be_visible()
        molecule(other, AMINE).click()
        use(other, NITRILE)
        expect(other.locator("#sum")).to_contain_text("2 steps")
        expect(page.locator("#sum")).to_contain_text("1 step")
        page.reload()
        expect(page.locator("#sum")).to_contain_text("1 step")
        page.get_by_role("button", name="Undo").click()  # also after it was loaded again
        expect(page.locator("#tree .molecule")).to_have_count(1)


def test_all_of_it_works_with_the_keyboard_and_a_key(serve):
    with serve(api_key="secret") as server:
        page, keys = server.page, server.page.keyboard
        page.get_by_label("Target", exact=True).fill(AMIDE)
        page.get_by_label("Key").fill("wrong")
        keys.press("Enter")
        expect(page.locator("#problem")).to_contain_text("This server requires a key")
        page.get_by_label("Key").fill("secret")
        keys.press("Enter")
        found(page)
        expect(page.locator("#made")).to_be_focused()
        keys.press("Escape")
        expect(page.locator("#panel")).to_be_hidden()
        expect(molecule(page, AMIDE)).to_be_focused()
        keys.press("Enter")
        found(page)
        for _ in range(40):
            keys.press("Tab")
            if page.evaluate("document.activeElement.dataset.choose") == "1":
                break
        keys.press("Enter")
        expect(molecule(page, AMINE)).to_be_focused()  # the reactant that is left
        keys.press("Enter")
        use(page, NITRILE)
        keys.press("Control+z")
        expect(molecule(page, NITRILE)).to_have_count(0)
        keys.press("Control+Shift+z")
        expect(molecule(page, NITRILE)).to_be_visible()


def chain(length, children=1):
    """A route with many molecules: alcohols from acids."""
    route = {"smiles": "C" * (length + 2) + "O"}
    return route | ({"children": [{"smiles": "CC(=O)O"}] * children + [chain(length - 1)]} if length else {})


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_phone_and_sixty_molecules_fit(serve, scheme):
    address = "build#" + quote(json.dumps({"route": chain(30)}))
    with serve(address) as server:
        page = server.page
        page.emulate_media(color_scheme=scheme)
        page.set_viewport_size({"width": 390, "height": 844})
        page.reload()
        expect(page.locator("#tree .molecule")).to_have_count(61, timeout=60_000)  # 30 steps are judged
        expect(page.locator("#sum")).to_contain_text("30 steps")
        molecule(page, "CCCO").focus()
        page.keyboard.press("Enter")
        found(page)
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
        page.evaluate("scrollTo(0, 0)")
        small = page.locator("button:visible").evaluate_all(
            "all => all.filter(one => one.getBoundingClientRect().width > innerWidth).length"
        )
        assert small == 0
        ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert ground == {"light": "rgb(246, 247, 249)", "dark": "rgb(18, 22, 28)"}[scheme]
        sheet = page.evaluate("getComputedStyle(document.querySelector('.view')).backgroundColor")
        assert sheet == {"light": "rgb(255, 255, 255)", "dark": "rgb(26, 32, 40)"}[scheme]


def test_without_the_server_the_page_says_so_and_loses_nothing(serve):
    with serve() as server:
        page = server.page
        begin(page)
        use(page, AMINE)
        molecule(page, AMINE).click()
        found(page)
        server.stop()
        for _ in range(100):
            try:
                server.client.get("/health")
            except Exception:
                break
            page.wait_for_timeout(100)
        card(page, NITRILE).get_by_role("button", name="Use this reaction").click()
        expect(page.locator("#problem")).to_contain_text("The server cannot be reached. Nothing is lost")
        expect(molecule(page, AMINE)).to_be_visible()
        assert session(page)["route"]["children"][1]["children"] == [{"smiles": NITRILE}]
        address = page.url
    with serve("build#" + address.partition("#")[2]) as server:  # another server opens it
        expect(molecule(server.page, NITRILE)).to_be_visible()


def test_steps_of_a_plan_lead_to_other_reactions(serve):
    with serve("") as server:
        page = server.page
        page.get_by_label("Target molecules").fill(AMIDE)
        page.get_by_label("Number of routes").fill("1")
        page.get_by_role("button", name="Send").click()
        links = page.locator("#result .steps > li > a")
        expect(links).to_have_text(["Other reactions"] * 2, timeout=60_000)
        assert page.locator("#result a", has_text="Edit").count() >= 1
        links.last.click()
        found(page)
        expect(page.locator("#made")).to_have_text(AMIDE)
        expect(molecule(page, NITRILE)).to_be_visible()
        page.go_back()
        page.get_by_role("link", name="Build").click()
        expect(page.get_by_role("heading", name="Build a route")).to_be_visible()
        expect(page.get_by_role("link", name="Plan")).to_be_visible()
