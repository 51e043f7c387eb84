"""What speaks against a step although recorded reactions have its transformation: what these reactions say of the site
that reacts, of the groups that stay and of the atoms that it makes, and rules where they cannot know.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cache, lru_cache
from importlib.resources import files
from typing import Any

from rdkit import Chem
from safetensors.numpy import load_file

from ..chemistry.changes import without_maps
from ..chemistry.faults import isotopes_of
from ..chemistry.finding import Finding
from ..chemistry.molecules import structure
from ..chemistry.reactivity import rule_objections
from ..chemistry.step import MappedStep
from .sites import Choice, Environments, Sites, choices
from .transformation import Transformation
from .unseen import Unseen, ratio

LEARNED = "learned.safetensors"
# The probabilities of a site below which a step is refused, its route ranks lower, and the step has a note.
REFUSED, DOUBTFUL, NOTED = 0.03, 0.3, 0.75
# Kinds of sites that are refused earlier. Of their recorded sites, 1.4% and 8% have less.
REFUSED_OF = {"binds": 0.1, "aromatic CH": 0.1}
# The same for the ratio of a recorded number to the expected one.
REFUSED_RATIO, DOUBTFUL_RATIO, NOTED_RATIO = 0.05, 0.07, 0.14
# The kind of site that reagents choose: which of two protecting groups is removed. A step may not list its reagents.
BY_REAGENTS = "released"
# The numbers of recorded molecules up to which an atom with its neighbours is unknown, and from which it is common.
FEW, MANY = 1, 50
# The number of steps whose sites are cached: they are looked at twice in a row.
_STEPS = 16


@cache
def learned() -> tuple[Sites, Unseen]:
    """Return what was learned from the reactions of the included library."""
    tensors = load_file(str(files("weftformer.routes.shipped").joinpath(LEARNED)))
    sites = Sites(tensors["sites.weight"], float(tensors["sites.scale"]))
    return sites, Unseen({name.removeprefix("unseen."): value for name, value in tensors.items() if "unseen" in name})


def objections(transformation: Transformation, step: MappedStep, bystanders: Sequence[str] = ()) -> Iterator[Finding]:
    """Yield what speaks against a step, although recorded reactions have its transformation.

    Args:
        transformation: the transformation. Records know little of those of textbooks, and refuse none.
        step: the step.
        bystanders: SMILES of molecules that are there and do not react.
    """
    yield from _of_reactants(transformation, step, bystanders)
    if step.reactants is not None:
        yield from _of_bonds(step)


def refusal(transformation: Transformation, step: MappedStep, bystanders: Sequence[str] = ()) -> str | None:
    """Return the first of the [`objections`] that refuses a step, or None."""
    findings = _of_reactants(transformation, step, bystanders)
    return next((finding.text for finding in findings if finding.effect == "refuses"), None)


def _of_reactants(transformation: Transformation, step: MappedStep, bystanders: Sequence[str]) -> Iterator[Finding]:
    """Yield the objections that may refuse a step."""
    yield from rule_objections(transformation.name, step, bystanders)
    if step.reactants is not None:
        for finding in (*_of_sites(step), *_of_absences(step)):
            is_lower = transformation.textbook is not None and finding.effect == "refuses"
            yield finding._replace(effect="ranks lower") if is_lower else finding


def site_probability(step: MappedStep) -> float:
    """Return the probability of the least probable of the sites that react in a step."""
    return min((shares[0] for choice, shares in _site_shares(step) if choice.kind != BY_REAGENTS), default=1.0)


@lru_cache(_STEPS)
def _site_shares(step: MappedStep) -> list[tuple[Choice, list[float]]]:
    """Return the choices of a step with the probability of each candidate, the one that reacts first."""
    if step.reactants is None:
        return []
    sites, near = learned()[0], Environments(step.reactants, step.environments)
    found = choices(step.reactants, step.molecule, step.changes)
    return [(choice, sites.probabilities(choice, near)) for choice in found]


def _of_sites(step: MappedStep) -> Iterator[Finding]:
    for choice, shares in _site_shares(step):
        if shares[0] < NOTED and choice.kind != BY_REAGENTS:
            other = max(range(1, len(shares)), key=shares.__getitem__)
            here, there = (_drawn(step.reactants, [choice.candidates[place]], 2) for place in (0, other))
            text = f"{shares[0]:.0%} of such recorded reactions take place at {here}, {shares[other]:.0%} at {there}"
            is_refused = shares[0] < REFUSED_OF.get(choice.kind, REFUSED)
            is_lower = shares[0] < DOUBTFUL
            yield Finding(text, "refuses" if is_refused else "ranks lower" if is_lower else "note")


def _of_absences(step: MappedStep) -> Iterator[Finding]:
    absences = [(ratio(absence.num_recorded, absence.expected), absence) for absence in learned()[1].absences(step)]
    for share, absence in sorted(absences)[:1]:
        if share < NOTED_RATIO:
            group = _drawn(step.reactants, [absence.place], max(1, absence.radius))
            has = "has" if absence.num_recorded == 1 else "have"
            text = f"{absence.num_recorded or 'none'} of {absence.total:,} recorded reactions of this kind {has} "
            text += f"{group} elsewhere, {absence.expected:.0f} would be expected"
            is_lower = share < DOUBTFUL_RATIO
            yield Finding(text, "refuses" if share < REFUSED_RATIO else "ranks lower" if is_lower else "note")


def _of_bonds(step: MappedStep) -> Iterator[Finding]:
    product, unseen = structure(step.product), learned()[1]
    if unseen.is_known(step.product) or isotopes_of([step.product]):  # deuterium is an atom of its own
        return
    bonds = unseen.bonds(product, {number - 1 for number in step.changed_atoms})
    rare = [(count > FEW, ratio(count, expected), half, count, expected) for half, count, expected in bonds]
    for is_known, share, half, count, expected in sorted(row for row in rare if row[3] < MANY)[:1]:
        if not is_known or share < NOTED_RATIO:
            has = "molecule has" if count == 1 else "molecules have"
            text = f"{count or 'no'} recorded {has} {_drawn(product, [half.place, half.neighbour], 1)}"
            text += f", {expected:.0f} would be expected" if expected > count + 1 else ""
            yield Finding(text, "ranks lower" if not is_known or share < DOUBTFUL_RATIO else "note")


def _drawn(molecule: Any, middle: Sequence[int], radius: int) -> str:
    """Return the SMILES of atoms and what is so many bonds around them. The first has the number 1. An aromatic one is
    drawn with its ring and the substituents.
    """
    bare, places = without_maps(molecule), set(middle)
    for ring in bare.GetRingInfo().AtomRings():
        if middle[0] in ring and bare.GetAtomWithIdx(middle[0]).GetIsAromatic():
            places |= {*ring, *_neighbours(bare, ring)}
    for _ in range(radius):
        middle = [*middle, *_neighbours(bare, middle)]
    bare.GetAtomWithIdx(middle[0]).SetAtomMapNum(1)
    return Chem.MolFragmentToSmiles(bare, sorted({*places, *middle}), isomericSmiles=False)


def _neighbours(molecule: Any, places: Iterable[int]) -> set[int]:
    return {other.GetIdx() for place in places for other in molecule.GetAtomWithIdx(place).GetNeighbors()}
