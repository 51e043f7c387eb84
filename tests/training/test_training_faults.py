"""Former faults around training runs: arguments without an effect, lost losses, exchanged data, Ctrl-C."""

import dataclasses
import logging
import math
import sys
from contextlib import nullcontext, suppress

import pytest
import torch
from datasets import Dataset
from transformers import (
    DataCollatorForSeq2Seq,
    Seq2SeqTrainer,
    Seq2SeqTrainingArguments,
    Trainer,
    TrainerCallback,
    trainer_optimizer,
)
from transformers.training_args import OptimizerNames

from weftformer.scripts.cli import run_script
from weftformer.tokenization import build_route_tokenizer
from weftformer.training import WeftTrainer, WeftTrainingArguments, fitting

from . import runs

PLAIN = {"use_cpu": True, "report_to": "none", "disable_tqdm": True}
SPARSE = {"decoder_mlp_layer_types": "sparse", "num_experts": 4}


@pytest.mark.parametrize("how", ["router losses", "bias", "dense"])
def test_transformers_own_trainer_smooths_no_labels_of_sparse_models(tmp_path, how):
    """It takes the labels away, and with them the losses of routers. Their balancing needs no labels."""
    off = {"router_aux_loss_coef": 0.0, "router_z_loss_coef": 0.0}
    fields = {"router losses": SPARSE, "bias": SPARSE | off | {"router_bias_update_rate": 0.1}, "dense": {}}[how]
    arguments = Seq2SeqTrainingArguments(str(tmp_path), label_smoothing_factor=0.1, max_steps=1, **PLAIN)
    model = runs.build(**fields)
    collator = DataCollatorForSeq2Seq(build_route_tokenizer(), model=model)
    run = Seq2SeqTrainer(model, arguments, collator, Dataset.from_list(runs.rows(4)))
    refusal = pytest.raises(ValueError, match=r"without `labels`.*WeftTrainer")
    with refusal if how == "router losses" else nullcontext():
        run.train()
    if how == "bias":
        assert all(router.selection_bias.any() for router in model.routers())


def test_a_trainer_without_data_to_evaluate_on_evaluates_nothing(tmp_path):
    arguments = WeftTrainingArguments(str(tmp_path), max_steps=1, save_strategy="no", **PLAIN)
    collator = DataCollatorForSeq2Seq(build_route_tokenizer())
    run = WeftTrainer(runs.build(), arguments, collator, Dataset.from_list(runs.rows(4)))
    run.train()
    assert run.state.global_step == 1
    # it is requested, or the best checkpoint could not be determined
    for changes in ({"eval_strategy": "steps"}, {"load_best_model_at_end": True}):
        with pytest.raises(ValueError, match="eval_strategy"):
            WeftTrainer(runs.build(), WeftTrainingArguments(str(tmp_path), **changes, **PLAIN))


def test_a_number_of_steps_sets_the_strategy(tmp_path):
    def strategies(**given):
        found = WeftTrainingArguments(str(tmp_path), use_cpu=True, **given)
        assert dataclasses.replace(found, learning_rate=0.1).save_strategy == found.save_strategy
        return found.save_strategy, found.save_steps, found.eval_strategy, found.eval_steps

    assert strategies(save_steps=7, eval_steps=3) == ("steps", 7, "steps", 3)
    assert strategies() == ("epoch", None, "epoch", None)
    assert strategies(save_strategy="steps")[:2] == ("steps", 500)
    assert strategies(save_steps=7, save_strategy="no")[0] == "no"


@pytest.mark.parametrize("values", [None, 0.0, 1.0], ids=["no gradient", "zero", "some"])
@pytest.mark.parametrize("labels", [[5, 6], [-100, -100]], ids=["labels", "no labels in the first step"])
def test_a_training_that_would_change_nothing_stops(tmp_path, values, labels):
    """Only the weight of the conditions is trained, whose gradient is 0 for conditions of 0."""
    model = runs.build(**SPARSE, num_condition_features=1)
    model.requires_grad_(False).model.encoder.condition_proj.requires_grad_(True)
    row = {"input_ids": [1, 2]} | ({} if values is None else {"condition_values": [values]})
    rows = [row | {"labels": given} for given in (labels, labels, [7, 8], [7, 9])]
    settings = {"max_steps": 2, "per_device_train_batch_size": 1, "gradient_accumulation_steps": 2}
    run = runs.trainer(tmp_path, model, rows, train_sampling_strategy="sequential", **settings)
    run.data_collator = lambda batch: {name: torch.tensor([row[name] for row in batch]) for name in batch[0]}
    with nullcontext() if values else pytest.raises(ValueError, match=r"encoder\.condition_proj\.weight"):
        run.train()
    first = values is None or labels[0] > 0
    assert run.state.global_step == (2 if values else 0 if first else 1)


class Interrupt(TrainerCallback):
    def on_step_begin(self, args, state, control, **kwargs):
        if state.global_step == args.warmup_steps:
            raise KeyboardInterrupt  # as Python's handler of the signal does


@pytest.mark.parametrize(
    ("step", "sentence"), [(3, "\n  weftformer train --resume-from-checkpoint true"), (1, "saved yet")]
)
def test_ctrl_c_says_how_to_go_on(tmp_path, capsys, caplog, monkeypatch, step, sentence):
    monkeypatch.setattr(WeftTrainingArguments, "describe_speed", lambda self: "Training on a GPU.")
    settings = {"max_steps": 4, "save_strategy": "steps", "save_steps": 2, "warmup_steps": step, **PLAIN}
    arguments = WeftTrainingArguments(str(tmp_path), **settings)
    data = {"train": Dataset.from_list(runs.rows(40))}
    options = {"data_collator": DataCollatorForSeq2Seq(build_route_tokenizer()), "callbacks": [Interrupt()]}

    def train(_):
        with fitting.resumable(str(tmp_path), ["train", "--overwrite-output-dir"]):
            fitting.fit(runs.build, build_route_tokenizer(), data, arguments, lambda trainer: {}, **options)

    with caplog.at_level(logging.INFO, logger="weftformer"):
        assert run_script("train", train) == 130
    assert "Training on a GPU." in caplog.text
    shown = capsys.readouterr().err
    assert sentence in shown and "Traceback" not in shown and "interrupted" in shown
    found = fitting.find_checkpoint(WeftTrainingArguments(str(tmp_path), resume_from_checkpoint="true", use_cpu=True))
    assert found == (str(tmp_path / "checkpoint-2") if step == 3 else None)
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")]


STAND_IN = """
import torch


class AdamWScheduleFree(torch.optim.AdamW):
    def __init__(self, params, lr=1e-3, warmup_steps=0, **others):
        super().__init__(params, lr=lr)
        self.warmup_steps = warmup_steps

    def train(self): ...
    def eval(self): ...


SGDScheduleFree = RAdamScheduleFree = AdamWScheduleFree
"""


@pytest.mark.parametrize("name", OptimizerNames)
def test_no_optimizer_gets_a_share_as_a_number_of_steps(tmp_path, monkeypatch, name):
    """The default of `warmup_steps` is a share, which transformers hands on to optimizers that warm up by themselves."""
    (tmp_path / "schedulefree.py").write_text(STAND_IN)
    (tmp_path / "schedulefree-1.4.1.dist-info").mkdir()
    (tmp_path / "schedulefree-1.4.1.dist-info" / "METADATA").write_text("Name: schedulefree\nVersion: 1.4.1\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "schedulefree", raising=False)
    monkeypatch.setattr(trainer_optimizer, "is_schedulefree_available", lambda *version: True)
    found, created = [], Trainer.create_optimizer

    def create(self, *model):
        found.append(self.args.warmup_steps)
        return created(self, *model)

    monkeypatch.setattr(Trainer, "create_optimizer", create)
    arguments = WeftTrainingArguments(str(tmp_path), optim=name, max_steps=40, save_strategy="no", **PLAIN)
    run = WeftTrainer(runs.build(), arguments, None, Dataset.from_list(runs.rows(4)))
    run.state.max_steps = 40
    with suppress(ImportError, RuntimeError, ValueError):  # a package or a device that is not here
        optimizer = run.create_optimizer()
        assert getattr(optimizer, "warmup_steps", 2) == (0 if name == "schedule_free_radam" else 2)
    assert found == [2] and arguments.warmup_steps == 0.05
    sys.modules.pop("schedulefree", None)


def test_evaluation_without_a_label_has_no_loss(tmp_path):
    """A loss of 0 would be taken for the best."""
    rows = [row | {"labels": [-100] * len(row["labels"])} for row in runs.rows(4)]
    arguments = WeftTrainingArguments(str(tmp_path), **PLAIN)
    collator = DataCollatorForSeq2Seq(build_route_tokenizer())
    run = WeftTrainer(runs.build(), arguments, collator, None, {"none": Dataset.from_list(rows)})
    assert math.isnan(run.evaluate(Dataset.from_list(rows))["eval_loss"])
    assert run.evaluate(Dataset.from_list(rows + runs.rows(4)))["eval_loss"] > 0
