"""Texts as a task of the server: POST /translate."""

import csv
from collections.abc import Sequence
from html import escape
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from ..inference.texts import TextTask
from ..training.report import OUTPUTS
from .endpoint import Checked, Endpoint, JsonEndpoint, one_or_more
from .limits import Limits


class TranslateTask(TextTask):
    """A [`TextTask`] with the endpoint POST /translate."""

    def __init__(self, model: Any, tokenizer: Any, max_new_tokens: int | None = None):
        super().__init__(model, tokenizer, max_new_tokens)
        column = tokenizer.init_kwargs.get("text_columns", {}).get("source", "text")
        self.public_example = {"texts": [f"first {column}", f"second {column}"]}
        self.example = {"texts": self._held_out()} if self._held_out() else self.public_example

    def _held_out(self) -> list[str]:
        """Return two sources that were set aside from the training data, if they lie beside the model."""
        name = self.model.name_or_path
        if not name or not Path(name, OUTPUTS).is_file():
            return []
        with Path(name, OUTPUTS).open(newline="", encoding="utf-8") as file:
            return [row["source"] for row in islice(csv.DictReader(file), 2) if row.get("source")]

    def describe(self) -> dict[str, Any]:
        """Return facts about the model, for the page."""
        return {"largest number of new tokens": self.max_new_tokens}

    def count_tokens(self, text: str) -> int:
        """Return the number of tokens of a text."""
        return len(self.tokenizer.tokenize(text))

    def endpoints(self, limits: Limits) -> list[Endpoint]:
        """Return the endpoint within the limits of a server."""
        return [translate_endpoint(self, limits)]


def translate_endpoint(task: Any, limits: Limits) -> Endpoint:
    """Return the endpoint of a [`TranslateTask`], within the limits of a server."""
    text = Annotated[str, StringConstraints(max_length=limits.max_characters)]
    number = Annotated[float, Field(allow_inf_nan=False, strict=False)]

    class TranslateRequest(BaseModel):
        model_config = ConfigDict(extra="forbid", strict=True)
        texts: one_or_more(text, limits.max_inputs) = Field(  # type: ignore[valid-type]
            description="A text, or a list."
        )
        beams: int = Field(
            min(task.beams, limits.max_beams), ge=1, le=limits.max_beams, description="Width of the search."
        )
        max_new_tokens: int | None = Field(
            None,
            ge=1,
            le=task.max_new_tokens,
            description="Largest number of new tokens of a text. Default: as saved with the model.",
        )
        conditions: list[number] = Field(
            [],
            max_length=1024,
            description="Condition values of each text, for a model that was trained with conditions.",
        )

    class TranslateAnswer(BaseModel):
        translations: list[str | None] = Field(description="One for each text; null if it has a problem.")
        problems: list[str | None] | None = Field(
            None, description="For each text, why it was not translated, or null; omitted if all were."
        )

    def check(fields: dict[str, Any], report: Any) -> list[Checked]:
        """An empty text is not computed, and a text that is refused does not harm the others."""
        inputs: list[Checked] = []
        for text in fields.pop("texts"):
            try:
                inputs.append((task.inputs([text], **fields)[0] if text.strip() else None, None))
            except ValueError as error:
                inputs.append((None, str(error)))
        return inputs

    def respond(
        body: TranslateRequest, answers: Sequence[str | None], problems: Sequence[str | None], end: float
    ) -> TranslateAnswer:
        translations = [
            "" if answer is None and problem is None else answer
            for answer, problem in zip(answers, problems, strict=True)
        ]
        return TranslateAnswer(translations=translations, problems=list(problems) if any(problems) else None)

    def respond_html(
        body: TranslateRequest, answers: Sequence[str | None], problems: Sequence[str | None], end: float
    ) -> str:
        rows = [
            f"<dt>{escape(text)}</dt>"
            f"<dd class={'problem' if problem else 'text'}>{escape(problem or answer or '')}</dd>"
            for text, answer, problem in zip(body.texts, answers, problems, strict=True)
        ]
        return f"<dl>{''.join(rows)}</dl>"

    return JsonEndpoint(
        path="/translate", title="Generate texts", summary="A generated text for each text.",
        request=TranslateRequest, check=check, respond=respond, model=TranslateAnswer,
        respond_html=respond_html, count_tokens=task.count_tokens,
        form={"texts": "Texts, one per line", "beams": "Beams", "max_new_tokens": "Largest number of tokens"},
    )  # fmt: skip
