"""A recorded transformation at all its sites in one step, such as the removal of all acetyl groups of a sugar."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

from rdkit import Chem

from ..chemistry.changes import Change, without_maps
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


class Part(NamedTuple):
    """A reactant: its canonical SMILES, the numbers of its atoms in the product in this order, 0 for those that leave,
    and its SMILES with these numbers.
    """

    smiles: str
    numbers: list[int]
    mapped: str


class _Cut(NamedTuple):
    """A way to cut a part of a product: the numbers of the atoms that change, and the reactants."""

    site: set[int]
    parts: list[Part]


def at_all_sites(
    smarts: str, product: str, single: Mapping[str, MappedStep], among: Collection[str] | None = None
) -> Iterator[AllSites]:
    """Yield what a template derives from a product if all its sites change at once. A single site yields nothing.

    One reactant has all sites, and the others are copies of the same molecules: the amide bonds of a peptide are not
    made at once. Where hydrogen replaces other atoms, each C-H would be a site, and where hydrogen of an arene is
    replaced, the first substituent decides where the second one goes. Such sites do not count.

    Args:
        smarts: the template.
        product: canonical SMILES.
        single: the [`~judging.templates.outcomes`] of the template.
        among: SMILES of the reactants, if they are known.
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
    cuts: list[_Cut] | None = None
    for others, count in of_others.items():
        if (count > 1 or has_equivalent) and (among is None or set(others).issubset(among)):
            if cuts is None:
                cuts = list(_cuts(single.values(), range(1, structure(product).GetNumAtoms() + 1)))
            if (found := _repeated(smarts, product, cuts, others)) is not None:
                yield found


@lru_cache(_MOLECULES)
def _ranks(product: str) -> list[int]:
    return list(Chem.CanonicalRankAtoms(structure(product), breakTies=False))


def _cuts(steps: Iterable[MappedStep], numbers: Sequence[int]) -> Iterator[_Cut]:
    """Yield steps to a part of a product, whose atoms have numbers there. Atoms that an earlier cut adds have 0, and
    must not change.
    """
    for step in steps:
        site = {numbers[number - 1] for number in step.changed_atoms}
        if step.reactants is None or 0 in site or step.hydrogenated_atoms:
            continue
        if not any(change.hydrogens < 0 and _is_arene(step, change) for change in step.changes):
            yield _Cut(site, parts_of(step, numbers))


def _repeated(smarts: str, product: str, cuts: Iterable[_Cut], others: tuple[str, ...]) -> AllSites | None:
    """Return what a template derives from a product if it is applied as long as it also makes some other molecules.

    Args:
        smarts: the template.
        product: canonical SMILES.
        cuts: the single steps.
        others: SMILES of the other molecules, sorted.
    """
    changed, sites, mapped = set[int](), list[set[int]](), list[str]()
    while (found := _next(cuts, others, changed)) is not None:
        if len(sites) == MOST_SITES:
            return None
        site, (main, *leaving) = found
        sites.append(site)
        changed |= site
        mapped += [part.mapped for part in leaving]
        cuts = _cuts(outcomes(smarts, main.smiles).values(), main.numbers)
    if len(sites) < 2 or main.smiles in others or any(site.isdisjoint(main.numbers) for site in sites):
        return None
    reactants = joined([main.smiles, *others * len(sites)])
    return AllSites(len(sites), reactants, MappedStep(product, ".".join([main.mapped, *mapped])))


def _next(cuts: Iterable[_Cut], others: tuple[str, ...], changed: set[int]) -> _Cut | None:
    """Return the first cut that changes none of some atoms and makes the others, its reactant with the sites first."""
    for site, parts in cuts:
        for main in parts if changed.isdisjoint(site) else ():
            leaving = [part for part in parts if part is not main]
            if tuple(sorted(part.smiles for part in leaving)) == others:
                return _Cut(site, [main, *leaving])
    return None


def _is_arene(step: MappedStep, change: Change) -> bool:
    atom = step.molecule.GetAtomWithIdx(change.after)
    return atom.GetIsAromatic() and atom.GetSymbol() == "C"


def parts_of(step: MappedStep, numbers: Sequence[int]) -> list[Part]:
    """Return the reactants of a step to a part of a product, whose atoms have numbers there."""
    of_product, parts = dict(enumerate(numbers, 1)), list[Part]()
    for molecule in Chem.GetMolFrags(step.reactants, asMols=True):
        for atom in molecule.GetAtoms():
            atom.SetAtomMapNum(of_product.get(atom.GetAtomMapNum(), 0))
        mapped, bare = Chem.MolToSmiles(molecule), without_maps(molecule)
        smiles = Chem.MolToSmiles(bare)
        order = bare.GetPropsAsDict(True, True)["_smilesAtomOutputOrder"]
        parts.append(Part(smiles, [molecule.GetAtomWithIdx(place).GetAtomMapNum() for place in order], mapped))
    return parts
