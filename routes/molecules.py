"""Molecules as RDKit reads them, and what large numbers of them are known by."""

from __future__ import annotations

import hashlib
from functools import lru_cache

from rdkit import Chem, rdBase

from .tree import Route

# SMILES that a process remembers.
_KNOWN = 1 << 16


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


def canonical_route(route: Route) -> Route:
    """The route with every molecule as RDKit's canonical SMILES; the order of the children is kept.

    Raises:
        ValueError: RDKit cannot read a molecule; the message quotes it.
    """
    return Route(canonical_smiles(route.smiles), tuple(canonical_route(child) for child in route.children))


def hash64(text: str) -> int:
    """Eight bytes of BLAKE2, the same in every process."""
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big")
