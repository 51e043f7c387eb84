"""The page in a real browser: Debian's chromium, driven by playwright."""

import json
import re
import shutil
import threading

import pytest

pytest.importorskip("playwright", reason="needs playwright: pip install weftformer[test]")

from playwright.sync_api import expect

from weftformer.common.watching import Watch
from weftformer.demo import LAUNCH, build_demo

CHROMIUM = shutil.which("chromium")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="needs the browser chromium: apt-get install chromium")
# the machine may have other work
expect.set_options(timeout=60_000)

ROUTE = "#routes svg.weft-route:visible"


@pytest.fixture(scope="module")
def address(route_task, text_task):
    demo = build_demo(route_task, text_task)
    _, address, _ = demo.launch(prevent_thread_lock=True, quiet=True, **LAUNCH)
    yield address
    demo.close()


@pytest.fixture
def load(browser, address):
    """Opens the page; afterwards, nothing may have gone wrong and nothing else been asked for."""
    contexts, wrong, requests = [], [], []

    def load(width=1280, height=900, **settings):
        context = browser.new_context(viewport={"width": width, "height": height}, **settings)
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(60_000)
        page.on("console", lambda message: wrong.append(message.text) if message.type == "error" else None)
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on("response", lambda got: wrong.append(f"{got.status} {got.url}") if got.status >= 400 else None)
        page.on("request", lambda request: requests.append(request.url))
        page.goto(address)
        expect(field(page, "target")).to_be_visible()
        return page

    yield load
    for context in contexts:
        context.close()
    assert wrong == []
    assert [url for url in requests if not url.startswith((address, "data:", "blob:"))] == []


def field(page, name):
    return page.locator(f"#{name} textarea, #{name} input").first


def plan(page, smiles):
    field(page, "target").fill(smiles)
    page.locator("#plan").click()


def tab(page, name):
    page.get_by_role("tab", name=name, exact=True).click()


def test_a_route_is_planned_drawn_and_downloaded(load, tmp_path):
    page = load()
    expect(page.locator("#page")).to_have_count(0)
    (tmp_path / "stock.smi").write_text("CC(=O)O\nNCc1ccccc1\n")
    page.get_by_text("Stock: what can be bought").click()
    page.locator("#stock input[type=file]").set_input_files(tmp_path / "stock.smi")
    expect(page.locator("#stock")).to_contain_text("stock")
    expect(page.locator("#stock")).not_to_contain_text("Drop File Here")
    plan(page, "CC(=O)NCc1ccccc1")
    expect(page.locator(ROUTE).first).to_be_visible()
    first = page.locator("#routes details").first
    assert first.locator(".card:visible").count() == 3 and first.locator("path").count() > 10
    expect(first.locator("> summary")).to_contain_text("purchasable")
    for name, ending in (("page", "html"), ("json", "json"), ("picture", "svg")):
        with page.expect_download() as download:
            page.locator(f"#{name}").click()
        text = download.value.path().read_text(encoding="utf-8")
        assert download.value.suggested_filename == f"routes.{ending}"
        if name == "json":
            assert json.loads(text)[0]["candidates"][0]["purchasable"] is True
        else:
            assert ("<!DOCTYPE html>" in text) == (name == "page") and 'class="weft-route"' in text


@pytest.mark.integration
def test_a_text_is_written_while_one_looks_and_can_be_stopped(load, text_task, monkeypatch):
    page, seen, at_once = load(), [], threading.Event()
    asked = Watch.__call__

    def slow(self, ids, scores):
        seen.append(ids.shape[1])
        at_once.wait(0.2)
        return asked(self, ids, scores)

    monkeypatch.setattr(Watch, "__call__", slow)
    tab(page, "Text")
    field(page, "text").fill("one two three")
    page.locator("#write").click()
    written = field(page, "written")
    expect(written).not_to_have_value("")
    early = written.input_value()
    expect(written).not_to_have_value(early)
    assert written.input_value().startswith(early)
    page.locator("#stop").click()
    page.wait_for_timeout(1500)
    steps = len(seen)
    page.wait_for_timeout(1000)
    assert len(seen) == steps < text_task.max_new_tokens  # the model itself has stopped
    at_once.set()
    page.locator("#write").click()  # and the next text is written
    expect(written).not_to_have_value(re.compile("^.{0,4}$"))
