"""Builds the card of a model trained with transformers' Trainer, with its arguments, hardware and results."""

import platform
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import transformers
from huggingface_hub import ModelCard

from ..configuration.version import __version__
from ..modeling import WeftPreTrainedModel
from .card import MetricResult, build_card
from .facts import facts_of

if TYPE_CHECKING:  # importing it takes a second, and `import weftformer` imports this file
    from transformers import Trainer

_NAMES = {"loss": "loss", "exact_match": "exact match", "bleu": "BLEU", "chrf": "chrF"}
# Entries of a Trainer's log that are not metrics.
_NO_METRICS = (
    "epoch",
    "gen_len",
    "runtime",
    "samples",
    "samples_per_second",
    "steps_per_second",
    "model_preparation_time",
)


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
        low, high, method = (intervals or {}).get(name, (None, None, None))
        split = {"eval": "validation"}.get(prefix, prefix)
        results.append(
            MetricResult(
                metric=name, name=_NAMES.get(name, name), value=round(value, 6), dataset=dataset, low=low, high=high,
                method=method, n=n, split=split, percent=name == "exact_match",
            )
        )  # fmt: skip
    return results


def trained_card(  # noqa: PLR0913, the arguments are those of `Trainer.create_model_card`
    trainer: "Trainer",
    model: WeftPreTrainedModel,
    *,
    language: str | Sequence[str] | None = None,
    license: str | None = None,
    tags: str | Sequence[str] | None = None,
    model_name: str | None = None,
    finetuned_from: str | None = None,
    tasks: str | Sequence[str] | None = None,
    dataset_tags: str | Sequence[str] | None = None,
    dataset: str | Sequence[str] | None = None,
    dataset_args: str | Sequence[str] | None = None,
    **given_facts: Any,
) -> ModelCard:
    """
    Build the card of a trained model.

    Args:
        trainer (`Trainer`):
            The trainer after training. The card has the last losses and metrics of its log.
        model ([`WeftPreTrainedModel`]):
            The model itself, without a wrapper such as DDP.
        language, license, tags, model_name, finetuned_from, tasks, dataset_tags, dataset, dataset_args (*optional*):
            As in `Trainer.create_model_card`.
        given_facts (*optional*):
            Further fields of [`Facts`]. `results` replace those of the trainer's log.

    Returns:
        `huggingface_hub.ModelCard`

    Raises:
        ValueError: a language is not an ISO 639 code.
    """
    start = str(getattr(model, "name_or_path", "") or "")
    if finetuned_from is None and start and not Path(start).exists():
        finetuned_from = start
    names = ", ".join(f"`{name}`" for name in _listed(dataset) or _listed(dataset_tags))
    facts = {
        "language": _listed(language),
        "license": license,
        "license_note": None if license else "whoever publishes them chooses it",
        "tags": _listed(tags),
        "task": next(iter(_listed(tasks)), None),
        "datasets": _listed(dataset_tags),
        "base_model": finetuned_from,
        "has_tokenizer": trainer.processing_class is not None,
        "data": f"Data: {names} {' '.join(_listed(dataset_args))}".rstrip() + "." if names else None,
        "training": training_table(trainer, model),
        "results": _logged(trainer, names),
    }
    name = str(trainer.hub_model_id or model_name or Path(str(trainer.args.output_dir)).name)
    return build_card(facts_of(model, name, **(facts | given_facts)))


def training_table(trainer: "Trainer", model: WeftPreTrainedModel) -> dict[str, str]:
    """Return the rows of a table of the training: its arguments, its hardware and software, its steps and losses."""
    args, state, log = trainer.args, trainer.state, trainer.state.log_history
    devices = max(args.world_size, args.n_gpu)
    budget = getattr(args, "max_tokens_per_batch", None)
    rows = f"{budget} tokens" if budget else f"{args.per_device_train_batch_size} rows"
    precision = "bf16" if args.bf16 else "fp16" if args.fp16 else str(model.dtype).removeprefix("torch.")
    warmup = f"{args.warmup_steps:.0%} of the steps" if 0 < args.warmup_steps < 1 else f"{args.warmup_steps:.0f} steps"
    before = getattr(trainer, "_initial_global_step", 0)  # of the checkpoint that the run resumed from
    share = f" (steps {before + 1:,} to {state.global_step:,})" if 0 < before < state.global_step else ""
    muon = "Muon, and {} for other weights" if getattr(args, "muon", False) else "{}"
    rows_by_name: dict[str, Any] = {
        "optimizer": f"{muon.format(getattr(args.optim, 'value', args.optim))}, betas {args.adam_beta1} and {args.adam_beta2}",
        "highest learning rate": f"{args.learning_rate:g}",
        "schedule": f"{getattr(args.lr_scheduler_type, 'value', args.lr_scheduler_type)}, warm-up of {warmup}",
        "weight decay": f"{args.weight_decay:g}",
        "gradient clipping": f"{args.max_grad_norm:g}" if args.max_grad_norm else "none",
        "batch": f"{rows} on each device, {args.gradient_accumulation_steps} accumulated, {devices} device{'s' * (devices > 1)}",
        "steps": f"{state.global_step:,} ({state.epoch or 0:.1f} epochs)",
        "label smoothing": f"{args.label_smoothing_factor:g}",
        "dropout": f"{model.config.dropout:g}",
        "precision": precision,
        "seed": args.seed,
        "examples": f"{len(trainer.train_dataset):,}" if hasattr(trainer.train_dataset, "__len__") else None,
        "hardware": hardware(args),
        "time": f"{seconds:,.0f} s{share}" if (seconds := _last(log, "train_runtime")) is not None else None,
        "training loss, mean": f"{loss:.4g}{share}" if (loss := _last(log, "train_loss")) is not None else None,
        "training loss, last logged": f"{loss:.4g}" if (loss := _last(log, "loss")) is not None else None,
        "software": f"weftformer {__version__}, transformers {transformers.__version__}, torch {torch.__version__}",
    }
    return {name: str(value) for name, value in rows_by_name.items() if value is not None}


def hardware(args: Any) -> str:
    """Return the number and the name of the GPUs, or the name and the threads of the CPU."""
    if args.device.type != "cpu":
        name = torch.cuda.get_device_name(args.device) if args.device.type == "cuda" else args.device.type
        return f"{max(args.world_size, args.n_gpu)} x {name}"
    return f"CPU ({cpu_name()}), {args.world_size} x {torch.get_num_threads()} threads"


def cpu_name() -> str:
    """Return the name of the processor as the system reports it."""
    listed = Path("/proc/cpuinfo")
    lines = listed.read_text(encoding="utf-8", errors="replace").splitlines() if listed.is_file() else []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.processor() or platform.machine())


def _logged(trainer: "Trainer", names: str) -> list[MetricResult]:
    """Return the metrics of the last evaluation in the log."""
    entries = [entry for entry in trainer.state.log_history if any(key.startswith("eval_") for key in entry)]
    dataset: Any = trainer.eval_dataset
    n = len(dataset) if hasattr(dataset, "__len__") and not isinstance(dataset, dict) else None
    return measured(entries[-1], "eval", f"validation data{' of ' + names if names else ''}", n=n) if entries else []


def _last(log: Iterable[Mapping[str, Any]], key: str) -> float | None:
    return next((entry[key] for entry in reversed(list(log)) if key in entry), None)


def _listed(value: str | Sequence[str] | None) -> list[str]:
    return [value] if isinstance(value, str) else [item for item in value or () if item]
