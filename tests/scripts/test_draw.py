import gzip
import json

import pytest

pytest.importorskip("rdkit")

from weftformer.routes import Candidate, Plan, Route, read_routes, write_routes
from weftformer.routes.drawing.page import save_page
from weftformer.routes.files.plan_files import PlanLog
from weftformer.routes.files.targets import Target
from weftformer.scripts import cli

ROUTES = [
    Route("CCOC(C)=O", (Route("CC(=O)O"), Route("CCO"))),
    Route("CNC(C)=O", (Route("CC(=O)O"), Route("CN"))),
    Route("CCOC(C)=O", (Route("CC(=O)Cl"), Route("CCO"))),
]


@pytest.fixture
def file(tmp_path) -> str:
    write_routes(tmp_path / "routes.jsonl", ROUTES)
    return str(tmp_path / "routes.jsonl")


def test_a_page_of_recorded_routes(file, tmp_path, capsys):
    page, stock = tmp_path / "page.html", tmp_path / "stock.smi"
    stock.write_text("CC(=O)O\nCCO\n")
    assert cli.main(["draw", file, "--html", str(page), "--stock", str(stock)]) == 0
    text = page.read_text()
    assert (
        "2 targets" in text
        and "3 distinct routes" in text
        and "1 purchasable" in text
        and "score" not in text.split("</style>")[1].split("<script>")[0]
    )
    assert cli.main(["draw", file, "--html", str(page), "--limit", "1"]) == 0
    assert "1 target ·" in page.read_text() and "no stock given" in page.read_text()


def test_pictures(file, tmp_path):
    assert cli.main(["draw", file, "--picture", str(tmp_path / "route.svg")]) == 0
    assert sorted(path.name for path in tmp_path.glob("*.svg")) == ["route-1.svg", "route-2.svg", "route-3.svg"]
    assert "CNC(C)=O" in (tmp_path / "route-2.svg").read_text()
    assert cli.main(["draw", file, "--picture", str(tmp_path / "one.png"), "--limit", "1"]) == 0
    assert (tmp_path / "one.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("words", "said"),
    [([], "Say what to draw to"), (["--picture", "a.gif"], "must end in .svg or .png"),
     (["--html", "a.html", "--limit", "0"], "--limit must be at least 1")],
)  # fmt: skip
def test_mistakes_are_said(file, words, said, capsys):
    assert cli.main(["draw", file, *words]) == 1
    assert said in capsys.readouterr().err


def test_a_file_without_routes(tmp_path, capsys):
    (tmp_path / "empty.jsonl").touch()
    assert cli.main(["draw", str(tmp_path / "empty.jsonl"), "--html", str(tmp_path / "a.html")]) == 1
    assert "holds no route" in capsys.readouterr().err and not (tmp_path / "a.html").exists()


def test_a_limit_is_said_and_plans_are_routes_too(file, tmp_path, capsys):
    assert cli.main(["draw", file, "--html", str(tmp_path / "a.html"), "--limit", "2"]) == 0
    assert "Only the first 2 are drawn" in capsys.readouterr().out
    candidates = [
        Candidate(ROUTES[0].to_string(), -1.0, 1, ROUTES[0], rank=1),
        Candidate("{", -2.0, 1, problem="no route", rank=2),
    ]
    (tmp_path / "plans.json").write_text(json.dumps([Plan("CCOC(C)=O", candidates).to_dict()]))
    assert list(read_routes(tmp_path / "plans.json")) == [ROUTES[0]]
    (tmp_path / "plans.jsonl").write_text(json.dumps(Plan("CCOC(C)=O", candidates).to_dict()) + "\n")
    assert list(read_routes(tmp_path / "plans.jsonl")) == [ROUTES[0]]


def test_a_folder_that_is_not_there(file, tmp_path, capsys):
    assert cli.main(["draw", file, "--html", str(tmp_path / "nowhere" / "a.html")]) == 1
    assert "--html" in (said := capsys.readouterr().err) and "there is no folder" in said


PLANS = [
    Plan("CCOC(C)=O", [
        Candidate(ROUTES[0].to_string(), -1.25, 2, ROUTES[0], missing=("CCO",), rank=1),
        Candidate(ROUTES[2].to_string(), -1.5, 1, ROUTES[2], missing=(), rank=2),
        Candidate("{", -2.0, 1, problem="no route", rank=3),
        Candidate("", float("-inf"), 1, problem="nothing was found", rank=4),
    ]),
    Plan("C1CC", problem="'C1CC' is not a molecule that RDKit can read."),
]  # fmt: skip


@pytest.mark.parametrize("form", ["list", "lines", "one line", "answer", "gzip"])
def test_the_page_of_a_plan_is_its_own(form, tmp_path):
    plans = PLANS[:1] if form == "one line" else PLANS
    before = {"comment": '[a] "salt" {b}'}  # fields in front of the others, whatever they hold
    rows = [before | plan.to_dict() for plan in plans]
    texts = {
        "list": json.dumps(rows, indent=1), "answer": json.dumps({"plans": rows}), "gzip": json.dumps(rows),
    }  # fmt: skip
    data = texts.get(form, "".join(json.dumps(row) + "\n" for row in rows)).encode()
    (tmp_path / "plans").write_bytes(gzip.compress(data) if form == "gzip" else data)
    save_page(plans, tmp_path / "own.html")
    assert cli.main(["draw", str(tmp_path / "plans"), "--html", str(tmp_path / "page.html")]) == 0
    assert (tmp_path / "page.html").read_text() == (tmp_path / "own.html").read_text()


@pytest.mark.parametrize("settings", [{}, {"beams": 5, "steps": [1, 2], "forbid-substructure": ["[C;$(C{)]", '"}']}])
def test_the_file_of_a_run_is_one_of_plans(settings, tmp_path):
    log = PlanLog(tmp_path / "routes.jsonl", settings)
    with log.open(append=False) as file:
        for index, plan in enumerate(PLANS):
            file.write(log.line(index, Target(str(index), plan.target), plan))
    save_page(PLANS, tmp_path / "own.html")
    assert cli.main(["draw", str(log.path), "--html", str(tmp_path / "page.html")]) == 0
    assert (tmp_path / "page.html").read_text() == (tmp_path / "own.html").read_text()


def test_a_plan_is_held_against_another_stock_and_cut(tmp_path, capsys):
    (tmp_path / "plans.json").write_text(json.dumps([plan.to_dict() for plan in PLANS]))
    (tmp_path / "stock.smi").write_text("CC(=O)Cl\n")
    words = [
        "draw",
        str(tmp_path / "plans.json"),
        "--html",
        str(tmp_path / "a.html"),
        "--picture",
        str(tmp_path / "a.svg"),
    ]
    assert cli.main([*words, "--stock", str(tmp_path / "stock.smi"), "--limit", "1"]) == 0
    assert "Only the first 1 are drawn" in capsys.readouterr().out
    text = (tmp_path / "a.html").read_text()
    assert "✕ 2 not in stock" in text and "Rank 2" not in text and "no route" in text and "C1CC" in text
    assert (tmp_path / "a.svg").read_text().count("not in stock") >= 2
    assert cli.main(words) == 0
    assert (tmp_path / "a-2.svg").exists() and "not in stock" not in (tmp_path / "a-2.svg").read_text()


def test_a_damaged_plan_is_told(tmp_path, capsys):
    rows = [plan.to_dict() for plan in PLANS]
    del rows[0]["candidates"][1]["text"]
    (tmp_path / "plans.json").write_text(json.dumps(rows))
    words = ["draw", str(tmp_path / "plans.json"), "--html", str(tmp_path / "a.html")]
    assert cli.main(words) == 1
    said = capsys.readouterr().err
    assert "plans.json, plan 1" in said and "it lacks 'text'" in said
    (tmp_path / "plans.json").write_text(json.dumps([plan.to_dict() for plan in PLANS])[:-9])
    assert cli.main(words) == 1
    assert "plans.json, [1]: " in (said := capsys.readouterr().err) and "the file is cut off" in said
