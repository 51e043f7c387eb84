"""`weftformer routes library` from the command line, and the library in plans, from the command line too."""

import csv
import html
import json

import pytest

pytest.importorskip("rdchiral")

from weftformer.routes import judge
from weftformer.routes.judging import library_of, shipped_library
from weftformer.routes.planning import pool
from weftformer.scripts import cli

# nobody else makes this amine by an exchange of silicon for nitrogen
OWN = (
    "[CH3:1][CH2:2][Si](C)(C)C.[NH2:3][c:4]1[cH:5][cH:6][cH:7][cH:8][cH:9]1"
    ">CN(C)C=O>[CH3:1][CH2:2][NH:3][c:4]1[cH:5][cH:6][cH:7][cH:8][cH:9]1"
)
AMIDE = (
    "[CH3:1][C:2](=[O:3])Cl.[NH2:4][CH2:5][c:6]1[cH:7][cH:8][cH:9][cH:10][cH:11]1"
    ">>[CH3:1][C:2](=[O:3])[NH:4][CH2:5][c:6]1[cH:7][cH:8][cH:9][cH:10][cH:11]1"
)
PRODUCT, REACTANTS = "CCNc1ccc(F)cc1", ["CC[Si](C)(C)C", "Nc1ccc(F)cc1"]
OTHER = "CCNc1ccc(F)c(N)c1"  # whose step has a remark if it is recorded: another amine may react
NAME = "heteroatom alkylation and arylation"


def weft(*words) -> int:
    return cli.main(["routes", "library", *map(str, words)])


@pytest.fixture(scope="module")
def own(tmp_path_factory) -> str:
    """A library of one reaction, made by the command."""
    folder = tmp_path_factory.mktemp("own")
    (folder / "own.csv").write_text(f"id,class,reaction_smiles\nELN-7,1,{OWN}\n")
    assert weft(folder / "own.csv", "--output-file", folder / "own.jsonl.gz", "--workers", 1) == 0
    return str(folder / "own.jsonl.gz")


@pytest.fixture
def plan(own, planner_folder, tmp_path, monkeypatch):
    """Plan targets from the command line with this library, in an empty folder with a stock."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "stock.smi").write_text("CC[Si](C)(C)C\nNc1ccc(F)cc1\nNc1ccc(F)c(N)c1\n")
    options = ["--library", own, "--model", planner_folder, "--stock", "stock.smi", "--beams", "1", "--no-progress"]
    return lambda *words: cli.main(["routes", "plan", *words, *options])


def test_a_library_of_own_reactions_supports_and_proposes_steps(tmp_path, capsys):
    reactions, out = tmp_path / "own.csv", tmp_path / "own.jsonl.gz"
    reactions.write_text(f"id,reaction_smiles\nELN-7,{OWN}\nELN-8,CC>>CCl\n")
    assert weft(reactions, "--output-file", out, "--workers", 1) == 0
    assert capsys.readouterr().out.splitlines() == [
        "         1  left out: uncertain atom maps: ELN-8",
        f"1 reactions have 1 different transformations. Saved to {out}.",
    ]
    library = library_of(str(out))
    found = judge(PRODUCT, REACTANTS, library)
    assert (found.state, found.precedents, found.examples[0].source) == ("precedented", 1, "ELN-7")
    assert found.usual_reagents == "DMF (1 of 1)"
    assert judge(PRODUCT, REACTANTS).state != "precedented"
    assert next(iter(library.propose(PRODUCT, 5)))[0] == tuple(REACTANTS)  # before the included ones
    assert len(library.propose(PRODUCT, 5)) == 5
    # an own reaction comes first where another template of the included library makes the same step
    (tmp_path / "amide.csv").write_text(f"id,reaction_smiles\nELN-9,{AMIDE}\n")
    assert weft(tmp_path / "amide.csv", "--output-file", tmp_path / "amide.gz", "--workers", 1) == 0
    acetamide, chloride = "CC(=O)NCc1ccccc1", ["CC(=O)Cl", "NCc1ccccc1"]
    with_own, without = judge(acetamide, chloride, library_of(str(tmp_path / "amide.gz"))), judge(acetamide, chloride)
    assert with_own.examples[0].source == "ELN-9" and with_own.precedents == without.precedents + 1
    assert with_own.title == without.title
    # the included transformations are there, with their counts
    amide = "CC(=O)NCc1ccccc1", ["CC(=O)O", "NCc1ccccc1"]
    assert judge(*amide, library).precedents == judge(*amide).precedents


@pytest.mark.parametrize(
    ("content", "words", "message"),
    [
        ("CC>>CCl\n", (), "uncertain atom maps"),
        ("id,name\n1,a\n", (), "no reaction that can be read"),
        ("", (), "no reaction that can be read"),
        (None, (), "No such file"),
        (OWN, ("--workers", 0), "give at least 1"),
    ],
)
def test_what_cannot_be_a_library_is_one_line(tmp_path, capsys, content, words, message):
    if content is not None:
        (tmp_path / "own.csv").write_text(content)
    assert weft(tmp_path / "own.csv", "--output-file", tmp_path / "out.gz", *words) == 1
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1 and not (tmp_path / "out.gz").exists()


def test_a_library_is_not_overwritten_unasked(tmp_path, capsys):
    (tmp_path / "own.rsmi").write_text(OWN)
    for words, code in (((), 0), ((), 1), (("--overwrite",), 0)):
        assert weft(tmp_path / "own.rsmi", "--output-file", tmp_path / "out.gz", "--workers", 1, *words) == code
    assert "exists" in capsys.readouterr().err


def test_a_plan_with_a_file_that_is_no_library_stops_at_once(tmp_path, capsys):
    (tmp_path / "own.txt").write_text("CCO\n")
    words = ["routes", "plan", "CC(=O)Nc1ccccc1", "--library", str(tmp_path / "own.txt")]
    assert cli.main(words) == 1
    assert "is not a library of transformations" in capsys.readouterr().err


def test_own_reactions_are_planned_and_shown_everywhere(plan, tmp_path, capsys):
    endings = ("csv", "rdf", "summary.csv")
    words = [word for ending in endings for word in ("--export", f"a.{ending}")]
    assert (
        plan(PRODUCT, "--output-file", "a.jsonl", "--json", "a.json", *words, "--html", "a.html", "--picture", "a.svg")
        == 0
    )
    out = capsys.readouterr().out
    assert f"step 1: {NAME}, 1 recorded" in out and "usual reagents: DMF (1 of 1)" in out
    assert "solved by recorded or textbook steps from the stock" in out
    for row in (json.loads((tmp_path / "a.jsonl").read_text()), *json.loads((tmp_path / "a.json").read_text())):
        first = row["candidates"][0]
        [step] = first["reactions"]
        assert row["library"] and row["library"] != shipped_library().version
        assert row["solved"] and first["precedented"] and first["evidence"] == "recorded"
        assert (step["state"], step["class"], step["examples"][0]["source"]) == ("precedented", NAME, "ELN-7")
    [first, *_] = csv.DictReader((tmp_path / "a.csv").read_text().splitlines())
    assert (first["solved"], first["precedented"]) == ("true", "true")
    page, picture = (html.unescape((tmp_path / f"a.{ending}").read_text()) for ending in ("html", "svg"))
    described = f"Step 1, {NAME}: {' and '.join(REACTANTS)} give {PRODUCT}."
    assert described in page and described in picture
    assert f"Last reaction: {NAME}" in page and "1 of 1 step recorded" in page and "ELN-7" in page
    # what is read back says the same, although nobody names the library again
    for file in ("a.jsonl", "a.json"):
        words = [word for ending in endings for word in ("--export", f"b.{ending}")]
        assert (
            cli.main(["routes", "draw", file, "--export", "b.json", *words, "--html", "b.html", "--picture", "b.svg"])
            == 0
        )
        for ending in (*endings, "json", "html"):
            written, again = ((tmp_path / f"{name}.{ending}").read_text() for name in "ab")
            assert again.split("<footer")[0] == written.split("<footer")[0]
        pictures = sorted(tmp_path.glob("b*.svg"))
        assert pictures[0].read_text() == (tmp_path / "a.svg").read_text()
    # another stock does not change what is known of the steps
    (tmp_path / "other.smi").write_text("CCO\n")
    assert cli.main(["routes", "draw", "a.json", "--stock", "other.smi", "--export", "c.json"]) == 0
    first = json.loads((tmp_path / "c.json").read_text())[0]["candidates"][0]
    assert (first["purchasable"], first["evidence"]) == (False, "recorded")


def test_own_reactions_stay_recorded_if_a_run_is_resumed(plan, tmp_path, monkeypatch):
    words = [PRODUCT, OTHER, "--output-file", "a.csv", "--json", "a.json"]
    assert plan(*words) == 0
    whole = {name: rows_of(tmp_path / name) for name in ("a.csv", "a.json")}
    (tmp_path / "a.csv").unlink()

    def interrupted(self):
        if len(self) == 1:
            raise KeyboardInterrupt
        return step(self)

    step = pool.PlanPool.step
    with monkeypatch.context() as patch:
        patch.setattr(pool, "ROWS_OF_MANY", 1)  # so that one target ends first
        patch.setattr(pool.PlanPool, "step", interrupted)
        assert plan(*words) == 130
    assert len(list((tmp_path / "a.csv.parts").glob("part-*"))) == 1
    assert plan(*words, "--resume") == 0
    assert {name: rows_of(tmp_path / name) for name in whole} == whole


def test_own_reactions_stay_recorded_in_joined_parts(plan, tmp_path):
    assert plan(PRODUCT, OTHER, "--output-file", "a.csv", "--json", "a.json") == 0
    for shard in ("1/2", "2/2"):
        assert plan(PRODUCT, OTHER, "--output-file", "parts", "--shard", shard) == 0
    for name in ("a.csv", "a.json"):
        assert cli.main(["routes", "plan", "--join", "parts", "--output-file", f"joined-{name}"]) == 0
        assert rows_of(tmp_path / f"joined-{name}") == rows_of(tmp_path / name)


def rows_of(file) -> list[dict]:
    """Return the rows of a table or of a JSON list, without the seconds of the search."""
    text = file.read_text()
    rows = json.loads(text) if file.suffix == ".json" else csv.DictReader(text.splitlines())
    return [{key: value for key, value in row.items() if key != "seconds"} for row in rows]


def test_files_for_aizynthfinder(tmp_path, capsys):
    pytest.importorskip("onnx")
    (tmp_path / "stock.smi").write_text("CCO\nCC(=O)O acid\n")
    folder = tmp_path / "files"
    assert weft("--aizynthfinder", folder, "--stock", tmp_path / "stock.smi") == 0
    assert f"aizynthcli --config {folder / 'config.yml'}" in capsys.readouterr().out
    assert {file.name for file in folder.iterdir()} == {"config.yml", "policy.onnx", "stock.txt", "templates.csv"}
    ranker, classes = shipped_library().ranker
    assert len((folder / "templates.csv").read_text().splitlines()) == 1 + len(classes) == 1 + len(ranker.places)
    assert len((folder / "stock.txt").read_text().split()) == 2
    for words, message in (
        (("--aizynthfinder", folder), "exists: choose another folder"),
        (("reactions.csv", "--aizynthfinder", folder), "give REACTIONS and --output-file, or --aizynthfinder"),
        ((), "give REACTIONS and --output-file, or --aizynthfinder"),
        (
            ("reactions.csv", "--output-file", tmp_path / "own.gz", "--stock", "a.smi"),
            "--stock is for --aizynthfinder",
        ),
        (("reactions.csv",), "--output-file is required"),
    ):
        assert weft(*words) == 1 and message in capsys.readouterr().err
    assert weft("--aizynthfinder", folder, "--overwrite") == 0  # with the included stock
    assert len((folder / "stock.txt").read_text().split()) > 7_000
