"""The page of the server in a real browser: Debian's chromium, driven by playwright, with the keyboard alone."""

import pytest

pytest.importorskip("playwright", reason="needs playwright: pip install weftformer[test]")

from playwright.sync_api import expect

from weftformer.routes import Stock
from weftformer.routes.server import RouteTask

from ...serving.conftest import running

pytestmark = pytest.mark.integration


def test_a_route_is_planned_with_the_keyboard_and_a_key(planner, known, library, browser):
    with running(RouteTask(planner, Stock(known[0].leaves())), api_key="secret") as server:
        page, address, foreign = browser.new_page(), str(server.client.base_url), []
        page.on("request", lambda request: request.url.startswith(address) or foreign.append(request.url))
        page.on("pageerror", lambda error: foreign.append(str(error)))
        page.goto(address)
        for _ in range(3):  # after the links to the pages
            page.keyboard.press("Tab")
        expect(page.get_by_label("Target molecules")).to_be_focused()
        page.get_by_label("Target molecules").fill(f"{known[0].smiles}\nC(C\n")
        page.get_by_label("Number of routes").fill("1")
        page.get_by_label("Beams").fill("2")
        page.get_by_label("Only purchasable routes").press("Space")
        result = page.locator("#result")
        page.get_by_label("Key").fill("wrong")
        page.keyboard.press("Enter")
        expect(result.locator(".problem")).to_contain_text("This server requires a key", timeout=60_000)
        page.get_by_label("Key").fill("secret")
        page.keyboard.press("Enter")
        expect(result.locator("svg.weft-route").first).to_be_visible(timeout=60_000)
        expect(result.locator("summary").first).to_contain_text("purchasable")
        expect(result).to_contain_text("'C(C' is not a molecule")
        page.get_by_label("Target molecules").fill("C(C")
        page.keyboard.press("Control+Enter")
        expect(result.locator(".problem")).to_contain_text("is not a molecule", timeout=60_000)
        expect(result.locator("svg")).to_have_count(0)  # the routes to another target are gone
        page.close()
    assert foreign == []
