"""The studies of pretraining, of distillation and of experts run from texts, pairs and a teacher to a table."""

import json
from pathlib import Path

import datasets
import pytest
from transformers import TrainerCallback

from weftformer import WeftForConditionalGeneration
from weftformer.benchmarks import distillation, experts, pretraining, studies
from weftformer.scripts.parsing import parse_arguments
from weftformer.training import WeftTrainer


@pytest.mark.integration
def test_tables_with_a_column_for_each_seed(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "datasets-cache")
    (tmp_path / "texts.txt").write_text("a b c d e f\n" * 8)
    (tmp_path / "pairs.csv").write_text("source,target\n" + "a b,b a\n" * 8)
    words = [
        "--texts", tmp_path / "texts.txt", "--train", tmp_path / "pairs.csv", "--validation", tmp_path / "pairs.csv",
        "--output-dir", tmp_path / "out", "--pretraining-steps", 3, "--steps", 1, "--batch", 2, "--seeds", 0, 1,
    ]  # fmt: skip
    pretraining.main([str(word) for word in words])
    results = json.loads((tmp_path / "out" / "results.json").read_text())["results"]
    names = "with", "without", "without, as many steps in all"
    assert {name: len(found) for name, found in results.items()} == dict.fromkeys(names, 2)
    assert len({json.dumps(found) for found in results.values()}) == 3
    capsys.readouterr()
    monkeypatch.setattr(studies, "train_pairs", None)  # nothing is left to train
    pretraining.main([str(word) for word in words])
    assert "| pretraining: loss | seed 0 | seed 1 | mean |" in capsys.readouterr().out
    with pytest.raises(ValueError, match="results of other arguments"):
        pretraining.main([*map(str, words), "--steps", "2"])
    monkeypatch.undo()
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "datasets-cache")
    teacher = tmp_path / "out" / "with-0"
    words = [
        "--teacher", teacher, "--train", tmp_path / "pairs.csv", "--validation", tmp_path / "pairs.csv",
        "--output-dir", tmp_path / "distilled", "--config-overrides", "d_model=24,encoder_layers=1", "--steps", 3,
        "--batch", 2, "--seeds", 0,
    ]  # fmt: skip
    distillation.main([str(word) for word in words])
    results = json.loads((tmp_path / "distilled" / "results.json").read_text())["results"]
    assert results["with"] != results["without"]
    words = [
        "--train", tmp_path / "pairs.csv", "--validation", tmp_path / "pairs.csv", "--output-dir", tmp_path / "experts",
        "--config-overrides", "d_model=24,encoder_layers=1", "--experts", 4, "--steps", 1, "--batch", 2, "--seeds", 0,
    ]  # fmt: skip
    experts.main([str(word) for word in words])
    out = capsys.readouterr().out
    assert "| model: loss | seed 0 | mean |" in out and "| model: bleu | seed 0 | mean |" in out
    models = [
        WeftForConditionalGeneration.from_pretrained(tmp_path / "experts" / name)
        for name in ("dense-0", "4-experts-2-a-token-0")
    ]
    assert models[1].config.num_experts == 4
    sparse = dict(models[1].named_parameters())
    routed = sum(weights.numel() for name, weights in sparse.items() if ".experts." in name)
    routers = sum(weights.numel() for name, weights in sparse.items() if ".router." in name)
    # what a token computes
    assert models[1].num_parameters() - routers - routed // 2 == models[0].num_parameters() and routed > 0 < routers


@pytest.mark.integration
def test_a_model_that_was_interrupted_goes_on(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "datasets-cache")
    (tmp_path / "pairs.csv").write_text("source,target\n" + "".join(f"a {'b' * n},{'b' * n} a\n" for n in range(1, 9)))
    words = [
        "--train", tmp_path / "pairs.csv", "--validation", tmp_path / "pairs.csv", "--steps", 4, "--batch", 2,
        "--seeds", 0, "--config-overrides", "d_model=24,encoder_layers=1", "--save-steps", 2,
    ]  # fmt: skip

    def losses(folder, *more):
        experts.main([*map(str, words), "--output-dir", str(tmp_path / folder), *more])
        return json.loads((tmp_path / folder / "results.json").read_text())["results"]

    steps = []

    class Interrupt(TrainerCallback):
        def on_step_begin(self, args, state, control, **kwargs):
            steps.append(state.global_step)
            if steps == [0, 1, 2, 3] and tmp_path / "cut" in Path(args.output_dir).parents:
                raise RuntimeError("interrupted")

    build = WeftTrainer.__init__
    monkeypatch.setattr(
        WeftTrainer, "__init__", lambda self, *a, **k: (build(self, *a, **k), self.add_callback(Interrupt()))[0]
    )
    with pytest.raises(RuntimeError, match="interrupted"):
        losses("cut")
    for other in (("--steps", "5"), ("--max-tokens-per-batch", "64")):
        with pytest.raises(ValueError, match="results of other arguments"):
            losses("cut", *other)
    steps.clear()
    cut = losses("cut")
    assert steps == [2, 3, 0, 1, 2, 3]  # the dense model goes on, the sparse one is new
    assert cut == losses("whole")
    assert not list(tmp_path.glob("*/*/checkpoint-*"))


def test_differences_have_the_interval_of_their_seeds():
    results = {
        "dense": {"0": {"loss": 2.0}, "1": {"loss": 2.5}, "2": {"loss": 3.0}},
        "sparse": {"0": {"loss": 1.9}, "1": {"loss": 2.3}, "2": {"loss": 2.7}},
    }
    assert studies.tables(results, "model", [0, 1, 2]).splitlines() == [
        "| model: loss | seed 0 | seed 1 | seed 2 | mean |",
        "| --- | --- | --- | --- | --- |",
        "| dense | 2.000 | 2.500 | 3.000 | 2.500 |",
        "| sparse | 1.900 | 2.300 | 2.700 | 2.300 |",
        # 0.1 is the deviation, and 4.303 the quantile of two degrees of freedom: 0.1 / sqrt(3) * 4.303 = 0.248
        "| sparse, minus dense | -0.100 | -0.200 | -0.300 | -0.200 [-0.448, +0.048] |",
    ]
    assert studies.tables(results, "model", [1]).splitlines()[-1] == "| sparse, minus dense | -0.200 | -0.200 |"


def test_arguments_of_training_are_added_to_those_of_a_study(tmp_path, monkeypatch):
    asked = []
    monkeypatch.setattr(studies, "parse_arguments", lambda words: (asked.append(words), parse_arguments(words))[1])
    monkeypatch.setattr(studies, "fit_pairs", lambda *args: 1 / 0)
    words = ["--train", "a.csv", "--validation", "b.csv", "--output-dir", tmp_path, "--max-tokens-per-batch", "64"]
    with pytest.raises(ZeroDivisionError):
        experts.main([str(word) for word in words])
    assert parse_arguments(asked[-1])[2].max_tokens_per_batch == 64
    assert json.loads((tmp_path / "results.json").read_text())["settings"]["further"] == str(words[-2:])


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["--max-steps", "5"], "--max-steps is set by the study: give --steps"),
        (["--seed=3"], "--seed is set by the study: give --seeds"),
    ],
)
def test_arguments_that_a_study_cannot_use_are_refused_before_it_begins(words, reason, tmp_path, capsys):
    with pytest.raises(SystemExit):
        experts.main(["--train", "a.csv", "--validation", "b.csv", "--output-dir", str(tmp_path / "out"), *words])
    assert reason in capsys.readouterr().err
    with pytest.raises(ValueError, match="there is no argument --save"):  # no short form of --save-steps
        experts.main(
            ["--train", "a.csv", "--validation", "b.csv", "--output-dir", str(tmp_path / "out"), "--save", "5"]
        )
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["--config-overrides", "decoder_ffn_dim=64"], "must be equal"),
        (["--experts-per-token", "3"], "must divide the width"),
        (["--experts-per-token", "0"], "must divide the width"),
    ],
)
def test_experts_that_compute_another_amount_are_refused(words, reason, capsys):
    with pytest.raises(SystemExit):
        experts.main(["--train", "a.csv", "--validation", "b.csv", "--output-dir", "out", *words])
    assert reason in capsys.readouterr().err
