"""A study trains only missing models, and prints a table with the intervals of the differences."""

import json

import pytest

from weftformer.benchmarks import study


@pytest.fixture
def trained(monkeypatch):
    """The commands that were run. Each writes the loss 1 + seed / 10, and half of it for a way with experts."""
    calls = []

    def run(words):
        calls.append(words)
        given = dict(zip(words[1::2], words[2::2], strict=True))
        loss = (1 + int(given["--seed"]) / 10) * (0.5 if "--config-overrides" in given else 1)
        folder = study.Path(given["--output-dir"])
        (folder / "eval_results.json").write_text(json.dumps({"eval_loss": loss, "eval_runtime": 3.0}))
        return 0

    monkeypatch.setattr(study.cli, "main", run)
    return calls


def words(folder, *seeds, ways=("dense=", "8 experts=--config-overrides num_experts=8")):
    return [*ways, "--output-dir", str(folder), "--seeds", *map(str, seeds), "--", "--max-steps", "5"]


def test_differences_have_the_interval_of_their_seeds(trained, tmp_path, capsys):
    study.main(words(tmp_path, 0, 1, 2))
    assert capsys.readouterr().out.splitlines() == [
        "| loss | seed 0 | seed 1 | seed 2 | mean |",
        "| --- | --- | --- | --- | --- |",
        "| dense | 1.000 | 1.100 | 1.200 | 1.100 |",
        "| 8 experts | 0.500 | 0.550 | 0.600 | 0.550 |",
        # 0.05 is the deviation, and 4.303 the quantile of two degrees of freedom: 0.05 / sqrt(3) * 4.303 = 0.124
        "| 8 experts, minus dense | -0.500 | -0.550 | -0.600 | -0.550 [-0.674, -0.426] |",
    ]
