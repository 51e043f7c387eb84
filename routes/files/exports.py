"""The molecules and the reactions of plans as files for drawing programs and databases: SD files and RD files.

RDKit is imported when a record is written, because commands name the forms of files in their help.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ..plans import Plan

# The fields of `Candidate.reactions` in an RD file.
_FIELDS = ("reaction", "name", "class", "evidence", "state", "precedents", "remarks", "reagents", "reason")


def molecule_records(plan: Plan, left_out: list[str]) -> Iterator[str]:
    """Yield the molecules of the distinct routes of a plan, each once per role, as records of an SD file.

    A record has the fields `id` and `solved` (of the target), `smiles`, `role` (`target`, `intermediate` or `starting
    material`), `in_stock` and, if it is, `stock` (of starting materials, if there is a stock: `sold` or `common`) and
    `routes` (the ranks of the routes with the molecule).

    Args:
        plan: the plan.
        left_out: a list to which the reason is added for each molecule that RDKit cannot read.
    """
    from rdkit import Chem

    from ..chemistry.molecules import canonical_or_given

    records: dict[tuple[str, str], dict[str, Any]] = {}
    about = {"id": plan.id or plan.target, "solved": plan.solved}
    for candidate, route in plan.found:
        intermediates = [(step.smiles, "intermediate") for step in route.steps()[:-1]]
        materials = [(leaf, "starting material") for leaf in route.leaves() if route.children]
        for smiles, role in [(route.smiles, "target"), *intermediates, *materials]:
            canonical = canonical_or_given(smiles)
            fields = records.setdefault((canonical, role), about | {"smiles": canonical, "role": role, "routes": {}})
            fields["routes"][candidate.rank] = None  # a dict keeps each rank once
            if candidate.missing is not None and (smiles, role) in materials:
                fields["in_stock"] = smiles not in candidate.missing
                if fields["in_stock"]:
                    fields["stock"] = "common" if smiles in candidate.common else "sold"
    for fields in records.values():
        molecule = _drawn(fields["smiles"])
        if molecule is None:
            left_out.append(f"RDKit cannot read {fields['smiles']}")
            continue
        for name, value in _in_lines(fields).items():
            molecule.SetProp(name, value)
        yield Chem.SDWriter.GetText(molecule, molid=0)


def reaction_records(plan: Plan, left_out: list[str]) -> Iterator[str]:
    """Yield the distinct reactions of the distinct routes of a plan as records of an RD file, each with its RXN block.

    A record has the fields `id` and `solved` (of the target), `routes` (the ranks of the routes with the reaction),
    and those of `Candidate.reactions` that tell of the reaction as such, without its number in a route.

    Args:
        plan: the plan.
        left_out: a list to which the reason is added for each reaction with a molecule that RDKit cannot read.
    """
    from rdkit.Chem import rdChemReactions

    records: dict[str, tuple[list[str], dict[str, Any]]] = {}
    for candidate, route in plan.found:
        for step, reaction in zip(route.steps(), candidate.reactions or (), strict=True):
            about: dict[str, Any] = {"id": plan.id or plan.target, "solved": plan.solved, "routes": {}}
            fields = about | {name: reaction[name] for name in _FIELDS}
            record = records.setdefault(step.last_reaction, (step.last_step().molecules(), fields))
            record[1]["routes"][candidate.rank] = None
    for molecules, fields in records.values():
        target, *reactants = map(_drawn, molecules)
        if target is None or None in reactants:
            left_out.append(f"RDKit cannot read a molecule of {fields['reaction']}")
            continue
        picture = rdChemReactions.ChemicalReaction()
        picture.AddProductTemplate(target)
        for reactant in reactants:
            picture.AddReactantTemplate(reactant)
        data = "".join(f"$DTYPE {name}\n$DATUM {value}\n" for name, value in _in_lines(fields).items())
        yield f"$RFMT\n{rdChemReactions.ReactionToRxnBlock(picture)}{data}"


def _drawn(smiles: str) -> Any:
    """Return the molecule with coordinates, and without aromatic bonds, which programs interpret differently."""
    from rdkit import Chem, rdBase
    from rdkit.Chem import rdDepictor

    with rdBase.BlockLogs():
        molecule = Chem.MolFromSmiles(smiles)
    if molecule is not None:
        Chem.Kekulize(molecule, clearAromaticFlags=True)
        rdDepictor.Compute2DCoords(molecule)
    return molecule


def _in_lines(fields: Mapping[str, Any]) -> dict[str, str]:
    """Return the fields that have a value, each as one line, because an empty line would end the field."""
    lines = {}
    for name, value in fields.items():
        text = "; ".join(map(str, value)) if isinstance(value, list | dict) else "" if value is None else str(value)
        if text:
            lines[name] = " ".join(text.lower().split() if isinstance(value, bool) else text.split())
    return lines
