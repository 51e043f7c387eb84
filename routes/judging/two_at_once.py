"""Two recorded transformations in one step, such as the hydrolysis of an ester during a coupling."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from rdkit import Chem

from ..chemistry.molecules import canonical_smiles, joined
from ..chemistry.step import MappedStep
from .library import LEAST_PROPOSED, Library
from .objections import refusal
from .templates import outcomes
from .transformation import Transformation

# The number of transformations that are tried as the later of the two.
_MOST_TRIED = 50
# A bound on the number of transformations that are applied, times the number of characters of the product: a peptide
# of ten residues would take half a minute, and one of 25 residues many. Steps of drugs need some hundreds.
_MOST_APPLIED = 8_000


def two_at_once(
    product: str, reactants: Sequence[str], library: Library
) -> tuple[Transformation, Transformation] | None:
    """Return two recorded transformations that turn a product into its reactants one after the other, or None.

    They change different atoms of the product. Otherwise, their intermediate may hide what neither of them does.

    Args:
        product: SMILES of the product.
        reactants: SMILES of the reactants.
        library: the recorded transformations.

    Returns:
        The later of the two first.
    """
    canonical, canonical_reactants = canonical_smiles(product), joined(reactants)
    tries = iter(range(_MOST_APPLIED // len(canonical)))
    for later, _ in zip(library.first_of_two(canonical, canonical_reactants)[:_MOST_TRIED], tries, strict=False):
        for outcome, last in outcomes(later.smarts, canonical).items():
            rest, intermediates = Counter(canonical_reactants.split(".")), list[str]()
            for part in joined(outcome.split(".")).split("."):
                if rest[part]:
                    rest[part] -= 1
                else:
                    intermediates.append(part)
            origins = list(rest.elements())
            if len(intermediates) != 1 or not origins:
                continue
            if refusal(later, last) is not None:
                continue
            earlier = library.match(intermediates[0], origins, tries)
            if earlier is None or earlier.refusal() or earlier.transformation.count < LEAST_PROPOSED:
                continue
            for numbers in _numbers(intermediates[0], last):
                atoms = {numbers[number - 1] for number in earlier.step.changed_atoms}
                if last.changed_atoms.isdisjoint(atoms) and 0 not in atoms:
                    return later, earlier.transformation
    return None


def _numbers(smiles: str, step: MappedStep) -> Iterator[list[int]]:
    """Yield the numbers of the atoms of a molecule among the reactants of a step, in the order of its SMILES."""
    molecules: Any = () if step.reactants is None else Chem.GetMolFrags(step.reactants, asMols=True)
    for molecule in molecules:
        numbers = [atom.GetAtomMapNum() for atom in molecule.GetAtoms()]
        for atom in molecule.GetAtoms():
            atom.SetAtomMapNum(0)
        if Chem.MolToSmiles(molecule) == smiles:
            yield [numbers[place] for place in molecule.GetPropsAsDict(True, True)["_smilesAtomOutputOrder"]]
