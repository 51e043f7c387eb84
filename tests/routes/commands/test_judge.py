"""`weftformer routes judge`: reactions of the command line and of files."""

import json

import pytest

from weftformer.routes import judge
from weftformer.scripts import cli

AMIDE, WRONG = "CC(=O)O.NCc1ccccc1>>CC(=O)NCc1ccccc1", "CCO>>CCCCCCCCCCO"


def test_reactions_and_routes_are_judged(capsys):
    assert cli.main(["routes", "judge", AMIDE]) == 0
    out = capsys.readouterr().out
    assert AMIDE in out and "step 1: amide coupling, " in out and " recorded" in out and "usual reagents: " in out
    assert cli.main(["routes", "judge", AMIDE, f"N#Cc1ccccc1>>NCc1ccccc1 {AMIDE}", WRONG]) == 3
    out = capsys.readouterr().out
    assert out.count("amide coupling") == 2 and "step 2: " in out and "fails: " in out


def test_a_file_is_judged_as_json_lines(tmp_path, capsys):
    (tmp_path / "a.csv").write_text(f"reaction_smiles\n{AMIDE}\n{WRONG}\n")
    assert cli.main(["routes", "judge", "--input-file", str(tmp_path / "a.csv"), "--json-lines"]) == 3
    first, second = map(json.loads, capsys.readouterr().out.splitlines())
    reactants, product = AMIDE.split(">>")
    assert first == json.loads(json.dumps(judge(product, reactants.split(".")).to_dict()))
    assert (first["state"], second["state"]) == ("precedented", "fails")


@pytest.mark.parametrize("words", [[], [AMIDE, "--input-file", "a.csv"], ["CCO"]])
def test_what_cannot_be_judged_is_refused(words, capsys):
    assert cli.main(["routes", "judge", *words]) == 1
    assert "error: " in capsys.readouterr().err
