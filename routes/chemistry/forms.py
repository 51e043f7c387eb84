"""The forms in which a compound is sold, by RDKit's standardizer: salts, charges, tautomers, and the rings of sugars.

Molecules that differ in stereocentres, double-bond geometry or isotopes are different compounds.
"""

from __future__ import annotations

import re
from functools import cache, lru_cache
from typing import Any, cast

from rdkit import Chem, rdBase
from rdkit.Chem import rdMolHash
from rdkit.Chem.EnumerateStereoisomers import EnumerateStereoisomers, GetStereoisomerCount, StereoEnumerationOptions

from .molecules import KNOWN, canonical_smiles, counter_ions, structure, tautomer_enumerator
from .reagents import reagent_name

# Forms without a name of their own.
OTHER_SALT, OTHER_TAUTOMER = "another salt or charge form", "another tautomer"
OTHER_ANOMER = "another anomer, ring or open form"
# The form of a molecule with undefined stereocentres, and the largest number of isomers that are looked up.
STEREOISOMER, _MOST_ISOMERS = "one of its stereoisomers", 4
_SALTS = {
    "Cl": "HCl salt", "[Cl-]": "HCl salt", "Br": "HBr salt", "[Br-]": "HBr salt", "O=C(O)C(F)(F)F": "TFA salt",
    "O=C([O-])C(F)(F)F": "TFA salt", "[Na+]": "sodium salt", "[K+]": "potassium salt", "[Li+]": "lithium salt",
    "O": "hydrate",
}  # fmt: skip
_ALKALI = frozenset({"[Li+]", "[Na+]", "[K+]", "[Cs+]"})
# Nitro groups have charges in every form.
_NITRO = re.compile(r"\[N\+\]\(=O\)\[O-\]|O=\[N\+\]\(\[O-\]\)")
_SALT_OR_CHARGE = re.compile(r"\.|[+-]\d*\]")
# Atoms that keep their identity with another proton. Sodium methoxide is not methanol, and butyllithium is not butane:
# only conjugated anions, and those of sulfur, keep theirs.
_EXCHANGES = "[#7+,#8+,#15+,#16+,#16-,$([#7-,#8-]~[a,$(*=*),$(*#*)])]"
# The carbon of a hemiacetal, its hydroxy group (deuterium is an atom of its own), and its oxygen atom in the ring.
_HEMIACETAL = "[CX4;R;!$(C([O,S,N])([O,S,N])[O,S,N])]([OX2HD1])[OX2;R;!$(O[#6]=O);!$(O(C[OX2H])C[OX2H])]"
# A hydroxy group in a canonical SMILES.
_HYDROXY = re.compile(r"(?:^|\.)O(?!=)|(?<!=)O(?:[).]|$)|OH")
# Carbons whose hydrogens move as easily as those of oxygen: between two carbonyl groups or the like.
_WITHDRAWING = "$([#6,#16]=,#[#7,#8,#16])"
_ACIDIC = f"[$([CX4;!H0]([{_WITHDRAWING}])[{_WITHDRAWING}])]"


@cache
def _standardizer() -> tuple[Any, ...]:
    from rdkit.Chem.MolStandardize import rdMolStandardize  # most stocks have nothing to standardize

    return (
        rdMolStandardize.FragmentRemover(), rdMolStandardize.Uncharger(), Chem.MolFromSmarts(_EXCHANGES),
        Chem.MolFromSmarts(_ACIDIC), Chem.MolFromSmarts(_HEMIACETAL),
    )  # fmt: skip


def _is_plain(smiles: str) -> bool:
    return _SALT_OR_CHARGE.search(_NITRO.sub("", smiles)) is None


@lru_cache(KNOWN)
def parent_form(smiles: str) -> str:
    """Return the canonical SMILES of a molecule without counterions and solvents, neutralised by protons where that
    keeps its identity, and with the aldehydes and ketones of its cyclic hemiacetals, which open by themselves.

    Args:
        smiles: the canonical SMILES.

    Returns:
        The SMILES of the parent. A mixture of several molecules, besides the counterions and solvents in RDKit's list
        and in `counter_ions.smi`, is its own parent. So is a salt whose remaining ion has neither carbon nor nitrogen.
    """
    return smiles if _is_plain(smiles) and not _may_open(smiles) else _opened(neutral_form(smiles))


def _may_open(smiles: str) -> bool:
    """Return whether a molecule may be a cyclic hemiacetal. A quick test."""
    return smiles.count("O") > 1 and _HYDROXY.search(smiles) is not None and any(map(str.isdigit, smiles))


def _opened(smiles: str) -> str:
    """Return a molecule with its cyclic hemiacetals open."""
    if not (matches := structure(smiles).GetSubstructMatches(_standardizer()[4])):
        return smiles
    molecule: Any = Chem.RWMol(structure(smiles))
    for carbon, hydroxy, oxygen in matches:
        molecule.RemoveBond(carbon, oxygen)
        molecule.GetBondBetweenAtoms(carbon, hydroxy).SetBondType(Chem.BondType.DOUBLE)
        for atom in map(molecule.GetAtomWithIdx, (hydroxy, oxygen)):  # isotopes of oxygen count their hydrogens
            atom.SetNumExplicitHs(0)
            atom.SetNoImplicit(False)
        molecule.GetAtomWithIdx(carbon).SetChiralTag(Chem.ChiralType.CHI_UNSPECIFIED)
    return Chem.CanonSmiles(Chem.MolToSmiles(molecule))


def neutral_form(smiles: str) -> str:
    """Return [`parent_form`], with cyclic hemiacetals as they are."""
    if _is_plain(smiles):
        return smiles
    remover, uncharger, exchanges, *_ = _standardizer()
    with rdBase.BlockLogs():
        molecule = Chem.MolFromSmiles(smiles)
        if "." in smiles:
            parts = set(Chem.MolToSmiles(remover.remove(molecule)).split("."))
            if len(parts) > 1:
                parts = {part for part in parts if _counter_ion(part) is None}
            if len(parts) != 1:
                return smiles
            molecule = Chem.MolFromSmiles(parts.pop())
            if not any(atom.GetAtomicNum() in (6, 7) for atom in molecule.GetAtoms()):
                return smiles
        neutral = uncharger.uncharge(molecule)
    places = {place for (place,) in molecule.GetSubstructMatches(exchanges)}
    atoms = zip(cast(Any, molecule).GetAtoms(), neutral.GetAtoms(), strict=True)
    changes = {atom.GetIdx() for atom, after in atoms if atom.GetFormalCharge() != after.GetFormalCharge()}
    return Chem.MolToSmiles(neutral if changes <= places else molecule)


@lru_cache(KNOWN)
def _counter_ion(smiles: str) -> str | None:
    """Return the name of an organic counter-ion, in any of its charges and stereoisomers, or None for another one."""
    with rdBase.BlockLogs():
        neutral = _standardizer()[1].uncharge(Chem.MolFromSmiles(smiles))
    return counter_ions().get(Chem.MolToSmiles(neutral, isomericSmiles=False))


def anion_of(smiles: str) -> str | None:
    """Return the anion of a simple salt of an alkali metal, such as `[I-]` of `[I-].[K+]`, or None."""
    others = set(smiles.split(".")) - _ALKALI
    return others.pop() if len(others) == 1 and "." in smiles else None


def form_in_words(smiles: str, parent: str) -> str:
    """Return the name of a form of a parent, such as "HCl salt", "salt with oxalic acid" or "NaN3"."""
    if _is_plain(smiles):
        return OTHER_ANOMER
    if not _is_plain(parent) and (common := reagent_name(smiles)) != smiles:
        return common
    others = {part for part in smiles.split(".") if parent_form(part) != parent}
    names = {_SALTS.get(part) or ((name := _counter_ion(part)) and f"salt with {name}") for part in others}
    return (names.pop() if len(names) == 1 and _is_plain(parent) else None) or OTHER_SALT


def isomers(smiles: str) -> list[str]:
    """Return the canonical SMILES of the stereoisomers of a molecule with a defined centre, and with other centres or
    double bonds that are undefined. Return nothing for one without a defined centre, a racemate, or with many isomers.
    """
    if "@" not in smiles:
        return []
    molecule, options = structure(smiles), StereoEnumerationOptions(onlyUnassigned=True, unique=True)
    if not 1 < GetStereoisomerCount(molecule, options) <= _MOST_ISOMERS:
        return []
    return sorted({canonical_smiles(Chem.MolToSmiles(isomer)) for isomer in EnumerateStereoisomers(molecule, options)})


@lru_cache(KNOWN)
def tautomers(smiles: str) -> tuple[str, ...]:
    """Return the canonical SMILES of the other tautomers of a molecule that lose no stereochemistry.

    A hydrogen moves between hetero atoms, or between a hetero atom and a carbon with two neighbours that have a double
    or triple bond to a hetero atom, as in enols of diketones. Molecules that differ in hydrogens at other carbons,
    such as a ketone and its enol, or a quinone with an alkyl group and a hydroquinone with an alkenyl group, are
    different compounds.
    """
    molecule, enumerator = Chem.MolFromSmiles(smiles), tautomer_enumerator()
    names = list[str]()
    with rdBase.BlockLogs():
        for other in enumerator.Enumerate(molecule):
            name = Chem.MolToSmiles(other)
            is_alike = name != smiles and _num_stereo(other, name) == _num_stereo(molecule, smiles)
            if is_alike and not _gained(other, molecule) | _gained(molecule, other):
                names.append(name)
    return tuple(names)


def graph(molecule: Chem.Mol) -> str:
    """Return the atoms of a molecule and which of them are bound, which all its tautomers share."""
    return rdMolHash.MolHash(molecule, rdMolHash.HashFunction.ElementGraph)


def _gained(molecule: Any, other: Any) -> set[int]:
    """Return the carbons that have more hydrogens than in another tautomer, and are not acidic."""
    atoms = [pair for pair in zip(molecule.GetAtoms(), other.GetAtoms(), strict=True) if pair[0].GetAtomicNum() == 6]
    more = {atom.GetIdx() for atom, before in atoms if atom.GetTotalNumHs() > before.GetTotalNumHs()}
    return more - {place for (place,) in molecule.GetSubstructMatches(_standardizer()[3])} if more else more


def _num_stereo(molecule: Any, smiles: str) -> tuple[int, int]:
    """Return the numbers of stereocentres and of double bonds with a known configuration."""
    bonds = sum(bond.GetStereo() > Chem.BondStereo.STEREOANY for bond in molecule.GetBonds())
    return len(re.findall("@+", smiles)), bonds
