"""A few pairs of short texts are learned from the included starter, unless the arguments choose something else."""

import random

import pytest
import torch
from safetensors.torch import load_file
from transformers import (
    AutoModelForSeq2SeqLM,
    AutoTokenizer,
    ProgressCallback,
    TrainerCallback,
    TrainerControl,
    TrainerState,
)

from weftformer.scripts.parsing import parse_arguments
from weftformer.training import DataArguments, ModelArguments, WeftTrainingArguments, fit_pairs, planning
from weftformer.training.building import STARTER, starts_from_starter
from weftformer.training.callbacks import ProgressLinesCallback, TwoCyclesCallback
from weftformer.training.pairs import Pairs
from weftformer.training.planning import RunFacts, plan_training

from ..models import tiny_model


@pytest.fixture
def file(tmp_path):
    draw = random.Random(0)
    texts = {"".join(draw.choices("ABCD", k=draw.randint(3, 6))) for _ in range(40)}
    file = tmp_path / "pairs.csv"
    file.write_text("source,target,n\n" + "".join(f"{text},{text.lower()},1\n" for text in sorted(texts)))
    return file


@pytest.mark.parametrize(
    ("model", "data"),
    [
        ({"from_scratch": True}, {}),
        ({"preset": "modern-tiny"}, {}),
        ({"config_overrides": "dropout=0.2"}, {}),
        ({"tokenizer_vocab_size": 300}, {}),
        ({"tokenizer_name": str(STARTER)}, {}),
        ({"model_name_or_path": "runs/mine"}, {}),
        ({}, {"condition_columns": "n"}),
        ({}, {"streaming": True}),
    ],
    ids=str,
)
def test_a_model_a_vocabulary_conditions_or_a_stream_exclude_the_starter(file, model, data):
    assert starts_from_starter(ModelArguments(), Pairs(DataArguments(str(file))))
    assert not starts_from_starter(ModelArguments(**model), Pairs(DataArguments(str(file), **data)))


@pytest.mark.parametrize(
    ("rows", "size", "expected"), [(9_999, 20, True), (10_000, 20, False), (10, 150, True), (10, 152, False)]
)
def test_many_pairs_or_long_texts_exclude_the_starter(tmp_path, rows, size, expected):
    file = tmp_path / "pairs.csv"
    file.write_text("source,target\n" + f"{'ä' * (size // 2)},b\n" * rows, encoding="utf8")
    assert starts_from_starter(ModelArguments(), Pairs(DataArguments(str(file)))) is expected


def test_the_included_weights_are_stored_once_and_in_half_precision():
    stored = load_file(STARTER / "model.safetensors")
    assert {str(tensor.dtype) for tensor in stored.values()} == {"torch.float16"} and "lm_head.weight" not in stored
    assert sum(path.stat().st_size for path in STARTER.iterdir()) < 6.5e6


def test_the_saved_model_has_no_trace_of_the_folder_of_the_starter(file, tmp_path, monkeypatch, capsys, caplog):
    folder = tmp_path / "model"
    words = {"train-file": file, "output-dir": folder, "max-steps": 2, "validation-split": 4, "max-eval-samples": 2}
    argv = [word for name, value in words.items() for word in (f"--{name}", str(value))]
    with caplog.at_level("INFO", "weftformer"):
        fitted = fit_pairs(*parse_arguments([*argv, "--use-cpu"]))
    trainer = fitted.trainer
    assert "Starting from the included starter" in caplog.text and "Plan: 33 pairs, 2 steps" in caplog.text
    assert (trainer.args.learning_rate, trainer.args.num_train_epochs) == (1e-3, 20)
    assert {str(tensor.dtype) for tensor in load_file(folder / "model.safetensors").values()} == {"torch.float32"}
    texts = {path.name: path.read_text() for path in folder.iterdir() if path.suffix in (".json", ".md", ".py")}
    assert not [name for name, text in texts.items() if str(STARTER.parent) in text]
    assert "fine-tuned from the starter" in texts["README.md"]
    assert not [*folder.glob("checkpoint-*")]
    example, (source, target) = (
        texts["README.md"].split("```python\n")[1].split("```")[0],
        Pairs(DataArguments(str(file))).first(),
    )
    assert f"tokenizer([{source!r}]" in example and example.rstrip().endswith(f"# in the data: {target!r}")
    monkeypatch.chdir(tmp_path.parent)
    exec(example, {})
    assert capsys.readouterr().out.splitlines()[-1].startswith("['")
    assert (folder / "report.html").read_text("utf8").endswith(fitted._repr_html_())
    assert "<td>the included starter</td>" in fitted._repr_html_()
    model, tokenizer = AutoModelForSeq2SeqLM.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
    assert model.generation_config.max_length == 31  # twice the longest target and its end, and room for more
    # two steps of warm-up change little: the starter knows this task
    written = model.generate(**tokenizer(["lower: ABBA"], return_tensors="pt"))
    assert tokenizer.batch_decode(written, skip_special_tokens=True) == ["abba"]


# the first cycle has the warm-up, by default 2 of 40 steps, and a quarter of the other steps
@pytest.mark.parametrize(
    ("are_right", "warmup", "first", "steps"), [(True, None, 12, 12), (False, None, 12, 40), (True, "8", 16, 16)]
)
def test_training_ends_after_a_cycle_if_all_validation_pairs_are_right(
    file, tmp_path, monkeypatch, caplog, are_right, warmup, first, steps
):
    monkeypatch.setattr(planning, "_STARTER_EPOCHS", (10, 10))  # of one step; scores come after every fifth
    if not are_right:  # the targets of new texts are a matter of luck
        draw = random.Random(1)
        texts = [f"{line.split(',')[0]},{draw.randint(100, 999)},1" for line in file.read_text().splitlines()[1:]]
        file.write_text("\n".join(["source,target,n", *texts]))
    argv = ["--train-file", str(file), "--source-column", "source", "--target-column", "target", "--use-cpu"]
    argv += ["--output-dir", str(tmp_path / "model"), "--save-strategy", "steps", "--save-steps", str(first)]
    argv += ["--warmup-steps", warmup] if warmup else []
    trainer = fit_pairs(*parse_arguments([*argv, "--logging-steps", "1"])).trainer
    assert (trainer.state.global_step, trainer.state.max_steps) == (steps, 40)
    rates = [entry["learning_rate"] for entry in trainer.state.log_history if "learning_rate" in entry]
    assert max(rates) == 1e-3 and rates[first - 1] < 1e-4 and rates[-1] < 1e-4
    assert (max(rates[first:], default=0) > 9e-4) is not are_right
    caplog.set_level("INFO", "weftformer")
    resumed = fit_pairs(*parse_arguments([*argv, "--resume-from-checkpoint", "true"])).trainer
    assert "Continuing from" in caplog.text
    assert resumed.state.global_step == steps  # a run that has ended stays as it is


def starter_plan(num_pairs, has_schedule=False, **changes):
    args = WeftTrainingArguments("runs/a", predict_with_generate=True, use_cpu=True, **changes)
    facts = RunFacts(num_pairs, has_validation=True, width=256, is_starter=True, has_schedule=has_schedule)
    return plan_training(args, facts)


@pytest.mark.parametrize(
    "changes",
    [
        {"num_train_epochs": 3}, {"max_steps": 9}, {"eval_strategy": "no"}, {"lr_scheduler_type": "cosine"},
        {"has_schedule": True},
    ],
    ids=str,
)  # fmt: skip
def test_chosen_epochs_have_one_cycle(changes):
    plan = starter_plan(36, **changes)
    assert plan.first_cycle is None and plan.args.num_train_epochs == changes.get("num_train_epochs", 20)


@pytest.mark.parametrize(("number", "epochs", "first"), [(30, 80, 20), (1500, 52, 13), (4000, 25, 10), (9000, 20, 10)])
def test_a_second_cycle_of_many_pairs_is_short(number, epochs, first):
    plan = starter_plan(number)
    args = plan.args
    assert (args.num_train_epochs, plan.first_cycle, args.learning_rate) == (epochs, first / epochs, 1e-3)
    assert (args.eval_strategy, args.eval_steps) == ("steps", 0.125)


def test_a_schedule_and_callbacks_of_the_caller_replace_the_cycles(file, tmp_path, monkeypatch):
    monkeypatch.setattr(planning, "_STARTER_EPOCHS", (4, 4))  # of one step; two cycles would be 16

    class Counter(TrainerCallback):
        steps = 0

        def on_step_end(self, args, state, control, **kwargs):
            self.steps += 1

    counter = Counter()
    argv = ["--train-file", str(file), "--source-column", "source", "--target-column", "target", "--use-cpu"]
    argv += ["--output-dir", str(tmp_path / "model"), "--save-strategy", "no", "--logging-steps", "1"]
    arguments = parse_arguments(argv)
    schedule = lambda step, num_steps: 1 - step / num_steps  # noqa: E731
    trainer = fit_pairs(*arguments, callbacks=[counter], schedule=schedule).trainer
    rates = [entry["learning_rate"] for entry in trainer.state.log_history if "learning_rate" in entry]
    assert rates == pytest.approx([1e-3, 7.5e-4, 5e-4, 2.5e-4]) and counter.steps == 4
    assert "<lambda>" in (tmp_path / "model/README.md").read_text("utf8")
    assert arguments[2].learning_rate is None  # the same arguments may be used again


@pytest.mark.parametrize(
    ("first", "last", "ends"),
    [((0.02, 0.9), (0.1, 0.78), "with the first"), ((0.02, 0.9), (0.01, 0.78), "with the second"),
     ((0.02, 0.9), (0.1, 0.82), "with the second"), ((0.002, 0.98), None, "early"), ((0.5, 1.0), None, "early")],
)  # fmt: skip
def test_the_better_cycle_is_the_result(tmp_path, caplog, first, last, ends):
    """Training ends after the first if its loss is low, even if a pair is wrong."""
    caplog.set_level("INFO", "weftformer")
    args, model = WeftTrainingArguments(str(tmp_path), use_cpu=True, warmup_steps=0), tiny_model()
    cycles = TwoCyclesCallback(args, 0.25)
    state, control = TrainerState(max_steps=8, is_world_process_zero=True), TrainerControl()
    before = {name: weight.clone() for name, weight in model.state_dict().items()}

    def evaluate(step, loss, exact):
        state.global_step = step
        state.log_history.append({"step": step, "eval_loss": loss, "eval_exact_match": exact})
        cycles.on_evaluate(args, state, control, model=model)

    evaluate(1, 3.0, 0.0)
    assert not control.should_training_stop and not any(tmp_path.iterdir())
    evaluate(2, *first)
    assert control.should_training_stop == (ends == "early")
    assert ("training ends here" if ends == "early" else "a second cycle follows") in caplog.text
    if last is not None:
        with torch.no_grad():
            model.lm_head.weight.add_(1.0)
        resumed = TwoCyclesCallback(args, 0.25)  # of another process
        evaluate(8, *last)
        resumed.on_train_end(args, state, control, model=model)
    changed = not torch.equal(model.lm_head.weight, before["lm_head.weight"])
    assert changed == (ends == "with the second") and not any(tmp_path.iterdir())
    assert state.best_global_step == (2 if ends == "with the first" else None)


def test_progress_in_a_file_is_lines(tmp_path, capsys, caplog):
    """Until the first cycle is over, only its steps are counted: training may end there."""
    caplog.set_level("INFO", "weftformer")
    args = WeftTrainingArguments(str(tmp_path), use_cpu=True, warmup_steps=0)
    bar, state = ProgressCallback(), TrainerState(max_steps=4, is_world_process_zero=True)
    lines = ProgressLinesCallback(TwoCyclesCallback(args, 0.5), [bar])
    bar.on_train_begin(None, state, None)
    lines.on_train_begin(None, state, None)
    lines._progress.delay = lines._progress.mininterval = 0
    totals = [bar.training_bar.total]
    for state.global_step in range(1, 5):
        bar.on_step_end(None, state, None)
        lines.on_step_end(None, state, None)
        totals.append(bar.training_bar.total)
    assert totals == [2, 2, 2, 4, 4]
    bar.training_bar.disable = True
    lines.on_train_end(None, state, None)
    counts = [line.split(",")[0] for line in capsys.readouterr().err.splitlines()]
    assert "Training: 2 of 2 steps" in counts and counts[-1] == "Training: 4 of 4 steps"
