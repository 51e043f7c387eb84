"""Builds the card of a model trained with transformers' Trainer, with its results."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import transformers
from huggingface_hub import ModelCard

from ..configuration.version import __version__
from ..modeling import WeftPreTrainedModel
from .card import MetricResult, build_card

if TYPE_CHECKING:  # importing it takes a second, and `import weftformer` imports this file
    from transformers import Trainer

_NAMES = {"loss": "loss", "exact_match": "exact match", "bleu": "BLEU", "chrf": "chrF"}
# Arguments of `Trainer.create_model_card` that are a word or several.
_LISTS = ("language", "tags", "tasks", "dataset_tags", "dataset", "dataset_args")
# Entries of a Trainer's log that are not metrics.
_NO_METRICS = (
    "epoch", "gen_len", "runtime", "samples", "samples_per_second", "steps_per_second", "model_preparation_time",
)  # fmt: skip


def measured(
    metrics: Mapping[str, Any],
    prefix: str,
    dataset: str,
    *,
    n: int | None = None,
    intervals: Mapping[str, tuple[float, float, str]] | None = None,
) -> list[MetricResult]:
    """
    Return the metrics of a Trainer's evaluation for a card.

    Args:
        metrics (`Mapping[str, Any]`):
            The output of the evaluation, with keys such as `f"{prefix}_loss"`. Entries that are not metrics are left
            out.
        prefix (`str`):
            The prefix of the keys, such as `"eval"`.
        dataset (`str`):
            The name of the data set for readers.
        n (`int`, *optional*):
            The number of examples.
        intervals (`Mapping[str, tuple[float, float, str]]`, *optional*):
            For a metric (without the prefix), the ends of its 95 % interval and how it was computed.

    Returns:
        `list[MetricResult]`
    """
    results = []
    for key, value in metrics.items():
        name = key.removeprefix(f"{prefix}_")
        if name == key or name in _NO_METRICS or not isinstance(value, (int, float)):
            continue
        split = {"eval": "validation"}.get(prefix, prefix)
        results.append(
            MetricResult(
                name, _NAMES.get(name, name), round(value, 6), dataset, (intervals or {}).get(name), n, split,
                percent=name == "exact_match",
            )
        )  # fmt: skip
    return results


def trained_card(trainer: "Trainer", model: WeftPreTrainedModel, **details: Any) -> ModelCard:
    """
    Build the card of a trained model.

    Args:
        trainer (`Trainer`):
            The trainer after training. The card has the metrics of its last evaluation.
        model ([`WeftPreTrainedModel`]):
            The model itself, without a wrapper such as DDP.
        details (*optional*):
            Arguments of `Trainer.create_model_card`, and fields of [`Facts`]. `results` replace those of the trainer's
            log.

    Returns:
        `huggingface_hub.ModelCard`
    """
    words = {name: _listed(details.pop(name, None)) for name in _LISTS}
    names = ", ".join(f"`{name}`" for name in words["dataset"] or words["dataset_tags"])
    start = str(getattr(model, "name_or_path", "") or "")
    model_name, base = details.pop("model_name", None), details.pop("finetuned_from", None)
    facts = {
        "language": words["language"],
        "license_note": None if details.get("license") else "whoever publishes them chooses it",
        "tags": words["tags"],
        "task": next(iter(words["tasks"]), None),
        "datasets": words["dataset_tags"],
        "base_model": base or (start if start and not Path(start).exists() else None),
        "has_tokenizer": trainer.processing_class is not None,
        "data": f"Data: {names} {' '.join(words['dataset_args'])}".rstrip() + "." if names else None,
        "training": training_table(trainer),
        "results": _logged(trainer, names),
    }
    name = str(trainer.hub_model_id or model_name or Path(str(trainer.args.output_dir)).name)
    return build_card(model, name, **(facts | details))


def training_table(trainer: "Trainer") -> dict[str, Any]:
    """Return the rows of a table of the training. `training_args.bin` has all of its arguments."""
    from transformers.modelcard import extract_hyperparameters_from_trainer

    args, state = trainer.args, trainer.state
    own = {name: value for name in ("muon", "max_tokens_per_batch") if (value := getattr(args, name, None))}
    return extract_hyperparameters_from_trainer(trainer) | own | {
        "optimizer": getattr(args.optim, "value", args.optim),
        "steps": f"{state.global_step:,} ({state.epoch or 0:.1f} epochs)",
        "software": f"weftformer {__version__}, transformers {transformers.__version__}, torch {torch.__version__}",
    }  # fmt: skip


def _logged(trainer: "Trainer", names: str) -> list[MetricResult]:
    """Return the metrics of the last evaluation in the log."""
    entries = [entry for entry in trainer.state.log_history if any(key.startswith("eval_") for key in entry)]
    dataset: Any = trainer.eval_dataset
    n = len(dataset) if hasattr(dataset, "__len__") and not isinstance(dataset, dict) else None
    return measured(entries[-1], "eval", f"validation data{' of ' + names if names else ''}", n=n) if entries else []


def _listed(value: str | Sequence[str] | None) -> list[str]:
    return [value] if isinstance(value, str) else [item for item in value or () if item]
