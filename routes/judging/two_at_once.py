"""Two recorded transformations in one step, such as the hydrolysis of an ester during a coupling."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from ..chemistry.molecules import canonical_smiles, joined
from .all_sites import parts_of
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
            reactants_of_last = parts_of(last, range(1, last.molecule.GetNumAtoms() + 1))
            for numbers in (other.numbers for other in reactants_of_last if other.smiles == intermediates[0]):
                atoms = {numbers[number - 1] for number in earlier.step.changed_atoms}
                if last.changed_atoms.isdisjoint(atoms) and 0 not in atoms:
                    return later, earlier.transformation
    return None
