import json
import re
from pathlib import Path
from types import SimpleNamespace

import pytest

from weftformer import WeftConfig
from weftformer.routes import write_routes
from weftformer.routes.evaluation import predicting
from weftformer.routes.files.formats import to_reaction_tree
from weftformer.routes.files.reaction_lines import to_reaction_line
from weftformer.routes.planning.planner import RoutePlanner
from weftformer.routes.plans import Candidate, Plan
from weftformer.scripts import cli

from ...conftest import save_both
from ...models import tiny_text_model
from ..trees import made

RECORDED = [
    made("CCO", "CC", "O"),
    made("CCNC(C)=O", made("CCN", "CC", "N"), made("CC(=O)O", "CC=O")),
    made("CCOC", made("CCO", "CC"), "CO"),
    made("CCCl", "CC"),
]
TOLD_WELL = {"CCO", "CCNC(C)=O"}


@pytest.fixture
def routes(tmp_path):
    file = tmp_path / "recorded.jsonl"
    write_routes(file, RECORDED)
    return str(file)


@pytest.fixture
def asked(monkeypatch):
    """A planner that ranks two recorded routes first, the third second if given the steps, and the last nowhere."""
    calls = []

    def stream(self, targets, settings, *, n_steps, **given):
        calls.append({"n_steps": n_steps, "settings": settings} | given)
        for index, target in reversed(list(enumerate(targets))):  # they end in another order
            recorded = next(r for r in RECORDED if r.smiles == target)
            wrong = made(target, "CBr", "CI")
            found = [recorded, wrong] if target in TOLD_WELL else [wrong, recorded if n_steps else wrong]
            if target == "CCCl":
                yield index, Plan(target, [], "too long for this model")
                continue
            candidates = [Candidate(r.to_string(), -i, None, r, rank=i + 1) for i, r in enumerate(found)]
            yield index, Plan(target, candidates)

    monkeypatch.setattr(RoutePlanner, "stream", stream)
    return calls


def run(*words) -> int:
    return cli.main(["routes", "evaluate", *map(str, words)])


def shares(file, column, metric="exact"):
    found = json.loads(file.read_text())["columns"][column]["overall"][metric]
    return {what: estimate["value"] for what, estimate in found.items()}


def test_a_model_from_end_to_end(untrained_folder, tmp_path):
    routes, saved, numbers = tmp_path / "r.jsonl.gz", tmp_path / "plans.jsonl", tmp_path / "numbers.json"
    write_routes(routes, [RECORDED[0]])
    words = [routes, "--model", untrained_folder, "--beams", "2", "--save-predictions", saved, "--json", numbers]
    assert run(*words) == 0
    assert [json.loads(line)["condition"] for line in saved.read_text().splitlines()] == ["told steps", "told nothing"]
    assert not list(tmp_path.glob("*.part"))
    assert json.loads(numbers.read_text())["columns"]["told steps"]["num_targets"] == 1


def test_numbers(untrained_folder, routes, asked, tmp_path, capsys):
    numbers = tmp_path / "numbers.json"
    assert run(routes, "--model", untrained_folder, "--json", numbers, "--ks", "1", "2") == 0
    assert shares(numbers, "told steps") == {"top-1": 0.5, "top-2": 0.75}
    assert shares(numbers, "told nothing") == {"top-1": 0.5, "top-2": 0.5}
    output = capsys.readouterr()
    assert "1 of 4 targets not planned, counted as not found: CCCl: too long for this model" in output.err
    assert re.search(r"top-1 +50\.0 \[15\.0, 85\.0\] +50\.0 \[15\.0, 85\.0\]", output.out)
    assert [call["n_steps"] for call in asked] == [[1, 2, 2, 1], None]
    for call in asked:
        settings = call["settings"]
        # recorded routes may be longer than planned ones are let
        assert call["on_error"] == "skip" and settings.beams == 10 and settings.grammar and not settings.enforce_limits


def test_saved_predictions_give_the_same_numbers(untrained_folder, routes, asked, tmp_path, capsys):
    saved, first, second = (tmp_path / name for name in ("plans.jsonl", "first.json", "second.json"))
    stock = tmp_path / "stock.smi"
    stock.write_text("CC\nO\nN\nCC=O\n")
    words = [routes, "--stock", stock, "--limit", "3", "--ks", "2", "1"]
    assert run(*words, "--model", untrained_folder, "--save-predictions", saved, "--json", first) == 0
    printed = capsys.readouterr().out
    assert run(*words, "--predictions", saved, "--json", second) == 0
    assert capsys.readouterr().out == printed
    assert json.loads(first.read_text())["columns"] == json.loads(second.read_text())["columns"]
    assert "Purchasable and recorded" in printed


def test_the_draw_of_targets_is_repeated_by_its_seed(tmp_path):
    file = tmp_path / "many.jsonl"
    write_routes(file, [made("C" * n + "O", "C" * n) for n in range(1, 30)])
    draws = [[r.smiles for r, _ in predicting.load_references(file, 5, seed)] for seed in (1, 1, 2)]
    assert draws[0] == draws[1] != draws[2] and len(set(draws[0])) == 5
    assert draws[0] == sorted(draws[0], key=len)
    # the starting materials are those of the whole file
    everything = dict(predicting.load_references(file, None, 1))
    assert all(everything[r] == material for r, material in predicting.load_references(file, 5, 1))


def test_repeated_targets_take_successive_plans():
    """The second route to a target takes the second plan for it."""
    known = [made("CCO", "CC", "O"), made("CCO", "CCCl")]
    column = {"CCO": [(Plan("CCO", id=name), None) for name in "ab"]}
    predictions = predicting.matched(column, [(one, "") for one in [*known, known[0]]], "column")
    assert [plan.id for _, plan, _ in predictions] == ["a", "b", "b"]


def test_a_model_that_is_not_told_steps():
    config = WeftConfig.from_preset("dms-tiny", num_condition_features=0)
    model = SimpleNamespace(config=config, generation_config=SimpleNamespace(routes=None))
    assert predicting.conditions_of(model, None) == ["nothing"]
    assert predicting.conditions_of(model, ["material", "nothing", "material"]) == ["material", "nothing"]
    with pytest.raises(ValueError, match="trained without the number of steps"):
        predicting.conditions_of(model, ["steps+material"])
    model.generation_config.routes = {"starting_material": False}
    with pytest.raises(ValueError, match=r"--with material is not supported\. This model was trained without"):
        predicting.conditions_of(model, ["nothing", "material"])


@pytest.mark.parametrize("form", ["trees", "reactions"])
def test_files_of_other_programs_are_scored(form, routes, tmp_path, caplog):
    """Of the first target the recorded route is second, of the last there is none."""
    file, numbers = tmp_path / "theirs", tmp_path / "numbers.json"
    wrong = made("CCO", "CBr", "CI")
    found = [wrong, *RECORDED[:3]]
    trees = json.dumps([[to_reaction_tree(route) for route in found[:2]], *([to_reaction_tree(r)] for r in found[2:])])
    file.write_text(trees if form == "trees" else "\n".join(map(to_reaction_line, found)))
    words = [routes, "--predictions", file, "--ks", "1", "2", "--json", numbers]
    assert run(*words) == 0
    assert "1 of 4 targets have no prediction and count as not found" in caplog.text
    assert shares(numbers, "predictions") == {"top-1": 0.5, "top-2": 0.75}


def test_own_reactions_count_as_precedents(untrained_folder, tmp_path, monkeypatch, capsys):
    """The library proposes, because these are single reactions, and judges, also what another program has written."""
    monkeypatch.chdir(tmp_path)
    mapped = "[CH3:1][CH2:2][Si](C)(C)C.[NH2:3][c:4]1[cH:5][cH:6][cH:7][cH:8][cH:9]1"
    Path("own.rsmi").write_text(f"{mapped}>>[CH3:1][CH2:2][NH:3][c:4]1[cH:5][cH:6][cH:7][cH:8][cH:9]1\n")
    assert cli.main(["routes", "library", "own.rsmi", "--output-file", "own.gz", "--workers", "1"]) == 0
    route = made("CCNc1ccc(F)cc1", "CC[Si](C)(C)C", "Nc1ccc(F)cc1")
    write_routes(Path("recorded.jsonl"), [route])
    Path("theirs.json").write_text(json.dumps([to_reaction_tree(route)]))
    Path("stock.smi").write_text("\n".join(route.leaves()))

    def share(*words, column="predictions"):
        assert run("recorded.jsonl", "--stock", "stock.smi", "--ks", "1", "--json", "numbers.json", *words) == 0
        [*found] = (
            shares(Path("numbers.json"), column, name)["top-1"] for name in ("exact", "purchasable_precedented")
        )
        return found

    planned = ["--model", untrained_folder, "--beams", "1", "--with", "steps", "--library", "own.gz"]
    assert share(*planned, "--save-predictions", "saved.jsonl", column="told steps") == [1, 1]
    assert share("--predictions", "saved.jsonl", column="told steps") == [1, 1]  # what was judged is kept
    assert share("--predictions", "theirs.json") == [1, 0]
    assert share("--predictions", "theirs.json", "--library", "own.gz") == [1, 1]
    assert run("recorded.jsonl", "--predictions", "theirs.json", "--library", "own.gz") == 1
    assert "--library judges the steps of purchasable routes: give --stock FILE too." in capsys.readouterr().err


def test_a_model_of_texts_is_refused(tmp_path, capsys):
    folder = save_both(tmp_path / "texts", *tiny_text_model(["one two"]))
    (tmp_path / "routes.jsonl").write_text('{"route": {"smiles": "CCO", "children": [{"smiles": "CC"}]}}\n')
    assert cli.main(["routes", "evaluate", str(tmp_path / "routes.jsonl"), "--model", folder]) == 1
    assert "writes texts, not routes" in capsys.readouterr().err
