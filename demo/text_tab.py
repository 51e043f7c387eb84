"""Tab two: a text in, a text out, token by token as it is written."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from queue import SimpleQueue
from threading import Thread
from typing import Any

import gradio as gr
import torch
from transformers.generation.streamers import BaseStreamer

from ..inference.tasks import TextTask, TextWork, WhileWanted
from .asking import MOST_CHARACTERS, ONE_AT_A_TIME, InTime, check_length, numbers, reasons

_MOST_BEAMS = 8


class TextStreamer(BaseStreamer):
    """Gives the whole text after each token. (transformers' own waits for a space, and a SMILES has none.)

    `texts` ends with None, which whoever runs the model puts there.
    """

    def __init__(self, tokenizer: Any):
        self.tokenizer = tokenizer
        self.texts: SimpleQueue[str | None] = SimpleQueue()
        self._ids: list[int] | None = None

    def put(self, value: torch.Tensor) -> None:
        if self._ids is None:  # what the text begins with was given, not written
            self._ids = []
            return
        self._ids += value.tolist()
        text = self.tokenizer.decode(self._ids, skip_special_tokens=True)
        if not text.endswith("\N{REPLACEMENT CHARACTER}"):  # half a letter: the other half is to come
            self.texts.put(text)

    def end(self) -> None:
        assert self._ids is not None
        self.texts.put(self.tokenizer.decode(self._ids, skip_special_tokens=True))


def greedy(task: TextTask, work: TextWork, **settings: Any) -> torch.Tensor:
    """The ids (tokens,) that the model writes for a text, likeliest first, the start token in front.

    Args:
        settings: more for `generate`, such as a `streamer`.
    """
    device = task.model.device
    inputs = {"condition_values": torch.tensor([work.conditions], device=device)} if work.conditions else {}
    return task.model.generate(
        torch.tensor([work.ids], device=device),
        num_beams=1,
        do_sample=False,
        max_new_tokens=work.settings.max_new_tokens,
        max_length=None,
        **inputs,
        **settings,
    )[0]


def write(
    task: TextTask, text: str, beams: int = 1, max_new_tokens: int | None = None, conditions: Sequence[float] = ()
) -> Iterator[str]:
    """What the model writes for a text: all that is there so far, again and again. Closed early, it stops the model.

    Args:
        task: the model.
        text: what it reads.
        beams: with 1 the text comes as it is written; a wider search has it only at its end.
        max_new_tokens: bound on what is written.
        conditions: the numbers that the model is told beside the text.

    Raises:
        ValueError: what is wrong with one of these. Unwanted: it took too long; what was written has been given by then.
    """
    check_length("text", text, MOST_CHARACTERS)
    [work] = task.works([text], beams=beams, max_new_tokens=max_new_tokens, conditions=conditions)
    streamer, is_wanted = TextStreamer(task.tokenizer), InTime()
    failed: list[BaseException] = []

    def run() -> None:
        try:
            if beams == 1:
                greedy(task, work, streamer=streamer, logits_processor=[WhileWanted(is_wanted)])
            else:
                for _, answer in task.compute([work], is_wanted):
                    streamer.texts.put(answer)
        except BaseException as error:  # raised again where it is waited for
            failed.append(error)
        finally:
            streamer.texts.put(None)

    thread = Thread(target=run, name="weft-writes", daemon=True)
    thread.start()
    try:
        yield from iter(streamer.texts.get, None)
    finally:
        is_wanted.is_stopped = True
        thread.join()
    if failed:
        raise failed[0]


def build_text_tab(task: TextTask) -> None:
    """Put the tab's parts into the block that is open, for a model of texts."""
    features = task.model.config.num_condition_features
    text = gr.Textbox(label="Text", lines=4, max_length=MOST_CHARACTERS, elem_id="text")
    with gr.Row():
        beams = gr.Slider(1, _MOST_BEAMS, value=1, step=1, label="Beams", min_width=140, elem_id="text-beams",
                          info="1 shows the text while it is written; more wait for the best")  # fmt: skip
        most = gr.Slider(
            1, task.max_new_tokens, value=task.max_new_tokens, step=1, label="Tokens at most", min_width=140
        )
        told = gr.Textbox(label="Conditions", info=f"{features} numbers, commas between them", visible=features > 0)
    with gr.Row():
        go = gr.Button("Write", variant="primary", elem_id="write")
        stop = gr.Button("Stop", variant="secondary", elem_id="stop")
    answer = gr.Textbox(label="Written", lines=4, interactive=False, buttons=["copy"], elem_id="written")

    def run(text: str, beams: int, most: int, told: str) -> Iterator[str]:
        with reasons():
            yield from write(task, text, int(beams), int(most), numbers(told))

    writing = gr.on([go.click, text.submit], run, [text, beams, most, told], answer, api_name="write", **ONE_AT_A_TIME)
    stop.click(None, cancels=[writing])
