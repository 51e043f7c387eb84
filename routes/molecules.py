"""Molecules as RDKit reads them, and what large numbers of them are known by."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType
from typing import Any, cast

from rdkit import Chem, rdBase
from rdkit.Chem import rdMolDescriptors

from .tree import Route

# SMILES that a process remembers.
_KNOWN = 1 << 16
_ELEMENT = re.compile(r"([A-Z][a-z]?)(\d*)")


@lru_cache(_KNOWN)
def canonical_smiles(smiles: str) -> str:
    """RDKit's canonical SMILES; the last ones asked for are remembered, since beams and reagents share molecules.

    Raises:
        ValueError: RDKit cannot read it, or it is empty; the message quotes it.
    """
    with rdBase.BlockLogs():
        molecule = Chem.MolFromSmiles(smiles.strip())
    if molecule is None or molecule.GetNumAtoms() == 0:
        raise ValueError(f"{smiles!r} is not a molecule that RDKit can read.")
    return Chem.MolToSmiles(molecule)


@lru_cache(_KNOWN // 16)  # many SMILES each
def rooted_smiles(smiles: str) -> tuple[str, ...]:
    """The SMILES of a molecule that begin at each of its atoms, each once; RDKit's canonical SMILES is the first.

    Raises:
        ValueError: as [`canonical_smiles`].
    """
    canonical = canonical_smiles(smiles)
    molecule = Chem.MolFromSmiles(canonical)
    rooted = [Chem.MolToSmiles(molecule, rootedAtAtom=index) for index in range(molecule.GetNumAtoms())]
    return tuple(dict.fromkeys([canonical, *rooted]))


def one_molecule(smiles: str) -> str:
    """Canonical SMILES of what is to be made, or to begin from.

    Raises:
        ValueError: as [`canonical_smiles`], or there are several molecules.
    """
    canonical = canonical_smiles(smiles)
    if "." in canonical:
        raise ValueError(f"{smiles!r} is {canonical.count('.') + 1} molecules, a salt or a mixture: give one of them.")
    return canonical


@dataclass(frozen=True)
class Molecule:
    """What RDKit reads in a SMILES.

    Args:
        smiles: the SMILES as it was read.
        formula: Hill's, hydrogens and charge included: molecules that differ in it are not the same.
        atoms: heavy atoms by element. Hydrogen is left out, since routes leave out what brings and takes it. Labels are
            counted as their element, as no recorded route that the rules were tested on has one; charges belong to no atom.
    """

    smiles: str
    formula: str
    atoms: Mapping[str, int]

    @property
    def canonical(self) -> str:
        """RDKit's canonical SMILES; it takes as long as reading, so it is made when it is asked for."""
        return canonical_smiles(self.smiles)


@lru_cache(_KNOWN)
def read_molecule(smiles: str) -> Molecule | None:
    """What RDKit reads in a SMILES, None where it reads nothing; the last ones asked for are remembered."""
    with rdBase.BlockLogs():
        molecule = Chem.MolFromSmiles(smiles)
    if molecule is None or molecule.GetNumAtoms() == 0:
        return None
    formula = cast(Any, rdMolDescriptors).CalcMolFormula(molecule)
    atoms = {element: int(count or 1) for element, count in _ELEMENT.findall(formula) if element != "H"}
    return Molecule(smiles, formula, MappingProxyType(atoms))


@lru_cache(_KNOWN)
def is_beyond_repair(smiles: str) -> bool:
    """Whether no SMILES that RDKit reads begins like this one, which is closed and which RDKit does not read.

    An atom with too many bonds keeps them, whatever follows; an aromatic ring may yet get the substituent that it lacks.
    """
    with rdBase.BlockLogs():
        molecule = Chem.MolFromSmiles(smiles, sanitize=False)
        if molecule is None:
            return True
        problems = cast(Any, Chem).DetectChemistryProblems(molecule)
    return any(problem.GetType() == "AtomValenceException" for problem in problems)


def canonical_route(route: Route) -> Route:
    """The route with every molecule as RDKit's canonical SMILES; the order of the children is kept.

    Raises:
        ValueError: RDKit cannot read a molecule; the message quotes it.
    """
    return Route(canonical_smiles(route.smiles), tuple(canonical_route(child) for child in route.children))


def hash64(text: str) -> int:
    """Eight bytes of BLAKE2, the same in every process."""
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big")
