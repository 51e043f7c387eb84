"""`weft benchmark`: outputs are compared, contenders run in turn, and the table says what was measured."""

import argparse
import json

import pytest
import torch

from weft.scripts import benchmark
from weft.scripts.benchmark_peers import Case, Contender
from weft.scripts.cli import main


def test_agreement_says_where_outputs_part():
    assert benchmark.agreement([[1, 2, 3], [4]], [[1, 2, 3], [4]]) == "same tokens"
    assert benchmark.agreement([[1, 2, 3], [4, 5, 6]], [[1, 2, 3], [4, 7, 6]]) == "other tokens from token 2 on"
    assert benchmark.agreement([[1, 2, 3]], [[1, 2]]) == "other tokens from token 3 on"


def test_contenders_run_in_turn_and_are_timed(capsys):
    calls = []

    def contender(name, tokens):
        return Contender(name, lambda: calls.append(name) or tokens)

    arguments = argparse.Namespace(runs=3, warm_ups=2, peer_runs=1)
    rows = benchmark.compare(
        Case("a case", new_tokens=2),
        [contender("one", [[1, 2]]), contender("two", [[1, 3]]), contender("directmultistep", [[1, 2]])],
        arguments,
    )
    # warm-ups, then turns; the one that takes minutes is asked as rarely as possible
    assert calls == [
        "one",
        "one",
        "two",
        "two",
        "directmultistep",
        "one",
        "two",
        "directmultistep",
        "one",
        "two",
        "one",
        "two",
    ]
    assert [len(row["times_s"]) for row in rows] == [3, 3, 1]
    assert [row["agreement"] for row in rows] == ["same tokens", "other tokens from token 2 on", "same tokens"]
    assert rows[0]["times_faster"] == 1.0
    table = benchmark.as_table(rows).splitlines()
    assert len(table) == 5 and all(line.count("|") == table[0].count("|") for line in table)
    assert "| two |" in table[3] and "3 runs" in table[3]


@pytest.fixture
def threads():
    """The command sets the number of threads for its process, which is the tests' here."""
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def test_a_case_is_measured_and_written(tmp_path, capsys, threads):
    file = tmp_path / "figures.json"
    arguments = ["greedy", "--new-tokens", "3", "--runs", "1", "--warm-ups", "1", "--no-compile", "--threads", "1"]
    assert main(["benchmark", *arguments, "--json", str(file)]) == 0
    report = json.loads(file.read_text())
    assert report["machine"]["threads"] == 1 and report["machine"]["versions"]["torch"]
    rows = {row["contender"]: row for row in report["rows"]}
    assert {"BART (transformers)", "Weft, plain path", "Weft"} <= set(rows)
    assert rows["Weft"]["agreement"] == rows["Weft, plain path"]["agreement"] == "same tokens"
    assert "greedy, batch 1 | Weft |" in capsys.readouterr().out


def test_mistakes_are_named(capsys, threads):
    assert main(["benchmark", "gredy"]) == 1
    assert "there is no case 'gredy'" in capsys.readouterr().err
    assert main(["benchmark", "greedy", "--runs", "0"]) == 1
    assert "--runs must be at least 1" in capsys.readouterr().err
