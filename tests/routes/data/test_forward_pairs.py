"""Reactions as pairs of reactants and product."""

import csv
import gzip
import json

import pytest

pytest.importorskip("rdkit")

from weftformer.routes import Route, write_routes
from weftformer.routes.data.forward_pairs import forward_pairs, reactions_of, write_forward_pairs
from weftformer.routes.molecules import canonical_smiles
from weftformer.scripts import cli

AMIDE = Route("CC(=O)NCc1ccccc1", (Route("NCc1ccccc1", (Route("N#Cc1ccccc1"), Route("[H][H]"))), Route("CC(=O)O")))
ESTER = Route("CCOC(C)=O", (Route("OC(C)=O"), Route("CCO")))


def test_reactions_are_canonical_and_sorted():
    assert list(reactions_of(AMIDE)) == [
        ("CC(=O)NCc1ccccc1", ("CC(=O)O", "NCc1ccccc1")),
        ("NCc1ccccc1", ("N#Cc1ccccc1", "[H][H]")),
    ]
    assert list(reactions_of(ESTER)) == [("CCOC(C)=O", ("CC(=O)O", "CCO"))]
    assert list(reactions_of(Route("CCO"))) == []


def test_texts_differ_and_stay_the_same_molecules():
    reaction = next(reactions_of(AMIDE))
    pairs = list(forward_pairs(reaction, texts=4, seed=1))
    assert pairs[0] == ("CC(=O)O.NCc1ccccc1", "CC(=O)NCc1ccccc1")
    assert len(set(pairs)) == 4
    for source, product in pairs:
        assert canonical_smiles(product) == reaction[0]
        assert sorted(map(canonical_smiles, source.split("."))) == list(reaction[1])
    # what does not react is written alike
    assert next(forward_pairs(("Clc1ccc(Br)cc1", ("Nc1ccc(Br)cc1",))))[0].endswith("c1ccc(Br)cc1")
    assert pairs != list(forward_pairs(reaction, texts=4, seed=2))


def test_each_reaction_is_written_once_and_none_that_is_held_out(tmp_path, capsys):
    write_routes(tmp_path / "routes.jsonl", [AMIDE, AMIDE, ESTER, Route("CCO")])
    write_routes(tmp_path / "held.jsonl", [Route("CCOC(C)=O", (Route("CC(=O)Cl"), Route("CCO")))])
    out = tmp_path / "pairs.csv.gz"
    files = [str(tmp_path / "routes.jsonl"), "--exclude", str(tmp_path / "held.jsonl")]
    assert cli.main(["routes", "prepare-reactions", *files, "--output-file", str(out), "--texts", "2"]) == 0
    rows = list(csv.DictReader(gzip.decompress(out.read_bytes()).decode().splitlines()))
    assert [canonical_smiles(row["product"]) for row in rows] == ["CC(=O)NCc1ccccc1"] * 2 + ["NCc1ccccc1"] * 2
    shown = capsys.readouterr().out
    assert "4 routes read, 0 of them unreadable; 1 reactions excluded" in shown
    assert "4 pairs of 2 reactions" in shown


def test_atom_maps_hide_no_reaction_that_is_held_out(tmp_path):
    ether = {"product": "[CH3:1][O:2][CH3:3]", "reactants": ["[CH3:1][OH:2]", "[CH3:3]I", "[Na+:9]"]}
    amine = {"product": "[CH3:1][NH2:2]", "reactants": ["[CH3:1]I", "[NH3:2]", "[Na+:9]"]}
    (tmp_path / "reactions.jsonl").write_text(f"{json.dumps(ether)}\n{json.dumps(amine)}\n")
    (tmp_path / "held.txt").write_text("CO.CCl>>COC\n")
    counts = write_forward_pairs(
        [tmp_path / "reactions.jsonl"], tmp_path / "out.csv", exclude=[tmp_path / "held.txt"], progress=False
    )
    assert counts["excluded"] == 1
    assert (tmp_path / "out.csv").read_text() == "reactants,product\nCI.N,CN\n"


def test_nothing_left_is_an_error_and_writes_nothing(tmp_path):
    write_routes(tmp_path / "routes.jsonl", [ESTER])
    with pytest.raises(ValueError, match="No reaction is left of the 1 routes"):
        write_forward_pairs(
            [tmp_path / "routes.jsonl"], tmp_path / "out.csv", exclude=[tmp_path / "routes.jsonl"], progress=False
        )
    assert not (tmp_path / "out.csv").exists()
