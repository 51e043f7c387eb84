"""Jobs of two processes that train with `WeftTrainer`; see `worker.py`."""

import json
import os
from pathlib import Path
from typing import Any
from unittest import mock

import datasets
import torch
from torch.distributed.tensor import DTensor

from weftformer import WeftForConditionalGeneration
from weftformer.scripts.parsing import parse_arguments
from weftformer.training import building, fit_pairs

SIZE = {
    "d_model": 16, "encoder_layers": 2, "decoder_layers": 1, "encoder_attention_heads": 2, "decoder_attention_heads": 2,
    "encoder_ffn_dim": 16, "decoder_ffn_dim": 16, "dropout": 0.0,
}  # fmt: skip


class Doubles(WeftForConditionalGeneration):
    """Makes the same models in 64 bits, whatever dtype is requested."""

    @classmethod
    def _from_config(cls, config, **kwargs):
        return WeftForConditionalGeneration._from_config(config, **(kwargs | {"dtype": torch.float64}))

    @classmethod
    def from_pretrained(cls, *args, **kwargs):
        return WeftForConditionalGeneration.from_pretrained(*args, **(kwargs | {"dtype": torch.float64}))


def arguments(data: Path, folder: Path, fields: dict[str, Any] | None = None, **settings) -> list[str]:
    """Return the command-line words of `weftformer train`."""
    settings = {
        "train_file": data, "output_dir": folder, "config_overrides": json.dumps(SIZE | (fields or {})), "use_cpu": True,
        "tokenizer_vocab_size": 262, "validation_split": 0, "disable_tqdm": True, "logging_steps": 1,
        "save_strategy": "no", "learning_rate": 0.01,
    } | settings  # fmt: skip
    if "RANK" in os.environ:
        settings["ddp_backend"] = "gloo"
    return [word for name, value in settings.items() for word in (f"--{name}", str(value))]


def train(data: Path, folder: Path, dtype: torch.dtype = torch.float32, **settings) -> dict[str, Any]:
    """Run `weftformer train`. Return the losses, gradient norms and evaluations, and the size of this process' part.

    The command trains in 32 bits. A `dtype` of 64 bits is for comparisons.
    """
    datasets.config.HF_DATASETS_CACHE = Path(data).with_name("datasets-cache")
    model_class = Doubles if dtype == torch.float64 else WeftForConditionalGeneration
    with mock.patch.object(building, "WeftForConditionalGeneration", model_class):
        trainer, _ = fit_pairs(*parse_arguments(arguments(data, folder, **settings)))
    history = trainer.state.log_history
    model = trainer.model
    names = ("experts_max_load", "experts_dead", "experts_drop_rate", "balance_loss", "z_loss")
    experts = [{name: log[name] for name in names if name in log} for log in history if "loss" in log]
    return {
        "experts": experts,
        "curve": [(log["step"], log["loss"], log["grad_norm"]) for log in history if "loss" in log],
        "eval_loss": [log["eval_loss"] for log in history if "eval_loss" in log],
        "held": sum((p.to_local() if isinstance(p, DTensor) else p).numel() for p in model.parameters()),
        "is_tied": model.get_output_embeddings().weight is model.get_input_embeddings().weight,
    }
