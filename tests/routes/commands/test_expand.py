"""`weftformer routes expand`: reactions as text and as JSON lines, and what the user has and refuses."""

import json
import re

import pytest

from weftformer.routes.judging import Transformation
from weftformer.scripts import cli

from ..planning.test_pool import CHLORIDE, COUPLING

AMIDE, AMINE = "CC(=O)NCc1ccccc1", "NCc1ccccc1"


@pytest.fixture
def run(planner_folder, library, tmp_path, capsys):
    library(("O1", Transformation(COUPLING, 30)), ("Cl1", Transformation(CHLORIDE, 10)))
    (tmp_path / "stock.csv").write_text("smiles,price_usd\nCC(=O)O,5\n")

    def run(*words):
        more = ["--model", planner_folder, "--stock", str(tmp_path / "stock.csv")]
        code = cli.main(["routes", "expand", *words, *more, "--beams", "1"])
        return code, *capsys.readouterr()

    return run


def test_reactions_are_printed_in_their_order(run):
    code, out, _ = run("O=C(C)NCc1ccccc1")
    known = re.compile(r"\d+ recorded\n   usual reagents: .*")
    assert code == 0 and known.sub("N recorded", out).splitlines()[:5] == [
        "1: amide coupling, N recorded",
        f"   • CC(=O)O + {AMINE}",
        "   CC(=O)O: 5.00 USD",
        "2: amide from an acid chloride, N recorded",
        f"   CC(=O)Cl + {AMINE}",
    ]
    code, out, _ = run(AMIDE, "--forbid", f"{AMINE}.OC(C)=O>>{AMIDE}", "--have", AMINE, "--number", "1")
    assert out.splitlines()[2:4] == [f"   CC(=O)Cl + • {AMINE}", f"   {AMINE}: your own store"]


def test_json_lines_have_all_that_is_known(run, monkeypatch):
    code, out, _ = run(AMIDE, "--json-lines")
    first, *_, last = map(json.loads, out.splitlines())
    assert code == 0 and last["target"] == AMIDE and last["remarks"] == [] and last["found"] >= 2
    assert (first["rank"], first["name"], first["evidence"]) == (1, "amide coupling", "recorded")
    assert first["reaction"] == f"CC(=O)O.{AMINE}>>{AMIDE}" and 0 < len(first["examples"]) <= 3
    acid, amine = first["reactants"]
    assert (acid["in_stock"], acid["offer"]["price"]) == (True, 5.0)
    assert amine == {"smiles": AMINE, "in_stock": False, "offer": None}


def test_mistakes_and_molecules_without_reactions(run):
    code, _, err = run("C1CC")
    assert code == 1 and "'C1CC' is not a molecule" in err
    code, out, _ = run("C", "--max-new-tokens", "1")
    assert code == 3 and out == "reactions that make C: 0\n"
