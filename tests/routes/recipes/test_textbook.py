"""Textbook reactions: the maps of each example are whole, and one example of each name is found by the others."""

import csv
import re
from pathlib import Path

import pytest
from rdkit import Chem

from weftformer.routes.judging import judge, shipped_library
from weftformer.routes.judging.library import Library
from weftformer.routes.training.extraction import Extraction, build, record_of

TEXTBOOK = Path(__file__).parents[3] / "routes" / "recipes" / "textbook.csv"
with TEXTBOOK.open(encoding="utf-8", newline="") as file:
    ROWS = list(csv.DictReader(file))
REACTIONS: dict[str, list[str]] = {}
for row in ROWS:
    REACTIONS.setdefault(row["id"], []).append(row["reaction_smiles"])


def numbered(smiles: str) -> list[tuple[int, str]]:
    """Return the number and the symbol of each atom, in the order of the numbers."""
    return sorted((atom.GetAtomMapNum(), atom.GetSymbol()) for atom in Chem.MolFromSmiles(smiles).GetAtoms())


def test_each_atom_of_a_product_comes_from_one_atom_of_its_element():
    for row in ROWS:
        reactants, product = row["reaction_smiles"].split(">>")
        made, given = numbered(product), [atom for atom in numbered(reactants) if atom[0]]
        assert [number for number, _ in made] == list(range(1, len(made) + 1)), row
        assert given == made, row


def test_each_example_has_a_source_and_stands_once():
    assert all(re.search("[a-z]", row["source"]) for row in ROWS)
    records = [record_of(row["reaction_smiles"]) for row in ROWS]
    examples = {(row["id"], record.reactants, record.product) for row, record in zip(ROWS, records, strict=True)}
    assert len(examples) == len(ROWS)


@pytest.mark.integration
@pytest.mark.parametrize("name", REACTIONS)
def test_an_example_is_found_by_the_transformation_of_another(name):
    records, extraction = list(map(record_of, REACTIONS[name])), Extraction()
    templates = [extraction.template(record)[0] for record in records]
    assert None not in templates

    def is_found(place: int) -> bool:
        others = [part[:place] + part[place + 1 :] for part in (records, templates)]
        library, record = Library(build(*others)), records[place]
        return library.match(record.product, record.reactants.split(".")) is not None

    assert any(map(is_found, range(len(records))))


def test_the_included_library_has_each_name():
    library = shipped_library().textbook
    assert library is not None
    names = {row.textbook for _, row in library.rows()}
    assert names <= REACTIONS.keys() and len(names) > len(REACTIONS) - 10


@pytest.mark.integration
@pytest.mark.parametrize("name", REACTIONS)
def test_each_example_is_recorded_or_from_a_textbook(name):
    records = map(record_of, REACTIONS[name])
    evidence = {judge(record.product, record.reactants.split(".")).evidence for record in records}
    assert evidence <= {"recorded", "textbook"}
