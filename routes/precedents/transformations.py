"""Recorded transformations: templates from reactions, with counts, classes and examples, and the search for them."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property, lru_cache
from importlib.resources import files
from itertools import permutations
from pathlib import Path
from typing import Any, NamedTuple

from rdchiral.initialization import rdchiralReactants, rdchiralReaction
from rdchiral.main import rdchiralRun
from rdkit import Chem, DataStructs, rdBase
from rdkit.Chem import rdChemReactions

from ...common.tables import named_errors, text_of
from ..molecules import canonical_smiles, read_molecule
from ..tree import split_parts
from .groups import kept_groups, objection

SHIPPED = "transformations.jsonl.gz"
# The numbers of templates, molecules and product patterns that a process caches. A template takes 80 kB.
_TEMPLATES, _MOLECULES, _PATTERNS = 1 << 10, 1 << 10, 1 << 13
# Transformations with fewer reactions are not proposed. They seldom rank high, and are two thirds of all.
_LEAST_PROPOSED = 2
# A stereocentre with a lone pair.
_LONE_PAIR = re.compile(r"\[(?:S|Se|Te|P|As)@")
# The characters of SMILES and SMARTS with stereochemistry.
_STEREO = frozenset("@/\\")
# The number of bits of the fingerprints, which quickly exclude patterns that a molecule cannot contain.
_BITS = 1024
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


@dataclass(frozen=True)
class Transformation:
    """
    A template that recorded reactions share: the atoms and bonds that change, with their neighbours.

    Args:
        smarts (`str`):
            The template as reaction SMARTS, from the product to the reactants.
        count (`int`):
            The number of recorded reactions that share it.
        reaction_class (`int` or None):
            The most common of the ten classes of USPTO-50K among them, or None if no class was recorded.
        examples (`tuple[Example, ...]`):
            A few of the reactions.
        name (`str` or None):
            Its common name, such as "amide coupling", or None. It describes the kind of reaction that the structures
            show, not whether the reaction works or with which reagents.
        kept (`Mapping[str, int]`):
            The number of these reactions whose reactants have a functional group that stays as it is, by group. Under
            an empty name, the number of reactions that were examined.
    """

    smarts: str
    count: int
    reaction_class: int | None = None
    examples: tuple[Example, ...] = ()
    name: str | None = None
    kept: Mapping[str, int] = field(default_factory=dict, hash=False)

    @property
    def kind(self) -> str:
        """The name, or the template if it has none."""
        return self.name or self.smarts

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
        numbers of the product's atoms, counted from 1."""
        is_flat = _STEREO.isdisjoint(self.smarts + product)
        try:
            with rdBase.BlockLogs():
                if is_flat and (flat := _flat_outcomes(self.smarts, product)) is not None:
                    return flat
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

    def might_give(self, product: Chem.Mol, reactants: Sequence[Chem.Mol]) -> bool:
        """Return False if a part of the template is in none of the molecules. A quick test before [`mapped`]."""
        made, parts = patterns(self.smarts)
        return product.HasSubstructMatch(made) and all(
            any(reactant.HasSubstructMatch(part) for reactant in reactants) for part in parts
        )


@lru_cache(_TEMPLATES)
def _forward(smarts: str) -> Any:
    """Return the reaction of a template, from the reactants to the product."""
    made, used = smarts.split(">>")
    bare = [part[1:-1] if part.startswith("(") else part for part in (made, *split_parts(used))]
    reaction = rdChemReactions.ReactionFromSmarts(f"{'.'.join(bare[1:])}>>{bare[0]}")
    reaction.Initialize()
    return reaction


class Library:
    """
    Transformations, grouped by their difference of atoms, so that a step is compared with few of them.

    Args:
        rows (`Iterable[tuple[str, Transformation]]`):
            Transformations, each with its difference of atoms, as returned by [`difference`].
    """

    def __init__(self, rows: Iterable[tuple[str, Transformation]]):
        self._by_difference: dict[str, list[Transformation]] = {}
        for key, transformation in rows:
            self._by_difference.setdefault(key, []).append(transformation)
        for transformations in self._by_difference.values():
            transformations.sort(key=lambda transformation: -transformation.count)

    def __len__(self) -> int:
        return sum(map(len, self._by_difference.values()))

    @property
    def names(self) -> dict[str, str | None]:
        """The common names by template."""
        return {
            transformation.smarts: transformation.name
            for transformations in self._by_difference.values()
            for transformation in transformations
        }

    @cached_property
    def _common(self) -> list[Transformation]:
        """The transformations to propose, the most common first."""
        every = [
            transformation for transformations in self._by_difference.values() for transformation in transformations
        ]
        return sorted(
            (transformation for transformation in every if transformation.count >= _LEAST_PROPOSED),
            key=lambda transformation: -transformation.count,
        )

    def propose(self, product: str, most: int) -> list[tuple[tuple[str, ...], float]]:
        """
        Apply the transformations to a product, the most common first.

        Args:
            product (`str`):
                SMILES of the product.
            most (`int`):
                The largest number of sets of reactants.

        Returns:
            `list[tuple[tuple[str, ...], float]]`: the sorted canonical SMILES of the reactants, with the share of
            their transformation among the recorded reactions of all transformations that match the product.
        """
        made = canonical_smiles(product)
        molecule = _molecule(made)
        matching = [
            transformation
            for transformation in _screened(self._common, molecule)
            if molecule.HasSubstructMatch(_product_pattern(transformation.smarts))
        ]
        total = sum(transformation.count for transformation in matching)
        proposed: dict[tuple[str, ...], float] = {}
        for transformation in matching:
            for outcome, mapped in transformation.outcomes(made).items():
                if len(proposed) == most:
                    return list(proposed.items())
                if all(read_molecule(part) is not None for part in outcome.split(".")):
                    reactants = tuple(joined(outcome.split(".")).split("."))
                    is_new = made not in reactants and reactants not in proposed
                    if is_new and objection(transformation.name, made, mapped) is None:
                        proposed[reactants] = transformation.count / total
        return list(proposed.items())

    @classmethod
    def load(cls, path: str | Path) -> Library:
        """Read a library that `weftformer.recipes.extraction` has written.

        Raises:
            OSError: the file cannot be read.
            ValueError: it is not such a library.
        """
        return cls(read_rows(path))

    def find(self, product: str, reactants: Sequence[str]) -> Transformation | None:
        """
        Return the most common transformation that turns a product into its reactants and is a precedent for it.

        Args:
            product (`str`):
                SMILES of the product.
            reactants (`Sequence[str]`):
                SMILES of the reactants, in any order.

        Returns:
            [`Transformation`] or None: None if no recorded one does.

        Raises:
            ValueError: RDKit cannot read a molecule.
        """
        transformation, objected, _ = self.match(product, reactants)
        return transformation if objected is None else None

    def match(
        self, product: str, reactants: Sequence[str], bystanders: Sequence[str] = ()
    ) -> tuple[Transformation | None, str | None, str]:
        """Return the most common transformation that turns a product into its reactants, or None, the reason why it is
        no precedent, or None, and the reactants with atom maps. Arguments and errors are those of [`find`];
        `bystanders` are as in [`objection`]."""
        made, wanted = canonical_smiles(product), joined(reactants)
        molecule, others = _molecule(made), [_molecule(smiles) for smiles in wanted.split(".")]
        for transformation in _screened(self._by_difference.get(difference(made, wanted), ()), molecule):
            if transformation.might_give(molecule, others):
                mapped = transformation.mapped(made, wanted)
                if mapped is not None:
                    return transformation, objection(transformation.name, made, mapped, bystanders), mapped
        return None, None, ""

    @cached_property
    def _unusual(self) -> dict[str, tuple[dict[str, int], int]]:
        """For each kind of transformation, the groups that hardly any of its reactions keep, with their numbers, and
        the number of reactions."""
        kept = dict[str, Counter[str]]()
        for transformations in self._by_difference.values():
            for transformation in transformations:
                kept.setdefault(transformation.kind, Counter()).update(transformation.kept)
        names = sorted(set().union(*kept.values()) - {""})
        return {
            kind: ({name: counts[name] for name in names if counts[name] <= _UNUSUAL * counts[""]}, counts[""])
            for kind, counts in kept.items()
            if counts[""] >= _EXAMINED
        }

    def unusual_groups(self, transformation: Transformation, product: str, mapped: str) -> list[tuple[str, int, int]]:
        """
        Return the functional groups of a step that stay, and that the recorded reactions of its kind do not have, or
        seldom.

        Args:
            transformation ([`Transformation`]):
                The transformation, with those of the same name.
            product (`str`):
                SMILES of the product.
            mapped (`str`):
                SMILES of the reactants with atom maps, as [`match`] returns them.

        Returns:
            `list[tuple[str, int, int]]`: the name of each group, the number of these reactions with it, and of those
            that were examined.
        """
        unusual, total = self._unusual.get(transformation.kind, ({}, 0))
        names = kept_groups(canonical_smiles(product), mapped, unusual) if unusual else ()
        return [(name, unusual[name], total) for name in names]


@cache
def shipped_library() -> Library:
    """Return the library that the package ships: 65,148 reactions of USPTO-50K's training part, USPTO-15K and PaRoutes
    n5."""
    return Library.load(str(files("weftformer.routes.shipped").joinpath(SHIPPED)))


def read_rows(path: str | Path) -> Iterable[tuple[str, Transformation]]:
    """Yield the transformations of a library file, each with its difference of atoms."""
    with open(path, "rb") as file, named_errors(path):
        for line in text_of(file, str(path), errors="surrogateescape"):
            try:
                key, smarts, count, reaction_class, examples, *others = json.loads(line)
            except (ValueError, TypeError, RecursionError) as error:
                raise ValueError(f"{path} is not a library of transformations: {line[:80]!r}") from error
            # a name and, unless nothing was counted, the groups
            yield key, Transformation(smarts, count, reaction_class, tuple(map(Example._make, examples)), *others)


def difference(product: str, reactants: str) -> str:
    """Return the heavy atoms that the reactants have more (or fewer) of than the product, such as `Br1B1O2`."""
    more, made = read_molecule(reactants), read_molecule(product)
    if more is None or made is None:
        raise ValueError(f"{reactants}>>{product} has a molecule that RDKit cannot read.")
    counts = Counter(more.atoms)
    counts.subtract(made.atoms)
    return "".join(f"{element}{count}" for element, count in sorted(counts.items()) if count)


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
    outcomes, seen = dict[str, str](), set[str]()
    for parts in reaction.RunReactants((molecule,)):
        if size != (sum(part.GetNumAtoms() for part in parts), sum(part.GetNumBonds() for part in parts)):
            return None
        raw = ".".join(map(Chem.MolToSmiles, parts))
        if raw in seen:  # equivalent atoms have matched
            continue
        seen.add(raw)
        try:
            for part in parts:
                Chem.SanitizeMol(part)
        except ValueError:
            continue
        outcome = Chem.MolFromSmiles(".".join(map(Chem.MolToSmiles, parts)))
        if outcome is not None:
            for part in parts:
                for place in range(part.GetNumAtoms()):
                    atom = part.GetAtomWithIdx(place)
                    if atom.HasProp("react_atom_idx"):
                        atom.SetAtomMapNum(atom.GetIntProp("react_atom_idx") + 1)
            smiles = ".".join(sorted(Chem.MolToSmiles(outcome).split(".")))
            outcomes[smiles] = ".".join(map(Chem.MolToSmiles, parts))
    return dict(sorted(outcomes.items()))


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


@lru_cache(_TEMPLATES)
def patterns(smarts: str) -> tuple[Chem.Mol, list[Chem.Mol]]:
    """Return the pattern of the product and the patterns of the reactants."""
    made, used = smarts.split(">>")
    return _pattern(made), [_pattern(part) for part in split_parts(used)]


def _with_stereo(mapped: str, product: str) -> str:
    """
    Return the reactants with the configuration of the product's sulfoxides and the like, which rdchiral leaves out.

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


@lru_cache(_PATTERNS)
def _product_pattern(smarts: str) -> Chem.Mol:
    return _pattern(smarts.split(">>")[0])


@cache
def _product_bits(smarts: str) -> int:
    return _fingerprint(_product_pattern(smarts))


def _fingerprint(molecule: Chem.Mol) -> int:
    """Return the bits of the pattern fingerprint of a molecule."""
    return int(DataStructs.BitVectToFPSText(Chem.PatternFingerprint(molecule, _BITS)), 16)


def _screened(transformations: Iterable[Transformation], product: Chem.Mol) -> Iterator[Transformation]:
    """Yield the transformations whose patterns a product may contain.

    Fingerprints are compared first, because that is faster than to parse and match a pattern.
    """
    missing = ~_fingerprint(product)
    return (transformation for transformation in transformations if not _product_bits(transformation.smarts) & missing)
