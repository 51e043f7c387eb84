import json

import pytest

pytest.importorskip("rdkit")

from weftformer.routes import Candidate, Plan, Route, read_routes, write_routes
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
        and "score" not in text.split("</style>")[1]
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
