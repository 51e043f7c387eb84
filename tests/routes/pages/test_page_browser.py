"""The page of routes in a real browser: Debian's chromium, driven by playwright."""

import pytest

pytest.importorskip("playwright", reason="needs playwright: pip install weftformer[test]")

from playwright.sync_api import expect

from weftformer.routes.judging import judge_route
from weftformer.routes.pages.page import save_page
from weftformer.routes.plans import Candidate, Plan

from ..trees import made

pytestmark = pytest.mark.integration

TARGET = "CC(=O)NCc1ccc(OC)cc1"
LONG = made(TARGET, "CC(=O)O", made("NCc1ccc(OC)cc1", made("N#Cc1ccc(OC)cc1", "N#Cc1ccc(Br)cc1")))
SHORT = made(TARGET, "CC(=O)Cl", "NCc1ccc(OC)cc1")


def candidate(route, rank, missing):
    steps = tuple(judge_route(route))
    return Candidate(route.to_string(), -1.0 * rank, route.depth, route, missing=missing, rank=rank, steps=steps)


FAILED = Candidate("x" * 300, -9, 1, rank=3)
PLANS = [
    Plan(TARGET, [candidate(LONG, 1, ("CC(=O)O",)), candidate(SHORT, 2, ()), FAILED]),
    Plan("CCO", [candidate(made("CCO", "CC=O"), 1, None)]),
    Plan("C" * 90, problem="much too long " * 20 + "y" * 200),
]


def shown(page):
    """The routes in their order, those that are filtered out left out."""
    return page.locator(".route:not([hidden])").evaluate_all("found => found.map(route => route.id)")


def test_routes_are_sorted_and_filtered(open_page, tmp_path):
    save_page(PLANS, tmp_path / "routes.html", title="Amides")
    page = open_page((tmp_path / "routes.html").as_uri())
    assert shown(page) == ["t1-r1", "t1-r2", "t2-r1"]
    page.locator("#sort").select_option("purchasable")
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


def test_a_phone_shows_the_target_in_letters_that_can_be_read(open_page, tmp_path):
    steps = made(TARGET, "CC(=O)O", made("NCc1ccc(OC)cc1", "N#Cc1ccc(OC)cc1"))
    save_page([Plan(TARGET, [candidate(steps, 1, ())])], tmp_path / "routes.html")
    page = open_page((tmp_path / "routes.html").as_uri())
    page.set_viewport_size({"width": 390, "height": 844})
    page.reload()
    expect(page.locator("#t1-r1 .view")).to_be_in_viewport(ratio=0.9)
    expect(page.locator(".from")).to_be_hidden()  # the reactants stand in the route, which is first
    target = page.locator("#t1-r1 .molecule").first.bounding_box()
    assert target["x"] > 0 and target["x"] + target["width"] < 390
    assert page.locator("#t1-r1 .reaction text").first.bounding_box()["height"] > 8
    before = page.locator("#t1-r1 .row.tools").evaluate("tools => getComputedStyle(tools, '::after').content")
    assert before == '"more to the right: drag"'  # beside the picture, not on it


def test_a_notebook_shows_the_page_in_a_frame(open_page, tmp_path):
    cells = PLANS[0]._repr_html_() + PLANS[1]._repr_html_()  # one below the other
    (tmp_path / "notebook.html").write_text(f"<!DOCTYPE html><meta charset=utf-8>{cells}")
    frames = open_page((tmp_path / "notebook.html").as_uri()).frame_locator("iframe")
    expect(frames.first.locator(".route:visible")).to_have_count(2)
    frames.last.locator("[data-do=in]").click()
    expect(frames.last.locator(".route output")).to_have_text("125%")
