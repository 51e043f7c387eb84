"""Check whether a route is possible at all: molecules can be read, atoms have an origin, and no molecule is made from itself.

These are minimal requirements of chemistry. A route that meets them may still not work; a route that violates one cannot work. Of the 27,243
recorded reactions of PaRoutes n1 and n5, 4 lack an atom, and no route makes a molecule from itself.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from .molecules import Molecule, read_molecule
from .tree import Route


def missing_atoms(product: Molecule, reactants: Iterable[Molecule]) -> dict[str, int]:
    """The heavy atoms of a product that its reactants do not supply, by element; empty where they supply all."""
    return still_missing(dict(product.atoms), reactants)


def still_missing(missing: Mapping[str, int], reactants: Iterable[Molecule]) -> dict[str, int]:
    """What is left of `missing`, heavy atoms by element, when these reactants are added."""
    left = dict(missing)
    for reactant in reactants:
        for element in left.keys() & reactant.atoms.keys():
            left[element] -= reactant.atoms[element]
    return {element: count for element, count in left.items() if count > 0}


def atoms_in_words(missing: Mapping[str, int]) -> str:
    """`5 C, 1 N missing`."""
    return ", ".join(f"{count} {element}" for element, count in missing.items()) + " missing"


@dataclass(frozen=True)
class ReactionCheck:
    """What is wrong with one reaction of a route.

    Args:
        product: SMILES of what is made, as the route has it.
        reactants: SMILES of what it is made from.
        missing: heavy atoms of the product that no reactant supplies, by element; empty where one of the molecules cannot be
            read.
        unreadable: molecules of the reaction that RDKit cannot read.
        circular: reactants that are the product itself, or a molecule that is made from it.
        repeated: reactants that occur more often than the product's atoms require. That is not impossible, but does not
            occur in recorded routes.
    """

    product: str
    reactants: tuple[str, ...]
    missing: Mapping[str, int] = field(default_factory=dict)
    unreadable: tuple[str, ...] = ()
    circular: tuple[str, ...] = ()
    repeated: tuple[str, ...] = ()

    @property
    def is_possible(self) -> bool:
        return not (self.missing or self.unreadable or self.circular)

    @property
    def reason(self) -> str | None:
        """Why it is not possible, in a few words: `5 C missing`; None where it may be."""
        return "; ".join(self._reasons()) or None

    def _reasons(self) -> Iterator[str]:
        for smiles in self.unreadable:
            yield f"{smiles} cannot be read"
        for smiles in self.circular:
            yield f"{smiles} is made from itself"
        if self.missing:
            yield atoms_in_words(self.missing)


@dataclass(frozen=True)
class RouteCheck:
    """What is wrong with a route: the reactions with a finding, from the target backwards."""

    findings: tuple[ReactionCheck, ...] = ()

    @property
    def is_possible(self) -> bool:
        return all(finding.is_possible for finding in self.findings)

    @property
    def reason(self) -> str | None:
        """Why it is not possible, in a few words, each reason once; None where it may be."""
        reasons = (finding.reason for finding in self.findings)
        return "; ".join(dict.fromkeys(reason for reason in reasons if reason)) or None

    @property
    def remarks(self) -> list[str]:
        """What is unusual but not impossible, in words."""
        return [f"{smiles} is used twice" for finding in self.findings for smiles in finding.repeated]


def check_route(route: Route) -> RouteCheck:
    """Check every reaction of a route, wherever it comes from.

    Args:
        route: SMILES need not be canonical; molecules are compared as RDKit reads them.

    Returns:
        The reactions with a finding. A target that cannot be read and has no reaction is one, without reactants.
    """
    if not route.children and read_molecule(route.smiles) is None:
        return RouteCheck((ReactionCheck(route.smiles, (), unreadable=(route.smiles,)),))
    return RouteCheck(tuple(_findings(route, ())))


def _findings(route: Route, above: tuple[Molecule, ...]) -> Iterator[ReactionCheck]:
    """The findings of a route below the molecules that are made from it."""
    if not route.children:
        return
    product = read_molecule(route.smiles)
    path = above if product is None else (*above, product)
    names = tuple(child.smiles for child in route.children)
    reactants = [read_molecule(name) for name in names]
    readable = [reactant for reactant in reactants if reactant is not None]
    is_read = product is not None and len(readable) == len(reactants)
    found = ReactionCheck(
        route.smiles,
        names,
        missing=missing_atoms(product, readable) if product is not None and is_read else {},
        # an unreadable molecule is reported both as product and as reactant
        unreadable=tuple(
            name
            for name, molecule in zip((route.smiles, *names), (product, *reactants), strict=True)
            if molecule is None
        ),
        circular=tuple(reactant.smiles for reactant in readable if is_among(reactant, path)),
        repeated=tuple(_repeated(product, readable)) if product is not None and is_read else (),
    )
    if found != ReactionCheck(route.smiles, names):
        yield found
    for child in route.children:
        yield from _findings(child, path)


def is_among(molecule: Molecule, others: Iterable[Molecule]) -> bool:
    """Whether a molecule is one of the others, in whatever SMILES."""
    # canonical SMILES take their time, and those of another formula are not the same
    return any(other.formula == molecule.formula and other.canonical == molecule.canonical for other in others)


def _repeated(product: Molecule, reactants: list[Molecule]) -> Iterator[str]:
    """Reactants that stand there several times though one less would supply all atoms that all of them do."""
    counts = Counter(reactant.canonical for reactant in reactants)
    for smiles, count in counts.items():
        if count > 1:
            first = next(i for i, reactant in enumerate(reactants) if reactant.canonical == smiles)
            fewer = reactants[:first] + reactants[first + 1 :]
            if missing_atoms(product, fewer) == missing_atoms(product, reactants):
                yield smiles
