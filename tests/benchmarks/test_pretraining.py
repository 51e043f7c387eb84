"""The studies of pretraining and of distillation run from texts, pairs and a teacher to a table."""

import json

import datasets
import pytest

from weftformer.benchmarks import distillation, pretraining, studies


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
    losses = json.loads((tmp_path / "out" / "losses.json").read_text())["losses"]
    names = "with", "without", "without, as many steps in all"
    assert {name: len(found) for name, found in losses.items()} == dict.fromkeys(names, 2)
    assert len({tuple(found.values()) for found in losses.values()}) == 3
    capsys.readouterr()
    monkeypatch.setattr(studies, "train_pairs", None)  # nothing is left to train
    pretraining.main([str(word) for word in words])
    assert "| pretraining | seed 0 | seed 1 | mean |" in capsys.readouterr().out
    with pytest.raises(ValueError, match="losses of other arguments"):
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
    losses = json.loads((tmp_path / "distilled" / "losses.json").read_text())["losses"]
    assert losses["with"] != losses["without"]
