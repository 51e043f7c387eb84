"""Common names of transformations, recognised from their templates.

A name describes the kind of reaction that the structures show, not whether the reaction works or with which reagents.
An amine that replaces a bromine on a ring is called a Buchwald amination, although some of these need no palladium.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from rdkit import Chem, rdBase


@cache
def common_name(smarts: str) -> str | None:
    """
    Return the common name of a transformation.

    Args:
        smarts (`str`):
            Its template from the product to the reactants, as rdchiral writes it.

    Returns:
        `str` or None: the first name in `names.tsv` whose reaction the template contains, with all bonds that change,
        or None.
    """
    with rdBase.BlockLogs():
        product, reactants = (_molecule(side) for side in smarts.split(">>"))
    before_bonds, after_bonds = _bonds(reactants), _bonds(product)
    broken = {key: atoms for key, (atoms, kind) in before_bonds.items() if after_bonds.get(key, ("", ""))[1] != kind}
    formed = {key: atoms for key, (atoms, kind) in after_bonds.items() if before_bonds.get(key, ("", ""))[1] != kind}
    new = len(after_bonds.keys() - before_bonds.keys())
    for name, used, made in _reactions():
        if new != len(_numbers(made) - _numbers(used)):
            continue
        for before in _places(reactants, used):
            if not all(set(bond) <= set(before) for bond in broken.values()):
                continue
            numbers = {number: atom.GetAtomMapNum() for number, atom in _numbered(reactants, used, before)}
            for after in _places(product, made):
                same = all(numbers[number] == atom.GetAtomMapNum() for number, atom in _numbered(product, made, after))
                if same and all(set(bond) <= set(after) for bond in formed.values()):
                    return name
    return None


@cache
def _reactions() -> list[tuple[str, Chem.Mol, Chem.Mol]]:
    """Return the names in `names.tsv`, each with the patterns of the reactants and of the product."""
    found = []
    for line in Path(__file__).with_suffix(".tsv").read_text(encoding="utf-8").splitlines():
        if not line.startswith("#"):
            name, reaction = line.split("\t")
            used, made = (Chem.MolFromSmarts(side) for side in reaction.split(">>"))
            found.append((name, used, made))
    return found


def _molecule(smarts: str) -> Chem.Mol:
    """Return one side of a template as a molecule without charges, with the hydrogens of the template."""
    # rdchiral puts several parts of one molecule into parentheses, which SMARTS reads as a condition
    pattern = Chem.MolFromSmarts(re.sub(r"^\(([^()]*\..*)\)$", r"\1", smarts))
    found = Chem.RWMol()
    for atom in pattern.GetAtoms():
        plain = Chem.Atom(atom.GetAtomicNum())
        words = atom.GetSmarts()
        plain.SetIsAromatic(atom.GetIsAromatic() or "&a" in words)
        plain.SetAtomMapNum(atom.GetAtomMapNum())
        plain.SetNoImplicit(True)
        hydrogens = re.search(r"(?<=[A-Za-z@;&])H(\d?)", words)
        plain.SetNumExplicitHs(int(hydrogens[1] or 1) if hydrogens else 0)
        found.AddAtom(plain)
    for bond in pattern.GetBonds():
        kind = bond.GetBondType()
        found.AddBond(bond.GetBeginAtomIdx(), bond.GetEndAtomIdx(), kind)
        found.GetBondBetweenAtoms(bond.GetBeginAtomIdx(), bond.GetEndAtomIdx()).SetIsAromatic(
            kind == Chem.BondType.AROMATIC
        )
    found.UpdatePropertyCache(strict=False)
    Chem.FastFindRings(found)
    return found.GetMol()


def _numbers(pattern: Chem.Mol) -> set[tuple[int, ...]]:
    """Return the bonds between numbered atoms, by their numbers."""
    return {key for key in _bonds(pattern) if min(key) > 0}


def _bonds(molecule: Chem.Mol) -> dict[tuple[int, ...], tuple[tuple[int, int], Chem.BondType]]:
    """Return the bonds of numbered atoms, by the numbers of both atoms, or by one number and a leaving atom."""
    found = {}
    for bond in molecule.GetBonds():
        ends = bond.GetBeginAtom(), bond.GetEndAtom()
        numbers = [atom.GetAtomMapNum() for atom in ends]
        if not any(numbers):
            continue
        leaving = [-1 - atom.GetIdx() for atom in ends if not atom.GetAtomMapNum()]
        key = tuple(sorted([*filter(None, numbers), *leaving]))
        found[key] = ((ends[0].GetIdx(), ends[1].GetIdx()), bond.GetBondType())
    return found


def _places(molecule: Chem.Mol, pattern: Chem.Mol) -> Iterator[tuple[int, ...]]:
    yield from molecule.GetSubstructMatches(pattern, uniquify=False, maxMatches=200)


def _numbered(molecule: Chem.Mol, pattern: Chem.Mol, place: tuple[int, ...]) -> Iterator[tuple[int, Chem.Atom]]:
    """Yield the atoms of a molecule that match numbered atoms of a pattern, with these numbers."""
    for atom, index in zip(pattern.GetAtoms(), place, strict=True):
        if atom.GetAtomMapNum():
            yield atom.GetAtomMapNum(), molecule.GetAtomWithIdx(index)
