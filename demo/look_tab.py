"""The third tab: the attention and the experts of a model."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import gradio as gr

from ..inference.tasks import RouteTask, TextTask
from ..routes.molecules import one_molecule
from ..tokenization import encode_route, encode_source
from ..tokenization.checks import encode_checked
from .asking import MOST_CHARACTERS, MOST_SMILES, MOST_STEPS, ONE_AT_A_TIME, alert, check_length, numbers, reasons
from .attention import Look, look
from .heat_map import expert_map, heat_map
from .routes_tab import EXAMPLES, plan_routes
from .text_tab import greedy

# The largest number of columns, and of rows, in a table.
MOST_TOKENS = 256


def look_at_route(task: RouteTask, target: str, steps: int = 1, route: str = "") -> Look:
    """Return the attention and the experts of a route model.

    Args:
        task: the route model.
        target: the SMILES of the target.
        steps: the number of steps, for a model with such a condition.
        route: the text of a route, in the form that the model generates. By default the model plans a route.

    Raises:
        ValueError: an argument is not valid.
        Unwanted: planning took too long.
    """
    check_length("target", target, MOST_SMILES)
    source_ids = encode_source(task.planner.tokenizer, one_molecule(target.strip()))
    told = steps if task.takes_steps else 0
    text = route.strip() or plan_routes(task, target, told, beams=5).candidates[0].text
    return _look(
        task.model,
        task.planner.tokenizer,
        source_ids,
        encode_route(task.planner.tokenizer, text),
        [told] if told else [],
    )


def look_at_text(task: TextTask, text: str, conditions: list[float], target: str = "") -> Look:
    """Return the attention and the experts of a text model.

    Args:
        task: the text model.
        text: the source.
        conditions: the conditions, as numbers.
        target: the target. By default the model generates it.

    Raises:
        ValueError: an argument is not valid.
    """
    check_length("text", text, MOST_CHARACTERS)
    [work] = task.works([text], beams=1, max_new_tokens=min(task.max_new_tokens, MOST_TOKENS), conditions=conditions)
    if len(work.ids) > MOST_TOKENS:
        raise ValueError(f"The text has {len(work.ids)} tokens, and at most {MOST_TOKENS} are shown here.")
    if target.strip():
        check_length("target", target, MOST_CHARACTERS)
        written = encode_checked(task.tokenizer, target)
    else:
        written = greedy(task, work).tolist()[1:]
    return _look(task.model, task.tokenizer, work.ids, written, conditions)


def _look(model: Any, tokenizer: Any, source_ids: Any, written: list[int], conditions: list[Any]) -> Look:
    # cutting the end off changes nothing for the tokens before it, because the decoder is causal
    target_ids = [model.config.decoder_start_token_id, *written][: 1 + MOST_TOKENS]
    return look(model, tokenizer, source_ids, target_ids, [float(value) for value in conditions])


def build_look_tab(task: RouteTask | TextTask) -> None:
    """Add the components of the tab to the open gradio block, for one model."""
    is_routes, config = isinstance(task, RouteTask), task.model.config
    prefix = "route" if is_routes else "text"
    with gr.Row(equal_height=True):
        source = gr.Textbox(label="Target (SMILES)" if is_routes else "Text", scale=4, elem_id=f"{prefix}-look-source",
                            value=EXAMPLES[0] if is_routes else "")  # fmt: skip
        go = gr.Button("Look", variant="primary", scale=1, min_width=100, elem_id=f"{prefix}-look")
    with gr.Row():
        wanted = gr.Textbox(
            label="Written", info="leave empty to let the model write it", scale=3, elem_id=f"{prefix}-look-written"
        )
        if isinstance(task, RouteTask):
            told: Any = gr.Dropdown(list(range(1, MOST_STEPS + 1)), value=1, label="Steps", visible=task.takes_steps)
        else:
            told = gr.Textbox(
                label="Conditions", info="numbers, separated by commas", visible=config.num_condition_features > 0
            )
    with gr.Row():
        layers = [("mean of all", -1), *((str(number + 1), number) for number in range(config.decoder_layers))]
        heads = [("mean of all", -1), *((str(number + 1), number) for number in range(config.decoder_attention_heads))]
        layer = gr.Dropdown(layers, value=-1, label="Decoder layer", elem_id=f"{prefix}-look-layer")
        head = gr.Dropdown(heads, value=-1, label="Head", elem_id=f"{prefix}-look-head")
    found = gr.State(None, time_to_live=3600)
    attention = gr.HTML(elem_id=f"{prefix}-look-attention", apply_default_css=False, min_height=60)
    experts = gr.HTML(elem_id=f"{prefix}-look-experts", apply_default_css=False)

    def show(found: Look | None, layer: int, head: int) -> str:
        if found is None:
            return ""
        return heat_map(found, None if layer < 0 else layer, None if head < 0 else head)

    def run(source: str, wanted: str, told: Any, layer: int, head: int) -> Iterator[tuple[Look | None, str, str]]:
        try:
            with reasons():
                if isinstance(task, RouteTask):
                    seen = look_at_route(task, source, told, wanted)
                else:
                    seen = look_at_text(task, source, numbers(told), wanted)
        except Exception as error:
            yield None, alert(error), ""
            raise
        yield seen, show(seen, layer, head), expert_map(seen)

    gr.on(
        [go.click, source.submit], run, [source, wanted, told, layer, head], [found, attention, experts],
        api_visibility="private", **ONE_AT_A_TIME,
    )  # fmt: skip
    gr.on(
        [layer.change, head.change],
        show,
        [found, layer, head],
        attention,
        api_visibility="private",
        show_progress="hidden",
    )
