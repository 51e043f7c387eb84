"""Atom maps for recorded reactions that have none."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from rdkit import Chem

from ..chemistry.molecules import joined, structure
from ..chemistry.skeleton import sources
from ..judging.judgement import readings
from ..judging.library import Library


def with_maps(product: str, reactants: Sequence[str], library: Library) -> str | None:
    """Return a reaction SMILES with atom maps: those of a transformation that the library knows, or else those of the
    largest common substructures of product and reactants.

    Args:
        product: SMILES of the product.
        reactants: SMILES of the reactants. Reagents among them get no numbers.
        library: the recorded transformations.

    Returns:
        The reaction, or None if atoms of the product have no source, or if the search takes too long.
    """
    for match, _, bystanders, comparison in readings(product, reactants, library):
        if comparison is None and match.refusal(bystanders) is None:
            return f"{match.step.mapped}>>{Chem.MolToSmiles(match.step.molecule)}"
    copies = Counter(joined(reactants).split("."))
    origins = sources(product, tuple(sorted(copies)), max(copies.values()))
    if origins is None or origins.mapped is None or origins.pieces:
        return None
    molecule: Any = Chem.Mol(structure(product))
    for atom in molecule.GetAtoms():
        atom.SetAtomMapNum(atom.GetIdx() + 1)
    return f"{origins.mapped}>>{Chem.MolToSmiles(molecule)}"
