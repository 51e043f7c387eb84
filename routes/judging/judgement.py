"""Judges a single step: whether its transformation is recorded, reasons against it, and remarks."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields
from functools import lru_cache, reduce
from itertools import combinations
from typing import Any, Literal, NamedTuple, get_args

from rdkit import Chem

from ..chemistry.faults import (
    OXIDANT,
    REAGENTS,
    atoms_left,
    isotopes_of,
    route_faults,
    step_fault,
    supplier,
    with_equivalents,
)
from ..chemistry.forms import parent_form
from ..chemistry.groups import racemisation, unstable_kind
from ..chemistry.matching import SearchTooLong, bounded_search
from ..chemistry.molecules import KNOWN, Molecule, canonical_smiles, read_molecule
from ..chemistry.orientation import unseen_positions
from ..chemistry.reagents import reagent_name
from ..chemistry.skeleton import Sources, sources
from ..chemistry.stereo import compare
from ..tree import Route
from .transformations import Example, Library, ReagentSet, Transformation, joined, shipped_library, without_stereo
from .two_at_once import two_at_once

State = Literal["precedented", "no precedent", "fails"]
Support = Literal["two at once", "related"]
Evidence = Literal["recorded", "two at once", "related", "predicted", "none"]

# The classes of USPTO-50K (Schneider et al. 2016, doi 10.1021/acs.jcim.6b00564).
CLASSES = {
    1: "heteroatom alkylation and arylation",
    2: "acylation",
    3: "C-C bond formation",
    4: "heterocycle formation",
    5: "protection",
    6: "deprotection",
    7: "reduction",
    8: "oxidation",
    9: "functional group interconversion",
    10: "functional group addition",
}

# The name of a step whose product differs from a reactant only in its stereochemistry.
_STEREO_ALONE = "change of stereochemistry"
# Unproductive steps besides protections: the same synthetic problem remains after them.
_UNPRODUCTIVE = frozenset(
    {_STEREO_ALONE, "acetal formation", "Boc protection", "silyl protection", "transesterification"}
)
# Two steps that convert one ester into another: cleavage to the acid, then esterification.
_ESTER_CLEAVAGES = frozenset(
    {
        "methyl ester hydrolysis",
        "ethyl ester hydrolysis",
        "ester hydrolysis",
        "benzyl ester cleavage",
        "tert-butyl ester cleavage",
    }
)
_ESTER_FORMATIONS = frozenset({"esterification", "methyl ester formation", "esterification by alkylation"})
# Oxidants that recorded reactions have among their reactants, where others leave them out.
_OXIDANTS = {"OO": "hydrogen peroxide", "O=C(OO)c1cccc(Cl)c1": "mCPBA"}
_CENTRE = re.compile("@+")
# The characters of SMILES with stereochemistry.
_LABELS = frozenset("@/\\")
# The number of recorded reactions from which the same change with other neighbours is evidence.
_LEAST_RELATED = 2
# The fields of a judgement with another key in JSON.
_KEYS = {"reaction_class": "class", "reagents": "reagent_sets"}
# The number of sets of reagents that are written in words.
_SETS_IN_WORDS = 3
# The number of different molecules in a step beyond which reagents among them are not looked for.
_MOST_PARTS = 10


@dataclass(frozen=True)
class Judgement:
    """The judgement of a step.

    Args:
        state: `"precedented"`: a recorded reaction has the same transformation, with the same neighbours of the changed
            atoms and the same stereochemistry. Molecules that supply no atom are left out. `"fails"`: the step cannot
            work as written. `"no precedent"`: neither.
        precedents: the number of recorded reactions with the same transformation.
        examples: a few of these reactions.
        reaction_class: the most common class of USPTO-50K among them.
        name: the common name of the transformation.
        reason: why the step fails.
        remarks: oddities of the step.
        is_objected: whether recorded reactions have the same transformation, but a rule says that this step is not like
            them.
        support: what recorded reactions say of a step without precedent: `"two at once"`, two recorded transformations
            in one step, or `"related"`, the same change with other neighbours. `remarks` names them.
        reagents: the most common sets of reagents of these reactions, or of reactions of the same kind if few were
            recorded. The first is empty, and has the number of reactions whose reagents were recorded.
        is_misplaced: whether the step takes a position of an aromatic ring that similar recorded reactions leave.
            `remarks` names it.
    """

    state: State
    precedents: int = 0
    examples: tuple[Example, ...] = ()
    reaction_class: str | None = None
    name: str | None = None
    reason: str | None = None
    remarks: tuple[str, ...] = ()
    is_objected: bool = False
    support: Support | None = None
    reagents: tuple[ReagentSet, ...] = ()
    is_misplaced: bool = False

    def evidence(self, forward_rank: int | None) -> Evidence:
        """Return the evidence for the step.

        Args:
            forward_rank: the rank of the product among the predictions of a forward model, as in
                `Candidate.forward_ranks`.
        """
        if self.state == "precedented":
            return "recorded"
        if self.support is not None:
            return self.support
        return "predicted" if self.state == "no precedent" and forward_rank and not self.is_objected else "none"

    @property
    def usual_reagents(self) -> str | None:
        """The most common sets of reagents in words, such as `K2CO3, DMF (31 of 120); NaH, DMF (22)`, or None."""
        if len(self.reagents) < 2:
            return None
        (_, total), *sets = self.reagents
        names = [", ".join(map(reagent_name, smiles.split())) for smiles, _ in sets[:_SETS_IN_WORDS]]
        counts = [f"{count:,}" for _, count in sets[:_SETS_IN_WORDS]]
        counts[0] += f" of {total:,}"
        return "; ".join(f"{name} ({count})" for name, count in zip(names, counts, strict=True))

    def to_dict(self) -> dict[str, Any]:
        """Return the judgement for JSON: all fields, `reaction_class` as `class`, and `reagents` in words beside the
        numbers in `reagent_sets`.
        """
        row = {_KEYS.get(field.name, field.name): getattr(self, field.name) for field in fields(self)}
        return row | {
            "examples": [example._asdict() for example in self.examples],
            "remarks": list(self.remarks),
            "reagents": self.usual_reagents,
            "reagent_sets": [reagents._asdict() for reagents in self.reagents],
        }

    @classmethod
    def from_dict(cls, row: dict[str, Any]) -> Judgement:
        """Read the result of [`to_dict`]; other fields are ignored.

        Raises:
            KeyError, TypeError, ValueError: `row` is something else.
        """
        values = {field.name: row[_KEYS.get(field.name, field.name)] for field in fields(cls)}
        if values["state"] not in get_args(State):
            raise ValueError(f"state must be one of {', '.join(get_args(State))}, got {values['state']!r}")
        values |= {
            "examples": tuple(Example(**example) for example in values["examples"]),
            "remarks": tuple(values["remarks"]),
            "reagents": tuple(ReagentSet(**reagents) for reagents in values["reagents"]),
        }
        return cls(**values)

    @property
    def title(self) -> str | None:
        """The title of the step: its name, else its class, else None."""
        return self.name or self.reaction_class

    @property
    def is_unproductive(self) -> bool:
        """Whether the step is unproductive: a protection, an epimerisation, or an ester made from another ester."""
        return self.name in _UNPRODUCTIVE or self.reaction_class == CLASSES[5]


def judge(product: str, reactants: Sequence[str], library: Library | None = None) -> Judgement:
    """Judge a step of a synthesis. Recent results are cached.

    Args:
        product: SMILES of the product.
        reactants: SMILES of the reactants, in any order. Reagents may be left out.
        library: the recorded transformations. Defaults to the included ones.
    """
    return _judge(product, tuple(reactants), library or shipped_library())


@lru_cache(KNOWN)
def is_recorded(product: str, reactants: tuple[str, ...], library: Library) -> bool:
    """Return whether [`judge`] finds a step precedented. This takes a part of its time."""
    if step_fault(product, reactants) is not None:
        return False
    return _recorded(product, with_equivalents(product, reactants), library)[0] is not None


def judge_route(route: Route, library: Library | None = None) -> tuple[Judgement, ...]:
    """Return the judgement of each reaction of a route, in the order of `Route.steps`.

    A step also fails if one of its reactants is made from its product later in the route. `library` is as in
    [`judge`].
    """
    return tuple(
        judge_step(step, library) if fault is None else Judgement("fails", reason=fault.reason)
        for step, fault in route_faults(route)
    )


def count_unproductive(route: Route, judgements: Sequence[Judgement]) -> int:
    """Return the number of unproductive steps of a route. An ester that is made from the acid of another ester counts
    as one.

    Args:
        route: the route.
        judgements: the judgements of its reactions, in the order of `Route.steps`.
    """
    steps = list(route.steps())
    cleaved = {
        step.smiles for step, judgement in zip(steps, judgements, strict=True) if judgement.name in _ESTER_CLEAVAGES
    }
    swaps = sum(
        judgement.name in _ESTER_FORMATIONS and any(child.smiles in cleaved for child in step.children)
        for step, judgement in zip(steps, judgements, strict=True)
    )
    return sum(judgement.is_unproductive for judgement in judgements) + swaps


def count_hidden(route: Route, judgements: Sequence[Judgement]) -> int:
    """Return the number of steps that join three or more molecules by a transformation without a name. Most such records
    are two reactions without isolation of what is between them.

    Arguments are those of [`count_unproductive`].
    """
    steps = zip(route.steps(), judgements, strict=True)
    return sum(judgement.name is None and len(step.children) > 2 for step, judgement in steps)


def judge_step(route: Route, library: Library | None = None) -> Judgement:
    """Return the judgement of the last reaction of a route."""
    return judge(route.smiles, [child.smiles for child in route.children], library)


@lru_cache(KNOWN)
def _judge(product: str, reactants: tuple[str, ...], library: Library) -> Judgement:
    fault = step_fault(product, reactants)
    if fault is not None:
        return Judgement("fails", reason=fault.reason)
    made, *used = (molecule for molecule in map(read_molecule, (product, *reactants)) if molecule is not None)
    is_stereo_alone = without_stereo(made.canonical) in [without_stereo(molecule.canonical) for molecule in used]
    name = _STEREO_ALONE if is_stereo_alone else None
    parts = with_equivalents(product, reactants)
    precedent, objections, wrong = _recorded(product, parts, library)
    if precedent is not None:
        found = precedent.transformation
        kind = None if found.reaction_class is None else CLASSES.get(found.reaction_class)
        needed = {parent_form(canonical_smiles(part)) for part in precedent.reactants}
        unneeded = [
            molecule
            for molecule in used
            if needed.isdisjoint({parent_form(part) for part in (molecule.canonical, *molecule.canonical.split("."))})
        ]
        remarks = [f"no atom of {molecule.canonical} is needed" for molecule in unneeded]
        if others := found.num_other_products(made.canonical, joined(precedent.reactants)):
            remarks.append(f"the same transformation also makes {others} other product{'s' * (others > 1)} here")
        unseen = unseen_positions(precedent.product, precedent.mapped)
        for kind_of_site, position, count, total in unseen:
            remarks.append(f"{_number(count)} of {total:,} recorded substitutions of {kind_of_site} took {position}")
        for group, count, total in library.unusual_groups(found, precedent.product, precedent.mapped):
            number = _number(count)
            has = "has" if count < 2 else "have"
            article = "an" if group[0] in "aeioN" else "a"
            remarks.append(f"{number} of {total:,} recorded reactions of this kind {has} {article} {group} elsewhere")
        remarks += racemisation(found.name, precedent.product, precedent.mapped)
        remarks += _remarks(made, [molecule for molecule in used if molecule not in unneeded], parts)
        return Judgement(
            "precedented",
            found.count,
            found.examples,
            kind,
            name or found.name,
            remarks=tuple(remarks),
            reagents=library.usual_reagents(found),
            is_misplaced=bool(unseen),
        )
    reagent, origins = supplier(atoms_left(product, parts)), _sources(made.canonical, parts)
    if reason := _impossible(made, used, wrong, reagent, origins):
        return Judgement("fails", name=name, reason=reason)
    support, reason = (None, None) if objections else _support(product, parts, library)
    remarks = [] if reagent is None else [f"reagent not drawn: {reagent}"]
    remarks += filter(None, [reason])
    remarks += objections
    remarks += _recorded_otherwise(made, used, reagent, library)
    if origins is not None and support is None:
        spent = [smiles for smiles, count in zip(origins.reactants, origins.used, strict=True) if count]
        idle = [molecule for molecule in used if set(spent).isdisjoint(molecule.canonical.split("."))]
        remarks += [f"no atom of {molecule.canonical} is needed" for molecule in idle]
        if reagent is None or origins.largest > REAGENTS[reagent].get("C", 0):
            remarks += [f"no reactant supplies {piece} of the product" for piece in origins.pieces]
    remarks += _remarks(made, used, parts)
    return Judgement("no precedent", name=name, remarks=tuple(remarks), is_objected=bool(objections), support=support)


def _number(count: int) -> str:
    return f"{count:,}" if count else "none"


def _support(product: str, parts: Sequence[str], library: Library) -> tuple[Support | None, str | None]:
    """Return what recorded reactions say of a step without precedent, and the same in words."""
    related = _related(product, parts, library)
    if related is not None:
        return "related", f"the same change is recorded {related.count:,} times, with other neighbours"
    if two := two_at_once(product, parts, library):
        later, earlier = map(_in_words, two)
        both = f"{later}, twice" if later == earlier else f"{earlier} and {later}"
        return "two at once", f"two recorded transformations at once: {both}"
    return None, None


def _related(product: str, parts: Sequence[str], library: Library) -> Transformation | None:
    """Return the common core that turns a product into its reactants, with the stereochemistry that they share."""
    for kept, dropped in _without_reagents(product, parts):
        flat = _without_labels(product, kept)
        made, used = (canonical_smiles(product), kept) if flat is None else flat[:2]
        core, objected, mapped = library.related.match(made, used, dropped)
        if core is None or objected is not None or core.count < _LEAST_RELATED:
            continue
        if flat is None or compare(flat[2], flat[3], mapped).is_kept:
            return core
    return None


def _in_words(found: Transformation) -> str:
    kind = found.name or CLASSES.get(found.reaction_class or 0, "a change")
    return f"{kind} ({found.count:,} recorded)"


def _impossible(
    made: Molecule, used: list[Molecule], wrong: str | None, reagent: str | None, found: Sources | None
) -> str | None:
    """Return why a step that nothing recorded supports does not work, or None."""
    if found is not None:
        wrong = wrong or found.wrong_centre
        if found.largest > max(1, REAGENTS[reagent].get("C", 0) if reagent else 0):
            piece = max(found.pieces, key=len)
            return f"no reactant supplies {piece} of the product"
    if wrong is not None:
        return f"a stereocentre is {wrong}, but none of its bonds changes"
    for molecule in (made, *used):
        if kind := unstable_kind(molecule.canonical):
            return f"{molecule.canonical} is unstable: {kind}"
    return None


def _sources(made: str, parts: Sequence[str]) -> Sources | None:
    """Return where the atoms of a product come from."""
    copies = Counter(joined(parts).split("."))
    return sources(made, tuple(sorted(copies)), max(copies.values()))


class _Precedent(NamedTuple):
    """A recorded transformation of a step.

    Args:
        transformation: the transformation.
        product: SMILES of the product, perhaps without stereochemistry and isotopes.
        reactants: SMILES of the reactants without reagents.
        mapped: SMILES of the reactants. The atom maps are the indices of the product's atoms, counted from 1.
    """

    transformation: Transformation
    product: str
    reactants: list[str]
    mapped: str


def _recorded_otherwise(made: Molecule, used: list[Molecule], reagent: str | None, library: Library) -> Iterator[str]:
    """Yield a remark if the transformation is recorded with an oxidant that is not drawn, or with other
    stereochemistry.
    """
    canonical = [molecule.canonical for molecule in used]
    product, reactants = without_stereo(made.canonical), list(map(without_stereo, canonical))
    is_flat = (product, joined(reactants)) == (made.canonical, joined(canonical))
    for oxidant in ("", *_OXIDANTS) if reagent == OXIDANT else ("",):
        if is_flat and not oxidant:
            continue
        precedent = library.find(product, [*reactants, *filter(None, [oxidant])])
        if precedent is not None:
            recorded = f"the transformation is recorded {precedent.count} times"
            recorded += f" with {_OXIDANTS[oxidant]}" if oxidant else ""
            centres = len(_CENTRE.findall(made.canonical)) - len(_CENTRE.findall(".".join(canonical)))
            change = "newly defined: expect a mixture of stereoisomers" if centres > 0 else "inverted or newly defined"
            yield recorded if is_flat else f"{recorded}, but here a stereocentre or double bond is {change}"
            return


def _recorded(
    product: str, reactants: Sequence[str], library: Library
) -> tuple[_Precedent | None, list[str], str | None]:
    """Return what [`_precedent`] returns, for the parents of salts if it finds nothing for the step as drawn."""
    precedent, objections, wrong = _precedent(product, reactants, library)
    if precedent is None:
        drawn = [canonical_smiles(smiles) for smiles in (product, *reactants)]
        if (parents := [parent_form(smiles) for smiles in drawn]) != drawn:
            precedent, more, _ = _precedent(parents[0], parents[1:], library)
            objections = objections or more
    return precedent, objections, wrong


def _precedent(
    product: str, reactants: Sequence[str], library: Library
) -> tuple[_Precedent | None, list[str], str | None]:
    """Return the precedent of a step, or None, the objections to others, and how a stereocentre changes whose bonds
    stay.

    The precedent is that of all reactants, or else the most common one without reagents.
    """
    best: _Precedent | None = None
    objections, wrong = dict[str, None](), None
    for kept, dropped in _without_reagents(product, reactants):
        made, (transformation, objected, mapped) = canonical_smiles(product), library.match(product, kept, dropped)
        if transformation is None and (flat := _without_labels(product, kept)) is not None:
            made, parts, made_with, used_with = flat
            transformation, objected, mapped = library.match(made, parts, dropped)
            if transformation is not None:
                comparison = compare(made_with, used_with, mapped)
                wrong = wrong or comparison.centres
                transformation = transformation if comparison.is_kept else None
        if transformation is not None and objected is not None:
            objections[f"the transformation is recorded {transformation.count} times, but here {objected}"] = None
        elif transformation is not None and (best is None or transformation.count > best.transformation.count):
            best = _Precedent(transformation, made, kept, mapped)
            if not dropped:
                break
    return best, list(objections), wrong


def _without_labels(product: str, reactants: Sequence[str]) -> tuple[str, list[str], Any, Any] | None:
    """Return a product and its reactants without stereochemistry and isotopes, and both as molecules with
    stereochemistry.

    The atoms of the product's molecule have the order of its SMILES. Return None if there is nothing to leave out.
    """
    if _LABELS.isdisjoint(product + "".join(reactants)) and not isotopes_of([product, *reactants]):
        return None
    (made, molecule), *used = map(_unlabelled, (product, *reactants))
    if canonical_smiles(made) != made:
        return None
    return made, [smiles for smiles, _ in used], molecule, reduce(Chem.CombineMols, (part for _, part in used))


@lru_cache(KNOWN // 16)
def _unlabelled(smiles: str) -> tuple[str, Any]:
    """Return the SMILES of a molecule without stereochemistry and isotopes, and the molecule with stereochemistry, in
    its order.
    """
    molecule: Any = Chem.MolFromSmiles(canonical_smiles(smiles))
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
        for kept in combinations(distinct, count):
            reactants = [part for part in parts if part in kept]
            if len(reactants) < len(parts) and atoms_left(product, reactants) == missing:
                yield reactants, [part for part in parts if part not in kept]


def _remarks(made: Molecule, used: list[Molecule], parts: Sequence[str]) -> Iterator[str]:
    counts = Counter(canonical_smiles(part) for part in parts)
    product = Chem.MolFromSmiles(made.canonical)
    molecules = [Chem.MolFromSmiles(molecule.canonical) for molecule in used]
    yield from (f"{smiles} is used {count} times" for smiles, count in counts.items() if count > 1)
    for reactant, molecule in zip(used, molecules, strict=True):
        with suppress(SearchTooLong):
            if len(used) > 1 and molecule.HasSubstructMatch(product, bounded_search(maxMatches=1)):
                yield f"{reactant.canonical} contains the whole product"
    if lost := isotopes_of(molecule.canonical for molecule in used) - isotopes_of([made.canonical]):
        yield f"isotopes not in the product: {', '.join(sorted(lost))}"
