"""Recorded reactions that no chemist would run, found by what they lack."""

from __future__ import annotations

from collections.abc import Iterator

from rdkit import Chem

from weftformer.routes.chemistry.changes import without_maps
from weftformer.routes.chemistry.reactivity import vanished_group
from weftformer.routes.chemistry.reagents import role_of
from weftformer.routes.chemistry.step import MappedStep
from weftformer.routes.judging.templates import mapped_step
from weftformer.routes.judging.transformation import Transformation

# Compounds with one of these roles are in the flask for another reason than their atoms. Cyanoborohydride is one, too.
_ROLES = frozenset(
    {"solvent", "acid", "acid of salts", "base", "coupling reagent", "halogenating agent", "oxidant", "ligand"}
)
_CYANOBOROHYDRIDE = "[BH3-]C#N"
# Those that do give an atom: DMSO in the Kornblum oxidation, CCl4 in the Appel reaction, DPPA in the Curtius
# rearrangement, nitrites in diazotisations, and hypochlorite in aminohydroxylations.
_GIVERS = frozenset(
    {
        "CS(C)=O", "ClC(Cl)(Cl)Cl", "[N-]=[N+]=NP(=O)(c1ccccc1)c1ccccc1", "CC(C)CCON=O", "CC(C)(C)ON=O",
        "CC(C)(C)OCl",
    }
)  # fmt: skip
# Compounds that give the oxygen of a hydrolysis in the maps, but are no oxidants.
_NO_OXIDANTS = frozenset(
    {
        "O=S(=O)(O)O", "O=S(=O)([O-])O", "O=S(=O)([O-])[O-]", "O=S([O-])O", "O=S([O-])[O-]", "O=S([O-])([O-])=S",
        "NS(=O)(=O)O", "O=C([O-])O", "O=C([O-])[O-]", "O=P(O)(O)O", "O=P([O-])(O)O", "O=P([O-])([O-])O",
        "O=P([O-])([O-])[O-]",
    }
)  # fmt: skip
# What compounds of a role do give alone.
_HALOGENS = {"F", "Cl", "Br", "I"}
_GIFTS = {"coupling reagent": _HALOGENS, "halogenating agent": _HALOGENS, "oxidant": {"O"}, "ligand": {"P"}}
_ETHER = Chem.MolFromSmarts("[OX2]([CX4])[CX4]")


def is_doubtful(transformation: Transformation) -> bool:
    """Return whether no example of a transformation is a step.

    A transformation with a name may remove any group.
    """
    reasons = []
    for example in transformation.examples:
        reactants, product = example.smiles.split(">>")
        if (step := mapped_step(transformation.smarts, product, reactants)) is not None and step.reactants is not None:
            reasons.append(doubt(step) or (vanished_group(step) if transformation.name is None else None))
    return bool(reasons) and None not in reasons


def doubt(step: MappedStep) -> str | None:
    """Return which compound of a step cannot do what the atom maps say, or None."""
    bare = without_maps(step.reactants)
    for places in Chem.GetMolFrags(bare):
        name = Chem.CanonSmiles(Chem.MolFragmentToSmiles(bare, places))
        if _halogenates(step, places):
            return f"{name} halogenates without an oxidant"
        if name in _NO_OXIDANTS and any(_oxidises(step, place) for place in places):
            return f"{name} oxidises"
        is_organic = any(step.reactants.GetAtomWithIdx(place).GetSymbol() == "C" for place in places)
        role = role_of(name)
        if is_organic and name not in _GIVERS and (role in _ROLES or name == _CYANOBOROHYDRIDE):
            for reason in _impossible_gifts(step, places, role):
                return f"{name} gives {reason}"
    return None


def _halogenates(step: MappedStep, places: tuple[int, ...]) -> bool:
    """Return whether a halide or hydrogen halide replaces a hydrogen atom, and nothing else is reduced."""
    halide = step.reactants.GetAtomWithIdx(places[0])
    if len(places) > 1 or halide.GetSymbol() not in ("F", "Cl", "Br", "I") or not step.is_in_product(places[0]):
        return False
    [other] = (atom.GetIdx() + 1 for atom in step.molecule.GetAtomWithIdx(halide.GetAtomMapNum() - 1).GetNeighbors())
    before = [atom for atom in step.reactants.GetAtoms() if atom.GetAtomMapNum() == other]
    changes = step.changed_atoms - {halide.GetAtomMapNum(), other}
    after = step.molecule.GetAtomWithIdx(other - 1)
    return not changes and any(atom.GetTotalNumHs() > after.GetTotalNumHs() for atom in before)


def _oxidises(step: MappedStep, place: int) -> bool:
    """Return whether an oxygen atom leaves its compound for a carbon atom, in place of carbon or hydrogen, or for
    another atom that loses nothing.
    """
    oxygen = step.reactants.GetAtomWithIdx(place)
    if oxygen.GetSymbol() != "O" or not step.is_in_product(place):
        return False
    before = {atom.GetAtomMapNum(): atom for atom in step.reactants.GetAtoms() if atom.GetAtomMapNum()}
    for after in step.molecule.GetAtomWithIdx(oxygen.GetAtomMapNum() - 1).GetNeighbors():
        atom = before.get(after.GetIdx() + 1)
        if atom is None or step.reactants.GetBondBetweenAtoms(atom.GetIdx(), place) is not None:
            continue
        numbers = {neighbour.GetIdx() + 1 for neighbour in after.GetNeighbors()}
        lost = {other.GetSymbol() for other in atom.GetNeighbors() if other.GetAtomMapNum() not in numbers}
        if atom.GetSymbol() == "C":
            return lost == {"C"} or (not lost and after.GetTotalNumHs() < atom.GetTotalNumHs())
        return not lost and after.GetTotalNumHs() >= atom.GetTotalNumHs()
    return False


def _impossible_gifts(step: MappedStep, places: tuple[int, ...], role: str) -> Iterator[str]:
    """Yield what the product has of a solvent or the like, but cannot have from it."""
    atoms = [step.reactants.GetAtomWithIdx(place) for place in places]
    gifts = [atom for atom in atoms if step.is_in_product(atom.GetIdx())]
    elements, given = ({atom.GetSymbol() for atom in some} for some in (atoms, gifts))
    if gifts and "C" not in given and not given <= _GIFTS.get(role, set()):
        yield f"{gifts[0].GetSymbol()} alone"
    num_carbons = sum(atom.GetSymbol() == "C" for atom in atoms)
    if len(gifts) == 1 and given == {"C"} and role != "solvent" and (num_carbons > 1 or "B" in elements):
        yield "C alone"
    if elements == {"C", "O"} and 0 < len(gifts) < len(atoms):
        ethers = step.reactants.GetSubstructMatches(_ETHER)
        if {atom.GetIdx() for atom in atoms if atom.GetSymbol() == "O"} <= {match[0] for match in ethers}:
            yield "a part of an ether"
    for atom in gifts:
        after = step.molecule.GetAtomWithIdx(atom.GetAtomMapNum() - 1)
        losses = [neighbour for neighbour in atom.GetNeighbors() if not step.is_in_product(neighbour.GetIdx())]
        if atom.GetSymbol() == "N" and [neighbour.GetSymbol() for neighbour in losses].count("C") > 1:
            yield "the nitrogen of an amide"
        if elements == {"C", "Cl"} and after.GetTotalNumHs() > atom.GetTotalNumHs():
            yield "a carbon without its chlorine"
