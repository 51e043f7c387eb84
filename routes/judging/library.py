"""A library of recorded transformations: it finds those of a step, and proposes steps for a molecule."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, lru_cache
from itertools import chain
from operator import itemgetter
from typing import NamedTuple

from ..chemistry.molecules import canonical_smiles, joined, read_molecule, structure
from ..chemistry.step import MappedStep
from .all_sites import MOST_SITES, at_all_sites
from .objections import refusal, site_probability
from .ranker import Ranker, probability_by_similarity, similarities
from .templates import mapped_step, matcher, might_use, outcomes, patterns, product_pattern
from .transformation import ReagentSet, Row, Transformation, most_common_sets

# The number of reactions with reagents from which a transformation does not need those of others of its kind.
_ENOUGH_REAGENTS = 10
# Transformations with fewer reactions are no classes of the ranker. They are two thirds of all.
LEAST_PROPOSED = 2
# The number of classes of the ranker that are tried for a molecule, and the probability after which no others are.
_MOST_TRIED, _ENOUGH = 200, 0.995
# The part of a transformation's probability that goes to the step at all its sites. It cannot be measured, because the
# published selections leave nearly all of these out: 3 of 20,000 reactions remove two Boc groups.
_SHARE_OF_ALL_SITES = 0.5
# The probability of a transformation below which the step at all its sites is not derived, to save time.
_LEAST_AT_ALL_SITES = 0.01
# The differences of atoms whose counts a process caches.
_DIFFERENCES = 1 << 11
# An element with its count in the text of a difference.
_ELEMENT = re.compile(r"([A-Z][a-z]?)(-?\d+)")


class Match(NamedTuple):
    """A recorded transformation that turns a product into its reactants.

    Args:
        transformation: the transformation.
        step: the step with atom maps.
        num_sites: the number of sites of the product that change.
    """

    transformation: Transformation
    step: MappedStep
    num_sites: int = 1

    def refusal(self, bystanders: Sequence[str] = ()) -> str | None:
        """Return why the recorded reactions are no evidence for the step, as in [`~judging.objections.refusal`]."""
        return refusal(self.transformation, self.step, bystanders)


class Derived:
    """A set of reactants that transformations derive from a product. Its refusal and its sites are computed when they
    are needed, because this takes longer than to derive it.

    Args:
        product: canonical SMILES of the product.
        reactants: the sorted canonical SMILES of the reactants.
    """

    def __init__(self, product: str, reactants: tuple[str, ...]):
        self.product, self.reactants = product, reactants
        # each transformation, its reactants with atom maps, and its probability
        self.ways: list[tuple[Transformation, str, float]] = []
        self.least = 0.0  # the least probability, unless it is refused

    @property
    def bound(self) -> float:
        """The largest probability that it can have."""
        return max(self.least, sum(share for *_, share in self.ways))

    @cached_property
    def share(self) -> float:
        """Its probability, 0 if it is refused: the sum over the transformations that are not, each times the
        probability of its sites.
        """
        steps = {mapped: MappedStep(self.product, mapped) for _, mapped, _ in self.ways}
        shares = [
            share * site_probability(steps[mapped])
            for transformation, mapped, share in self.ways
            if refusal(transformation, steps[mapped]) is None
        ]
        return max(self.least, sum(shares)) if shares else 0.0


class _Screen:
    """Transformations, the most common first. They are grouped by the product's part of their cores, which many share,
    so a molecule is compared with few of them.
    """

    def __init__(self, rows: Iterable[Row]):
        self.rows = sorted(rows, key=lambda row: -row[1].count)

    @cached_property
    def _by_core(self) -> dict[str, list[tuple[int, str]]]:
        """For each core, the places of its transformations, with the product's part of them."""
        places: dict[str, list[tuple[int, str]]] = {}
        for place, (_, transformation) in enumerate(self.rows):
            pattern = product_pattern(transformation.smarts)
            core = pattern if transformation.core is None else product_pattern(transformation.core)
            places.setdefault(core, []).append((place, pattern))
        return places

    def matching(self, product: str) -> Iterator[Row]:
        """Yield the transformations whose pattern is in a product, a canonical SMILES."""
        is_in_product = matcher(product)
        candidates = list[tuple[int, str]]()
        for core, transformations in self._by_core.items():
            if is_in_product(core):
                candidates += transformations
        for place, pattern in sorted(candidates):
            if is_in_product(pattern):
                yield self.rows[place]


class Library:
    """Transformations, grouped by their difference of atoms, so that a step is compared with few of them.

    Args:
        rows: transformations, each with its difference of atoms, as returned by [`difference`].
        users: the library of a user, whose transformations are among the rows and are proposed first.
        ranker: the ranker of the transformations to propose, with its classes. Without it, those of several reactions
            are proposed, the most common first.
        by_similarity: whether all transformations are proposed instead, those first that have examples with similar
            products.
        version: the digest of its files, such as `"4f1c09ab"`, which plans name.
        textbook: the library of textbook reactions, which are not among the rows: no count of recorded reactions has
            them.
    """

    def __init__(
        self,
        rows: Iterable[Row],
        users: Library | None = None,
        ranker: tuple[Ranker, Sequence[Transformation]] | None = None,
        by_similarity: bool = False,
        version: str | None = None,
        textbook: Library | None = None,
    ):
        self.users, self.ranker, self._by_similarity, self.version = users, ranker, by_similarity, version
        self.textbook = textbook
        by_difference: dict[str, list[Row]] = {}
        for row in rows:
            by_difference.setdefault(row[0], []).append(row)
        self._by_difference = {key: _Screen(group) for key, group in by_difference.items()}

    def __len__(self) -> int:
        return sum(len(screen.rows) for screen in self._by_difference.values())

    def rows(self) -> Iterator[Row]:
        """Yield the transformations, each with its difference of atoms."""
        return chain.from_iterable(screen.rows for screen in self._by_difference.values())

    @cached_property
    def without_textbook(self) -> Library:
        """The library of the recorded transformations alone."""
        if self.textbook is None:
            return self
        return Library(self.rows(), self.users, self.ranker, self._by_similarity, self.version)

    @cached_property
    def related(self) -> Library:
        """The cores of the transformations, each with the reactions of all transformations that share it."""
        by_core: dict[tuple[str, str], list[Transformation]] = {}
        for key, transformation in self.rows():
            if transformation.core is not None:
                by_core.setdefault((key, transformation.core), []).append(transformation)
        rows = list[Row]()
        for (key, core), members in by_core.items():
            commonest = max(members, key=lambda member: (member.name is not None, member.count))
            count = sum(member.count for member in members)
            rows.append((key, replace(commonest, smarts=core, core=None, count=count)))
        return Library(rows)

    def with_name(self, transformation: Transformation) -> Transformation:
        """Return a transformation with the name and the class of one that makes the same change in its example."""
        for example in transformation.examples[:1]:
            reactants, product = example.smiles.split(">>")
            for library in (self, self.related):
                if match := library.match(product, reactants.split(".")):
                    like = match.transformation
                    number = transformation.reaction_class or like.reaction_class
                    return replace(transformation, name=like.name, reaction_class=number)
        return transformation

    @cached_property
    def rare(self) -> Library:
        """The transformations that the ranker does not know, most of them of one reaction, and those of textbooks.
        Those whose core no other one shares are left out: many of these records are wrong.
        """
        common = self.ranker[1] if self.ranker else [transformation for _, transformation in self._common.rows]
        smarts, num_of_core = {transformation.smarts for transformation in common}, Counter[tuple[str, str | None]]()
        for key, transformation in self.rows():
            num_of_core[key, transformation.core] += transformation.core is not None
        rows = (
            (key, transformation)
            for key, transformation in self.rows()
            if transformation.smarts not in smarts and num_of_core[key, transformation.core] > 1
        )
        return Library(chain(rows, self.textbook.rows() if self.textbook else ()), by_similarity=True)

    @cached_property
    def _common(self) -> _Screen:
        """The transformations to propose without a ranker."""
        return _Screen(row for row in self.rows() if self._by_similarity or row[1].count >= LEAST_PROPOSED)

    def _ranked(self, product: str) -> Iterable[tuple[Transformation, float]]:
        """Return transformations whose patterns are in a product, a canonical SMILES, with their probabilities, the
        most probable first.
        """
        if self.ranker is not None:
            is_in_product, (ranker, classes) = matcher(product), self.ranker
            ranked = ((classes[number], share) for number, share in ranker.ranked(product, _MOST_TRIED))
            return (row for row in ranked if is_in_product(product_pattern(row[0].smarts)))
        matching = [transformation for _, transformation in self._common.matching(product)]
        if not self._by_similarity:
            total = sum(transformation.count for transformation in matching)
            return [(transformation, transformation.count / total) for transformation in matching]
        nearest = similarities(product, list(map(_products, matching)))
        shares = [
            probability_by_similarity(similarity, transformation.textbook is not None)
            for transformation, similarity in zip(matching, nearest, strict=True)
        ]
        return sorted(zip(matching, shares, strict=True), key=lambda ranked: -ranked[1])

    def most_probable(self, product: str) -> float:
        """Return the probability of the transformation of textbooks that is most probable for a product."""
        return probability_by_similarity(max(similarities(product, [self._products]), default=0.0), True)

    @cached_property
    def _products(self) -> list[str]:
        return [product for _, transformation in self.rows() for product in _products(transformation)]

    def propose(self, product: str, most: int) -> list[tuple[tuple[str, ...], float]]:
        """Return the reactants of [`derive`] with their probabilities, the most probable first."""
        shares = ((derived.reactants, derived.share) for derived in self.derive(product, most))
        return sorted(filter(itemgetter(1), shares), key=lambda proposal: -proposal[1])

    def derive(self, product: str, most: int) -> list[Derived]:
        """Apply transformations to a product: those of the user first, then the most probable.

        The outcomes of a transformation share its probability. The outcome at all of several sites gets half of it.
        Those of the user are at least as probable as the others.

        Args:
            product: SMILES of the product.
            most: the largest number of sets of reactants.
        """
        canonical = canonical_smiles(product)
        own = [] if self.users is None else self.users.derive(canonical, most)
        first = {derived.reactants: derived for derived in own}
        found, total = dict[tuple[str, ...], Derived](), 0.0
        for transformation, share in self._ranked(canonical):
            if total >= _ENOUGH or len(first.keys() | found.keys()) >= most:
                break
            total += 0.0 if self._by_similarity else share  # those by similarity do not add up to 1
            for outcome, step, bound in _steps(transformation.smarts, canonical, share):
                if any(read_molecule(smiles) is None for smiles in outcome.split(".")):
                    continue
                reactants = tuple(joined(outcome.split(".")).split("."))
                if canonical not in reactants:
                    derived = found.setdefault(reactants, Derived(canonical, reactants))
                    derived.ways.append((transformation, step.mapped, bound))
        for derived in first.values():
            derived.least = max((other.bound for other in found.values()), default=0.0)
        others = sorted(
            (found[key] for key in found.keys() - first.keys()), key=lambda other: (-other.bound, other.reactants)
        )
        return [*first.values(), *others][:most]

    def first_of_two(self, product: str, reactants: str) -> list[Transformation]:
        """Return the transformations of a product after which another one may supply the other atoms, the most common
        first. Their patterns are in the reactants, because the other one changes other atoms.

        Args:
            product: canonical SMILES.
            reactants: canonical SMILES of all reactants, as [`joined`] returns them.
        """
        molecules, total = _structures(reactants), _counts(difference(product, reactants))
        is_supplied = dict[str, bool]()
        for key in self._by_difference:
            rest = Counter(total)
            rest.subtract(_counts(key))
            is_supplied[key] = _as_text(rest) in self._by_difference
        return [
            transformation
            for key, transformation in self._common.matching(product)
            if is_supplied[key] and might_use(transformation.smarts, molecules)
        ]

    def match(self, product: str, reactants: Sequence[str], tries: Iterator[int] | None = None) -> Match | None:
        """Return the most common transformation that turns a product into its reactants, or None.

        Args:
            product: SMILES of the product.
            reactants: SMILES of the reactants, in any order.
            tries: an item is taken for each transformation that is applied. The search ends with them.

        Raises:
            ValueError: RDKit cannot read a molecule.
        """
        canonical, canonical_reactants = canonical_smiles(product), joined(reactants)
        molecules, counts = _structures(canonical_reactants), _counts(difference(canonical, canonical_reactants))
        numbers = (n for n in range(1, MOST_SITES + 1) if not any(count % n for count in counts.values()))
        # if only hydrogens change, the difference does not tell the number of sites
        for number in numbers if counts else (1, 2):
            key = _as_text({element: count // number for element, count in counts.items()})
            screen = self._by_difference.get(key)
            for _, transformation in screen.matching(canonical) if screen else ():
                if not might_use(transformation.smarts, molecules):
                    continue
                if tries is not None and next(tries, None) is None:
                    return None
                if (found := _step(transformation.smarts, canonical, canonical_reactants, number)) is not None:
                    users = self._with_users_reactions(transformation, canonical, canonical_reactants)
                    return Match(users, *found)
        return None

    def _with_users_reactions(self, transformation: Transformation, product: str, reactants: str) -> Transformation:
        """Return a transformation with the reactions of the user that make the same step by another template."""
        match = None if self.users is None else self.users.match(product, reactants.split("."))
        if match is None or match.transformation.smarts == transformation.smarts:  # which has them already
            return transformation
        return replace(
            match.transformation.plus(transformation),
            smarts=transformation.smarts, name=transformation.name, core=transformation.core,
        )  # fmt: skip

    def usual_reagents(self, transformation: Transformation) -> tuple[tuple[ReagentSet, ...], bool]:
        """Return the reagents of a transformation, and whether they are those of all with the same name or core. These
        are used if few were recorded.
        """
        reagents = transformation.reagents
        if not reagents or reagents[0].num_reactions < _ENOUGH_REAGENTS:
            of_kind = self._reagents_by_kind.get(transformation.name or transformation.core or "", reagents)
            return of_kind, of_kind != reagents
        return reagents, False

    @cached_property
    def _reagents_by_kind(self) -> dict[str, tuple[ReagentSet, ...]]:
        by_kind: dict[str, Counter[str]] = {}
        for _, transformation in self.rows():
            kind = transformation.name or transformation.core
            if kind and transformation.reagents:
                by_kind.setdefault(kind, Counter()).update(dict(transformation.reagents))
        return {kind: most_common_sets(counts) for kind, counts in by_kind.items()}


def _products(transformation: Transformation) -> list[str]:
    return [example.smiles.split(">>")[1] for example in transformation.examples]


def difference(product: str, reactants: str) -> str:
    """Return the heavy atoms that the reactants have more (or fewer) of than the product, such as `Br1B1O2`."""
    before, after = read_molecule(reactants), read_molecule(product)
    if before is None or after is None:
        raise ValueError(f"{reactants}>>{product} has a molecule that RDKit cannot read.")
    counts = Counter(before.atoms)
    counts.subtract(after.atoms)
    return _as_text(counts)


def _as_text(counts: Mapping[str, int]) -> str:
    return "".join(f"{element}{count}" for element, count in sorted(counts.items()) if count)


@lru_cache(_DIFFERENCES)
def _counts(key: str) -> Mapping[str, int]:
    """Return the counts of [`difference`] by element."""
    return {element: int(count) for element, count in _ELEMENT.findall(key)}


def _steps(smarts: str, product: str, share: float) -> Iterator[tuple[str, MappedStep, float]]:
    """Yield what a template derives from a product, with the steps and their probabilities, the shares of its own."""
    single = outcomes(smarts, product)
    several = list(at_all_sites(smarts, product, single)) if share >= _LEAST_AT_ALL_SITES else []
    for found in several:
        yield found.reactants, found.step, _SHARE_OF_ALL_SITES * share / len(several)
    rest = (1.0 - _SHARE_OF_ALL_SITES) * share if several else share
    for outcome, step in single.items():
        yield outcome, step, rest / len(single)


def _step(smarts: str, product: str, reactants: str, least: int) -> tuple[MappedStep, int] | None:
    """Return the step that a template makes, and the number of its sites, or None.

    Args:
        smarts, product, reactants: as in [`~judging.templates.mapped_step`].
        least: 1 for a step at one site, or else the least number of sites, all of which change.
    """
    if least == 1:
        step = mapped_step(smarts, product, reactants)
        return None if step is None else (step, 1)
    if len(structure(product).GetSubstructMatches(patterns(smarts)[0], maxMatches=least)) < least:
        return None
    several = at_all_sites(smarts, product, outcomes(smarts, product), reactants.split("."))
    return next(((found.step, found.num_sites) for found in several if found.reactants == reactants), None)


def _structures(smiles: str) -> list:
    return [structure(part) for part in smiles.split(".")]
