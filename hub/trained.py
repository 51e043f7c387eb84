"""Builds the card of a model trained with transformers' Trainer, with its results."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import transformers
from huggingface_hub import EvalResult, ModelCard

from ..configuration.version import __version__
from ..modeling import WeftPreTrainedModel
from .card import build_card, loadable_name, metric_result

if TYPE_CHECKING:  # importing it takes a second, and `import weftformer` imports this file
    from transformers import Trainer

_NAMES = {"exact_match": "exact match", "bleu": "BLEU", "chrf": "chrF"}
# Arguments of `Trainer.create_model_card` that are a word or several.
_LISTS = ("language", "tags", "tasks", "dataset_tags", "dataset", "dataset_args")
# Entries of a Trainer's log that are not metrics.
_NO_METRICS = ["gen_len", "runtime", "samples", "samples_per_second", "steps_per_second", "model_preparation_time"]


def evaluation_results(
    metrics: Mapping[str, Any],
    prefix: str,
    dataset: str,
    n: int | None = None,
    intervals: Mapping[str, tuple[float, float, str]] | None = None,
) -> list[EvalResult]:
    """Return the metrics of a Trainer's evaluation for a card.

    Args:
        metrics: the output of the evaluation, with keys such as `f"{prefix}_loss"`. Entries that are not metrics are
            left out.
        prefix: the prefix of the keys, such as `"eval"`.
        dataset: the name of the data set for readers.
        n: the number of examples.
        intervals: for a metric (without the prefix), the ends of its 95% interval and how it was computed.
    """
    split = "validation" if prefix == "eval" else prefix
    values = {key.removeprefix(f"{prefix}_"): value for key, value in metrics.items() if key.startswith(f"{prefix}_")}
    return [
        metric_result(name, _NAMES.get(name, name), round(value, 6), dataset, split, n, (intervals or {}).get(name))
        for name, value in values.items()
        if name not in _NO_METRICS and isinstance(value, (int, float))
    ]


def trained_card(trainer: "Trainer", model: WeftPreTrainedModel, **details: Any) -> ModelCard:
    """Build the card of a trained model.

    Args:
        trainer: the trainer after training. The card has the metrics of its last evaluation.
        model: the model itself, without a wrapper such as DDP.
        **details: arguments of `Trainer.create_model_card`, and fields of [`Facts`]. `results` replace those of the
            trainer's log.
    """
    words = {name: _listed(details.pop(name, None)) for name in _LISTS}
    names = ", ".join(f"`{name}`" for name in words["dataset"] or words["dataset_tags"])
    start = str(getattr(model, "name_or_path", "") or "")
    model_name, base = details.pop("model_name", None), details.pop("finetuned_from", None)
    metadata = {
        "license": details.pop("license", None),
        "language": words["language"] or None,
        "tags": words["tags"],
        "datasets": words["dataset_tags"] or None,
        "pipeline_tag": next(iter(words["tasks"]), None),
        "base_model": base or (start if start and not Path(start).exists() else None),
    }
    facts = {
        "metadata": metadata,
        "license_note": None if metadata["license"] else "whoever publishes them chooses it",
        "has_tokenizer": trainer.processing_class is not None,
        "data": f"Data: {names} {' '.join(words['dataset_args'])}".rstrip() + "." if names else None,
        "training": training_table(trainer),
        "results": _last_evaluation(trainer, names or "the run"),
    }
    name = str(trainer.hub_model_id or model_name or loadable_name(str(trainer.args.output_dir)))
    return build_card(model, name, **(facts | details))


def training_table(trainer: "Trainer") -> dict[str, Any]:
    """Return the rows of a table of the training. `training_args.bin` has all of its arguments."""
    from transformers.modelcard import extract_hyperparameters_from_trainer

    args, state, table = trainer.args, trainer.state, extract_hyperparameters_from_trainer(trainer)
    if 0 < (warmup := table.get("lr_scheduler_warmup_steps", 0)) < 1:  # a share, for transformers
        table["lr_scheduler_warmup_steps"] = f"{100 * warmup:g}% of the steps"
    if schedule := getattr(trainer, "schedule", None):
        owner = getattr(schedule, "__self__", None)
        table["lr_scheduler_type"] = str(owner or getattr(schedule, "__qualname__", "a function"))
    of = f" of {table.pop('num_epochs'):g}" if "num_epochs" in table else ""
    rows = {name: value for name in ("muon", "max_tokens_per_batch") if (value := getattr(args, name, None))}
    rows["optimizer"] = getattr(args.optim, "value", args.optim)
    rows["steps"] = f"{state.global_step:,} ({state.epoch or 0:.1f}{of} epochs)"
    rows["software"] = f"weftformer {__version__}, transformers {transformers.__version__}, torch {torch.__version__}"
    return table | rows


def _last_evaluation(trainer: "Trainer", names: str) -> list[EvalResult]:
    """Return the metrics of the last evaluation in the log."""
    entries = [entry for entry in trainer.state.log_history if any(key.startswith("eval_") for key in entry)]
    dataset: Any = trainer.eval_dataset
    n = len(dataset) if hasattr(dataset, "__len__") and not isinstance(dataset, dict) else None
    return evaluation_results(entries[-1], "eval", f"validation data of {names}", n) if entries else []


def _listed(value: str | Sequence[str] | None) -> list[str]:
    return [value] if isinstance(value, str) else [item for item in value or () if item]
