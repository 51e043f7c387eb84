"""Models, rows and trainers of these tests, in the vocabulary of routes."""

import json
from typing import Any

import torch
from transformers import DataCollatorForSeq2Seq

from weftformer import WeftConfig, WeftForConditionalGeneration
from weftformer.scripts.parsing import parse_arguments
from weftformer.tokenization import build_route_tokenizer
from weftformer.training import WeftTrainer, WeftTrainingArguments, fit_pairs

from ..models import TINY_CONFIG

# The fields of a model whose vocabulary is its tokenizer's.
SIZE = {name: value for name, value in TINY_CONFIG.items() if name != "vocab_size"} | {"dropout": 0.0}
PAD = 52
# the batches have no masks
VOCABULARY = {
    "vocab_size": 53, "pad_token_id": PAD, "bos_token_id": 0, "eos_token_id": 22, "decoder_start_token_id": 0,
    "infer_attention_mask": True,
}  # fmt: skip
# Steps that move weights by a tenth of their gradients.
PLAIN_STEPS = {
    "optim": "sgd", "learning_rate": 0.1, "lr_scheduler_type": "constant", "warmup_steps": 0, "weight_decay": 0.0,
    "max_grad_norm": 0.0, "logging_steps": 1,
}  # fmt: skip


def build(dtype: torch.dtype = torch.float32, seed: int = 0, **fields: Any) -> WeftForConditionalGeneration:
    torch.manual_seed(seed)
    config = WeftConfig(**(TINY_CONFIG | VOCABULARY | {"dropout": 0.0} | fields))
    return WeftForConditionalGeneration._from_config(config, dtype=dtype)


def rows(count: int) -> list[dict[str, list[int]]]:
    """Return rows of very different lengths, each side in its own order. The first token is the number of the row."""
    generator = torch.Generator().manual_seed(0)
    lengths = torch.stack([torch.randperm(count, generator=generator) + 1 for _ in range(2)], dim=1).tolist()
    draw = torch.randint(23, 50, (count, 2, count), generator=generator).tolist()
    return [
        {"input_ids": [1 + index, *draw[index][0][:source]], "labels": draw[index][1][:target]}
        for index, (source, target) in enumerate(lengths)
    ]


def trainer(folder, model, data, pad_to: int | None = None, **settings: Any):
    """Build a [`WeftTrainer`] that neither saves nor evaluates by itself, unless `settings` change that."""
    arguments = {
        "save_strategy": "no", "eval_strategy": "no", "report_to": "none", "use_cpu": True, "disable_tqdm": True,
    }  # fmt: skip
    return WeftTrainer(
        model,
        WeftTrainingArguments(output_dir=str(folder), **(arguments | settings)),
        DataCollatorForSeq2Seq(build_route_tokenizer(), pad_to_multiple_of=pad_to),
        data,
        eval_dataset=data,
    )


def arguments(data, folder, fields: dict[str, Any] | None = None, **settings: Any) -> list[str]:
    """Return words of `weftformer train` that begin with random weights, in bytes and a few pieces."""
    settings = {
        "train_file": data, "output_dir": folder, "config_overrides": json.dumps(SIZE | (fields or {})),
        "tokenizer_vocab_size": 262, "validation_split": 0, "learning_rate": 0.01, "logging_steps": 1,
        "save_strategy": "no", "use_cpu": True, "disable_tqdm": True,
    } | settings  # fmt: skip
    return [word for name, value in settings.items() for word in (f"--{name}", str(value))]


def fit(*args: Any, callbacks=(), **settings: Any):
    """Run `weftformer train` with these [`arguments`]."""
    return fit_pairs(*parse_arguments(arguments(*args, **settings)), callbacks=callbacks)


class Rows(torch.utils.data.IterableDataset):
    """Rows without a length."""

    def __init__(self, rows):
        self.rows = rows

    def __iter__(self):
        return iter(self.rows)


def losses(run: WeftTrainer) -> list[float]:
    return [log["loss"] for log in run.state.log_history if "loss" in log]


def assert_close(found: dict[str, torch.Tensor], expected: dict[str, torch.Tensor]) -> None:
    """Check that weights in 64 bits are the same, except for the order of sums."""
    assert all(value.dtype == torch.float64 or name.endswith("selection_bias") for name, value in expected.items())
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-10)
