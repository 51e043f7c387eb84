"""Scores of generated texts: exact match, BLEU, chrF."""

import importlib.util
import logging
from collections.abc import Callable, Sequence

import numpy
from transformers import EvalPrediction, PreTrainedTokenizerBase

from ..configuration.fields import closest

logger = logging.getLogger(__name__)


def exact_match(predictions: Sequence[str], references: Sequence[str]) -> float:
    """Share of the predictions, between 0 and 1, that equal their reference, white space at the ends aside."""
    return sum(p.strip() == r.strip() for p, r in zip(predictions, references, strict=True)) / len(references)


def bleu(predictions: Sequence[str], references: Sequence[str]) -> float:
    """Corpus BLEU, 0 to 100, with sacrebleu's defaults (Post 2018, arXiv:1804.08771)."""
    from sacrebleu import corpus_bleu

    return corpus_bleu(list(predictions), [list(references)]).score


def chrf(predictions: Sequence[str], references: Sequence[str]) -> float:
    """Corpus chrF, 0 to 100, with sacrebleu's defaults (Popovic 2015)."""
    from sacrebleu import corpus_chrf

    return corpus_chrf(list(predictions), [list(references)]).score


METRICS: dict[str, Callable[[Sequence[str], Sequence[str]], float]] = {
    "exact_match": exact_match,
    "bleu": bleu,
    "chrf": chrf,
}
_NEED_SACREBLEU = ("bleu", "chrf")


def usable_metrics(names: Sequence[str]) -> list[str]:
    """The metrics of `names` that can be computed here; those without their package are left out, and the log says so.

    Raises:
        ValueError: a name is unknown.
    """
    for name in names:
        if name not in METRICS:
            raise ValueError(f"There is no metric {name!r}: choose from {', '.join(METRICS)}.{closest(name, METRICS)}")
    missing = [name for name in names if name in _NEED_SACREBLEU and importlib.util.find_spec("sacrebleu") is None]
    if missing:
        logger.warning(f"{' and '.join(missing)} left out: sacrebleu is not installed (pip install 'weft[train]').")
    return [name for name in names if name not in missing]


def build_compute_metrics(
    tokenizer: PreTrainedTokenizerBase, names: Sequence[str] = tuple(METRICS)
) -> Callable[[EvalPrediction], dict[str, float]]:
    """The `compute_metrics` of a `Seq2SeqTrainer` with `predict_with_generate`.

    Args:
        tokenizer: decodes ids; special tokens are left out of the texts that are compared.
        names: keys of [`METRICS`].

    Returns:
        A function from generated ids and labels (each (N, T), padded with the pad id or -100) to the scores, and
        `gen_len`, the mean number of generated tokens that are no pads.

    Raises:
        ValueError: a name is unknown.
    """
    names = usable_metrics(names)

    def texts(ids: numpy.ndarray) -> list[str]:
        return tokenizer.batch_decode(numpy.where(ids < 0, tokenizer.pad_token_id, ids), skip_special_tokens=True)

    def compute_metrics(prediction: EvalPrediction) -> dict[str, float]:
        ids = prediction.predictions
        ids = ids[0] if isinstance(ids, tuple) else ids
        predictions, references = texts(ids), texts(prediction.label_ids)
        scores = {name: METRICS[name](predictions, references) for name in names}
        real = (ids >= 0) & (ids != tokenizer.pad_token_id)
        return scores | {"gen_len": float(real.sum(axis=-1).mean())}

    return compute_metrics
