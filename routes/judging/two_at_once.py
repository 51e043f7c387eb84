"""Two recorded transformations in one step, such as the hydrolysis of an ester during a coupling."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from rdkit import Chem

from ..chemistry.groups import changed_atoms, objection
from ..chemistry.molecules import canonical_smiles
from .transformations import LEAST_PROPOSED, Library, Transformation, joined

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
    made, wanted = canonical_smiles(product), joined(reactants)
    tries = iter(range(_MOST_APPLIED // len(made)))
    for later, _ in zip(library.first_of_two(made, wanted)[:_MOST_TRIED], tries, strict=False):
        for outcome, mapped in later.outcomes(made).items():
            left, intermediates = Counter(wanted.split(".")), list[str]()
            for part in joined(outcome.split(".")).split("."):
                if left[part]:
                    left[part] -= 1
                else:
                    intermediates.append(part)
            if len(intermediates) != 1 or not (origins := list(left.elements())):
                continue
            if objection(later.name, made, mapped) is not None:
                continue
            earlier, objected, mapped_before = library.match(intermediates[0], origins, tries=tries)
            if earlier is None or objected is not None or earlier.count < LEAST_PROPOSED:
                continue
            changed = changed_atoms(made, mapped)
            for numbers in _numbers(intermediates[0], mapped):
                also = {numbers[number - 1] for number in changed_atoms(intermediates[0], mapped_before)}
                if changed.isdisjoint(also) and 0 not in also:
                    return later, earlier
    return None


def _numbers(smiles: str, mapped: str) -> Iterator[list[int]]:
    """Yield the numbers of the atoms of a molecule among mapped ones, in the order of its SMILES."""
    for part in mapped.split("."):
        molecule: Any = Chem.MolFromSmiles(part)
        if molecule is None:
            continue
        numbers = [atom.GetAtomMapNum() for atom in molecule.GetAtoms()]
        for atom in molecule.GetAtoms():
            atom.SetAtomMapNum(0)
        if Chem.MolToSmiles(molecule) == smiles:
            yield [numbers[place] for place in molecule.GetPropsAsDict(True, True)["_smilesAtomOutputOrder"]]
