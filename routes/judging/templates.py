"""Recorded templates: what they derive from a product, and quick tests of where they fit.

Templates are those of rdchiral (Coley et al. 2019, doi 10.1021/acs.jcim.9b00286). RDKit applies those that concern no
stereochemistry, with the same outcomes, faster.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Sequence
from functools import cache, lru_cache
from itertools import permutations
from typing import Any

from rdchiral.initialization import rdchiralReactants, rdchiralReaction
from rdchiral.main import rdchiralRun
from rdkit import Chem, DataStructs, rdBase
from rdkit.Chem import rdChemReactions

from ..chemistry.molecules import joined, read_molecule, structure, without_stereo
from ..chemistry.step import MappedStep
from ..tree import ATOM_MAP, split_parts

# The numbers of templates, molecules, patterns and texts that a process caches. A template takes 80 kB, a molecule
# 24 kB, a pattern 10 kB.
_TEMPLATES, _MOLECULES, _PATTERNS, _TEXTS = 1 << 10, 1 << 8, 1 << 11, 1 << 14
# rdchiral writes into the templates and molecules that it is given, and those here are shared by all threads.
_RDCHIRAL = threading.Lock()
# A stereocentre with a lone pair.
_LONE_PAIR = re.compile(r"\[(?:S|Se|Te|P|As)@")
# The characters of SMILES and SMARTS with stereochemistry.
_STEREO = frozenset("@/\\")
# The mark of a stereocentre, or of a bond beside a double bond.
_MARK = re.compile(r"@+|[/\\]")
# The number of bits of the fingerprints, which quickly exclude patterns that a molecule cannot contain.
_BITS = 1024
# The number of neighbours of an atom beyond which a fingerprint takes too long: hours and all memory for a cluster of
# 14 atoms that are all bound to each other.
_MOST_NEIGHBOURS = 6


def outcomes(smarts: str, product: str) -> dict[str, MappedStep]:
    """Return the SMILES of the reactants that a template derives from a product, with the steps from them.

    Args:
        smarts: the template as reaction SMARTS, from the product to the reactants.
        product: canonical SMILES.
    """
    try:
        with rdBase.BlockLogs():
            if _STEREO.isdisjoint(smarts) and (flat := _outcomes_of_rdkit(smarts, product)) is not None:
                return flat
            with _RDCHIRAL:
                reactants, maps = rdchiralRun(_template(smarts), _prepared(product), return_mapped=True)
            if _LONE_PAIR.search(product):
                texts = sorted(maps[outcome][0] for outcome in reactants if outcome in maps)
                return {_with_stereo(step): step for step in (MappedStep(product, text) for text in texts)}
    # rdchiral fails for a few pairs of template and molecule
    except (ValueError, KeyError, RuntimeError, IndexError):
        return {}
    # rdchiral's order differs between processes. It does not map two enantiomers that it joins
    return {
        outcome: MappedStep(product, maps[outcome][0] if outcome in maps else outcome) for outcome in sorted(reactants)
    }


def mapped_step(smarts: str, product: str, reactants: str) -> MappedStep | None:
    """Return the step to a product if a template derives the reactants from it, stereochemistry included.

    Args:
        smarts, product: as in [`outcomes`].
        reactants: canonical SMILES of all reactants, as [`joined`] returns them.
    """
    for outcome, step in outcomes(smarts, product).items():
        if joined(outcome.split(".")) == reactants:
            return step
    return None


def num_other_products(smarts: str, product: str, reactants: str) -> int:
    """Return how many isomers of the product a template makes from the same reactants, stereochemistry apart.

    Arguments are those of [`mapped_step`].
    """
    forward, flat = _forward(smarts), read_molecule(without_stereo(product))
    parts = [structure(without_stereo(part)) for part in reactants.split(".")]
    orders = permutations(parts, forward.GetNumReactantTemplates())
    texts = set[str]().union(*(_products(forward, order) for order in orders))
    if flat is None:
        return 0
    products = filter(None, map(read_molecule, texts))
    isomers = {without_stereo(other.canonical) for other in products if other.formula == flat.formula}
    return len(isomers - {without_stereo(flat.canonical)})


def joins_alike(smarts: str, reactants: str) -> bool:
    """Return whether each of two different reactants of a template also reacts with itself by it.

    Arguments are those of [`mapped_step`].
    """
    forward, parts = _forward(smarts), set(reactants.split("."))
    if forward.GetNumReactantTemplates() != 2 or len(parts) != 2:
        return False
    return all(_products(forward, [structure(part)] * 2) for part in parts)


def _products(forward: Any, reactants: Sequence[Chem.Mol]) -> set[str]:
    """Return the SMILES of what a reaction makes. RDKit may not be able to read all of them."""
    with rdBase.BlockLogs():
        return {".".join(map(Chem.MolToSmiles, outcome)) for outcome in forward.RunReactants(tuple(reactants))}


def might_use(smarts: str, reactants: Sequence[Chem.Mol]) -> bool:
    """Return False if a part of a template is in none of the reactants. A quick test before [`mapped_step`]."""
    return all(any(reactant.HasSubstructMatch(part) for reactant in reactants) for part in patterns(smarts)[1])


@lru_cache(_TEXTS)
def product_pattern(smarts: str) -> str:
    """Return the pattern of the product of a template, without the numbers of its atoms."""
    return ATOM_MAP.sub("", smarts.split(">>")[0])


def matcher(product: str) -> Callable[[str], bool]:
    """Return a function that tells whether a pattern is in a product, a canonical SMILES."""
    molecule, missing = structure(product), ~_molecule_bits(product)

    def is_in_product(pattern: str) -> bool:
        # fingerprints are compared first, because that is faster than to parse and match a pattern
        return not _bits(pattern) & missing and molecule.HasSubstructMatch(_parsed_pattern(pattern))

    return is_in_product


def check_template(smarts: str) -> None:
    """Check that RDKit can apply a template.

    Raises:
        ValueError, RuntimeError: it cannot.
    """
    _reaction(smarts)


@lru_cache(_TEMPLATES)
def patterns(smarts: str) -> tuple[Chem.Mol, list[Chem.Mol]]:
    """Return the pattern of the product and the patterns of the reactants."""
    product, reactants = smarts.split(">>")
    return _pattern(product), [_pattern(part) for part in split_parts(reactants)]


@lru_cache(_TEMPLATES)
def _forward(smarts: str) -> Any:
    """Return the reaction of a template, from the reactants to the product."""
    product, reactants = smarts.split(">>")
    bare = [part[1:-1] if part.startswith("(") else part for part in (product, *split_parts(reactants))]
    reaction = rdChemReactions.ReactionFromSmarts(f"{'.'.join(bare[1:])}>>{bare[0]}")
    reaction.Initialize()
    return reaction


def _outcomes_of_rdkit(smarts: str, product: str) -> dict[str, MappedStep] | None:
    """Return what rdchiral finds for a template without stereochemistry, faster.

    Return None where RDKit differs: it loses atoms or bonds that rdchiral restores, as where a ring opens; atoms with
    a configuration change; or an outcome has other configurations than the product, because a stereocentre
    becomes symmetric.
    """
    reaction, more_atoms, more_bonds = _reaction(smarts)
    molecule, num_marks = structure(product), len(_MARK.findall(product))
    if num_marks and _changes_configuration(reaction.GetReactantTemplate(0), product):
        return None
    size = molecule.GetNumAtoms() + more_atoms, molecule.GetNumBonds() + more_bonds
    steps = dict[str, MappedStep]()
    for parts in reaction.RunReactants((molecule,)):
        if size != (sum(part.GetNumAtoms() for part in parts), sum(part.GetNumBonds() for part in parts)):
            return None
        try:
            for part in parts:
                Chem.SanitizeMol(part)
        except ValueError:
            continue
        fragments = [_reread(text) for part in parts for text in Chem.MolToSmiles(part).split(".")]
        smiles = ".".join(sorted(filter(None, fragments)))
        if None in fragments or smiles in steps:  # equivalent atoms have matched
            continue
        if num_marks and len(_MARK.findall(smiles)) != num_marks:
            return None
        steps[smiles] = MappedStep(product, ".".join(map(_mapped_smiles, parts)))
    return dict(sorted(steps.items()))


def _mapped_smiles(part: Any) -> str:
    """Return the SMILES of a part of an outcome with the numbers of the product's atoms, counted from 1."""
    for place in range(part.GetNumAtoms()):
        atom = part.GetAtomWithIdx(place)
        if atom.HasProp("react_atom_idx"):
            atom.SetAtomMapNum(atom.GetIntProp("react_atom_idx") + 1)
    return Chem.MolToSmiles(part)


def _changes_configuration(pattern: Any, product: str) -> bool:
    """Return whether a pattern matches with a changing atom a stereocentre, or an end of a double bond with a
    configuration.
    """
    # only atoms that change have a charge in the templates of rdchiral, which may be 0
    changing = [atom.GetIdx() for atom in pattern.GetAtoms() if re.search("[+-]", atom.GetSmarts())]
    places = _with_configuration(product)
    matches = structure(product).GetSubstructMatches(pattern, uniquify=False)
    return any(atoms[index] in places for atoms in matches for index in changing or range(len(atoms)))


@lru_cache(_MOLECULES)
def _with_configuration(product: str) -> frozenset[int]:
    """Return the indices of the stereocentres, and of the ends of double bonds with a configuration."""
    molecule, places = structure(product), set[int]()
    for atom in molecule.GetAtoms():
        if atom.GetChiralTag() != Chem.ChiralType.CHI_UNSPECIFIED:
            places.add(atom.GetIdx())
    for bond in molecule.GetBonds():
        if bond.GetStereo() != Chem.BondStereo.STEREONONE:
            places |= {bond.GetBeginAtomIdx(), bond.GetEndAtomIdx()}
    return frozenset(places)


@lru_cache(_TEXTS)
def _reread(smiles: str) -> str | None:
    """Return the canonical SMILES of what a text of a reaction says, or None if it cannot be read."""
    molecule = Chem.MolFromSmiles(smiles)
    return None if molecule is None else Chem.MolToSmiles(molecule)


@lru_cache(_TEMPLATES)
def _reaction(smarts: str) -> tuple[Any, int, int]:
    """Return a template as RDKit reads it, and the atoms and bonds that it adds to a product."""
    reaction = rdChemReactions.ReactionFromSmarts(smarts)
    reaction.Initialize()
    if reaction.Validate()[1]:
        raise ValueError(f"RDKit finds an error in {smarts}")
    product, reactants = reaction.GetReactantTemplate(0), list(reaction.GetProducts())
    return (
        reaction,
        sum(part.GetNumAtoms() for part in reactants) - product.GetNumAtoms(),
        sum(part.GetNumBonds() for part in reactants) - product.GetNumBonds(),
    )


@lru_cache(_TEMPLATES)
def _template(smarts: str) -> Any:
    return rdchiralReaction(smarts)


@lru_cache(_MOLECULES)
def _prepared(smiles: str) -> Any:
    return rdchiralReactants(smiles)


def _with_stereo(step: MappedStep) -> str:
    """Return the reactants of a step with the configuration of sulfoxides and the like, which rdchiral leaves out."""
    reactants = Chem.Mol(step.reactants)
    places = {atom.GetAtomMapNum() - 1: atom for atom in reactants.GetAtoms()}
    for centre in structure(step.product).GetAtoms():
        if centre.GetChiralTag() and centre.GetDegree() == 3 and (after := places.get(centre.GetIdx())) is not None:
            around = [atom.GetIdx() for atom in centre.GetNeighbors()]
            now = [atom.GetAtomMapNum() - 1 for atom in after.GetNeighbors()]
            if sorted(around) == sorted(now) and not after.GetChiralTag():
                after.SetChiralTag(centre.GetChiralTag())
                if sum(around[i] == now[i] for i in range(3)) == 1:  # an odd permutation
                    after.InvertChirality()
    for atom in reactants.GetAtoms():
        atom.SetAtomMapNum(0)
    return Chem.MolToSmiles(Chem.MolFromSmiles(Chem.MolToSmiles(reactants)))


def _pattern(smarts: str) -> Chem.Mol:
    return Chem.MolFromSmarts(smarts[1:-1] if smarts.startswith("(") and smarts.endswith(")") else smarts)


_parsed_pattern = lru_cache(_PATTERNS)(_pattern)


@cache
def _bits(pattern: str) -> int:
    return _fingerprint(_parsed_pattern(pattern))


@lru_cache(_MOLECULES)
def _molecule_bits(smiles: str) -> int:
    molecule = structure(smiles)
    if any(atom.GetDegree() > _MOST_NEIGHBOURS for atom in molecule.GetAtoms()):
        return -1  # all bits, which exclude nothing
    return _fingerprint(molecule)


def _fingerprint(molecule: Chem.Mol) -> int:
    """Return the bits of the pattern fingerprint of a molecule."""
    return int(DataStructs.BitVectToFPSText(Chem.PatternFingerprint(molecule, _BITS)), 16)
