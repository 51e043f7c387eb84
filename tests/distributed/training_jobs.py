"""Functions of two processes that train with `WeftTrainer`; see `worker.py`."""

import os
from pathlib import Path
from typing import Any
from unittest import mock

import datasets
import torch
from torch.distributed.tensor import DTensor
from torch.nn.utils.rnn import pad_sequence

from weftformer import WeftConfig, WeftForConditionalGeneration
from weftformer.training import WeftTrainer, WeftTrainingArguments, building

from ..training import runs


class Doubles(WeftForConditionalGeneration):
    """Makes the same models in 64 bits, whatever dtype is requested."""

    @classmethod
    def _from_config(cls, config, **kwargs):
        return WeftForConditionalGeneration._from_config(config, **(kwargs | {"dtype": torch.float64}))

    @classmethod
    def from_pretrained(cls, *args, **kwargs):
        return WeftForConditionalGeneration.from_pretrained(*args, **(kwargs | {"dtype": torch.float64}))


def train(data: Path, folder: Path, dtype: torch.dtype = torch.float32, **settings) -> dict[str, Any]:
    """Run `weftformer train`. Return the losses, gradient norms and evaluations, and the size of this process' part.

    The command trains in 32 bits. A `dtype` of 64 bits is for comparisons.
    """
    datasets.config.HF_DATASETS_CACHE = Path(data).with_name("datasets-cache")
    if "RANK" in os.environ:
        settings["ddp_backend"] = "gloo"
    model_class = Doubles if dtype == torch.float64 else WeftForConditionalGeneration
    with mock.patch.object(building, "WeftForConditionalGeneration", model_class):
        trainer = runs.fit(data, folder, **settings).trainer
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


def evaluate(folder: Path, cases: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Evaluate an untrained model on rows of different lengths, and predict them, once for each case.

    Return what `compute_metrics` receives and what `predict` returns, as lists without pads, and the losses.
    """
    torch.manual_seed(0)
    special = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 1}
    sparse = {"decoder_mlp_layer_types": "sparse", "num_experts": 4, "init_std": 0.3}
    model = WeftForConditionalGeneration(WeftConfig(vocab_size=40, **(runs.SIZE | special | sparse)))

    def collate(rows):
        padded = {name: pad_sequence([torch.tensor(row[name]) for row in rows], True, pad)
                  for name, pad in (("input_ids", 0), ("labels", -100))}  # fmt: skip
        return padded | {"attention_mask": padded["input_ids"] != 0}

    def texts(ids) -> list[list[int]]:
        return [[token for token in row if token > 0] for row in ids.tolist()]

    results = []
    for case in cases:
        case = {"count": 7, "stream": False, "predict_with_generate": True} | case
        rows = [{"input_ids": [3 + i, *[5] * (i * 3 % 5)], "labels": [7 + i, *[9] * (i * 2 % 4)]}
                for i in range(case.pop("count"))]  # fmt: skip
        dataset = runs.Rows(rows) if case.pop("stream") else rows
        result: dict[str, Any] = {}

        def compute_metrics(evaluation, result=result):
            best = evaluation.predictions
            if isinstance(best, tuple):
                best = best[0].argmax(-1)
            labels, sources = texts(evaluation.label_ids), texts(evaluation.inputs)
            best = [row[: len(label)] for row, label in zip(best.tolist(), labels, strict=True)]
            result |= {"predictions": best, "labels": labels, "sources": sources, "losses": len(evaluation.losses)}
            return {}

        arguments = WeftTrainingArguments(
            output_dir=str(folder), use_cpu=True, report_to="none", disable_tqdm=True, generation_max_length=6,
            include_for_metrics=["inputs", "loss"], eval_strategy="no", **case,
            **({"ddp_backend": "gloo"} if "RANK" in os.environ else {}),
        )  # fmt: skip
        trainer = WeftTrainer(model, arguments, collate, eval_dataset=dataset, compute_metrics=compute_metrics)
        result["eval_loss"] = trainer.evaluate()["eval_loss"]
        output = trainer.predict(dataset)
        result |= {"test_loss": output.metrics["test_loss"], "predicted": texts(output.label_ids)}
        results.append(result)
    return results
