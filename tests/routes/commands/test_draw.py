"""`weftformer routes draw`: the routes of a file on a page and as pictures, recorded ones and planned ones."""

import json

import pytest

from weftformer.routes import Candidate, Plan, Route, Stock, write_routes
from weftformer.routes.files.formats import to_reaction_tree
from weftformer.routes.pages.page import save_page
from weftformer.routes.ranking import complete
from weftformer.scripts import cli

ROUTES = [
    Route("CCOC(C)=O", (Route("CC(=O)O"), Route("CCO"))),
    Route("CNC(C)=O", (Route("CC(=O)O"), Route("CN"))),
    Route("CCOC(C)=O", (Route("CC(=O)Cl"), Route("CCO"))),
]
PLANS = [
    Plan("CCOC(C)=O", [
        complete(Candidate(ROUTES[0].to_string(), -1.25, 2, ROUTES[0], missing=("CCO",), rank=1)),
        complete(Candidate(ROUTES[2].to_string(), -1.5, 1, ROUTES[2], missing=(), rank=2)),
        Candidate("", float("-inf"), 1, problem="no route", rank=4),
    ]),
    Plan("C1CC", problem="'C1CC' is not a molecule that RDKit can read."),
]  # fmt: skip


@pytest.fixture(autouse=True)
def files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_routes(tmp_path / "routes.jsonl", ROUTES)
    (tmp_path / "plans.json").write_text(json.dumps([plan.to_dict() for plan in PLANS]))
    (tmp_path / "empty.jsonl").touch()
    return tmp_path


def draw(*words: str) -> int:
    return cli.main(["routes", "draw", *words])


def test_a_page_of_recorded_routes(files):
    (files / "stock.smi").write_text("CC(=O)O\nCCO\n")
    assert draw("routes.jsonl", "--html", "page.html", "--stock", "stock.smi") == 0
    text = (files / "page.html").read_text()
    words = ("<title>routes.jsonl</title>", "2 targets", "3 distinct routes", "1 purchasable")
    assert all(one in text for one in words)
    assert "score" not in text.split("</style>")[1].split("<script>")[0]


def test_stock_and_names_of_a_file_are_kept(files):
    tree = to_reaction_tree(ROUTES[0], Stock(["CCO"]))
    (files / "trees.json").write_text(json.dumps([[tree], [to_reaction_tree(ROUTES[1])]]))
    assert draw("trees.json", "--html", "a.html") == 0
    text = (files / "a.html").read_text()
    assert text.count("✕ 1 not in stock") == 1 and "1 purchasable (all" in text
    named = [{"name": f"Route {number}", "path": route.to_string()} for number, route in enumerate(ROUTES)]
    (files / "named.json").write_text(json.dumps(named))
    assert draw("named.json", "--html", "a.html") == 0
    text = (files / "a.html").read_text()
    words = ("Target 1 of 2: Route 0, Route 2<", "Target 2 of 2: Route 1<", "no stock given")
    assert all(one in text for one in words)


def test_pictures(files):
    for more, number in ((), 2), (("--show", "2"), 3):
        assert draw("routes.jsonl", "--picture", "route.svg", *more) == 0
        pictures = sorted(path.name for path in files.glob("*.svg"))
        assert pictures == ["route-1.svg", "route-2.svg", "route-3.svg"][:number]
    assert "CNC(C)=O" in (files / "route-3.svg").read_text()  # target by target
    (files / "one.jsonl").write_text(ROUTES[1].to_string())
    assert draw("one.jsonl", "--picture", "one.png") == 0
    assert (files / "one.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("plans", [PLANS, PLANS[1:]])  # those of failed targets alone too
def test_the_page_of_a_plan_is_its_own(plans, files):
    (files / "plans").write_text(json.dumps({"plans": [plan.to_dict() for plan in plans]}))
    save_page(plans, files / "own.html")
    assert draw("plans", "--html", "page.html") == 0
    assert (files / "page.html").read_text() == (files / "own.html").read_text()


def test_a_plan_is_held_against_another_stock_and_cut(files, capsys):
    (files / "stock.smi").write_text("CC(=O)Cl\n")
    words = ["plans.json", "--html", "a.html", "--picture", "a.svg", "--show", "2"]
    assert draw(*words, "--stock", "stock.smi", "--limit", "1") == 0
    assert "Only 1 target of the file is drawn" in capsys.readouterr().out
    text = (files / "a.html").read_text()
    assert "✕ 2 not in stock" in text and "✕ 1 not in stock" in text and "no route" in text and "C1CC" not in text
    assert (files / "a-1.svg").read_text().count("not in stock") >= 2
    assert draw(*words, "--export", "a.aizynthfinder.json") == 0
    assert '"pandas_version"' in (files / "a.aizynthfinder.json").read_text()
    assert draw(*words, "--export", "a.sdf") == 0 and (files / "a.sdf").read_text().count("$$$$") == 4
    assert "C1CC" in (files / "a.html").read_text() and "not in stock" not in (files / "a-2.svg").read_text()
