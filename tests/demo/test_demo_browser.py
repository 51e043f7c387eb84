"""The page in a real browser: Debian's chromium, driven by playwright."""

import json
import shutil

import pytest

pytest.importorskip("playwright", reason="needs playwright: pip install weftformer[test]")

from playwright.sync_api import expect

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


def test_a_route_is_planned_drawn_and_downloaded(address, open_page, tmp_path):
    page = open_page(address)
    target = page.locator("#target textarea, #target input").first
    expect(target).to_be_visible()
    expect(page.locator("#page")).to_have_count(0)
    (tmp_path / "stock.smi").write_text("CC(=O)O\nNCc1ccccc1\n")
    page.get_by_text("Stock: purchasable molecules").click()
    page.locator("#stock input[type=file]").set_input_files(tmp_path / "stock.smi")
    expect(page.locator("#stock")).to_contain_text("stock")
    expect(page.locator("#stock")).not_to_contain_text("Drop File Here")
    target.fill("CC(=O)NCc1ccccc1")
    page.locator("#plan").click()
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
