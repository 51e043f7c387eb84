"""Functions that read molecules with RDKit, and the hash that represents a text in large collections."""

from __future__ import annotations

import hashlib
import logging
import random
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib.resources import files
from types import MappingProxyType
from typing import Any, cast

from rdkit import Chem, rdBase
from rdkit.Chem import rdMolDescriptors

from ..tree import ATOM_MAP, SMILES_CHARACTERS, Route, joined_tokens
from .bridges import without_superfluous_marks
from .double_bonds import wrong_marks
from .normal_form import is_unusual, normalised, without_dative_bonds

_logger = logging.getLogger(__name__)

# Longer SMILES are refused. RDKit writes SMILES by recursion: a chain of 20,000 atoms ends the process.
MOST_CHARACTERS = 2000
# The number of SMILES in each cache of a process. Some thousands are enough for a search, and more only fill the
# memory of a server.
KNOWN = 1 << 13
# The beginning of a line of RDKit's log.
_STAMP = re.compile(r"^\[[\d:]+\] (SMILES Parse Error: )?")
# The beginning of an atom with an isotope of more than three digits, or a charge or hydrogens of more than two.
_TOO_LARGE = re.compile(r"\[(?:\d{4,}|[^\[\]]*[H+-]\d{3,})")
_ELEMENT = re.compile(r"([A-Z][a-z]?)(\d*)")
# A CXSMILES: a SMILES, a blank, an extension between bars, and perhaps a name.
_EXTENDED = re.compile(r"(\S+)(\s+\|[^|\n]*\|)[^\n]*")
# An R group or another undefined atom. `R` begins no other element.
UNDEFINED = re.compile(r"\*|R(?![abefghnu])|\[\d*[AXQM]\d*\]")
_DATIVE = re.compile("->|<-")
_BOND_MARKS = frozenset("~<>")
# An InChI, or the hash of one.
_INCHI = re.compile(r"InChI=1S?/\S+|(?:InChIKey=)?(?P<key>[A-Z]{14}-[A-Z]{10}-[A-Z])")
# The brackets of a drawing that repeat, mix or change what is in them.
_POLYMERS = frozenset({"SRU", "MON", "MER", "COP", "CRO", "MOD", "GRA", "MIX", "FOR", "ANY"})
# A bound for molecules with hundreds of tautomers.
_MOST_TAUTOMERS = 50
_AXIAL = {Chem.BondStereo.STEREOATROPCW, Chem.BondStereo.STEREOATROPCCW}
_BONDS = {Chem.BondType.SINGLE, Chem.BondType.DOUBLE, Chem.BondType.TRIPLE, Chem.BondType.AROMATIC}


def parse(text: str) -> Chem.Mol:
    """Return the molecule of a text, in the normal form of `normal_form`. Every molecule that is compared is read
    here.

    Args:
        text: a SMILES, also in tokens with blanks between them, a CXSMILES or an InChI. Atom maps are removed. The
            stereocentres of a racemate or of unknown absolute configuration (`&1`, `o1` and `r` of CXSMILES) are not
            specified. Axial chirality is left out, with a warning. Other extensions are ignored.

    Raises:
        ValueError: RDKit cannot read the SMILES, or it is empty or longer than 2,000 characters, contains a character
            that no SMILES has, such as a line break, a number that is too large for an isotope, a charge or hydrogens,
            an R group or another undefined atom, or a bond that is undefined, or dative to a transition metal; its
            marks of double bonds contradict each other, or make a trans double bond in a ring of up to seven atoms; or
            it is the repeating unit of a polymer, or an InChIKey. The message quotes it, with the reason.
    """
    if len(text) > MOST_CHARACTERS:
        raise ValueError(f"{text[:80]!r}... has {len(text)} characters: at most {MOST_CHARACTERS} are allowed.")
    if inchi := _INCHI.fullmatch(text.strip()):
        return _of_inchi(inchi[0], is_key=inchi["key"] is not None)
    smiles, extension = _extension(text)
    smiles = _checked(smiles)
    molecule = _of_extended(smiles, extension)
    if _DATIVE.search(smiles) and not extension:
        molecule = without_dative_bonds(smiles) or molecule
    if molecule is None or molecule.GetNumAtoms() == 0:
        raise ValueError(unreadable(smiles))
    if reason := wrong_marks(smiles):
        raise ValueError(f"{_quoted(smiles)}: {reason}.")
    if extension:
        _apply_extension(molecule, smiles, extension)
    elif not is_unusual(smiles) and _BOND_MARKS.isdisjoint(smiles):
        return without_superfluous_marks(molecule) if smiles.count("@") > 1 else molecule
    if any(bond.GetBondType() not in _BONDS for bond in molecule.GetBonds()):
        reason = "it has a dative or an undefined bond"
        raise ValueError(f"{_quoted(smiles)}: {reason}. Write charges, and dots for the fragment bonds `~`.")
    return normalised(molecule)


def _extension(text: str) -> tuple[str, str]:
    """Return the SMILES and the extension of a CXSMILES. That of another text is empty."""
    match = _EXTENDED.fullmatch(text.strip())
    return (match[1], match[2]) if match else (joined_tokens(text.strip()), "")


def _of_extended(smiles: str, extension: str) -> Any:
    with rdBase.BlockLogs():
        return Chem.MolFromSmiles(smiles + extension, _parameters())


def _checked(smiles: str) -> str:
    """Return a SMILES without atom maps, after the checks that its text alone allows."""
    # RDKit stops reading at the first blank, passes over marks in front, and computes modulo a power of two
    if wrong := sorted(set(smiles) - SMILES_CHARACTERS):
        raise ValueError(f"{_quoted(smiles)}: it contains {wrong[0]!r}. Give the SMILES of one molecule.")
    if number := _TOO_LARGE.search(smiles):
        raise ValueError(f"{_quoted(smiles)}: the number in {number[0]!r} is too large.")
    smiles = ATOM_MAP.sub("", smiles)
    if UNDEFINED.search(smiles):
        raise ValueError(f"{_quoted(smiles)}: it has an R group or another undefined atom. Give a whole molecule.")
    return smiles


@lru_cache(KNOWN)  # a molecule is read more than once
def _warn_of_axis(smiles: str) -> None:
    _logger.warning("%s: its axial chirality is not read, so atropisomers count as one molecule.", smiles)


def _of_inchi(text: str, is_key: bool) -> Chem.Mol:
    if is_key:
        raise ValueError(f"{text!r} is an InChIKey, a hash without the molecule: give its SMILES or InChI.")
    with rdBase.BlockLogs():
        molecule = Chem.MolFromInchi(text)
    if molecule is None or molecule.GetNumAtoms() == 0:
        raise ValueError(f"{_quoted(text)}: its InChI is not valid.")
    if "(H" in text:  # an InChI stands for all tautomers, and RDKit takes any of them
        molecule = tautomer_enumerator().Canonicalize(molecule)
    return normalised(molecule)


@cache
def tautomer_enumerator() -> Any:
    """Return RDKit's enumerator of tautomers, which keeps stereochemistry and isotopes."""
    from rdkit.Chem.MolStandardize import rdMolStandardize  # takes half a second to import

    parameters: Any = rdMolStandardize.CleanupParameters()
    parameters.tautomerRemoveSp3Stereo = parameters.tautomerRemoveBondStereo = False
    parameters.tautomerRemoveIsotopicHs = False
    parameters.maxTautomers = parameters.maxTransforms = _MOST_TAUTOMERS
    return rdMolStandardize.TautomerEnumerator(parameters)


def is_axially_chiral(text: str) -> bool:
    """Return whether a CXSMILES is one of two atropisomers, which a SMILES does not tell apart."""
    smiles, extension = _extension(text)
    molecule = _of_extended(smiles, extension) if extension else None
    return molecule is not None and any(bond.GetStereo() in _AXIAL for bond in molecule.GetBonds())


@lru_cache(KNOWN // 16)
def lost_configuration(text: str) -> str | None:
    """Return a sentence about the stereocentres of a CXSMILES that [`parse`] reads as undefined, because only their
    configurations relative to each other are known; None if there are none.
    """
    smiles, extension = _extension(text)
    molecule = _of_extended(smiles, extension) if extension else None
    if molecule is None or not (centres := _relative_centres(molecule, extension)):
        return None
    number = f"its {len(centres)} stereocentres with it are" if len(centres) > 1 else "its stereocentre is"
    return (
        f"{smiles} has a relative configuration, or is a racemate (`&`, `o` or `r`): {number} read as undefined. "
        "Give one stereoisomer without these marks to keep it."
    )


def noted_smiles(text: str) -> str:
    """Return [`plain_smiles`], but keep the extension of a CXSMILES of which [`parse`] does not read all."""
    return text.strip() if lost_configuration(text) or is_axially_chiral(text) else plain_smiles(text)


def unpaired_electrons(smiles: str) -> list[str]:
    """Return the symbols of the atoms with unpaired electrons, such as a carbon in brackets without its hydrogens."""
    return [atom.GetSymbol() for atom in Chem.MolFromSmiles(smiles).GetAtoms() if atom.GetNumRadicalElectrons()]


def _apply_extension(molecule: Chem.Mol, smiles: str, extension: str) -> None:
    """Remove the stereochemistry of centres whose absolute configuration is unknown, and refuse polymers."""
    if any(group.GetProp("TYPE") in _POLYMERS for group in Chem.GetMolSubstanceGroups(molecule)):
        reason = "brackets make it the repeating unit of a polymer or part of a mixture"
        raise ValueError(f"{_quoted(smiles)}: {reason}. Give one molecule.")
    if any(bond.GetStereo() in _AXIAL for bond in molecule.GetBonds()):
        _warn_of_axis(smiles)
    for place in _relative_centres(molecule, extension):
        molecule.GetAtomWithIdx(place).SetChiralTag(Chem.ChiralType.CHI_UNSPECIFIED)


def _relative_centres(molecule: Chem.Mol, extension: str) -> list[int]:
    """Return the stereocentres of which only the configuration relative to others is known."""
    absolute, relative = set[int](), set[int]()
    for group in molecule.GetStereoGroups():
        is_absolute = group.GetGroupType() == Chem.StereoGroupType.STEREO_ABSOLUTE
        (absolute if is_absolute else relative).update(atom.GetIdx() for atom in group.GetAtoms())
    if re.search(r"[|,]r[|,]", extension):
        relative = set(range(molecule.GetNumAtoms())) - absolute
    undefined = Chem.ChiralType.CHI_UNSPECIFIED
    return [place for place in sorted(relative) if molecule.GetAtomWithIdx(place).GetChiralTag() != undefined]


@cache
def _parameters() -> Any:
    parameters = cast(Any, Chem).SmilesParserParams()
    parameters.strictCXSMILES = False  # an extension of reactions such as `|f:0.1|`
    return parameters


# A molecule is usually read twice in a row: for its canonical SMILES and for its atoms.
_parsed = lru_cache(KNOWN // 16)(parse)


@lru_cache(KNOWN // 16)
def structure(smiles: str) -> Any:
    """Return the RDKit molecule of a SMILES that RDKit has written, or None. All callers share it: copy it before you
    change it.
    """
    return Chem.MolFromSmiles(smiles)


@lru_cache(KNOWN)
def canonical_smiles(smiles: str) -> str:
    """Return the canonical SMILES of a molecule's normal form. Recent results are cached, because beams and reagents
    share molecules.

    Raises:
        ValueError: as in [`parse`].
    """
    return Chem.MolToSmiles(_parsed(smiles))


def _quoted(smiles: str) -> str:
    return f"{smiles!r} is not a molecule that RDKit can read"


def canonical_or_given(smiles: str) -> str:
    """Return RDKit's canonical SMILES, or the text itself if it cannot be read."""
    try:
        return canonical_smiles(smiles)
    except ValueError:
        return smiles


def plain_smiles(text: str) -> str:
    """Return a SMILES without blanks: the text itself, or the canonical SMILES of a CXSMILES or of tokens. A
    configuration of the CXSMILES that is not read is logged.
    """
    if " " not in text.strip():
        return text
    if difference := lost_configuration(text):
        _logger.warning("%s", difference)
    return canonical_or_given(text)


def unreadable(smiles: str) -> str:
    """Return the error message for a SMILES that RDKit cannot read, with RDKit's reason if there is one.

    All threads share the log with the reason: if two of them read it at once, one may get none.
    """
    with rdBase.CaptureErrorLog() as log:
        Chem.MolFromSmiles(smiles)
    first = next(iter(log.messages.splitlines()), "")
    reason = re.sub(r" (for input|while parsing): .*", "", _STAMP.sub("", first)).strip(" .")
    return f"{_quoted(smiles)}{reason and ': '}{reason}."


@lru_cache(KNOWN // 16)  # each entry has many SMILES
def rooted_smiles(smiles: str) -> tuple[str, ...]:
    """Return the distinct SMILES of a molecule that begin at each of its atoms. RDKit's canonical SMILES is the first.

    Raises:
        ValueError: as in [`canonical_smiles`].
    """
    canonical = canonical_smiles(smiles)
    molecule = Chem.MolFromSmiles(canonical)
    spellings = [Chem.MolToSmiles(molecule, rootedAtAtom=index) for index in range(molecule.GetNumAtoms())]
    return tuple(dict.fromkeys([canonical, *spellings]))


def drawn_smiles(smiles: str, count: int, seed: int) -> list[str]:
    """Return distinct SMILES of a molecule that begin at drawn atoms, RDKit's canonical one first.

    Args:
        count: the largest number of SMILES. A small or symmetric molecule has fewer.
        seed: the seed of the draw. A molecule has the same SMILES whatever others are drawn.

    Raises:
        ValueError: as in [`canonical_smiles`].
    """
    first, *rest = rooted_smiles(smiles)
    rng = random.Random(f"{seed} {first}")
    return [first, *rng.sample(rest, min(count - 1, len(rest)))]


def one_molecule(smiles: str) -> str:
    """Return the canonical SMILES of a single molecule, such as a target or a starting material.

    Raises:
        ValueError: as in [`canonical_smiles`], or the SMILES contains several molecules.
    """
    canonical = canonical_smiles(plain_smiles(smiles))
    if "." in canonical:
        raise ValueError(f"{smiles!r} is {canonical.count('.') + 1} molecules, a salt or a mixture: give one of them.")
    return canonical


def largest_organic_part(smiles: str) -> str:
    """Return the canonical SMILES of the largest part of a salt or a mixture, one with carbon if there is any.

    Counter-ions of pharmaceutical salts come last, because some have more atoms than the drug. Charges that hydrogen
    atoms can neutralise are removed: an ammonium chloride becomes the amine.

    Raises:
        ValueError: as in [`canonical_smiles`].
    """
    from rdkit.Chem.MolStandardize import rdMolStandardize  # takes half a second to import

    with rdBase.BlockLogs():
        neutral = rdMolStandardize.Uncharger().uncharge(Chem.MolFromSmiles(canonical_smiles(smiles)))
        parts = Chem.GetMolFrags(neutral, asMols=True)
        drugs = [part for part in parts if Chem.MolToSmiles(part, isomericSmiles=False) not in counter_ions()]
        mixture = Chem.MolFromSmiles(".".join(map(Chem.MolToSmiles, drugs or parts)))
        part = rdMolStandardize.LargestFragmentChooser(preferOrganic=True).choose(mixture)
        neutral = rdMolStandardize.Uncharger().uncharge(part)
    return canonical_smiles(Chem.MolToSmiles(neutral))


@cache
def counter_ions() -> dict[str, str]:
    """Return the names of counter-ions by their canonical SMILES, neutral and without stereochemistry."""
    lines = files("weftformer.routes.chemistry").joinpath("counter_ions.smi").read_text(encoding="utf-8").splitlines()
    entries = (line.partition(" ")[::2] for line in lines if not line.startswith("#"))
    return {Chem.CanonSmiles(smiles): name.partition(",")[0] for smiles, name in entries}


@dataclass(frozen=True)
class Molecule:
    """The properties of a molecule that RDKit has read.

    Args:
        smiles: the SMILES as it was given.
        formula: the Hill formula, with hydrogens and the charge. Molecules with different formulas are different
            molecules.
        atoms: the number of heavy atoms of each element. Hydrogen is left out, because routes leave out the reagents
            that add and remove it. An isotope counts as its element: no recorded route that the rules were tested on
            contains one. Charges are not counted.
    """

    smiles: str
    formula: str
    atoms: Mapping[str, int]

    @property
    def canonical(self) -> str:
        """The canonical SMILES. It takes as long as reading the molecule, so it is computed on access."""
        return canonical_smiles(self.smiles)


def canonical_reaction(reactants: Iterable[str], product: str) -> str:
    """Return the SMILES of a reaction, which does not depend on the order of the reactants. Molecules that RDKit
    cannot read stay as they are.
    """
    parts = sorted(part for smiles in reactants for part in canonical_or_given(smiles).split("."))
    return f"{'.'.join(parts)}>>{canonical_or_given(product)}"


@lru_cache(KNOWN)
def read_molecule(smiles: str) -> Molecule | None:
    """Return the molecule of a SMILES, or None if it cannot be read as in [`parse`]. Recent results are cached."""
    try:
        molecule = _parsed(smiles)
    except ValueError:
        return None
    formula = cast(Any, rdMolDescriptors).CalcMolFormula(molecule)
    atoms = {element: int(count or 1) for element, count in _ELEMENT.findall(formula) if element != "H"}
    return Molecule(smiles, formula, MappingProxyType(atoms))


@lru_cache(KNOWN)
def is_beyond_repair(smiles: str) -> bool:
    """Return whether RDKit can certainly read no SMILES that begins with this one, which it cannot read.

    A parenthesis that closes no branch stays, and an atom with too many bonds keeps them, whatever follows. But an
    open ring may still be closed, and an aromatic one may get the substituent that it lacks. If RDKit fails instead of
    naming a problem, the answer is no.
    """
    if smiles.count(")") > smiles.count("("):
        return True
    with rdBase.BlockLogs():
        molecule = Chem.MolFromSmiles(smiles, sanitize=False)
        if molecule is None:
            return False
        try:
            problems = cast(Any, Chem).DetectChemistryProblems(molecule)
        except RuntimeError:
            return False
    return any(problem.GetType() == "AtomValenceException" for problem in problems)


def missing_atoms(needed: Mapping[str, int], reactants: Iterable[Molecule]) -> dict[str, int]:
    """Return the heavy atoms, by element, that these reactants do not supply. It is empty if they supply all."""
    counts = dict(needed)
    for reactant in reactants:
        for element in counts.keys() & reactant.atoms.keys():
            counts[element] -= reactant.atoms[element]
    return {element: count for element, count in counts.items() if count > 0}


def is_among(molecule: Molecule, molecules: Iterable[Molecule]) -> bool:
    """Return whether a molecule is one of the others, in any SMILES."""
    # canonical SMILES are slow, and molecules with different formulas cannot be the same
    return any(other.formula == molecule.formula and other.canonical == molecule.canonical for other in molecules)


def canonical_route(route: Route) -> Route:
    """Return the route with RDKit's canonical SMILES for every molecule. The order of the children does not change.

    Raises:
        ValueError: RDKit cannot read a molecule. The message quotes it.
    """
    return Route(canonical_smiles(route.smiles), tuple(canonical_route(child) for child in route.children))


def joined(molecules: Iterable[str]) -> str:
    """Return the canonical SMILES of molecules as one text that does not depend on their order."""
    return ".".join(sorted(part for smiles in molecules for part in canonical_smiles(smiles).split(".")))


def without_stereo(smiles: str) -> str:
    """Return the canonical SMILES without stereochemistry."""
    molecule = Chem.Mol(structure(smiles))
    Chem.RemoveStereochemistry(molecule)
    return Chem.MolToSmiles(molecule)


def hash64(text: str) -> int:
    """Return eight bytes of BLAKE2 as an integer. It is the same in every process."""
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big")
