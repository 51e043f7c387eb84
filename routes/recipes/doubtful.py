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

# Compounds with one of these roles are in the flask for another reason than their atoms.
_ROLES = frozenset({"solvent", "acid", "acid of salts"})
# Solvents that do give an oxygen or chlorine atom: DMSO in the Kornblum oxidation, CCl4 in the Appel reaction.
_GIVERS = frozenset({"CS(C)=O", "ClC(Cl)(Cl)Cl"})
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
        is_organic = any(step.reactants.GetAtomWithIdx(place).GetSymbol() == "C" for place in places)
        if is_organic and role_of(name) in _ROLES and name not in _GIVERS:
            for reason in _impossible_gifts(step, places):
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


def _impossible_gifts(step: MappedStep, places: tuple[int, ...]) -> Iterator[str]:
    """Yield what the product has of a solvent or an acid, but cannot have from it."""
    atoms = [step.reactants.GetAtomWithIdx(place) for place in places]
    gifts = [atom for atom in atoms if step.is_in_product(atom.GetIdx())]
    elements = {atom.GetSymbol() for atom in atoms}
    if gifts and "C" not in {atom.GetSymbol() for atom in gifts}:
        yield f"{gifts[0].GetSymbol()} alone"
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
