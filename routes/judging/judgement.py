"""Judges a step: whether its transformation is recorded, what speaks against it, and where its atoms come from."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import lru_cache, reduce
from itertools import chain, combinations
from typing import Any, NamedTuple

from rdkit import Chem

from ..chemistry.faults import (
    MOST_EQUIVALENTS,
    OXIDANT,
    REAGENTS,
    atoms_left,
    isotopes_of,
    lost_isotopes,
    missing_isotopes,
    route_faults,
    step_fault,
    supplier,
    with_equivalents,
)
from ..chemistry.finding import Finding
from ..chemistry.forms import parent_form
from ..chemistry.matching import SearchTooLong, bounded_search
from ..chemistry.molecules import (
    KNOWN,
    Molecule,
    canonical_smiles,
    joined,
    lost_configuration,
    read_molecule,
    structure,
    without_stereo,
)
from ..chemistry.reagents import usual_in_words
from ..chemistry.skeleton import Sources, num_carbons, sources
from ..chemistry.stereo import Anomer, StereoComparison, compare, is_chiral, mixture, undefined_kinds
from ..tree import Route
from .findings import findings
from .judged_step import SEPARATION, STEREO_ALONE, JudgedStep, Support
from .library import Library, Match
from .library_files import shipped_library
from .objections import objections
from .transformation import CLASSES, ReagentSet, Transformation
from .two_at_once import two_at_once

# Oxidants that recorded reactions have among their reactants, where others leave them out.
_OXIDANTS = {"OO": "hydrogen peroxide", "O=C(OO)c1cccc(Cl)c1": "mCPBA"}
_WATER = "O"
# What is found of a step that makes an anomer. One that is trans to a neighbouring acyl group is the only one.
_ANOMERS: dict[Anomer | None, Finding] = {
    "anomeric": Finding("an anomeric centre changes: expect a mixture of anomers"),
    "cis": Finding("the acyl group beside the anomeric centre gives the trans isomer", "ranks lower"),
}
_CENTRE = re.compile("@+")
# The characters of SMILES with stereochemistry.
_LABELS = frozenset("@/\\")
# The number of recorded reactions from which the same change with other neighbours is evidence.
_LEAST_RELATED = 2
# The number of different molecules in a step beyond which reagents among them are not looked for, and that beyond
# which no further equivalent of them is.
_MOST_PARTS, _MOST_REPEATED = 10, 3
# The number of searches whose transformations, with their molecules, are cached: a step is searched when it is
# proposed, and again when it is judged.
_SEARCHES = 1 << 9


def judge(product: str, reactants: Sequence[str], library: Library | None = None) -> JudgedStep:
    """Judge a step of a synthesis. Recent results are cached.

    Args:
        product: SMILES of the product.
        reactants: SMILES of the reactants, in any order. Reagents may be left out.
        library: the recorded transformations. Defaults to the included ones.
    """
    return _judge(product, tuple(reactants), shipped_library() if library is None else library)


@lru_cache(KNOWN)
def is_supported(product: str, reactants: tuple[str, ...], library: Library) -> bool:
    """Return whether [`judge`] finds a step recorded, or in textbooks. This takes a part of its time."""
    search = _search(product, reactants, library)
    is_found = (search.recorded or search.textbook) is not None
    return is_found or (search.fault is None and _is_separation(product, reactants, library))


def is_route_supported(route: Route, library: Library) -> bool:
    """Return whether [`judge_route`] finds each step recorded, or in textbooks."""
    return all(
        is_supported(step.smiles, step.reactants, library) and not _separates_starting_material(step, library)
        for step in route.steps()
    )


def judge_route(
    route: Route, library: Library | None = None, watch: Callable[[], None] = lambda: None
) -> tuple[JudgedStep, ...]:
    """Return each reaction of a route with its judgement, in the order of `Route.steps`.

    A step also fails if one of its reactants is made from its product later in the route. The separation of isomers
    does not count if a starting material has the centre: its isomer is rather to be bought.

    Args:
        route: the route.
        library: as in [`judge`].
        watch: called before each step. An exception in it ends the judgement.
    """
    library, steps = shipped_library() if library is None else library, []
    for step, fault in route_faults(route):
        watch()
        reactants = tuple(child.smiles for child in step.children)
        if fault is not None:
            steps.append(JudgedStep(step.smiles, reactants, findings=(fault,)))
            continue
        judged = judge(step.smiles, reactants, library)
        if _separates_starting_material(step, library):
            note = Finding("a starting material has the centre: buy its isomer instead", "refuses")
            judged = replace(judged, precedents=0, support=None, findings=(*judged.findings, note))
        steps.append(judged)
    return tuple(steps)


def _separates_starting_material(step: Route, library: Library) -> bool:
    """Return whether a step separates isomers whose undefined centre a starting material already has."""
    if not _is_separation(step.smiles, step.reactants, library):
        return False
    [isomers] = step.reactants
    return not all(undefined_kinds(isomers).isdisjoint(undefined_kinds(leaf)) for leaf in step.leaves())


@lru_cache(KNOWN)
def _judge(product: str, reactants: tuple[str, ...], library: Library) -> JudgedStep:
    search = _search(product, reactants, library)
    if search.fault is not None:
        return JudgedStep(product, reactants, findings=(search.fault,))
    drawing = _Drawing(product, reactants)
    if search.recorded is not None:
        return _judge_recorded(drawing, search.recorded, library)
    if search.textbook is not None and library.textbook is not None:
        return _judge_recorded(drawing, search.textbook, library.textbook)
    return _judge_unrecorded(drawing, search, library)


class _Drawing:
    """A step as it is drawn: its molecules as RDKit reads them.

    Args:
        product: SMILES of the product.
        reactants: SMILES of the reactants.
    """

    def __init__(self, product: str, reactants: tuple[str, ...]):
        molecules = [read_molecule(smiles) for smiles in (product, *reactants)]
        assert all(molecules), "a step whose molecules cannot be read has a fault"
        self.given = product, reactants
        self.product: Molecule = molecules[0]  # type: ignore[assignment]
        # sorted, so that findings do not depend on the order given
        self.reactants: list[Molecule] = sorted(filter(None, molecules[1:]), key=lambda molecule: molecule.canonical)
        self.parts = with_equivalents(product, reactants)  # SMILES of the reactants, as often as they are needed
        flat = without_stereo(self.product.canonical)
        is_stereo_alone = flat in [without_stereo(molecule.canonical) for molecule in self.reactants]
        self.name = STEREO_ALONE if is_stereo_alone else None

    def idle(self, suppliers: set[str], form: Callable[[str], str] = str) -> list[Molecule]:
        """Return the reactants that supply neither atoms nor isotopes.

        Args:
            suppliers: SMILES of the molecules that supply atoms.
            form: returns the form of a molecule in which these are given.
        """
        return [
            molecule
            for molecule in self.reactants
            if suppliers.isdisjoint(map(form, {molecule.canonical, *molecule.canonical.split(".")}))
            and not self._supplies_isotopes(molecule)
        ]

    def _supplies_isotopes(self, reactant: Molecule) -> bool:
        """Return whether the other reactants lack isotopes of the product."""
        others = [molecule.canonical for molecule in self.reactants if molecule is not reactant]
        return bool(missing_isotopes(self.product.canonical, others))


def _judge_recorded(drawing: _Drawing, recorded: _Recorded, library: Library) -> JudgedStep:
    """Return the judgement of a step whose transformation is recorded, or that of a textbook reaction."""
    transformation = recorded.match.transformation
    idle = drawing.idle({parent_form(canonical_smiles(part)) for part in recorded.reactants}, parent_form)
    product, reactants = drawing.product.canonical, recorded.reactants
    if missing_isotopes(product, reactants):  # reagents supply them
        product, *reactants = (_unlabelled(smiles)[0] for smiles in (product, *reactants))
    notes = [
        *(Finding(f"no atom of {molecule.canonical} is needed") for molecule in idle),
        *recorded.objections,
        *findings(recorded.match, product, joined(reactants)),
        *_oddities(drawing, [molecule for molecule in drawing.reactants if molecule not in idle], recorded.reactants),
    ]
    if _WATER in set(recorded.reactants).difference(drawing.parts):
        notes.append(Finding(f"reagent not drawn: {OXIDANT}"))
    if recorded.anomer in _ANOMERS:
        notes.append(_ANOMERS[recorded.anomer])
    reagents, is_of_kind = library.usual_reagents(transformation)
    if is_chiral(product) and not any(map(is_chiral, reactants)):
        reagents = _chiral_sets(reagents)
        if not reagents:
            reason = "no chiral reagent or catalyst is recorded, and all reactants are achiral"
            notes.append(Finding(f"{reason}: expect a mixture of stereoisomers", "ranks lower"))
    return JudgedStep(
        *drawing.given,
        precedents=0 if transformation.textbook else transformation.count,
        examples=transformation.examples,
        reaction_class=CLASSES.get(transformation.reaction_class or 0),
        name=transformation.textbook or drawing.name or transformation.name,
        findings=tuple(notes),
        support="textbook" if transformation.textbook else None,
        reagents=reagents,
        usual_reagents=usual_in_words(reagents, *drawing.given, is_of_kind),
    )


def _chiral_sets(reagents: Sequence[ReagentSet]) -> tuple[ReagentSet, ...]:
    """Return the sets of reagents with a chiral compound, after the number of all; nothing if there is none."""
    sets = [compounds for compounds in reagents if any(map(is_chiral, compounds.smiles.split()))]
    return (*reagents[:1], *sets) if sets else ()


def _judge_unrecorded(drawing: _Drawing, search: _Search, library: Library) -> JudgedStep:
    """Return the judgement of a step whose transformation is not recorded, or is refused."""
    product, parts = drawing.product.canonical, drawing.parts
    reagent, origins = supplier(atoms_left(drawing.given[0], parts)), _sources(product, parts)
    wrong_centre = search.wrong_centre or (None if origins is None else origins.wrong_centre)
    is_separation = _is_separation(*drawing.given, library)
    is_resolution = is_separation or (drawing.name is not None and wrong_centre == "defined")
    if reason := _impossible(None if is_resolution else wrong_centre, reagent, origins):
        return JudgedStep(*drawing.given, name=drawing.name, findings=(Finding(reason, "fails"),))
    support: Support | None = "textbook" if is_separation else None
    support_in_words = None
    if not is_separation and not search.refusals:
        support, support_in_words = _support(drawing.given[0], parts, library)
    notes = [] if reagent is None else [Finding(f"reagent not drawn: {reagent}")]
    notes += [] if support_in_words is None else [Finding(support_in_words)]
    notes += search.refusals
    if is_resolution:
        notes.append(Finding("at most half of a mixture becomes one of its isomers", "ranks lower"))
    notes += _recorded_otherwise(drawing, search, reagent, library)
    if origins is not None and support is None:
        suppliers = {smiles for smiles, count in zip(origins.reactants, origins.counts, strict=True) if count}
        notes += [Finding(f"no atom of {molecule.canonical} is needed") for molecule in drawing.idle(suppliers)]
        if reagent is None or origins.largest > REAGENTS[reagent].get("C", 0):
            # the count of atoms already says that heteroatoms are there
            pieces = [piece for piece in origins.pieces if num_carbons(piece)]
            notes += [Finding(f"no reactant supplies {piece} of the product") for piece in pieces]
    notes += _oddities(drawing, drawing.reactants, drawing.parts)
    name = SEPARATION if is_resolution else drawing.name
    return JudgedStep(*drawing.given, name=name, findings=tuple(notes), support=support)


def _is_separation(product: str, reactants: Sequence[str], library: Library) -> bool:
    """Return whether a step separates a mixture of two isomers, as textbooks describe it: with a chiral acid, base,
    enzyme or column, or by chromatography.
    """
    isomers = mixture(canonical_smiles(product)) if library.textbook is not None else None
    return isomers is not None and [isomers] == [canonical_smiles(smiles) for smiles in reactants]


def _support(product: str, parts: Sequence[str], library: Library) -> tuple[Support | None, str | None]:
    """Return what recorded reactions say of a step that is not recorded, and the same in words."""
    core = _related(product, parts, library)
    if core is not None:
        return "related", f"the same change is recorded {core.count:,} times, with other neighbours"
    if pair := two_at_once(product, parts, library):
        later, earlier = map(_in_words, pair)
        both = f"{later}, twice" if later == earlier else f"{earlier} and {later}"
        return "two at once", f"two recorded transformations at once: {both}"
    return None, None


def _related(product: str, parts: Sequence[str], library: Library) -> Transformation | None:
    """Return the common core that turns a product into its reactants, with the stereochemistry that they share."""
    for match, _, bystanders, comparison in readings(product, parts, library.related, is_flat=True):
        is_common = match.transformation.count >= _LEAST_RELATED and not match.refusal(bystanders)
        if is_common and (comparison is None or comparison.is_kept):
            return match.transformation
    return None


def _in_words(transformation: Transformation) -> str:
    kind = transformation.name or CLASSES.get(transformation.reaction_class or 0, "a change")
    return f"{kind} ({transformation.count:,} recorded)"


def _impossible(wrong_centre: str | None, reagent: str | None, origins: Sources | None) -> str | None:
    """Return why a step that nothing recorded supports does not work, or None."""
    if origins is not None and origins.largest > max(1, REAGENTS[reagent].get("C", 0) if reagent else 0):
        return f"no reactant supplies {max(origins.pieces, key=len)} of the product"
    if wrong_centre is not None:
        return f"a stereocentre is {wrong_centre}, but none of its bonds changes"
    return None


def _sources(product: str, parts: Sequence[str]) -> Sources | None:
    """Return where the atoms of a product come from."""
    copies = Counter(joined(parts).split("."))
    return sources(product, tuple(sorted(copies)), max(copies.values()))


def _recorded_otherwise(
    drawing: _Drawing, search: _Search, reagent: str | None, library: Library
) -> Iterator[Finding]:
    """Yield a note if the transformation is recorded with an oxidant that is not drawn, or with other centres."""
    product, reactants = drawing.product.canonical, [molecule.canonical for molecule in drawing.reactants]
    oxidants = _OXIDANTS if reagent == OXIDANT and search.otherwise is None else {}
    others = (
        (f" with {name}", _search_as_drawn(product, [*reactants, oxidant], library))
        for oxidant, name in oxidants.items()
    )
    for oxidant, other in chain([("", search)], others):
        if other.recorded is not None:
            yield Finding(f"the transformation is recorded {other.recorded.match.transformation.count} times{oxidant}")
            return
        if other.otherwise is not None:
            centres = len(_CENTRE.findall(product)) - len(_CENTRE.findall(".".join(reactants)))
            change = "newly defined: expect a mixture of stereoisomers" if centres > 0 else "inverted or newly defined"
            yield Finding(
                f"the transformation is recorded {other.otherwise.count} times{oxidant}, but here a stereocentre or "
                f"double bond is {change}"
            )
            return


@dataclass(frozen=True)
class _Recorded:
    """A recorded transformation of a step, its reactants without reagents, what speaks against it, and which anomer is
    made if an anomeric centre changes.
    """

    match: Match
    reactants: list[str]
    objections: list[Finding]
    anomer: Anomer | None = None


@dataclass
class _Search:
    """What the library says of a step.

    Args:
        fault: why the step is not possible. The library is then not asked.
        recorded: the transformation of the step with all reactants, or else the most common one without reagents.
        otherwise: a transformation that is recorded with other stereochemistry.
        refusals: why recorded transformations are no evidence.
        wrong_centre: how a stereocentre changes whose bonds stay.
        textbook: a textbook reaction with the transformation of the step, if no recorded reaction supports it.
    """

    fault: Finding | None = None
    recorded: _Recorded | None = None
    otherwise: Transformation | None = None
    refusals: list[Finding] = field(default_factory=list)
    wrong_centre: str | None = None
    textbook: _Recorded | None = None


@lru_cache(_SEARCHES)
def _search(product: str, reactants: tuple[str, ...], library: Library) -> _Search:
    """Search a possible step as drawn, and if that finds nothing with a further equivalent of a reactant."""
    if (fault := step_fault(product, reactants)) is not None:
        return _Search(fault)
    parts = with_equivalents(product, reactants)
    search = _search_with_parents(product, parts, library)
    for part in sorted(set(parts)) if len(set(parts)) <= _MOST_REPEATED else ():
        for count in _further_equivalents(product, parts, part):
            if search.recorded is None and not search.refusals:
                search.recorded = _search_with_parents(product, [*parts, *[part] * count], library).recorded
    if library.textbook is not None and search.recorded is None:
        search.textbook = _search(product, reactants, library.textbook).recorded
        if search.textbook is None and atoms_left(product, parts) == REAGENTS[OXIDANT]:
            search.textbook = _search(product, (*reactants, _WATER), library.textbook).recorded
    return search


def _further_equivalents(product: str, parts: Sequence[str], part: str) -> list[int]:
    """Return how many more of a reactant a step may use: one, as many again, because an anhydride supplies half of its
    atoms, and as many as the product lacks.
    """
    enough = (count for count in range(MOST_EQUIVALENTS + 1) if not atoms_left(product, [*parts, *[part] * count]))
    return sorted({1, parts.count(part), next(enough, 1)} - {0})


def _search_with_parents(product: str, parts: list[str], library: Library) -> _Search:
    """Search a step as drawn, and if that finds nothing with the parents of salts."""
    search = _search_as_drawn(product, parts, library)
    if search.recorded is None:
        texts = [canonical_smiles(smiles) for smiles in (product, *parts)]
        parents = [parent_form(smiles) for smiles in texts]
        if parents != texts:
            of_parents = _search_as_drawn(parents[0], parents[1:], library)
            search.recorded = of_parents.recorded
            search.refusals = search.refusals or of_parents.refusals
    return search


def _search_as_drawn(product: str, reactants: Sequence[str], library: Library) -> _Search:
    search = _Search()
    for match, parts, bystanders, comparison in readings(product, reactants, library):
        transformation = match.transformation
        if comparison is not None and not comparison.is_kept:
            search.wrong_centre = search.wrong_centre or comparison.centres
            if search.otherwise is None and not match.refusal(bystanders):
                search.otherwise = transformation
            continue
        found = list(objections(transformation, match.step))
        refusals = (finding.text for finding in found if finding.effect == "refuses")
        # a molecule that is left out may refuse a step, and has no other effect
        if (refusal := next(refusals, None) or (match.refusal(bystanders) if bystanders else None)) is not None:
            text = f"the transformation is recorded {transformation.count} times, but here {refusal}"
            if (finding := Finding(text, "refuses")) not in search.refusals:
                search.refusals.append(finding)
        elif search.recorded is None or transformation.count > search.recorded.match.transformation.count:
            anomer = None if comparison is None else comparison.anomer
            search.recorded = _Recorded(match, parts, found, anomer)
            if not bystanders:
                break
    return search


class Reading(NamedTuple):
    """A way to read a step for which a library has a transformation.

    Args:
        match: the transformation.
        reactants: SMILES of the reactants without reagents.
        bystanders: SMILES of the molecules that are left out.
        comparison: how the stereochemistry changes, if the match is without it.
    """

    match: Match
    reactants: list[str]
    bystanders: list[str]
    comparison: StereoComparison | None = None


def readings(product: str, reactants: Sequence[str], library: Library, is_flat: bool = False) -> Iterator[Reading]:
    """Yield the ways to read a step for which a library has a transformation: with all molecules, then without those
    that supply no atom. If it has none with the stereochemistry and the isotopes, they are left out.

    Args:
        product: SMILES of the product.
        reactants: SMILES of the reactants.
        library: the recorded transformations.
        is_flat: whether these have no stereochemistry, so that it is left out at once.
    """
    for parts, bystanders in _without_reagents(product, reactants):
        flat = _without_labels(product, parts) if is_flat else None
        match = library.match(product, parts) if flat is None else None
        if match is not None:
            yield Reading(match, parts, bystanders)
        elif (flat := flat or _without_labels(product, parts)) is not None:
            flat_product, flat_parts, labelled_product, labelled_reactants = flat
            match = library.match(flat_product, flat_parts)
            if match is not None:
                comparison = compare(labelled_product, labelled_reactants, match.step.reactants)
                yield Reading(match, parts, bystanders, comparison)


def _without_labels(product: str, reactants: Sequence[str]) -> tuple[str, list[str], Any, Any] | None:
    """Return a product and its reactants without stereochemistry and isotopes, and both as molecules with
    stereochemistry.

    The atoms of the product's molecule have the order of its SMILES. Return None if there is nothing to leave out.
    """
    if _LABELS.isdisjoint(product + "".join(reactants)) and not isotopes_of([product, *reactants]):
        return None
    (flat, molecule), *flat_reactants = map(_unlabelled, (product, *reactants))
    if canonical_smiles(flat) != flat:
        return None
    side = reduce(Chem.CombineMols, (part for _, part in flat_reactants))
    return flat, [smiles for smiles, _ in flat_reactants], molecule, side


@lru_cache(KNOWN // 16)
def _unlabelled(smiles: str) -> tuple[str, Any]:
    """Return the SMILES of a molecule without stereochemistry and isotopes, and the molecule with stereochemistry, in
    its order.
    """
    molecule: Any = Chem.Mol(structure(canonical_smiles(smiles)))
    for atom in molecule.GetAtoms():
        atom.SetIsotope(0)
    molecule = Chem.RemoveHs(molecule)
    Chem.AssignStereochemistry(molecule, cleanIt=True, force=True)
    flat = Chem.Mol(molecule)
    Chem.RemoveStereochemistry(flat)
    text = Chem.MolToSmiles(flat)
    return text, Chem.RenumberAtoms(molecule, list(flat.GetPropsAsDict(True, True)["_smilesAtomOutputOrder"]))


def _without_reagents(product: str, reactants: Sequence[str]) -> Iterator[tuple[list[str], list[str]]]:
    """Yield the reactants, then those without molecules that supply no atom, such as catalysts, bases and solvents.

    The molecules that are left out are the second of each pair.
    """
    parts = joined(reactants).split(".")
    yield parts, []
    distinct, missing = sorted(set(parts)), atoms_left(product, parts)
    for count in (3, 2, 1) if len(distinct) <= _MOST_PARTS else ():
        for combination in combinations(distinct, count):
            reactants = [part for part in parts if part in combination]
            if len(reactants) < len(parts) and atoms_left(product, reactants) == missing:
                yield reactants, [part for part in parts if part not in combination]


def _oddities(drawing: _Drawing, reactants: list[Molecule], parts: Sequence[str]) -> Iterator[Finding]:
    """Yield notes on how the reactants are drawn.

    Args:
        drawing: the step.
        reactants: those that supply atoms.
        parts: SMILES of the reactants, as often as they are needed.
    """
    yield from map(Finding, filter(None, map(lost_configuration, [drawing.given[0], *drawing.given[1]])))
    for smiles, count in sorted(Counter(canonical_smiles(part) for part in parts).items()):
        if count > 1:
            yield Finding(f"{smiles} is used {count} times")
    product = structure(drawing.product.canonical)
    for reactant in reactants if len(reactants) > 1 else ():
        with suppress(SearchTooLong):
            if structure(reactant.canonical).HasSubstructMatch(product, bounded_search(maxMatches=1)):
                yield Finding(f"{reactant.canonical} contains the whole product")
    if isotopes := lost_isotopes(drawing.product.canonical, [molecule.canonical for molecule in drawing.reactants]):
        yield Finding(f"isotopes not in the product: {', '.join(isotopes)}")
