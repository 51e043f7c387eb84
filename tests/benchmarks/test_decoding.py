"""`python -m weftformer.benchmarks`: outputs are compared, contenders run in turn, and a table is printed."""

import argparse
import json

import pytest

from weftformer.benchmarks import decoding as benchmark
from weftformer.benchmarks.__main__ import main
from weftformer.benchmarks.peers import Case, Contender
from weftformer.benchmarks.training_step import TrainingCase, VocabularyCase


def test_contenders_run_in_turn_and_are_timed():
    calls = []

    def contender(name, tokens, **kind):
        return Contender(name, lambda: calls.append(name) or tokens, **kind)

    contenders = [
        contender("published", [[1, 2]], is_slow=True),  # takes minutes, so it runs as rarely as possible
        contender("spins", [[1, 2]], is_apart=True),
        contender("one", [[1, 2]]),
        contender("two", [[1, 3]]),
    ]
    case = Case("a case", new_tokens=2)
    arguments = argparse.Namespace(runs=3, warm_ups=2, only=None)
    rows = benchmark.compare(case, contenders, arguments)
    assert calls == ["published", *["one"] * 2, *["two"] * 2, *["one", "two"] * 3, *["spins"] * 5]
    assert [row["contender"] for row in rows] == ["published", "one", "two", "spins"]
    assert [len(row["times_s"]) for row in rows] == [1, 3, 3, 3] and rows[0]["times_faster"] == 1.0
    assert [row["agreement"] for row in rows] == ["", "same tokens", "other tokens from token 2 on", "same tokens"]
    assert benchmark.agreement([[1, 2, 3]], [[1, 2]]) == "other tokens from token 3 on"
    table = benchmark.as_table(rows).splitlines()
    assert len(table) == 6 and "| two |" in table[4] and "3 runs" in table[4] and "one run" in table[2]
    arguments = argparse.Namespace(runs=1, warm_ups=1, only=["wo"])
    assert [row["contender"] for row in benchmark.compare(case, contenders, arguments)] == ["published", "two"]


def test_a_case_is_measured_and_written(tmp_path, capsys):
    file = tmp_path / "figures.json"
    arguments = ["greedy", "--new-tokens", "3", "--runs", "1", "--warm-ups", "1", "--no-compile", "--threads", "1"]
    assert main([*arguments, "--json", str(file)]) == 0
    report = json.loads(file.read_text())
    assert report["machine"]["threads"] == 1 and report["machine"]["versions"]["torch"]
    rows = {row["contender"]: row for row in report["cases"]["greedy"]}
    assert "BART (transformers)" in rows
    assert rows["Weft"]["case"] == "greedy, 3 new tokens"
    assert rows["Weft"]["agreement"] == rows["Weft, plain path"]["agreement"] == "same tokens"
    assert "| greedy, 3 new tokens | median (range) |" in capsys.readouterr().out


def test_training_is_compared_by_logits_and_timed_by_target_tokens():
    arguments = argparse.Namespace(runs=1, warm_ups=1, only=None)
    case = TrainingCase("a step", batch=2, source=5, target=6)
    rows = benchmark.compare(case, case.contenders(compiled=False), arguments)
    assert [row["contender"] for row in rows] == ["BART (transformers)", "Weft"]
    assert float(rows[1]["agreement"].removeprefix("within ")) < 1e-4
    assert rows[1]["seconds_per_unit"] * 12 == pytest.approx(rows[1]["median_s"])
    case = VocabularyCase("a loss", batch=2, target=6, vocabulary=70)
    rows = benchmark.compare(case, case.contenders(compiled=False), arguments)
    assert float(rows[1]["agreement"].removeprefix("within ")) < 1e-5
