"""The reagents of recorded reactions: salts put together from their ions, and common names."""

from __future__ import annotations

import json
from collections.abc import Iterable
from functools import cache, lru_cache
from importlib.resources import files
from math import gcd

from rdkit import Chem, rdBase

from .molecules import structure

REAGENTS_FILE = "reagents.json"
_NUM_CACHED = 1 << 14


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
    for salt, ions in _salts().items():
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
    return smiles in _names("solvents")


def reagent_name(smiles: str) -> str:
    """Return the common name of a compound, or its SMILES. `smiles` is one that [`compounds`] returns."""
    return _names("reagents").get(smiles) or _names("solvents").get(smiles, smiles)


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
def _names(kind: str) -> dict[str, str]:
    """Return the common names by canonical SMILES. A name with a blank at its end is a second spelling."""
    table = json.loads(files("weftformer.routes.chemistry").joinpath(REAGENTS_FILE).read_text(encoding="utf-8"))
    return {_canonical(smiles) or smiles: name.rstrip() for name, smiles in table[kind].items()}


@cache
def _salts() -> dict[str, frozenset[str]]:
    """Return the ions of the compounds with a name that are salts, those of most ions first."""
    ions = {smiles: frozenset(smiles.split(".")) for smiles in _names("reagents")}
    salts = [smiles for smiles, parts in ions.items() if len(parts) > 1 and any(map(_charge, parts))]
    return {smiles: ions[smiles] for smiles in sorted(salts, key=lambda smiles: -len(ions[smiles]))}
