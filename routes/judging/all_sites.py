"""A recorded transformation at all its sites in one step, such as the removal of all acetyl groups of a sugar."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

from rdkit import Chem

from ..chemistry.changes import Change
from ..chemistry.molecules import joined, structure
from ..chemistry.step import MappedStep
from .templates import outcomes, patterns

# The largest number of sites, and the number of products that are cached.
MOST_SITES, _MOLECULES = 8, 64


class AllSites(NamedTuple):
    """What a template makes of a product if all its sites change.

    Args:
        num_sites: the number of sites.
        reactants: canonical SMILES of the reactants.
        step: the step.
    """

    num_sites: int
    reactants: str
    step: MappedStep


class _Part(NamedTuple):
    """A reactant: its canonical SMILES, the numbers of its atoms in the product in this order, 0 for those that leave,
    and its SMILES with these numbers.
    """

    smiles: str
    numbers: list[int]
    mapped: str


def at_all_sites(smarts: str, product: str, single: Mapping[str, MappedStep]) -> Iterator[AllSites]:
    """Yield what a template derives from a product if all its sites change at once, nothing if there is one site.

    One reactant has all sites, and the others are copies of the same molecules: the amide bonds of a peptide are not
    made at once. Where hydrogen replaces other atoms, each C-H would be a site, and where hydrogen of an arene is
    replaced, the first substituent decides where the second one goes. Such sites do not count.

    Args:
        smarts: the template.
        product: canonical SMILES.
        single: the [`~judging.templates.outcomes`] of the template.
    """
    matches = structure(product).GetSubstructMatches(patterns(smarts)[0])
    if len(matches) < 2:
        return
    of_others = Counter[tuple[str, ...]]()
    for reactants in single:
        molecules = sorted(reactants.split("."))
        of_others.update({(*molecules[:place], *molecules[place + 1 :]) for place in range(len(molecules))})
    ranks = _ranks(product)
    # the outcomes have one of equivalent sites
    has_equivalent = len({tuple(sorted(ranks[place] for place in atoms)) for atoms in matches}) < len(matches)
    for others, count in of_others.items():
        if (count > 1 or has_equivalent) and (found := _repeated(smarts, product, single, others)) is not None:
            yield found


@lru_cache(_MOLECULES)
def _ranks(product: str) -> list[int]:
    return list(Chem.CanonicalRankAtoms(structure(product), breakTies=False))


def _repeated(smarts: str, product: str, single: Mapping[str, MappedStep], others: tuple[str, ...]) -> AllSites | None:
    """Return what a template derives from a product if it is applied as long as it also makes some other molecules."""
    main = _Part(product, list(range(1, structure(product).GetNumAtoms() + 1)), product)
    sites, mapped, steps = list[set[int]](), list[str](), single
    while len(sites) < MOST_SITES and (cut := _next_cut(steps.values(), main, others, sites)) is not None:
        site, main, leaving = cut
        sites.append(site)
        mapped += [part.mapped for part in leaving]
        steps = outcomes(smarts, main.smiles)
    if len(sites) < 2 or main.smiles in others or any(site.isdisjoint(main.numbers) for site in sites):
        return None
    reactants = joined([main.smiles, *others * len(sites)])
    return AllSites(len(sites), reactants, MappedStep(product, ".".join([main.mapped, *mapped])))


def _next_cut(
    steps: Iterable[MappedStep], part: _Part, others: tuple[str, ...], sites: Sequence[set[int]]
) -> tuple[set[int], _Part, list[_Part]] | None:
    """Return the atoms that the first step at another site than some changes, and its reactants: the one with the
    sites, and the others.

    Args:
        steps: steps to a part of a product.
        part: this part.
        others: SMILES of the other reactants, sorted.
        sites: the atoms of the product that are changed.
    """
    for step in steps:
        site = {part.numbers[number - 1] for number in step.changed_atoms}
        if step.reactants is None or not site.isdisjoint({0}.union(*sites)):
            continue
        if step.hydrogenated_atoms or any(change.hydrogens < 0 and _is_arene(step, change) for change in step.changes):
            continue
        parts = _parts(step, part.numbers)
        for main in parts:
            leaving = [other for other in parts if other is not main]
            if tuple(sorted(other.smiles for other in leaving)) == others:
                return site, main, leaving
    return None


def _is_arene(step: MappedStep, change: Change) -> bool:
    atom = step.molecule.GetAtomWithIdx(change.after)
    return atom.GetIsAromatic() and atom.GetSymbol() == "C"


def _parts(step: MappedStep, numbers: Sequence[int]) -> list[_Part]:
    """Return the reactants of a step to a part of a product, whose atoms have numbers there."""
    parts = list[_Part]()
    for molecule in Chem.GetMolFrags(step.reactants, asMols=True):
        atoms = molecule.GetAtoms()
        for atom in atoms:
            number = atom.GetAtomMapNum()
            atom.SetAtomMapNum(numbers[number - 1] if 0 < number <= len(numbers) else 0)
        of_product, mapped = [atom.GetAtomMapNum() for atom in atoms], Chem.MolToSmiles(molecule)
        for atom in atoms:
            atom.SetAtomMapNum(0)
        smiles = Chem.MolToSmiles(molecule)
        order = molecule.GetPropsAsDict(True, True)["_smilesAtomOutputOrder"]
        parts.append(_Part(smiles, [of_product[place] for place in order], mapped))
    return parts
