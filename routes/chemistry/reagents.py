"""The reagents of recorded reactions: salts put together from their ions, common names, and roles."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from functools import cache, lru_cache
from math import gcd
from typing import Any, NamedTuple

from rdkit import Chem, rdBase

from .molecules import canonical_or_given, read_molecule, structure
from .tables import table

REAGENTS_FILE = "reagents.json"
_NUM_CACHED = 1 << 14
_SOLVENTS = ("water", "solvent")
# The number of sets of reagents that are written in words.
_SETS_IN_WORDS = 3
# The least share of a usual set that was recorded once.
_LEAST_SHARE = 0.2
# The role of compounds without a name.
_OTHER = "reagent"
# What is in the flask for another reason than the reaction.
_BESIDES = frozenset({"counter-ion", "work-up", "water"})
_SALT_ACID = "acid of salts"
# An acid beside one of these has only come with a salt, or neutralises the product.
_NEUTRALISE = frozenset({"base", "coupling reagent"})
_AMINE = "[$([NX3;!H0]),$([NX4+;!H0]);!$(N~[!#6;!#1]);!$(N-[a]);!$(N-[#6]=[O,S,N]);!$(N-C#N)]"


class _Known(NamedTuple):
    """A compound of the table: its name, and its role with the place of the role in the table."""

    name: str
    role: str
    rank: int


def compounds(agents: Iterable[str]) -> list[str]:
    """Return the compounds of a reaction's agents, which are often recorded as ions without their amounts.

    The salts that have a common name are put together first, then each other anion with the first cation. Single
    charged cations that are left over belong to an anion among the reactants. They are left out, as are molecules that
    RDKit cannot read.

    Args:
        agents: SMILES of molecules and ions.

    Returns:
        Canonical SMILES, each once, solvents last.
    """
    parts = {part for agent in agents for part in (_canonical(agent) or "").split(".") if part}
    charges = {part: _charge(part) for part in parts}
    cations, anions = ({part for part in parts if charges[part] * sign > 0} for sign in (1, -1))
    molecules, paired = parts - cations - anions, set[str]()
    for salt, ions in named_salts().items():
        if ions <= parts and (ions & anions) - paired:
            molecules.add(salt)
            paired |= ions
    for anion in sorted(anions - paired):
        cation = min(cations - paired or cations, default=None)
        molecules.add(anion if cation is None else _salt(cation, anion))
        paired |= {anion, cation or anion}
    molecules.update(cation for cation in cations - paired if charges[cation] > 1)
    return sorted(molecules, key=lambda smiles: (is_solvent(smiles), smiles))


def is_solvent(smiles: str) -> bool:
    """Return whether a compound is a common solvent."""
    return role_of(smiles) in _SOLVENTS


def reagent_name(smiles: str) -> str:
    """Return the common name of a compound, or its SMILES. `smiles` is one that [`compounds`] returns."""
    compound = _table().get(smiles)
    return compound.name if compound else smiles


def role_of(smiles: str) -> str:
    """Return the role of a compound in most reactions, such as "base"; "reagent" if it is not in the table."""
    compound = _table().get(smiles)
    return compound.role if compound else _OTHER


def usual_sets(sets: Iterable[tuple[str, int]], product: str, reactants: Sequence[str]) -> list[tuple[list[str], int]]:
    """Return sets of reagents as a chemist reads them: coupling reagents, catalysts, oxidants and reductants first,
    then bases, acids and solvents.

    Water, brine, drying agents and counter-ions are left out, and so are acids such as HCl if they come with the salt
    of an amine: those beside a base or a coupling reagent, and all of a step that consumes an amine. Sets that are
    then equal are one, with the sum of their numbers. Sets of solvents alone are last. If nothing is left, the sets
    stay.

    Args:
        sets: the compounds of each set, as [`compounds`] returns them with blanks between them, and its number.
        product, reactants: SMILES of the step.
    """
    rows = [(smiles.split(), number) for smiles, number in sets]
    consumes_amine = _num_amines([product]) < _num_amines(reactants)
    numbers = Counter[tuple[str, ...]]()
    for smiles, number in rows:
        if reagents := _reagents_of(smiles, consumes_amine):
            numbers[tuple(_in_order(reagents))] += number
    if not numbers:
        return [(_in_order(smiles), number) for smiles, number in rows]
    total = sum(number for _, number in rows)
    usual = {smiles: number for smiles, number in numbers.items() if number > 1 or number >= _LEAST_SHARE * total}
    # sets of solvents alone are told if there are no others
    usual = {smiles: number for smiles, number in usual.items() if not all(map(is_solvent, smiles))} or usual
    return [(list(smiles), number) for smiles, number in sorted(usual.items(), key=lambda item: -item[1])]


def usual_in_words(
    sets: Sequence[tuple[str, int]], product: str, reactants: Sequence[str], is_of_kind: bool = False
) -> str | None:
    """Return the first of the [`usual_sets`] in words, such as `K2CO3, DMF (31 of 120); NaH, DMF (22)`, or None.

    Args:
        sets: as in `Transformation.reagents`: the first is empty, and has the number of reactions whose reagents were
            recorded.
        product, reactants: SMILES of the step.
        is_of_kind: whether these are the reactions of all transformations of its kind. The text says so.
    """
    if len(sets) < 2:
        return None
    (_, total), *others = sets
    texts, kind = list[str](), " of this kind" if is_of_kind else ""
    for smiles, number in usual_sets(others, product, reactants)[:_SETS_IN_WORDS]:
        names = ", ".join(map(reagent_name, smiles))
        texts.append(f"{names} ({number:,})" if texts else f"{names} ({number:,} of {total:,}{kind})")
    return "; ".join(texts) or None


def _reagents_of(smiles: Sequence[str], consumes_amine: bool) -> list[str]:
    """Return the compounds of a set without work-up and the acid of a salt."""
    roles = set(map(role_of, smiles))
    without = _BESIDES | {_SALT_ACID} if consumes_amine or roles & _NEUTRALISE else _BESIDES
    return [compound for compound in smiles if role_of(compound) not in without]


def _in_order(smiles: Iterable[str]) -> list[str]:
    table = _table()
    other = next(compound.rank for compound in table.values() if compound.role == _OTHER)
    return sorted(smiles, key=lambda text: (table[text].rank if text in table else other, text))


def _num_amines(smiles: Iterable[str]) -> int:
    """Return the number of basic amines with hydrogen."""
    canonical = [canonical_or_given(text) for text in smiles if read_molecule(text)]
    return sum(len(structure(text).GetSubstructMatches(_amine())) for text in canonical)


@cache
def _amine() -> Any:
    return Chem.MolFromSmarts(_AMINE)


def _salt(cation: str, anion: str) -> str:
    plus, minus = _charge(cation), -_charge(anion)
    common = gcd(plus, minus)
    return _canonical(".".join([cation] * (minus // common) + [anion] * (plus // common))) or anion


@lru_cache(_NUM_CACHED)
def _canonical(smiles: str) -> str | None:
    with rdBase.BlockLogs():
        molecule = Chem.MolFromSmiles(smiles)
    return None if molecule is None else Chem.MolToSmiles(molecule)


def _charge(smiles: str) -> int:
    return Chem.GetFormalCharge(structure(smiles))


@cache
def _table() -> dict[str, _Known]:
    """Return the compounds by canonical SMILES. A name with a blank at its end is a second spelling."""
    return {
        _canonical(smiles) or smiles: _Known(name.rstrip(), role, rank)
        for rank, (role, compounds_of_role) in enumerate(table(REAGENTS_FILE).items())
        for name, smiles in compounds_of_role.items()
    }


@cache
def named_salts() -> dict[str, frozenset[str]]:
    """Return the ions of the compounds with a common name that are salts, by SMILES, those of most ions first."""
    ions = {smiles: frozenset(smiles.split(".")) for smiles in _table()}
    salts = [smiles for smiles, parts in ions.items() if len(parts) > 1 and any(map(_charge, parts))]
    return {smiles: ions[smiles] for smiles in sorted(salts, key=lambda smiles: -len(ions[smiles]))}
