"""Recorded transformations: templates from reactions, with counts, classes and examples, and the search for them."""

from __future__ import annotations

import gc
import json
import re
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property, lru_cache
from importlib.resources import files
from itertools import chain, permutations
from pathlib import Path
from typing import Any, NamedTuple

from rdchiral.initialization import rdchiralReactants, rdchiralReaction
from rdchiral.main import rdchiralRun
from rdkit import Chem, DataStructs, rdBase
from rdkit.Chem import rdChemReactions

from ...common.tables import named_errors, text_of
from ..chemistry.groups import kept_groups, objection
from ..chemistry.molecules import MOST_CHARACTERS, canonical_smiles, read_molecule
from ..tree import ATOM_MAP, split_parts
from .ranker import RANKER, Ranker, shares_of_neighbours

SHIPPED = "transformations.jsonl.gz"
# The numbers of templates, molecules, patterns and fragments that a process caches. A template takes 80 kB, a molecule
# 24 kB, a pattern 10 kB, a fragment is a text.
_TEMPLATES, _MOLECULES, _PATTERNS, _FRAGMENTS = 1 << 10, 1 << 8, 1 << 11, 1 << 12
# The numbers of examples and of sets of reagents of a transformation.
EXAMPLES, REAGENT_SETS = 3, 8
# rdchiral writes into the templates and molecules that it is given, and those here are shared by all threads.
_RDCHIRAL = threading.Lock()
# The number of libraries with transformations of a user that a process keeps.
_LIBRARIES = 4
# The number of reactions with reagents from which a transformation does not need those of others of its kind.
_ENOUGH_REAGENTS = 10
# Transformations with fewer reactions are no classes of the ranker. They seldom rank high, and are two thirds of all.
LEAST_PROPOSED = 2
# The number of classes of the ranker that are tried for a molecule, and the probability after which no others are.
_MOST_TRIED, _ENOUGH = 200, 0.995
# The part of the probability of a core that goes to its transformations of one reaction. Of 0.03, 0.1 and 0.3, the last
# two had the best accuracies on 400 held-out reactions.
_SHARE_OF_RARE = 0.1
# A stereocentre with a lone pair.
_LONE_PAIR = re.compile(r"\[(?:S|Se|Te|P|As)@")
# An element with its count in the text of a difference.
_DIFFERENCE = re.compile(r"([A-Z][a-z]?)(-?\d+)")
# The characters of SMILES and SMARTS with stereochemistry.
_STEREO = frozenset("@/\\")
# The number of bits of the fingerprints, which quickly exclude patterns that a molecule cannot contain.
_BITS = 1024
# The number of neighbours of an atom beyond which a fingerprint takes too long: hours and all memory for a cluster of 14
# atoms that are all bound to each other.
_MOST_NEIGHBOURS = 6
# A group is unusual beside a kind of transformation if at least so many of its reactions were examined, and at most
# this share of them has it.
_EXAMINED, _UNUSUAL = 100, 0.002


class Example(NamedTuple):
    """A recorded reaction.

    Args:
        smiles: its reaction SMILES.
        source: the number of its patent or its id in the data set, or None if it has none.
    """

    smiles: str
    source: str | None


class ReagentSet(NamedTuple):
    """Compounds that were recorded together and give no atom to the product.

    Args:
        smiles: their canonical SMILES, separated by spaces.
        num_reactions: the number of reactions with just these.
    """

    smiles: str
    num_reactions: int


def most_common_sets(counts: Mapping[str, int]) -> tuple[ReagentSet, ...]:
    """Return the most common sets of reagents, after the empty set, which has the number of all reactions: that in
    `counts`, or else their sum.
    """
    total = counts.get("", 0) or sum(counts.values())
    sets = Counter({smiles: count for smiles, count in counts.items() if smiles}).most_common(REAGENT_SETS)
    return tuple(map(ReagentSet._make, [("", total), *sets])) if total else ()


@dataclass(frozen=True, slots=True)
class Transformation:
    """A template that recorded reactions share: the atoms and bonds that change, with their neighbours.

    Args:
        smarts: the template as reaction SMARTS, from the product to the reactants.
        count: the number of recorded reactions that share it.
        reaction_class: the most common of the ten classes of USPTO-50K among them, or None if no class was recorded.
        examples: a few of the reactions.
        name: its common name, such as "amide coupling", or None. It describes the kind of reaction that the structures
            show, not whether the reaction works or with which reagents.
        kept: the number of these reactions whose reactants have a functional group that stays as it is, by group. Under
            an empty name, the number of reactions that were examined.
        core: the part of the template that [`Library.related`] compares: the atoms that change, the neighbours of those
            that are heteroatoms, and the heteroatoms of functional groups. None if it is unknown.
        reagents: the most common sets of reagents that were recorded with these reactions. The first is empty, and has
            the number of reactions whose reagents were recorded.
    """

    smarts: str
    count: int
    reaction_class: int | None = None
    examples: tuple[Example, ...] = ()
    name: str | None = None
    kept: Mapping[str, int] = field(default_factory=dict, hash=False)
    core: str | None = None
    reagents: tuple[ReagentSet, ...] = ()

    @property
    def kind(self) -> str:
        """The name, or the template if it has none."""
        return self.name or self.smarts

    def plus(self, other: Transformation) -> Transformation:
        """Return the transformation with the reactions of another one. Its own examples and facts come first."""
        kept, reagents = Counter(self.kept), Counter[str]()
        kept.update(other.kept)
        for smiles, count in (*self.reagents, *other.reagents):
            reagents[smiles] += count
        return replace(
            self,
            count=self.count + other.count,
            reaction_class=self.reaction_class or other.reaction_class,
            examples=(*self.examples, *other.examples)[:EXAMPLES],
            name=self.name or other.name,
            kept=dict(sorted(kept.items())),
            core=self.core or other.core,
            reagents=most_common_sets(reagents),
        )

    def mapped(self, product: str, reactants: str) -> str | None:
        """Return these reactants with atom maps if the template derives them from a product, stereochemistry included.

        Args:
            product: canonical SMILES.
            reactants: canonical SMILES of all reactants, as [`joined`] returns them.
        """
        outcomes = self.outcomes(product).items()
        return next((mapped for outcome, mapped in outcomes if joined(outcome.split(".")) == reactants), None)

    def outcomes(self, product: str) -> dict[str, str]:
        """Return the SMILES of the reactants that the template derives from a product, with their SMILES with the
        numbers of the product's atoms, counted from 1.
        """
        is_flat = _STEREO.isdisjoint(self.smarts + product)
        try:
            with rdBase.BlockLogs():
                if is_flat and (flat := _flat_outcomes(self.smarts, product)) is not None:
                    return flat
                with _RDCHIRAL:
                    outcomes, mapped = rdchiralRun(_template(self.smarts), _prepared(product), return_mapped=True)
                if _LONE_PAIR.search(product):
                    texts = sorted(mapped[outcome][0] for outcome in outcomes if outcome in mapped)
                    return {_with_stereo(reactants, product): reactants for reactants in texts}
        # rdchiral fails for a few pairs of template and molecule
        except (ValueError, KeyError, RuntimeError, IndexError):
            return {}
        # rdchiral's order differs between processes. It does not map two enantiomers that it joins
        return {outcome: mapped[outcome][0] if outcome in mapped else outcome for outcome in sorted(outcomes)}

    def num_other_products(self, product: str, reactants: str) -> int:
        """Return how many isomers of the product the transformation makes from the same reactants, stereochemistry
        apart.

        Arguments are those of [`mapped`].
        """
        forward, wanted = _forward(self.smarts), read_molecule(without_stereo(product))
        parts, products = [_molecule(without_stereo(part)) for part in reactants.split(".")], set[str]()
        with rdBase.BlockLogs():
            for order in permutations(parts, forward.GetNumReactantTemplates()):
                products.update(".".join(map(Chem.MolToSmiles, outcome)) for outcome in forward.RunReactants(order))
        made = filter(None, map(read_molecule, products))
        isomers = {without_stereo(other.canonical) for other in made if wanted and other.formula == wanted.formula}
        return len(isomers - {wanted and without_stereo(wanted.canonical)})

    def might_use(self, reactants: Sequence[Chem.Mol]) -> bool:
        """Return False if a part of the template is in none of the reactants. A quick test before [`mapped`]."""
        return all(
            any(reactant.HasSubstructMatch(part) for reactant in reactants) for part in patterns(self.smarts)[1]
        )


@lru_cache(_TEMPLATES)
def _forward(smarts: str) -> Any:
    """Return the reaction of a template, from the reactants to the product."""
    made, used = smarts.split(">>")
    bare = [part[1:-1] if part.startswith("(") else part for part in (made, *split_parts(used))]
    reaction = rdChemReactions.ReactionFromSmarts(f"{'.'.join(bare[1:])}>>{bare[0]}")
    reaction.Initialize()
    return reaction


# A transformation with its difference of atoms, as returned by [`difference`].
Row = tuple[str, Transformation]


def _matcher(product: str) -> Callable[[str], bool]:
    """Return a function that tells whether a pattern is in a product, a canonical SMILES."""
    molecule, missing = _molecule(product), ~_molecule_bits(product)

    def is_in_product(pattern: str) -> bool:
        # fingerprints are compared first, because that is faster than to parse and match a pattern
        return not _bits(pattern) & missing and molecule.HasSubstructMatch(_parsed(pattern))

    return is_in_product


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
        for place, (_, one) in enumerate(self.rows):
            made = _made(one.smarts)
            places.setdefault(made if one.core is None else _made(one.core), []).append((place, made))
        return places

    def matching(self, product: str) -> Iterator[Row]:
        """Yield the transformations whose pattern is in a product, a canonical SMILES."""
        is_in_product = _matcher(product)
        candidates = [one for core, some in self._by_core.items() if is_in_product(core) for one in some]
        for place, made in sorted(candidates):
            if is_in_product(made):
                yield self.rows[place]


class Library:
    """Transformations, grouped by their difference of atoms, so that a step is compared with few of them.

    Args:
        rows: transformations, each with its difference of atoms, as returned by [`difference`].
        own: the transformations of a user, which are among the rows and are proposed first.
        ranker: the ranker of the transformations to propose, with its classes. Without it, the most common come first.
        is_own: whether these are the transformations of a user. All of them are proposed, those first that were
            recorded with similar molecules.
    """

    def __init__(
        self,
        rows: Iterable[Row],
        own: Library | None = None,
        ranker: tuple[Ranker, Sequence[Transformation]] | None = None,
        is_own: bool = False,
    ):
        self.own, self.ranker, self._is_own = own, ranker, is_own
        by_difference: dict[str, list[Row]] = {}
        for row in rows:
            by_difference.setdefault(row[0], []).append(row)
        self._by_difference = {key: _Screen(some) for key, some in by_difference.items()}

    def __len__(self) -> int:
        return sum(len(screen.rows) for screen in self._by_difference.values())

    def rows(self) -> Iterator[Row]:
        """Yield the transformations, each with its difference of atoms."""
        return chain.from_iterable(screen.rows for screen in self._by_difference.values())

    def with_own(self, own: Library) -> Library:
        """Return a library that also has the transformations of a user."""
        return Library(combined(own.rows(), self.rows()), Library(own.rows(), is_own=True), self.ranker)

    @cached_property
    def related(self) -> Library:
        """The cores of the transformations, each with the reactions of all transformations that share it."""
        found: dict[tuple[str, str], list[Transformation]] = {}
        for key, one in self.rows():
            if one.core is not None:
                found.setdefault((key, one.core), []).append(one)
        return Library(
            # the most common one that has a name
            (key, replace(max(some, key=lambda one: (one.name is not None, one.count)), smarts=core, core=None,
                          count=sum(one.count for one in some)))
            for (key, core), some in found.items()
        )  # fmt: skip

    def with_name(self, transformation: Transformation) -> Transformation:
        """Return a transformation with the name and the class of one that makes the same change in its example."""
        number = transformation.reaction_class
        for example in transformation.examples[:1]:
            used, made = example.smiles.split(">>")
            for library in (self, self.related):
                found, _, _ = library.match(made, used.split("."))
                if found is not None:
                    return replace(transformation, name=found.name, reaction_class=number or found.reaction_class)
        return transformation

    @cached_property
    def _common(self) -> _Screen:
        """The transformations to propose."""
        return _Screen(row for row in self.rows() if self._is_own or row[1].count >= LEAST_PROPOSED)

    def _ranked(self, product: str) -> Iterable[tuple[Transformation, float]]:
        """Return transformations whose patterns are in a product, a canonical SMILES, with their probabilities, the most
        probable first.
        """
        if self.ranker is not None:
            return sorted(self._by_ranker(*self.ranker, product), key=lambda ranked: -ranked[1])
        matching = [transformation for _, transformation in self._common.matching(product)]
        if not self._is_own:
            total = sum(one.count for one in matching)
            return [(one, one.count / total) for one in matching]
        shares = shares_of_neighbours(product, [list(map(_product_of, one.examples)) for one in matching])
        return sorted(zip(matching, shares, strict=True), key=lambda ranked: -ranked[1])

    def _by_ranker(
        self, ranker: Ranker, classes: Sequence[Transformation], product: str
    ) -> Iterator[tuple[Transformation, float]]:
        """Yield the classes whose patterns are in a product, and the transformations of one reaction that share their
        cores, which have a part of the probability of the core.
        """
        is_in_product, cores = _matcher(product), dict[str, float]()
        for number, share in ranker.ranked(product, _MOST_TRIED):
            one = classes[number]
            cores[one.core or ""] = cores.get(one.core or "", 0.0) + share
            if is_in_product(_made(one.smarts)):
                yield one, share
        for core, share in cores.items():
            if (rare := self._rare.get(core)) and is_in_product(_made(core)):
                matching = [one for one in rare if is_in_product(_made(one.smarts))]
                yield from ((one, _SHARE_OF_RARE * share / len(matching)) for one in matching)

    @cached_property
    def _rare(self) -> dict[str, list[Transformation]]:
        """The transformations of one reaction, by their cores."""
        rare: dict[str, list[Transformation]] = {}
        for _, one in self.rows():
            if one.core is not None and one.count < LEAST_PROPOSED:
                rare.setdefault(one.core, []).append(one)
        return rare

    def propose(self, product: str, most: int) -> list[tuple[tuple[str, ...], float]]:
        """Apply transformations to a product: those of the user first, then the most probable.

        Args:
            product: SMILES of the product.
            most: the largest number of sets of reactants.

        Returns:
            The sorted canonical SMILES of the reactants, with their probability: the sum over the transformations that
            give them. The outcomes of a transformation share its probability. Those of the user are at least as
            probable as the others.
        """
        made = canonical_smiles(product)
        own = {} if self.own is None else dict(self.own.propose(made, most))
        proposed, total = dict[tuple[str, ...], float](), 0.0
        for transformation, share in self._ranked(made):
            if total >= _ENOUGH or len(own.keys() | proposed.keys()) >= most:
                break
            total += share
            outcomes = transformation.outcomes(made)
            for outcome, mapped in outcomes.items():
                if all(read_molecule(part) is not None for part in outcome.split(".")):
                    reactants = tuple(joined(outcome.split(".")).split("."))
                    if made not in reactants and objection(transformation.name, made, mapped) is None:
                        proposed[reactants] = proposed.get(reactants, 0.0) + share / len(outcomes)
        best = max(proposed.values(), default=0.0)
        first = {reactants: max(share, best) for reactants, share in own.items()}
        others = sorted(proposed.items(), key=lambda other: -other[1])
        return [*first.items(), *(other for other in others if other[0] not in first)][:most]

    def first_of_two(self, product: str, reactants: str) -> list[Transformation]:
        """Return the transformations of a product after which another one may supply the other atoms, the most common
        first. Their patterns are in the reactants, because the other one changes other atoms.

        Args:
            product: canonical SMILES.
            reactants: canonical SMILES of all reactants, as [`joined`] returns them.
        """
        others, total, is_left = _molecules(reactants), _counts(difference(product, reactants)), dict[str, bool]()
        for key in self._by_difference:
            rest = Counter(total)
            rest.subtract(_counts(key))
            is_left[key] = _as_text(rest) in self._by_difference
        return [one for key, one in self._common.matching(product) if is_left[key] and one.might_use(others)]

    @classmethod
    def load(cls, path: str | Path, ranker: str | Path | None = None) -> Library:
        """Read a library that `weftformer routes library` has written.

        Args:
            path: the file of the library.
            ranker: the file of its ranker.

        Raises:
            OSError: a file cannot be read.
            ValueError: it is not such a library, or the ranker belongs to another one.
        """
        # the collector would look at all of the new objects again and again, which takes half of the time
        was_enabled = gc.isenabled()
        gc.disable()
        try:
            rows = list(read_rows(path))
            if ranker is None:
                return cls(rows)
            ranks = Ranker.load(ranker, [one.smarts for _, one in rows])
            return cls(rows, ranker=(ranks, [rows[place][1] for place in ranks.places]))
        finally:
            if was_enabled:
                gc.enable()

    def find(self, product: str, reactants: Sequence[str]) -> Transformation | None:
        """Return the most common transformation that turns a product into its reactants and is a precedent for it.

        Args:
            product: SMILES of the product.
            reactants: SMILES of the reactants, in any order.

        Returns:
            The transformation, or None if no recorded one fits.

        Raises:
            ValueError: RDKit cannot read a molecule.
        """
        transformation, objected, _ = self.match(product, reactants)
        return transformation if objected is None else None

    def match(
        self,
        product: str,
        reactants: Sequence[str],
        bystanders: Sequence[str] = (),
        tries: Iterator[int] | None = None,
    ) -> tuple[Transformation | None, str | None, str]:
        """Return the most common transformation that turns a product into its reactants, or None, the reason why it is
        no precedent, or None, and the reactants with atom maps. Arguments and errors are those of [`find`];
        `bystanders` are as in [`objection`]. An item of `tries` is taken for each transformation that is applied; the
        search ends with them.
        """
        made, wanted = canonical_smiles(product), joined(reactants)
        others, screen = _molecules(wanted), self._by_difference.get(difference(made, wanted))
        for _, transformation in screen.matching(made) if screen else ():
            if transformation.might_use(others):
                if tries is not None and next(tries, None) is None:
                    break
                mapped = transformation.mapped(made, wanted)
                if mapped is not None:
                    transformation = self._with_own_reactions(transformation, made, wanted)
                    return transformation, objection(transformation.name, made, mapped, bystanders), mapped
        return None, None, ""

    def _with_own_reactions(self, transformation: Transformation, product: str, reactants: str) -> Transformation:
        """Return a transformation with the reactions of the user that make the same step by another template."""
        own = None if self.own is None else self.own.match(product, reactants.split("."))[0]
        if own is None or own.smarts == transformation.smarts:  # which has them already
            return transformation
        return replace(
            own.plus(transformation), smarts=transformation.smarts, name=transformation.name, core=transformation.core
        )

    def usual_reagents(self, transformation: Transformation) -> tuple[ReagentSet, ...]:
        """Return the reagents of a transformation, or of all with the same name or core if few were recorded."""
        own = transformation.reagents
        if own and own[0].num_reactions >= _ENOUGH_REAGENTS:
            return own
        return self._reagents_by_kind.get(transformation.name or transformation.core or "", own)

    @cached_property
    def _reagents_by_kind(self) -> dict[str, tuple[ReagentSet, ...]]:
        counts: dict[str, Counter[str]] = {}
        for _, one in self.rows():
            kind = one.name or one.core
            if kind and one.reagents:
                counts.setdefault(kind, Counter()).update(dict(one.reagents))
        return {kind: most_common_sets(some) for kind, some in counts.items()}

    @cached_property
    def _unusual(self) -> dict[str, tuple[dict[str, int], int]]:
        """For each kind of transformation, the groups that hardly any of its reactions keep, with their numbers, and
        the number of reactions.
        """
        kept = dict[str, Counter[str]]()
        for _, transformation in self.rows():
            kept.setdefault(transformation.kind, Counter()).update(transformation.kept)
        names = sorted(set().union(*kept.values()) - {""})
        return {
            kind: ({name: counts[name] for name in names if counts[name] <= _UNUSUAL * counts[""]}, counts[""])
            for kind, counts in kept.items()
            if counts[""] >= _EXAMINED
        }

    def unusual_groups(self, transformation: Transformation, product: str, mapped: str) -> list[tuple[str, int, int]]:
        """Return the functional groups of a step that stay, and that the recorded reactions of its kind do not have, or
        seldom.

        Args:
            transformation: the transformation, with those of the same name.
            product: SMILES of the product.
            mapped: SMILES of the reactants with atom maps, as [`match`] returns them.

        Returns:
            The name of each group, the number of these reactions with it, and of those that were examined.
        """
        unusual, total = self._unusual.get(transformation.kind, ({}, 0))
        names = kept_groups(canonical_smiles(product), mapped, unusual) if unusual else ()
        return [(name, unusual[name], total) for name in names]


@cache
def shipped_library() -> Library:
    """Return the library that the package ships: 255,752 reactions of USPTO-50K's training part, USPTO-15K, PaRoutes n5
    and parts of USPTO-full and USPTO-480K.
    """
    library, ranker = (str(files("weftformer.routes.shipped").joinpath(name)) for name in (SHIPPED, RANKER))
    return Library.load(library, ranker)


def combined(*libraries: Iterable[Row]) -> list[Row]:
    """Return the transformations of several libraries, each once, with the facts of earlier libraries first."""
    found: dict[tuple[str, str], Transformation] = {}
    for key, one in chain.from_iterable(libraries):
        known = found.get((key, one.smarts))
        found[key, one.smarts] = one if known is None else known.plus(one)
    return [(key, one) for (key, _), one in found.items()]


def library_of(own: str | None) -> Library:
    """Return the included library, with the transformations of a file of `weftformer routes library` if one is given.

    Raises:
        OSError: the file cannot be read.
        ValueError: it is not such a library.
    """
    if own is None:
        return shipped_library()
    path = Path(own).resolve()
    return _library_with(path, path.stat().st_mtime_ns)


@lru_cache(_LIBRARIES)
def _library_with(path: Path, changed: int) -> Library:
    own = Library.load(path)
    for _, one in own.rows():
        if not _is_readable(one):
            raise ValueError(
                f"{path}: RDKit cannot read the transformation {one.smarts[:80]!r}, its core or an example. Make the library "
                "anew with `weftformer routes library`."
            )
    return shipped_library().with_own(own)


def _is_readable(own: Transformation) -> bool:
    """Return whether RDKit can read the template, the core and the examples of a transformation."""
    try:
        with rdBase.BlockLogs():
            _reaction(own.smarts)
            sides = [patterns(smarts) for smarts in (own.smarts, own.core) if smarts is not None]
    except (ValueError, RuntimeError):
        return False
    reactions = [example.smiles.split(">>") for example in own.examples]
    return all(made is not None and None not in used for made, used in sides) and all(
        len(reaction) == 2 and all(map(read_molecule, reaction)) for reaction in reactions
    )


def named(rows: Iterable[Row], like: Library | None = None) -> list[Row]:
    """Return the rows of a library, the most common first, with a name and a class wherever a similar one has them.

    A transformation without them gets those of the most common one that makes the same change in its first example:
    the same transformation with other atom maps, or one with the same core.

    Args:
        rows: the transformations.
        like: the library with the names. Defaults to the rows that have one.
    """
    rows = sorted(rows, key=lambda row: (-row[1].count, row[0], row[1].smarts))
    known = like or Library((key, one) for key, one in rows if one.name is not None)
    return [(key, one if one.name is not None else known.with_name(one)) for key, one in rows]


def read_rows(path: str | Path) -> Iterable[Row]:
    """Yield the transformations of a library file, each with its difference of atoms."""
    with open(path, "rb") as file, named_errors(path):
        for number, line in enumerate(text_of(file, str(path), errors="surrogateescape"), 1):
            try:
                yield _row(json.loads(line))
            except (ValueError, TypeError, AttributeError, RecursionError) as error:
                raise ValueError(
                    f"{path} is not a library of transformations: line {number} is {line[:80]!r}. Give a file of "
                    "`weftformer routes library`."
                ) from error


def _row(fields: Sequence[Any]) -> Row:
    """Return a row of a library from the fields of its line.

    Raises:
        TypeError, AttributeError, ValueError: a field has a wrong type or value.
    """
    others: list[Any]
    key, smarts, count, reaction_class, examples, *others = fields
    # a name, and if they are known the groups, the core and the reagents
    defaults: tuple[Any, ...] = (None, {}, None, ())
    name, kept, core, reagents = (*others, *defaults[len(others) :])
    shown, sets = tuple(map(Example._make, examples)), tuple(map(ReagentSet._make, reagents))
    texts = [key, smarts, *kept] + [one.smiles for one in shown] + [one.smiles for one in sets]
    texts += [text for text in (name, core, *(one.source for one in shown)) if text is not None]
    counts = [count, *kept.values(), *(one.num_reactions for one in sets)]
    "".join(texts).encode()  # no other type, and no half of a surrogate pair
    if any(type(number) is not int for number in counts) or type(reaction_class) not in (int, type(None)):
        raise TypeError("a count or a class is not a whole number")
    if count < 1 or len(smarts) > MOST_CHARACTERS:
        raise ValueError("a count or the length of a template is out of bounds")
    return key, Transformation(smarts, count, reaction_class, shown, name, kept, core, sets)


def difference(product: str, reactants: str) -> str:
    """Return the heavy atoms that the reactants have more (or fewer) of than the product, such as `Br1B1O2`."""
    more, made = read_molecule(reactants), read_molecule(product)
    if more is None or made is None:
        raise ValueError(f"{reactants}>>{product} has a molecule that RDKit cannot read.")
    counts = Counter(more.atoms)
    counts.subtract(made.atoms)
    return _as_text(counts)


def _as_text(counts: Mapping[str, int]) -> str:
    return "".join(f"{element}{count}" for element, count in sorted(counts.items()) if count)


@lru_cache(_PATTERNS)
def _counts(key: str) -> Mapping[str, int]:
    """Return the counts of [`difference`] by element."""
    return {element: int(count) for element, count in _DIFFERENCE.findall(key)}


def joined(reactants: Iterable[str]) -> str:
    """Return the canonical SMILES of reactants as one text that does not depend on their order."""
    return ".".join(sorted(part for smiles in reactants for part in canonical_smiles(smiles).split(".")))


def without_stereo(smiles: str) -> str:
    """Return the canonical SMILES without stereochemistry."""
    molecule = Chem.MolFromSmiles(smiles)
    Chem.RemoveStereochemistry(molecule)
    return Chem.MolToSmiles(molecule)


def _flat_outcomes(smarts: str, product: str) -> dict[str, str] | None:
    """Return what rdchiral finds for a template and a product without stereochemistry, faster.

    Return None if RDKit loses atoms or bonds that rdchiral restores, as where a ring opens.
    """
    reaction, more_atoms, more_bonds = _reaction(smarts)
    molecule = _molecule(product)
    size = molecule.GetNumAtoms() + more_atoms, molecule.GetNumBonds() + more_bonds
    outcomes = dict[str, str]()
    for parts in reaction.RunReactants((molecule,)):
        if size != (sum(part.GetNumAtoms() for part in parts), sum(part.GetNumBonds() for part in parts)):
            return None
        try:
            for part in parts:
                Chem.SanitizeMol(part)
        except ValueError:
            continue
        fragments = [_reread(text) for part in parts for text in Chem.MolToSmiles(part).split(".")]
        smiles = ".".join(sorted(filter(None, fragments)))
        if None in fragments or smiles in outcomes:  # equivalent atoms have matched
            continue
        for part in parts:
            for place in range(part.GetNumAtoms()):
                atom = part.GetAtomWithIdx(place)
                if atom.HasProp("react_atom_idx"):
                    atom.SetAtomMapNum(atom.GetIntProp("react_atom_idx") + 1)
        outcomes[smiles] = ".".join(map(Chem.MolToSmiles, parts))
    return dict(sorted(outcomes.items()))


@lru_cache(_FRAGMENTS)
def _reread(smiles: str) -> str | None:
    """Return the canonical SMILES of what a text of a reaction says, or None if it cannot be read."""
    molecule = Chem.MolFromSmiles(smiles)
    return None if molecule is None else Chem.MolToSmiles(molecule)


@lru_cache(_TEMPLATES)
def _reaction(smarts: str) -> tuple[Any, int, int]:
    """Return a template as RDKit reads it, and the atoms and bonds that it adds to a product."""
    reaction = rdChemReactions.ReactionFromSmarts(smarts)
    reaction.Initialize()
    if reaction.Validate()[1]:
        raise ValueError(f"RDKit finds an error in {smarts}")
    made, used = reaction.GetReactantTemplate(0), list(reaction.GetProducts())
    return (
        reaction,
        sum(part.GetNumAtoms() for part in used) - made.GetNumAtoms(),
        sum(part.GetNumBonds() for part in used) - made.GetNumBonds(),
    )


@lru_cache(_TEMPLATES)
def _template(smarts: str) -> Any:
    return rdchiralReaction(smarts)


@lru_cache(_MOLECULES)
def _prepared(smiles: str) -> Any:
    return rdchiralReactants(smiles)


@lru_cache(_MOLECULES)
def _molecule(smiles: str) -> Chem.Mol:
    return Chem.MolFromSmiles(smiles)


def _molecules(smiles: str) -> list[Chem.Mol]:
    return [_molecule(part) for part in smiles.split(".")]


@lru_cache(_TEMPLATES)
def patterns(smarts: str) -> tuple[Chem.Mol, list[Chem.Mol]]:
    """Return the pattern of the product and the patterns of the reactants."""
    made, used = smarts.split(">>")
    return _pattern(made), [_pattern(part) for part in split_parts(used)]


def _with_stereo(mapped: str, product: str) -> str:
    """Return the reactants with the configuration of the product's sulfoxides and the like, which rdchiral leaves out.

    Args:
        mapped: the reactants. The atom maps are the indices of the product's atoms, counted from 1.
        product: the product.
    """
    reactants = Chem.MolFromSmiles(mapped)
    places = {atom.GetAtomMapNum() - 1: atom for atom in reactants.GetAtoms()}
    for centre in _molecule(product).GetAtoms():
        if centre.GetChiralTag() and centre.GetDegree() == 3 and (after := places.get(centre.GetIdx())) is not None:
            around = [atom.GetIdx() for atom in centre.GetNeighbors()]
            now = [atom.GetAtomMapNum() - 1 for atom in after.GetNeighbors()]
            if sorted(around) == sorted(now) and not after.GetChiralTag():
                after.SetChiralTag(centre.GetChiralTag())
                if sum(around[i] == now[i] for i in range(3)) == 1:  # an odd permutation
                    after.InvertChirality()
    for atom in reactants.GetAtoms():
        atom.SetAtomMapNum(0)
    return Chem.MolToSmiles(Chem.MolFromSmiles(Chem.MolToSmiles(reactants)))


def _pattern(smarts: str) -> Chem.Mol:
    return Chem.MolFromSmarts(smarts[1:-1] if smarts.startswith("(") and smarts.endswith(")") else smarts)


def _product_of(example: Example) -> str:
    return example.smiles.split(">>")[1]


def _made(smarts: str) -> str:
    """Return the pattern of the product of a template, without the numbers of its atoms."""
    return ATOM_MAP.sub("", smarts.split(">>")[0])


_parsed = lru_cache(_PATTERNS)(_pattern)


@cache
def _bits(pattern: str) -> int:
    return _fingerprint(_parsed(pattern))


@lru_cache(_MOLECULES)
def _molecule_bits(smiles: str) -> int:
    molecule: Any = _molecule(smiles)
    if any(atom.GetDegree() > _MOST_NEIGHBOURS for atom in molecule.GetAtoms()):
        return -1  # all bits, which exclude nothing
    return _fingerprint(molecule)


def _fingerprint(molecule: Chem.Mol) -> int:
    """Return the bits of the pattern fingerprint of a molecule."""
    return int(DataStructs.BitVectToFPSText(Chem.PatternFingerprint(molecule, _BITS)), 16)
