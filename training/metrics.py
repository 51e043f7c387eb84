"""Scores of generated texts: exact match, BLEU, chrF."""

import importlib.util
import logging
import re
from collections.abc import Sequence
from difflib import SequenceMatcher
from typing import Any, NamedTuple

import numpy
from transformers import EvalPrediction, PreTrainedTokenizerBase

from ..common.statistics import wilson_interval
from ..common.words import counted
from ..tokenization.checks import decode_texts

logger = logging.getLogger(__name__)

_SACREBLEU = ("bleu", "chrf")
# BLEU compares sequences of up to four words: of targets that are shorter on average, such as dates, it says nothing.
_WORDS = 4


def exact_match(predictions: Sequence[str], references: Sequence[str]) -> float:
    """Return the share of predictions, 0 to 1, that equal their reference without white space at the ends."""
    return sum(p.strip() == r.strip() for p, r in zip(predictions, references, strict=True)) / len(references)


def corpus_score(name: str, predictions: Sequence[str], references: Sequence[str], **options: Any) -> Any:
    """Return sacrebleu's score, 0 to 100, with its defaults.

    Args:
        name: `bleu` (Post 2018, arXiv:1804.08771) or `chrf` (Popovic 2015).
        predictions: the generated texts.
        references: the expected texts, in the same order.
        **options: further arguments of the metric's `corpus_score`.
    """
    from sacrebleu.metrics import BLEU, CHRF

    return {"bleu": BLEU, "chrf": CHRF}[name]().corpus_score(list(predictions), [list(references)], **options)


def bootstrap_interval(name: str, predictions: Sequence[str], references: Sequence[str]) -> tuple[float, float] | None:
    """Return sacrebleu's bootstrap interval (95%) of a score (Koehn 2004), from 1,000 resamples with a fixed seed.

    Args:
        name, predictions, references: as in [`corpus_score`].

    Returns:
        The two ends of the interval, or None if sacrebleu (2.6) cannot compute it, because all resamples have a score
        of 0, or some of them a chrF of 0.
    """
    try:
        score = corpus_score(name, predictions, references, n_bootstrap=1000)
    except TypeError:  # sacrebleu's zeros have another type than its other scores, and `statistics` cannot mix the two
        return None
    interval = re.search(r"μ = (\S+) ± (\S+)\)", score.format(width=6, score_only=True))
    if interval is None:
        return None
    mean, width = map(float, interval.groups())
    return max(0.0, mean - width), min(100.0, mean + width)


class Row(NamedTuple):
    """A pair, with the text that was generated for its source."""

    source: str
    expected: str
    written: str

    @property
    def is_right(self) -> bool:
        return self.expected.strip() == self.written.strip()


def wrong_rows(rows: Sequence[Row]) -> list[Row]:
    """Return the rows whose text is wrong, the most different first."""

    def likeness(row: Row) -> float:  # of the beginnings, because the time is quadratic
        return SequenceMatcher(None, row.expected.strip()[:300], row.written.strip()[:300], autojunk=False).ratio()

    return sorted((row for row in rows if not row.is_right), key=likeness)


def verdict(wrong: Sequence[Row], count: int, what: str = "pair", number: int = 10) -> str:
    """Return lines with the exact-match score, its 95% interval, and wrong rows.

    Args:
        wrong: the rows whose text is wrong, in the order in which they are shown, each once: see [`wrong_rows`].
        count: the number of all rows, at least one.
        what: the name of a row.
        number: the largest number of wrong rows that are shown.
    """
    low, high = wilson_interval(count - len(wrong), count)
    shares = f"{100 - 100 * len(wrong) / count:.3g}% [{100 * low:.3g}, {100 * high:.3g}]"
    how_many = f"{len(wrong):,} {'is' if len(wrong) == 1 else 'are'} wrong"
    if not wrong:
        how_many = "it is right" if count == 1 else f"all {count:,} are right"
    end = f". The worst {number}:" if 0 < number < len(wrong) else ":" if wrong and number else "."
    lines = [f"Exact match {shares} on {counted(count, what)}: {how_many}{end}"]
    for row in list(dict.fromkeys(wrong))[:number]:
        lines += [f"{name:<10}{' '.join(text.split())[:200]}" for name, text in zip(Row._fields, row, strict=True)]
    return "\n".join(lines)


class TextMetrics:
    """The `compute_metrics` of a `Seq2SeqTrainer` with `predict_with_generate`.

    The scores are exact match and, if sacrebleu is installed, chrF, and BLEU of targets with four words or more on
    average. A call takes generated ids and labels, each of shape `(N, T)` and padded with the pad id or -100. It
    returns the scores and `gen_len`, the mean number of generated non-pad tokens. The texts of the last call are kept
    in `predictions`, `references` and, with `include_for_metrics=["inputs"]`, `sources`.

    Args:
        tokenizer: the tokenizer that decodes the ids. Texts are compared without special tokens.
        needed: the name of a score that is computed always, such as `metric_for_best_model`.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase, needed: str | None = None):
        self.tokenizer, self.needed = tokenizer, (needed or "").removeprefix("eval_")
        self.corpus_scores = _SACREBLEU if importlib.util.find_spec("sacrebleu") is not None else ()
        if not self.corpus_scores:
            logger.warning(
                'Skipping bleu and chrf, because sacrebleu is not installed (in a clone: pip install -e ".[train]").'
            )
        self.sources: list[str] = []
        self.predictions: list[str] = []
        self.references: list[str] = []

    def __call__(self, prediction: EvalPrediction) -> dict[str, float]:
        ids = prediction.predictions
        ids = ids[0] if isinstance(ids, tuple) else ids
        self.predictions, self.references = self._texts(ids), self._texts(prediction.label_ids)
        self.sources = [] if prediction.inputs is None else self._texts(prediction.inputs)
        non_pad = (ids >= 0) & (ids != self.tokenizer.pad_token_id)
        return self.scores() | {"gen_len": float(non_pad.sum(axis=-1).mean())}

    def scores(self) -> dict[str, float]:
        """Return the scores of `predictions`."""
        texts = self.predictions, self.references
        return {"exact_match": exact_match(*texts)} | {
            name: corpus_score(name, *texts).score for name in self._corpus_scores()
        }

    def _corpus_scores(self) -> list[str]:
        is_long = sum(len(text.split()) for text in self.references) >= _WORDS * len(self.references)
        return [name for name in self.corpus_scores if name != "bleu" or is_long or self.needed == name]

    def _texts(self, ids: numpy.ndarray) -> list[str]:
        ids = numpy.where(ids < 0, self.tokenizer.pad_token_id, ids)
        return decode_texts(self.tokenizer, ids)

    def rows(self) -> list[Row]:
        """Return the pairs of the last call, each with its generated text."""
        return list(map(Row, self.sources, self.references, self.predictions))

    def intervals(self) -> dict[str, tuple[float, float, str]]:
        """Return the ends of the 95% intervals of `scores()`, where they exist, each with the name of its method."""
        if not self.references:
            return {}
        number = len(self.references)
        right = round(exact_match(self.predictions, self.references) * number)
        intervals = {"exact_match": (*wilson_interval(right, number), "Wilson")}
        for name in self._corpus_scores():
            if ends := bootstrap_interval(name, self.predictions, self.references):
                intervals[name] = (*ends, "bootstrap")
        return intervals
