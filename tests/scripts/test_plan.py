import json

import pytest

pytest.importorskip("rdkit")

from weftformer.routes import NO_CONSTRAINTS, Constraints, Route
from weftformer.routes.planning.planner import RoutePlanner
from weftformer.routes.plans import Candidate, Plan
from weftformer.scripts import cli


def test_prints_and_writes_all_candidates(untrained_folder, tmp_path, capsys):
    file = tmp_path / "routes.json"
    assert (
        cli.main(["plan", "OCC", "--model", untrained_folder, "--steps", "1", "--beams", "3", "--json", str(file)])
        == 0
    )
    assert "CCO: " in capsys.readouterr().out
    (plan,) = json.loads(file.read_text())
    assert plan["target"] == "CCO" and len(plan["candidates"]) == 3
    assert {"text", "score", "n_steps", "route", "problem"} <= set(plan["candidates"][0])


def test_a_stock_marks_the_routes(untrained_folder, tmp_path, capsys, monkeypatch):
    file, stock = tmp_path / "routes.json", tmp_path / "stock.smi"
    stock.write_text("CO\nCC\n")
    route = Route("CCO", (Route("CC"), Route("O")))

    def plan(self, targets, *, stock, **settings):
        candidate = Candidate(route.to_string(), -1.0, 1, route, missing=tuple(stock.missing(route)), rank=1)
        return [Plan("CCO", [candidate])]

    monkeypatch.setattr(RoutePlanner, "plan", plan)
    words = ["plan", "CCO", "--model", untrained_folder, "--stock", str(stock), "--json", str(file)]
    assert cli.main(words) == 0
    assert "rank 1, not in stock: O" in capsys.readouterr().out
    (written,) = json.loads(file.read_text())
    assert written["candidates"][0]["purchasable"] is False and written["candidates"][0]["missing"] == ["O"]
    stock.write_text("CO\nCC\nO\n")
    assert cli.main(words) == 0
    assert "rank 1, purchasable" in capsys.readouterr().out


def test_routes_are_drawn(untrained_folder, tmp_path, capsys, monkeypatch):
    route = Route("CCO", (Route("CC"), Route("O")))
    found = Plan("CCO", [Candidate(route.to_string(), -1.0, 1, route, missing=("O",), rank=1)])
    failed = Plan("CCN", [Candidate("", -1.0, 1, problem="empty", rank=1)])
    monkeypatch.setattr(RoutePlanner, "plan", lambda self, targets, **settings: [failed, found][-len(targets) :])
    words = [
        "plan",
        "--model",
        untrained_folder,
        "--html",
        str(tmp_path / "a.html"),
        "--picture",
        str(tmp_path / "a.svg"),
    ]
    assert cli.main([*words, "CCO"]) == 0
    assert "not in stock" in (tmp_path / "a.svg").read_text() and "CCO" in (tmp_path / "a.html").read_text()
    assert cli.main([*words, "CCN", "CCO"]) == 0
    assert sorted(file.name for file in tmp_path.iterdir()) == ["a-2.svg", "a.html", "a.svg"]
    assert f"drawn in {tmp_path / 'a-2.svg'}" in capsys.readouterr().out
    assert cli.main([*words[:-1], "a.gif", "CCO"]) == 1
    assert "must end in .svg or .png" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["CCO", "--starting-material", "CC("], "'CC(' is not a molecule"),
        (["CCO", "--beams", "0"], "--beams must be at least 1"),
    ],
)
def test_errors_are_one_line(words, message, untrained_folder, capsys):
    assert cli.main(["plan", *words, "--model", untrained_folder]) == 1
    assert message in capsys.readouterr().err


def test_targets_that_cannot_be_planned_stop_no_others(untrained_folder, capsys, tmp_path):
    file = tmp_path / "routes.json"
    words = [
        "plan",
        "CC(",
        "CCO",
        "CC.Cl",
        "--model",
        untrained_folder,
        "--steps",
        "1",
        "--beams",
        "2",
        "--json",
        str(file),
    ]
    assert cli.main(words) == 1
    output = capsys.readouterr()
    assert "CC(: not planned. 'CC(' is not a molecule" in output.out and "CCO: " in output.out
    assert "2 of 3 targets could not be planned" in output.err
    problems = [plan["problem"] for plan in json.loads(file.read_text())]
    assert problems[1] is None and "2 molecules" in problems[2]


def test_a_file_of_targets_may_end_in_an_empty_line(untrained_folder, tmp_path, monkeypatch):
    (tmp_path / "targets.txt").write_text("CCO\n\nCCN \n\n")
    asked = []
    monkeypatch.setattr(RoutePlanner, "plan", lambda self, targets, **settings: asked.extend(targets) or [])
    assert cli.main(["plan", f"@{tmp_path / 'targets.txt'}", "--model", untrained_folder]) == 0
    assert asked == ["CCO", "CCN"]


@pytest.mark.parametrize("name", ["json", "html", "picture"])
def test_a_folder_that_is_not_there_shows_before_the_planning(untrained_folder, name, capsys):
    assert cli.main(["plan", "CCO", "--model", untrained_folder, f"--{name}", "nowhere/a.svg"]) == 1
    assert f"--{name} nowhere/a.svg: there is no folder nowhere" in capsys.readouterr().err


def test_each_rule_has_a_switch_and_each_wish_an_argument(untrained_folder, tmp_path, monkeypatch, capsys):
    (tmp_path / "stock.smi").write_text("CO\n")
    asked = []
    monkeypatch.setattr(RoutePlanner, "plan", lambda self, targets, **settings: asked.append(settings) or [])
    stock = ["--stock", str(tmp_path / "stock.smi")]
    for words, expected in (
        ([], Constraints()),
        (["--allow", "cycles"], Constraints(acyclic=False)),
        (["--allow", "missing-atoms", "--allow", "unreadable"], Constraints(readable=False, atoms_supplied=False)),
        (["--no-grammar"], NO_CONSTRAINTS),
        ([*stock, "--only-purchasable"], Constraints(only_purchasable=True)),
        (["--required-leaf", "OC"], Constraints(required_leaf="CO")),
        (["--forbid", "OC", "--forbid-substructure", "[N+]"], Constraints(forbidden=("CO",), forbidden_substructures=("[N+]",))),
    ):  # fmt: skip
        assert cli.main(["plan", "CCO", "--model", untrained_folder, *words]) == 0
        assert asked[-1]["constraints"] == expected and asked[-1]["grammar"] == ("--no-grammar" not in words)
    for words, message in (
        (["--only-purchasable"], "--only-purchasable needs --stock FILE"),
        (["--no-grammar", "--forbid", "CO"], "--no-grammar lets everything through"),
        (["--forbid-substructure", "[N"], "is not a substructure"),
    ):
        assert cli.main(["plan", "CCO", "--model", "/nowhere", *words]) == 1  # seen before the model is loaded
        assert message in capsys.readouterr().err


def test_what_cannot_be_is_told(untrained_folder, tmp_path, capsys, monkeypatch):
    file, asked = tmp_path / "routes.json", []
    odd, wrong = Route("CCO", (Route("CC"), Route("O"), Route("O"))), Route("CCO", (Route("C"),))

    def plan(self, targets, **settings):
        asked.append(settings["impossible"])
        return [Plan("CCO", [Candidate(r.to_string(), -1.0, 1, r, rank=i + 1) for i, r in enumerate([odd, wrong])])]

    monkeypatch.setattr(RoutePlanner, "plan", plan)
    words = ["plan", "CCO", "--model", untrained_folder, "--json", str(file)]
    assert cli.main(words) == 0
    text = capsys.readouterr().out
    assert "2 distinct routes, 1 of them impossible" in text
    assert "rank 1\n" in text and "note: O is used twice" in text and "rank 2, impossible: 1 C, 1 O missing" in text
    first, second = json.loads(file.read_text())[0]["candidates"]
    assert (first["possible"], first["impossible_because"], first["purchasable"]) == (True, None, None)
    assert (second["possible"], second["impossible_because"]) == (False, "1 C, 1 O missing")
    cli.main([*words, "--impossible", "drop"])
    assert asked == ["behind", "drop"]
