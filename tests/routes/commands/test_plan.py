"""`weftformer routes plan` with models that have learned a few routes: output, files, drawings and resuming."""

import csv
import gzip
import json
import sys

import pytest

from weftformer.routes import Constraints, Plan, PlanSettings, Route
from weftformer.routes.commands.arguments import plan_settings
from weftformer.routes.planning import pool
from weftformer.scripts import cli

from ...conftest import save_both

AMIDE, ESTER, NOTHING = "CC(=O)NCc1ccccc1", "CCOC(C)=O", "C1CC"


@pytest.fixture(scope="module")
def folder(planner_folder) -> str:
    return planner_folder


@pytest.fixture(scope="module")
def chain_folder(chain_planner, tmp_path_factory) -> str:
    return save_both(tmp_path_factory.mktemp("chain"), chain_planner.model, chain_planner.tokenizer)


@pytest.fixture(autouse=True)
def surroundings(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def run(folder, *words, steps=("--steps", "1")) -> int:
    return cli.main(["routes", "plan", *map(str, words), "--model", folder, *steps, "--beams", "1", "--no-progress"])


def rows_of(file) -> list[dict]:
    with gzip.open(file, "rt") if file.suffix == ".gz" else file.open() as lines:
        return list(map(json.loads, lines))


def test_routes_are_printed_best_first_with_a_table(folder, capsys, monkeypatch):
    monkeypatch.setattr(Plan, "from_dict", None)  # plans are kept, and not read again
    assert run(folder, "O=C(C)NCc1ccccc1") == 0
    out = capsys.readouterr().out
    words = (
        f"\n{AMIDE}: ",
        "rank 1, group 1, 1 of 1 step recorded\n",
        "\nstep 1: amide coupling, ",
        "└── NCc1ccccc1\n1 reaction, longest path 1; 2 starting materials\n",  # without a stock
    )
    assert all(word in out for word in words)
    heads, line = out.rstrip().splitlines()[-2:]
    assert (
        " ".join(heads.split()) == "id solved routes groups purchasable recorded textbook failing best score seconds"
    )
    number, solved, routes, groups, purchasable, *_ = line.split()
    assert (number, solved) == ("1", "-") and int(routes) >= int(groups) >= 1 and purchasable == "-"


def test_from_a_target_to_a_picture_of_a_route_that_can_be_bought(chain_folder, tmp_path, capsys):
    """The whole road: the amine is not in stock, is made in its turn, and the route is drawn."""
    (tmp_path / "stock.csv").write_text("Structure,Price_USD\nCC(=O)[O-].[Na+],5\nN,2\nBrCc1ccccc1,\n")
    words = [AMIDE, "--stock", "stock.csv", "--output-file", "a.jsonl"]
    assert run(chain_folder, *words, "--html", "a.html", "--picture", "a.svg") == 3
    out = capsys.readouterr().out
    assert "not in stock: NCc1ccccc1" in out and "not in stock" in (tmp_path / "a.svg").read_text()
    assert "├── • CC(=O)O\n└── NCc1ccccc1\n" in out and "; 2 starting materials, • 1 sold\n" in out
    assert rows_of(tmp_path / "a.jsonl")[0]["solved"] is False
    words = [*words, "--overwrite", "--num-routes", "1", "--time-limit", "30", "--json", "b.json"]
    words += ["--export", "b.sdf", "--export", "b.rdf.gz", "--export", "b.summary.csv"]
    assert run(chain_folder, *words, "--html", "b.html", "--picture", "b.svg", steps=()) == 0
    out = capsys.readouterr().out
    assert "b.rdf.gz." in out and gzip.decompress((tmp_path / "b.rdf.gz").read_bytes())[:9] == b"$RDFILE 1"
    assert "BrCc1ccccc1" in (tmp_path / "b.sdf").read_text()
    (line,) = csv.DictReader((tmp_path / "b.summary.csv").read_text().splitlines())
    assert (line["solved"], line["steps"], line["precedented_steps"]) == ("true", "2", "2")
    assert "<dd>stock.csv, 3 molecules</dd>" in (tmp_path / "b.html").read_text()
    assert "purchasable, 2 of 2 steps recorded\nCC(=O)NCc1ccccc1" in out
    assert "\nbuy CC(=O)O: as sodium salt (CC(=O)[O-].[Na+]), 5.00 USD\n" in out
    assert "\nprice: 7.00 USD for 2 of 3 starting materials, one listed pack of each\n" in out
    (row,), (same,) = rows_of(tmp_path / "a.jsonl"), json.loads((tmp_path / "b.json").read_text())
    first = row["candidates"][0]
    assert row["solved"] is True
    assert same["candidates"][0]["route"] == first["route"]
    assert (first["rank"], first["purchasable"], first["fails_because"]) == (1, True, None)
    assert set(Route.from_dict(first["route"]).leaves()) == {"CC(=O)O", "N", "BrCc1ccccc1"}
    picture = (tmp_path / "b.svg").read_text()
    assert "not in stock" not in picture and "BrCc1ccccc1" in (tmp_path / "b.html").read_text()
    assert f"Drew a route to {AMIDE} in b.svg." in out


def test_text_output_needs_no_drawing_libraries(folder, capsys, monkeypatch):
    for name in [name for name in sys.modules if name.startswith("weftformer.routes.drawing.")]:
        monkeypatch.delitem(sys.modules, name)
    for name in ("rdkit.Chem.Draw", "resvg_py"):
        monkeypatch.setitem(sys.modules, name, None)
    assert run(folder, "CCO") in (0, 3)
    assert run(folder, "CCO", "--html", "routes.html") == 1
    assert 'pip install -e ".[chem]"' in capsys.readouterr().err


def test_nothing_found_is_told_with_the_reason(folder, capsys):
    assert run(folder, ESTER, "--time-limit", "1e-6") == 3
    out, err = capsys.readouterr()
    assert f"{ESTER}: no route was found: the time limit was reached" in out and "not solved: 1 of 1 target: " in err
    assert "note: The time limit of 1e-06 s was reached" in out
    assert run(folder, ESTER, "--forbid", "CC(=O)O", "--forbid", "CCO", "--required-leaf", "CCN") == 3
    assert "no text that keeps the rules was completed" in capsys.readouterr().out


def test_targets_of_a_file_keep_their_names(folder, tmp_path, capsys):
    (tmp_path / "a.csv.gz").write_bytes(gzip.compress(f"name,smiles\nthe amide,{AMIDE}\nA-7,{ESTER}\n".encode()))
    assert run(folder, "--input-file", "a.csv.gz", "--output-file", "out.csv", "--show", 0) == 0
    out = capsys.readouterr().out
    assert f"\nthe amide ({AMIDE}): " in out and f"\nA-7 ({ESTER}): " in out and "rank 1" not in out
    assert [line[:9].strip() for line in out.splitlines()[-3:-1]] == ["the amide", "A-7"]
    rows = csv.DictReader((tmp_path / "out.csv").read_text().splitlines())
    assert list(dict.fromkeys(row["id"] for row in rows)) == ["the amide", "A-7"]


@pytest.mark.parametrize("name", ["out.jsonl", pytest.param("out.csv", marks=pytest.mark.integration)])
def test_resume_after_an_interruption(folder, tmp_path, capsys, monkeypatch, name):
    targets, parts = [AMIDE, "CS(=O)(=O)NCC", ESTER, NOTHING], f"{name}.parts"
    words = [*targets, "--output-file", name, "--stock", "stock.smi", "--show", 0]
    (tmp_path / "stock.smi").write_text("CC(=O)O\nCCO\nNCc1ccccc1\n")
    assert run(folder, *words) == 3
    whole = (tmp_path / name).read_text()
    table = [line.split()[:5] for line in capsys.readouterr().out.split("id ")[-1].splitlines()]
    (tmp_path / name).unlink()

    targets_of_pools, add = [], pool.PlanPool.add

    def counted(self, key, request, *rest):
        targets_of_pools.append(request.target)
        add(self, key, request, *rest)

    def interrupted(self):
        if len(targets_of_pools) - len(self) == 2:
            raise KeyboardInterrupt
        return step(self)

    step = pool.PlanPool.step
    monkeypatch.setattr(pool, "ROWS", 1)  # a search at a time
    monkeypatch.setattr(pool.PlanPool, "add", counted)
    with monkeypatch.context() as patch:
        patch.setattr(pool.PlanPool, "step", interrupted)
        assert run(folder, *words) == 130
    assert f"Finished targets are in {parts}: run the same command with --resume" in capsys.readouterr().err
    rows = [row for file in (tmp_path / parts).glob("part-*") for row in rows_of(file)]
    assert len(rows) == 3 and not (tmp_path / name).exists()
    for wrong in ([], ["--resume", "--stock-strict"], ["--resume", "--num-augmentations", "2"]):
        assert run(folder, *words, *wrong) == 1 and parts in capsys.readouterr().err
    assert run(folder, *words[1:], "--resume") == 1
    assert "belongs to another input" in capsys.readouterr().err
    targets_of_pools.clear()
    assert run(folder, *words, "--resume", "--html", "a.html") == 3
    out = capsys.readouterr().out
    assert len(targets_of_pools) == 1 and not (tmp_path / parts).exists()
    assert [line.split()[:5] for line in out.split("id ")[-1].splitlines()][:5] == table[:5]
    assert all(smiles in (tmp_path / "a.html").read_text() for smiles in (AMIDE, ESTER))
    if name.endswith(".csv"):
        assert without_scores((tmp_path / name).read_text()) == without_scores(whole)
    else:
        assert [row["number"] for row in rows_of(tmp_path / name)] == [1, 2, 3, 4]
    assert run(folder, *words, "--resume") == 1 and f"{name} is finished" in capsys.readouterr().err


def without_scores(text) -> list[dict]:
    """Return the rows of a table without scores, whose last bit depends on the batch."""
    rows = csv.DictReader(text.splitlines())
    return [{name: value for name, value in row.items() if name not in ("score", "rank", "group")} for row in rows]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--starting-material", "CC("], "'CC(' is not a molecule"),
        (["--time-limit", "0"], "--time-limit 0.0 is not allowed"),
        (["--picture", "a.gif"], "must end in .svg or .png"),
        (["targets.smi"], "targets.smi is a file"),
        (["--only-purchasable"], "stock"),
        (["--join", "parts", "--output-file", "a.jsonl", "--html", "a.html"], "--html is not supported with --join"),
    ],
)
def test_mistakes_are_one_line_before_a_model_is_loaded(words, message, capsys, tmp_path):
    (tmp_path / "targets.smi").write_text("CCO\n")
    arguments = words if words == ["targets.smi"] else ["CCO", *words]
    assert cli.main(["routes", "plan", *arguments, "--model", "/nope"]) == 1
    *before, line = capsys.readouterr().err.splitlines()
    assert message in line and not any("error" in text for text in before)


def test_options_are_the_settings():
    parser = cli.build_parser(["routes plan"])[1]["routes plan"]
    for words, expected in (
        ([], PlanSettings()),
        (["--allow", "cycles", "--allow", "oversized"],
            PlanSettings(constraints=Constraints(acyclic=False, size_limited=False))),
        (["--no-grammar", "--ranking", "sqrt-length"], PlanSettings(grammar=False, ranking="sqrt_length")),
        (["--forbid", "OC", "--forbid-substructure", "[N+]", "--required-leaf", "OC"], PlanSettings(
            constraints=Constraints(forbidden=("CO",), forbidden_substructures=("[N+]",), required_leaf="CO"))),
        (["--on-salt", "strip", "--time-limit", "3", "--no-limits"],
            PlanSettings(on_salt="strip", time_limit=3.0, enforce_limits=False)),
    ):  # fmt: skip
        assert plan_settings(parser.parse_args(["CCO", "--model", "x", *words])) == expected


def test_invalid_and_repeated_targets_among_others(folder, tmp_path, capsys):
    turned, long = "c1ccccc1CNC(C)=O", "C" * 300
    (tmp_path / "a.smi").write_text("\n".join([AMIDE, NOTHING, turned, long, f"{AMIDE} again", "CC.Cl", ""]))
    words = ["--input-file", "a.smi", "--output-file", "a.jsonl.gz", "--show", 0, "--picture", "a.svg"]
    assert run(folder, *words) == 3
    out, err = capsys.readouterr()
    rows = sorted(rows_of(tmp_path / "a.jsonl.gz"), key=lambda row: row["number"])
    assert rows[0]["settings"]["steps"] == "1"
    assert [row["id"] for row in rows] == ["1", "2", "3", "4", "again", "6"]
    assert "2 molecules" in rows[5]["problem"] and "`on_salt=strip`" in out
    assert sorted(file.name for file in tmp_path.glob("*.svg")) == ["a-1.svg", "a-3.svg", "a-5.svg"]
    assert rows[0]["target"] == rows[2]["target"] == AMIDE  # one molecule in two spellings, and given twice
    routes = [[candidate["route"] for candidate in row["candidates"]] for row in rows]
    assert routes[0] == routes[2] == routes[4] != [] and routes[1] == routes[3] == []
    # in the order of the input, though targets that cannot be planned end first
    assert out.index(AMIDE) < out.index(f"{NOTHING}: not planned") < out.index("CC.Cl")
    assert "145 are allowed" in rows[3]["problem"] and rows[3]["problem"].count("C") < 100
    assert err.splitlines()[-1] == "weftformer routes plan: not solved: 3 of 6 targets: 2, 4, 6"
