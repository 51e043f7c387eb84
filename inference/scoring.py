"""Scores of the texts that a model writes for a table of pairs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..common.progress import Progress
from ..training.encoding import finite_number, is_empty
from ..training.metrics import TextMetrics
from .lines import Line, answer_lines

if TYPE_CHECKING:
    from datasets import Dataset

    from ..training.encoding import Columns
    from .texts import TextSettings, TextTask


def score_pairs(
    task: TextTask, rows: Dataset, columns: Columns, settings: TextSettings, *, batch_size: int = 32, first: int = 1
) -> TextMetrics:
    """Generate a text for the source of each pair. A source that the model cannot read counts as wrong.

    Args:
        task: the text model.
        rows: the pairs. Pairs with an empty text are skipped.
        columns: the names of their columns.
        settings: the settings of generation.
        batch_size: the number of pairs in a batch.
        first: the number of the first row, for messages.

    Returns:
        The metrics, with the texts: `scores()`, `intervals()` and `rows()`.

    Raises:
        ValueError: all pairs have an empty text, or a condition is not a number.
    """
    task.check_conditions(len(columns.conditions))
    pairs: list[tuple[Line, str]] = []
    for index, row in enumerate(rows):
        source, target = str(row[columns.source]), str(row[columns.target])
        if not is_empty(source, target):
            conditions = tuple(
                finite_number(row[name], "the file", index + first, name) for name in columns.conditions
            )
            pairs.append((Line(source, conditions), target))
    if not pairs:
        raise ValueError(f"All {len(rows)} pairs have an empty text: there is nothing to score.")
    metrics = TextMetrics(task.tokenizer)
    metrics.sources, metrics.references = [line.text for line, _ in pairs], [target for _, target in pairs]
    with Progress("evaluate", len(pairs), "pairs") as progress:
        for answers in answer_lines(task, (line for line, _ in pairs), settings, batch_size=batch_size):
            metrics.predictions += [answer.outputs[0].text if answer.outputs else "" for answer in answers]
            progress.update(len(answers))
    return metrics
