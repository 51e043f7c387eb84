"""The report of a training run on pairs: a page with curves, wrong pairs and settings, and a table of the outputs."""

import csv
import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from functools import cached_property
from html import escape
from pathlib import Path
from typing import Any

import numpy as np

from ..common import html
from ..common.atomic import atomic_write
from ..common.commands import command_line
from ..common.statistics import wilson_interval
from ..common.words import counted
from .metrics import Row, verdict, wrong_rows

PAGE, OUTPUTS = "report.html", "validation_outputs.csv"
# The number of wrong pairs on the page, and the length to which their texts are compared: the time is quadratic.
_SHOWN, _COMPARED = 100, 500
# The size of a chart without its labels.
_WIDTH, _HEIGHT = 440, 160
# A score from this on is good, a validation loss that is this many times another is higher, and fewer pairs are few.
_GOOD, _CHANGE, _FEW = 0.9, 1.1, 50
_SCORES = {"exact_match": "exact match", "bleu": "BLEU", "chrf": "chrF"}


@dataclass
class TrainingReport:
    """What a training run on pairs came to. A notebook shows it as a page, and `print` as a few lines.

    Args:
        folder: the folder of the model.
        history: the `log_history` of the Trainer.
        rows: the validation pairs with the generated texts, in order. Empty if nothing was scored.
        facts: facts of the data.
        settings: settings of the training.
        longer: the options for twice the training.
        data: the files of the pairs.
        words: the words of `weftformer train`. Without them, no command is advised.
        notes: sentences on what makes the scores uncertain.
    """

    folder: str
    history: list[dict[str, float]]
    rows: list[Row]
    facts: dict[str, Any]
    settings: dict[str, Any]
    longer: Mapping[str, Any]
    data: str
    words: Sequence[str] = ()
    notes: Sequence[str] = ()

    def __str__(self) -> str:
        return "\n".join([self._verdict(10), *self.notes, "\n  ".join(self.advice)]).rstrip("\n")

    @cached_property
    def wrong(self) -> list[Row]:
        """The rows whose text is wrong, the most different first."""
        return wrong_rows(self.rows)

    @property
    def advice(self) -> tuple[str, ...]:
        """A sentence, and a command if there is one, on what would make the model better or its score certain.

        It follows from the interval of the score and the course of the validation loss, or is not given.
        """
        if not self.rows:
            return ()
        low, high = wilson_interval(len(self.rows) - len(self.wrong), len(self.rows))
        losses = [loss for _, loss in self._curve("eval_loss")]
        if self.wrong and low < _GOOD and len(losses) > 1:
            last, before = losses[-1], min(losses[: max(1, len(losses) * 3 // 4)])
            if last * _CHANGE < before:
                return "The validation loss was still falling. Train for longer:", *self._command(self.longer)
            reason = ""
            if last > _CHANGE * min(losses):
                reason = f"The validation loss rose from {min(losses):.3g} to {last:.3g}: the model learns by heart."
            elif high < _GOOD:
                reason = "The score is low, and the validation loss was no longer falling."
            if reason:
                return f"{reason} Add pairs to {self.data}, and train again:", *self._command()
        if len(self.rows) < _FEW:
            uncertain = f"A score on {counted(len(self.rows), 'pair')} is uncertain"
            return (f"{uncertain}: `weftformer evaluate` scores the model on other pairs.",)
        return ()

    def _command(self, changes: Mapping[str, Any] | None = None) -> list[str]:
        """Return the command of this training for a new folder, from the beginning, or nothing if there was none."""
        if not self.words:
            return []
        folders = (f"{Path(self.folder)}-{number}" for number in itertools.count(2))
        options = {
            "--overwrite-output-dir": False,
            "--resume-from-checkpoint": False,
            "--output-dir": next(folder for folder in folders if not Path(folder).exists()),
        }
        return [command_line(["train", *self.words], options | dict(changes or {}))]

    def _repr_html_(self) -> str:
        losses = {"training": self._curve("loss"), "validation": self._curve("eval_loss")}
        scores = {title: self._curve(f"eval_{name}") for name, title in _SCORES.items()}
        scores["exact match"] = [(epoch, 100 * share) for epoch, share in scores["exact match"]]
        return (
            html.templates(Path(__file__).parent)
            .get_template(PAGE)
            .render(
                name=Path(self.folder).name,
                verdict=self._verdict(0),
                notes=self.notes,
                advice=self.advice,
                charts=[("Loss (logarithmic)", _chart(losses, is_log=True)), ("Validation scores", _chart(scores))],
                size=(_WIDTH, _HEIGHT),
                num_wrong=len(self.wrong),
                wrong=[
                    (row.source, _marked(row.expected, row.written), _marked(row.written, row.expected))
                    for row in self.wrong[:_SHOWN]
                ],
                outputs=OUTPUTS,
                lengths=_by_length(self.rows),
                tables={"Data": self.facts, "Settings": self.settings},
            )
        )

    def save(self) -> None:
        """Write `report.html`, and `validation_outputs.csv` if texts were scored, into the folder."""
        with atomic_write(Path(self.folder, PAGE)) as file:
            file.write_text(_HEAD.format(title=escape(Path(self.folder).name)) + self._repr_html_(), encoding="utf-8")
        if not self.rows:
            return
        with atomic_write(Path(self.folder, OUTPUTS)) as file, file.open("w", newline="", encoding="utf-8") as stream:
            table = csv.writer(stream)
            table.writerow([*Row._fields, "is_right"])
            table.writerows([*row, row.is_right] for row in self.rows)

    def _verdict(self, number: int) -> str:
        if not self.rows:
            return "No texts were scored."
        return verdict(self.wrong, len(self.rows), "validation pair", number)

    def _curve(self, name: str) -> list[tuple[float, float]]:
        """Return the epochs and values of a number that the Trainer logged."""
        return [(entry["epoch"], entry[name]) for entry in self.history if name in entry]


# What a file needs around the page that a notebook shows. The policy allows no other host and no script.
_HEAD = """<!DOCTYPE html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<title>{title}</title>
"""


def _chart(curves: Mapping[str, Sequence[tuple[float, float]]], is_log: bool = False) -> dict[str, Any]:
    """Return the lines of a chart with its labels, in pixels from its upper left corner.

    Args:
        curves: points of the curves, by their names. Empty curves are left out.
        is_log: whether the scale is logarithmic, from one power of ten to another. Otherwise it is from the ten below
            all values to 100.
    """
    curves = {name: points for name, points in curves.items() if points}
    values = [value for points in curves.values() for _, value in points if not is_log or 0 < value < math.inf]
    if not values:
        return {}
    last = max(epoch for points in curves.values() for epoch, _ in points)
    low = max(0, math.ceil(min(values) / 10) * 10 - 10)
    ticks = [low, (low + 100) / 2, 100.0]
    if is_log:
        low, high = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
        ticks = [10.0**power for power in range(low, max(high, low + 1) + 1)]

    def height(value: float) -> float:
        if is_log:
            return _HEIGHT * (1 - math.log(max(value, ticks[0]) / ticks[0], ticks[-1] / ticks[0]))
        return _HEIGHT * (ticks[-1] - value) / (ticks[-1] - ticks[0])

    return {
        "lines": {
            name: " ".join(f"{_WIDTH * epoch / last:.1f},{height(value):.1f}" for epoch, value in points)
            for name, points in curves.items()
        },
        "ticks": {f"{tick:g}": height(tick) for tick in ticks},
        "epochs": {f"{share * last:.3g}": share * _WIDTH for share in (0, 0.5, 1)},
    }


def _marked(text: str, reference: str) -> list[tuple[str, bool]]:
    """Return the parts of a text in order, each with whether it differs from the other text."""
    matcher = SequenceMatcher(None, text[:_COMPARED], reference[:_COMPARED], autojunk=False)
    parts = [(text[start:end], kind != "equal") for kind, start, end, _, _ in matcher.get_opcodes() if end > start]
    return parts + [(text[_COMPARED:], False)] * (len(text) > _COMPARED)


def _by_length(rows: Sequence[Row]) -> list[tuple[int, int, int, int]]:
    """Return quarters of the rows by the length of their sources: shortest, longest, how many are right, and all."""
    lengths = np.array([len(row.source) for row in rows])
    groups, least = [], -1
    for most in np.unique(np.quantile(lengths, (0.25, 0.5, 0.75, 1), method="lower")) if rows else []:
        group = [row for row in rows if least < len(row.source) <= most]
        groups.append((min(len(row.source) for row in group), most, sum(row.is_right for row in group), len(group)))
        least = most
    return groups
