"""The normal form of molecules whose charges and bonds to metals chemists write in several ways.

It is the form in which most recorded reactions write them. Sulfoxides, sulfoximines, phosphine oxides and ylides have
double bonds; nitro groups, azides and N-oxides have charges; salts of metals have ions; organometallic compounds have
bonds between carbon and metal, except those of sodium and heavier alkali metals; Grignard and organozinc reagents have
halide ions, which many records leave out.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Any

from rdkit import Chem, rdBase

_ALKALI = "Na|K|Rb|Cs"
_METALS = (
    f"{_ALKALI}|Li|Be|Mg|Ca|Sr|Ba|Al|Ga|In|Tl|Sn|Pb|Bi|Sc|Ti|V|Cr|Mn|Fe|Co|Ni|Cu|Zn|Y|Zr|Nb|Mo|Tc|Ru|Rh|Pd|Ag|Cd|Hf|"
    "Ta|W|Re|Os|Ir|Pt|Au|Hg|La|Ce|Pr|Nd|Sm|Eu|Gd|Tb|Dy|Ho|Er|Tm|Yb|Lu"
)
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
azide	[N,C;-1:1]-[N+1:2]#[N+0:3]>>[*+0:1]=[N+1:2]=[N-1:3]"""
_CYANIDE = "$([CX2]#[NX1])"
_PATTERNS = {
    "alkali": f"[{_ALKALI}]-[#6]".replace("|", ","),
    "salt": f"[{_METALS};!$(*~[#6;!{_CYANIDE}]);!$(*=*)]-[N,n,O,o,F,P,S,Cl,Se,Br,I,{_CYANIDE}]".replace("|", ","),
    "reagent": "[Mg,Zn]-[F,Cl,Br,I]",
    "metal": f"[{_METALS};!{_ALKALI.replace('|', ';!')};+,+2,+3,+4]".replace("|", ","),
    # an aromatic carbanion with three neighbours is a cyclopentadienide
    "carbanion": "[$([C-]),$([c-;X2]);!$(*~[*+]);!$([C-]#N)]",
    "halide": "[F,Cl,Br,I;-;X0]",
}


def is_unusual(smiles: str) -> bool:
    """Return whether the normal form of a molecule may differ from its SMILES. A quick test, for large stocks."""
    return "[" in smiles and _UNUSUAL.search(_CHARGED.sub("", smiles)) is not None


@cache
def _tools() -> tuple[Any, Any, dict[str, Any]]:
    from rdkit.Chem.MolStandardize import rdMolStandardize  # takes half a second to import

    rules = rdMolStandardize.NormalizerFromData(_RULES, rdMolStandardize.CleanupParameters())
    return rdMolStandardize.Normalizer(), rules, {name: Chem.MolFromSmarts(text) for name, text in _PATTERNS.items()}


def normalised(molecule: Any) -> Any:
    """Return the normal form of a molecule, an RDKit `Mol`. It has the same atoms."""
    normalizer, rules, patterns = _tools()
    with rdBase.BlockLogs():
        ions = _with_ions(Chem.RWMol(molecule), patterns)
        return Chem.MolFromSmiles(Chem.MolToSmiles(_bound(rules.normalize(normalizer.normalize(ions)), patterns)))


def _with_ions(molecule: Any, patterns: dict[str, Any]) -> Any:
    """Separate the metals of salts, hydrides such as `[NaH]`, and organic compounds of alkali metals, as cations."""
    pairs = {pair for kind in ("alkali", "salt", "reagent") for pair in molecule.GetSubstructMatches(patterns[kind])}
    for metal, other in pairs:
        molecule.RemoveBond(metal, other)
        _charge(molecule.GetAtomWithIdx(metal), 1)
        _charge(molecule.GetAtomWithIdx(other), -1)
    for atom in list(molecule.GetAtoms()):
        if re.fullmatch(f"{_ALKALI}|Li|Mg|Ca", atom.GetSymbol()) and atom.GetDegree() == 0:
            for _ in range(atom.GetTotalNumHs()):
                _charge(atom, 1)
                _charge(molecule.GetAtomWithIdx(molecule.AddAtom(Chem.Atom(1))), -1)
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
                if bound.GetBondBetweenAtoms(place, anion) is not None:
                    continue  # drawn with the bond and the charges
                bound.AddBond(place, anion, Chem.BondType.SINGLE)
                _charge(metal, -1)
                _charge(bound.GetAtomWithIdx(anion), 1)
    return bound


def _charge(atom: Any, change: int) -> None:
    atom.SetFormalCharge(atom.GetFormalCharge() + change)
    atom.SetNoImplicit(True)
