"""The normal form of molecules whose charges and bonds to metals chemists write in several ways.

It is the form in which most recorded reactions write them. Sulfoxides, sulfoximines, phosphine oxides and ylides have
double bonds; nitro groups, azides and N-oxides have charges; salts of metals have ions; organometallic compounds have
bonds between carbon and metal, except those of sodium and heavier alkali metals; Grignard and organozinc reagents have
halide ions, which many records leave out. Complexes of boranes and aluminium compounds with ethers, sulfides, amines
and phosphines are two molecules, and the hydrogens of aluminium hydrides are bound.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Any

from rdkit import Chem, rdBase

from .bridges import without_superfluous_marks

_ALKALI = "Na|K|Rb|Cs"
_METALS = (
    f"{_ALKALI}|Li|Be|Mg|Ca|Sr|Ba|Al|Ga|In|Tl|Sn|Pb|Bi|Sc|Ti|V|Cr|Mn|Fe|Co|Ni|Cu|Zn|Y|Zr|Nb|Mo|Tc|Ru|Rh|Pd|Ag|Cd|Hf|"
    "Ta|W|Re|Os|Ir|Pt|Au|Hg|La|Ce|Pr|Nd|Sm|Eu|Gd|Tb|Dy|Ho|Er|Tm|Yb|Lu"
)
# Atoms to which a dative bond is another notation of charges. Bonds to transition metals are not.
_ACCEPTORS = frozenset({"B", "Al", "Ga", "In", "O", "S", "Se"})
# Groups that have charges in the normal form too, and are common: they need no further look.
_CHARGED = re.compile(
    r"\[NH[23]?\+\]|\[nH\+\]|C\(=O\)\[O-\]|\[(?:Na|K)\+\]|\[(?:Cl|Br|I)-\]|"
    r"\[N\+\]\(=O\)\[O-\]|O=\[N\+\]\(\[O-\]\)|\[N\+\]=\[N-\]|\[N-\]=\[N\+\]|\[n\+\]\(\[O-\]\)|\[O-\]\[n\+\]"
)
_UNUSUAL = re.compile(rf"[+-]\d*\]|\[\d*(?:{_METALS})(?![a-z])")
# RDKit's rules write sulfoxides with charges, and do not concern the other groups.
_RULES = """\
twice charged	[P,S,As,Se,Te;+2:1]-[O,N,C,S,Se;-1:2]>>[*+1:1]=[*+0:2]
charged	[P,S,As,Se,Te,I;+1:1]-[O,N,C,S,Se;-1:2]>>[*+0:1]=[*+0:2]
azide	[N,C;-1:1]-[N+1:2]#[N+0:3]>>[*+0:1]=[N+1:2]=[N-1:3]
ylide of an enolate	[O;X1;-1:1]-[C:2]=[C:3]-[P,S,As;+1:4]>>[O+0:1]=[C:2]-[C:3]=[*+0:4]"""
_CYANIDE = "$([CX2]#[NX1])"
_PATTERNS = {
    "complex": "[N,n,O,o,P,S,s,As,Se;+]-;!@[B,Al,Ga,In;-]",
    "MIDA boronate": "[NX4+]-;@[B-](O)O",
    "alkali": f"[{_ALKALI}]-[#6]".replace("|", ","),
    "salt": f"[{_METALS};!$(*~[#6;!{_CYANIDE}]);!$(*=*)]-[N,n,O,o,F,P,S,Cl,Se,Br,I,{_CYANIDE}]".replace("|", ","),
    "reagent": "[Mg,Zn]-[F,Cl,Br,I]",
    "metal": f"[{_METALS};!{_ALKALI.replace('|', ';!')};+,+2,+3,+4]".replace("|", ","),
    # an aromatic carbanion with three neighbours is a cyclopentadienide
    "carbanion": "[$([C-]),$([c-;X2]);!$(*~[*+]);!$([C-]#N)]",
    "halide": "[F,Cl,Br,I;-;X0]",
    "hydride": "[#1;-;D0]",
}


def is_unusual(smiles: str) -> bool:
    """Return whether the normal form of a molecule may differ from its SMILES. A quick test, for large stocks."""
    return "[" in smiles and _UNUSUAL.search(_CHARGED.sub("", smiles)) is not None


@cache
def _tools() -> tuple[Any, Any, dict[str, Any]]:
    from rdkit.Chem.MolStandardize import rdMolStandardize  # takes half a second to import

    rules = rdMolStandardize.NormalizerFromData(_RULES, rdMolStandardize.CleanupParameters())
    return rdMolStandardize.Normalizer(), rules, {name: Chem.MolFromSmarts(text) for name, text in _PATTERNS.items()}


def without_dative_bonds(smiles: str) -> Any:
    """Return the molecule of a SMILES with `->` or `<-` to boron, aluminium, oxygen and the like, with charges instead
    of these bonds, or None if RDKit cannot read it.
    """
    with rdBase.BlockLogs():
        molecule: Any = Chem.MolFromSmiles(smiles, sanitize=False)
        for bond in [] if molecule is None else molecule.GetBonds():
            if bond.GetBondType() == Chem.BondType.DATIVE and bond.GetEndAtom().GetSymbol() in _ACCEPTORS:
                bond.SetBondType(Chem.BondType.SINGLE)
                for atom, change in ((bond.GetBeginAtom(), 1), (bond.GetEndAtom(), -1)):
                    atom.SetFormalCharge(atom.GetFormalCharge() + change)
        try:
            return molecule and Chem.RemoveHs(molecule)
        except Chem.MolSanitizeException:
            return None


def normalised(molecule: Any) -> Any:
    """Return the normal form of a molecule, an RDKit `Mol`. It has the same atoms."""
    normalizer, rules, patterns = _tools()
    with rdBase.BlockLogs():
        parts = _with_ions(_with_hydrides(_without_complexes(Chem.RWMol(molecule), patterns), patterns), patterns)
        bound = _bound(rules.normalize(normalizer.normalize(parts)), patterns)
        return without_superfluous_marks(Chem.MolFromSmiles(Chem.MolToSmiles(bound)))


def _without_complexes(molecule: Any, patterns: dict[str, Any]) -> Any:
    """Separate Lewis acids from their donors."""
    kinds = ("complex", "MIDA boronate")
    for donor, acceptor in {match[:2] for kind in kinds for match in molecule.GetSubstructMatches(patterns[kind])}:
        _switch_bond(molecule, donor, acceptor, -1)
    return molecule


def _with_hydrides(molecule: Any, patterns: dict[str, Any]) -> Any:
    """Bind hydride ions to aluminium."""
    hydrides = [place for (place,) in molecule.GetSubstructMatches(patterns["hydride"])]
    for metal in [atom for atom in molecule.GetAtoms() if atom.GetSymbol() == "Al"]:
        count = metal.GetTotalNumHs(includeNeighbors=True)
        while hydrides and (metal.GetFormalCharge() > 0 or (metal.GetFormalCharge() == 0 and count == 3)):
            _switch_bond(molecule, metal.GetIdx(), hydrides.pop(), -1)
            count += 1
    return molecule


def _with_ions(molecule: Any, patterns: dict[str, Any]) -> Any:
    """Separate the metals of salts, hydrides such as `[NaH]`, and organic compounds of alkali metals, as cations."""
    kinds = ("alkali", "salt", "reagent")
    for metal, other in {pair for kind in kinds for pair in molecule.GetSubstructMatches(patterns[kind])}:
        _switch_bond(molecule, metal, other, 1)
    for atom in list(molecule.GetAtoms()):
        if re.fullmatch(f"{_ALKALI}|Li|Mg|Ca", atom.GetSymbol()) and atom.GetDegree() == 0:
            for _ in range(atom.GetTotalNumHs()):
                _charge(atom, 1)
                molecule.AddAtom(Chem.AtomFromSmiles("[H-]"))
            atom.SetNumExplicitHs(0)
    Chem.SanitizeMol(molecule)
    return molecule


def _bound(molecule: Any, patterns: dict[str, Any]) -> Any:
    """Bind the cations of organometallic compounds to their carbanions, and then to their halides."""
    if not molecule.HasSubstructMatch(patterns["metal"]):
        return molecule
    ranks, bound = list(Chem.CanonicalRankAtoms(molecule)), Chem.RWMol(molecule)
    metals, carbanions, halides = (
        sorted((place for (place,) in molecule.GetSubstructMatches(patterns[kind])), key=ranks.__getitem__)
        for kind in ("metal", "carbanion", "halide")
    )
    for place in sorted(metals, key=lambda place: -molecule.GetAtomWithIdx(place).GetFormalCharge()):
        metal = bound.GetAtomWithIdx(place)
        is_organic = carbanions or any(atom.GetSymbol() == "C" for atom in metal.GetNeighbors())
        for anions in (carbanions, [] if metal.GetSymbol() in ("Mg", "Zn") else halides) if is_organic else ():
            while anions and metal.GetFormalCharge() > 0:
                anion = anions.pop(0)
                if bound.GetBondBetweenAtoms(place, anion) is None:  # else drawn with the bond and the charges
                    _switch_bond(bound, place, anion, -1)
    return bound


def _switch_bond(molecule: Any, first: int, second: int, charge: int) -> None:
    """Bind two atoms, or separate them if they are bound. `first` takes up a charge, and `second` gives it."""
    if molecule.GetBondBetweenAtoms(first, second) is None:
        molecule.AddBond(first, second, Chem.BondType.SINGLE)
    else:
        molecule.RemoveBond(first, second)
    _charge(molecule.GetAtomWithIdx(first), charge)
    _charge(molecule.GetAtomWithIdx(second), -charge)


def _charge(atom: Any, change: int) -> None:
    if not atom.GetNoImplicit():
        atom.SetNumExplicitHs(atom.GetTotalNumHs())
        atom.SetNoImplicit(True)
    atom.SetFormalCharge(atom.GetFormalCharge() + change)
