"""The functional groups of molecules, and the molecules that cannot be isolated (`groups.json`)."""

from __future__ import annotations

import re
from functools import cache, lru_cache

from rdkit import Chem

from .molecules import KNOWN, structure
from .tables import table, table_patterns

GROUPS = "groups.json"
# The elements at the beginning of an atom of a pattern, such as `[Cl,Br,I;...]`. They are not aromatic.
_ELEMENTS = re.compile(r"\[([A-Z][a-z]?(?:,[A-Z][a-z]?)*)[;&]")


def patterns() -> dict[str, Chem.Mol]:
    """Return the pattern of each functional group, by its name."""
    return table_patterns(GROUPS, "groups")


@cache
def elements_of(group: str) -> frozenset[str]:
    """Return the symbols of the elements of a group that is one atom with an environment, such as a halide. Return
    none for other groups.
    """
    pattern = patterns()[group]
    elements = _ELEMENTS.match(Chem.MolToSmarts(pattern)) if pattern.GetNumAtoms() == 1 else None
    return frozenset(elements[1].split(",") if elements else ())


@lru_cache(KNOWN)
def groups_of(smiles: str) -> frozenset[str]:
    """Return the names of the functional groups of a molecule."""
    molecule = structure(smiles)
    return frozenset(name for name, pattern in patterns().items() if molecule.HasSubstructMatch(pattern))


@lru_cache(KNOWN)
def unstable_kind(smiles: str) -> str | None:
    """Return why a molecule cannot be isolated, or None if nothing is known against it."""
    parts = [structure(part) for part in smiles.split(".")]
    for reason, motifs in _unstable():
        for part in parts:
            if all(map(part.HasSubstructMatch, motifs)):
                return reason
    return None


@cache
def _unstable() -> list[tuple[str, list[Chem.Mol]]]:
    return [(row["why"], list(map(Chem.MolFromSmarts, row["smarts"]))) for row in table(GROUPS)["unstable"]]
