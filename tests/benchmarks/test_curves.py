"""The losses of several runs: read from what the Trainer writes, beside each other in a table and a picture."""

import pytest
from transformers import TrainerState

from weftformer.benchmarks import curves
from weftformer.scripts.cli import run_script


def write_run(folder, losses, *, step=None, name=None):
    history = [
        entry
        for step, loss in losses.items()
        for entry in ({"step": step, "loss": 9.0}, {"step": step, "eval_loss": loss})
    ]
    place = folder / name if name else folder
    place.mkdir(parents=True, exist_ok=True)
    TrainerState(global_step=step or max(losses), log_history=history).save_to_json(str(place / "trainer_state.json"))


def test_runs_stand_beside_each_other(tmp_path, capsys):
    write_run(tmp_path / "a", {500: 3.0, 1000: 2.25})
    write_run(tmp_path / "b", {500: 4.0}, name="checkpoint-500")  # goes on
    picture = tmp_path / "curves.svg"
    pytest.importorskip("matplotlib")
    words = [f"Weft={tmp_path / 'a'}", f"Marian={tmp_path / 'b'}", "--picture", str(picture)]
    assert run_script("curves", curves.main, words) == 0
    assert capsys.readouterr().out.strip().splitlines() == [
        "| step | Weft | Marian |", "| --- | --- | --- |", "| 500 | 3.000 | 4.000 |", "| 1,000 | 2.250 |  |"
    ]  # fmt: skip
    drawn = picture.read_bytes()
    curves.main(words)
    assert picture.read_bytes() == drawn


@pytest.mark.parametrize(("every", "steps"), [(1, [1, 2, 3]), (2, [1, 3]), (3, [3]), (9, [3])])
def test_the_last_evaluation_is_always_shown(every, steps):
    lines = curves.as_table({"a": {1: 4.0, 2: 3.0}, "b": {2: 3.5, 3: 2.0}}, every).splitlines()
    assert [int(line.split("|")[1]) for line in lines[2:]] == steps


def test_the_later_of_folder_and_checkpoint_counts(tmp_path):
    write_run(tmp_path, {500: 3.0})  # what an earlier call left at its end
    write_run(tmp_path, {500: 3.0, 1000: 2.0}, name="checkpoint-1000")
    write_run(tmp_path, {500: 3.0}, name="checkpoint-500")
    assert curves.read_curve(tmp_path) == {500: 3.0, 1000: 2.0}
    write_run(tmp_path, {500: 3.0, 1000: 2.0, 1500: 1.5})
    assert curves.read_curve(tmp_path) == {500: 3.0, 1000: 2.0, 1500: 1.5}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["runs/a"], "'runs/a' is not allowed: give NAME=FOLDER"),
        (["a={}/none"], "none has no trainer_state.json"),
        (["a={}/empty"], "has no evaluation yet"),
        (["a={}", "a={}/empty"], "Two runs have the name 'a'"),
        (["a={}", "--every", "0"], "--every must be at least 1"),
        (["a={}", "--picture", "no/such/x.svg"], "there is no folder no/such"),
    ],
)
def test_mistakes_are_named(words, message, tmp_path, capsys):
    (tmp_path / "empty").mkdir()
    TrainerState(global_step=1).save_to_json(str(tmp_path / "empty" / "trainer_state.json"))
    write_run(tmp_path, {1: 1.0})
    assert run_script("curves", curves.main, [word.format(tmp_path) for word in words]) == 1
    assert message in capsys.readouterr().err
