"""The second tab: text generation, shown token by token."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from queue import SimpleQueue
from threading import Thread
from typing import Any

import gradio as gr
import torch
from transformers.generation.streamers import BaseStreamer

from ..inference.tasks import TextTask
from .asking import MOST_CHARACTERS, ONE_AT_A_TIME, InTime, check_length, numbers, reasons

_MOST_BEAMS = 8


class TextStreamer(BaseStreamer):
    """A streamer that puts the whole text so far into `texts` after each token.

    The streamer of transformers waits for a space, which a SMILES does not have. The caller of `generate` puts None
    into `texts` to mark the end.
    """

    def __init__(self, tokenizer: Any):
        self.tokenizer = tokenizer
        self.texts: SimpleQueue[str | None] = SimpleQueue()
        self._ids: list[int] | None = None

    def put(self, value: torch.Tensor) -> None:
        if self._ids is None:  # the first call has the decoder's prompt
            self._ids = []
            return
        self._ids += value.tolist()
        text = self.tokenizer.decode(self._ids, skip_special_tokens=True)
        if not text.endswith("\N{REPLACEMENT CHARACTER}"):  # an incomplete character: wait for its other bytes
            self.texts.put(text)

    def end(self) -> None:
        assert self._ids is not None
        self.texts.put(self.tokenizer.decode(self._ids, skip_special_tokens=True))


def write(
    task: TextTask, text: str, beams: int = 1, max_new_tokens: int | None = None, conditions: Sequence[float] = ()
) -> Iterator[str]:
    """Generate a text, and yield the whole text so far after each token. Closing the generator stops the model.

    Args:
        task: the text model.
        text: the source.
        beams: the number of beams. With more than 1, the text is yielded once, at the end.
        max_new_tokens: the largest number of tokens to generate.
        conditions: the conditions, as numbers.

    Raises:
        ValueError: an argument is not valid.
        Unwanted: generation took too long. The text until then has been yielded.
    """
    check_length("text", text, MOST_CHARACTERS)
    [work] = task.works([text], beams=beams, max_new_tokens=max_new_tokens, conditions=conditions)
    streamer, in_time = TextStreamer(task.tokenizer), InTime()
    failed: list[BaseException] = []

    def run() -> None:
        try:
            if beams == 1:
                task.write([work], in_time, streamer=streamer)
            else:
                [[best]] = task.write([work], in_time)
                streamer.texts.put(best.text)
        except BaseException as error:  # raised again in the thread that reads `texts`
            failed.append(error)
        finally:
            streamer.texts.put(None)

    thread = Thread(target=run, name="weft-writes", daemon=True)
    thread.start()
    try:
        yield from iter(streamer.texts.get, None)
    finally:
        in_time.is_stopped = True
        thread.join()
    if failed:
        raise failed[0]


def build_text_tab(task: TextTask) -> None:
    """Add the components of the tab to the open gradio block, for a text model."""
    features = task.model.config.num_condition_features
    text = gr.Textbox(label="Text", lines=4, max_length=MOST_CHARACTERS, elem_id="text")
    with gr.Row():
        beams = gr.Slider(1, _MOST_BEAMS, value=1, step=1, label="Beams", min_width=140, elem_id="text-beams",
                          info="with 1, the text is shown while it is generated")  # fmt: skip
        most = gr.Slider(
            1, task.max_new_tokens, value=task.max_new_tokens, step=1, label="Maximum number of tokens", min_width=140
        )
        told = gr.Textbox(label="Conditions", info=f"{features} numbers, separated by commas", visible=features > 0)
    with gr.Row():
        go = gr.Button("Generate", variant="primary", elem_id="write")
        stop = gr.Button("Stop", variant="secondary", elem_id="stop")
    answer = gr.Textbox(label="Generated text", lines=4, interactive=False, buttons=["copy"], elem_id="written")

    def run(text: str, beams: int, most: int, told: str) -> Iterator[str]:
        with reasons():
            yield from write(task, text, int(beams), int(most), numbers(told))

    writing = gr.on([go.click, text.submit], run, [text, beams, most, told], answer, api_name="write", **ONE_AT_A_TIME)
    stop.click(None, cancels=[writing])
