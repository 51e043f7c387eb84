"""The page, with a tab for routes and one for texts, for one or two models."""

from __future__ import annotations

import gradio as gr

from ..inference.tasks import RouteTask, TextTask
from .routes_tab import build_routes_tab
from .text_tab import build_text_tab

# The number of requests that may wait for the model. The page refuses further ones.
_QUEUE = 20
# Every hour (in seconds), gradio deletes the files that are older than a day.
_DELETE_CACHE = (3600, 86400)


def build_demo(route_model: RouteTask | None = None, text_model: TextTask | None = None) -> gr.Blocks:
    """
    Build the page. Start it with `launch(**LAUNCH)`.

    Args:
        route_model (`RouteTask`, *optional*):
            A route model, as loaded by [`inference.load_task`]. Without it, the tab shows a message.
        text_model (`TextTask`, *optional*):
            A text model, as loaded by [`inference.load_task`]. Without it, the tab shows a message.

    Returns:
        `gradio.Blocks`: the page.
    """
    with gr.Blocks(title="Weft", analytics_enabled=False, delete_cache=_DELETE_CACHE) as demo:
        gr.Markdown("# Weft\nAn encoder-decoder that plans syntheses and writes texts.")
        with gr.Tabs():
            with gr.Tab("Routes", id="routes"):
                if route_model is None:
                    _absent("routes", "--model")
                else:
                    build_routes_tab(route_model)
            with gr.Tab("Text", id="text"):
                if text_model is None:
                    _absent("texts", "--text-model")
                else:
                    build_text_tab(text_model)
    return demo.queue(max_size=_QUEUE)


def _absent(kind: str, option: str) -> None:
    gr.Markdown(f"This page has no model for {kind}. Start it with one: `weftformer app {option} FOLDER`.")
