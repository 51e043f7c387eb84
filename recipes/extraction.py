"""Builds a library of transformations from reactions with atom maps: `recipes.extraction MAPPED LIBRARY`.

Each line of MAPPED is a JSON object: `mapped` (reaction SMILES with atom maps, or null), `reaction` (the same
without), `class` (1-10 or null), `id` (or null), such as rxnmapper's maps (https://github.com/rxn4chemistry/rxnmapper)
make them. Templates are rdchiral's, with neighbours of one bond (Coley et al. 2019, doi 10.1021/acs.jcim.9b00286). A
template is kept only if it turns the product of its own reaction into the recorded reactants, and if [`is_sound`]. The
library also counts the functional groups that stay in these reactions.
"""

from __future__ import annotations

import argparse
import gzip
import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from rdchiral import template_extractor
from rdkit import rdBase

from weftformer.common.atomic import atomic_write
from weftformer.common.progress import Progress
from weftformer.routes.molecules import canonical_smiles
from weftformer.routes.precedents.groups import kept_groups
from weftformer.routes.precedents.transformations import (
    Example,
    Library,
    Transformation,
    difference,
    joined,
    patterns,
    shipped_library,
    without_stereo,
)

EXAMPLES = 3
# The maps of a Mitsunobu or Chan-Lam reaction are wrong if an arene loses its oxygen atom to an alcohol or a boronic
# acid.
_LOST_HYDROXYL = re.compile(r"(^|[.>(])O-\[c;")


def extract(record: dict[str, Any]) -> str | None:
    """Return the retrosynthetic template of a mapped reaction, or None if none reproduces its reactants."""
    if not record["mapped"]:
        return None
    reactants, product = record["mapped"].split(">>")
    with rdBase.BlockLogs():
        try:
            reaction = {"_id": 0, "reactants": reactants, "products": product}
            template = template_extractor.extract_from_reaction(reaction)
        except (ValueError, KeyError, RuntimeError, IndexError):
            return None
    smarts = (template or {}).get("reaction_smarts")
    if not smarts or not is_sound(smarts):
        return None
    used, made = record["reaction"].split(">>")
    return smarts if Transformation(smarts, 1).mapped(canonical_smiles(made), joined([used])) else None


def is_sound(smarts: str) -> bool:
    """Return whether a template keeps the stereochemistry of atoms it does not change, and the oxygen of a phenol.

    Others come from reactants that were drawn flat, or from wrong maps.
    """
    made, used = patterns(smarts)
    before = {number: centre for part in used for number, centre in _centres(part).items()}
    for number, (bonds, handedness) in _centres(made).items():
        old_bonds, old_handedness = before.get(number, (None, None))
        if bonds == old_bonds and handedness != old_handedness:
            return False
    reactants = smarts.split(">>")[1]
    return not (_LOST_HYDROXYL.search(reactants) and ("B(" in reactants or re.search(r"\[C:\d+\]-\[OH;D1", reactants)))


def _centres(pattern: Any) -> dict[int, tuple[list[tuple[int, str]], int | None]]:
    """Return the bonds and the handedness of the mapped atoms of a pattern."""
    centres = {}
    for atom in pattern.GetAtoms():
        bonds = [(bond.GetOtherAtom(atom).GetAtomMapNum(), bond.GetSmarts()) for bond in atom.GetBonds()]
        numbers, tag = [number for number, _ in bonds], int(atom.GetChiralTag())
        swaps = sum(number > other for place, number in enumerate(numbers) for other in numbers[place + 1 :])
        centres[atom.GetAtomMapNum()] = sorted(bonds), (tag + swaps) % 2 if tag else None
    centres.pop(0, None)  # atoms without a number
    return centres


def build(records: Iterable[dict[str, Any]], templates: Iterable[str | None]) -> Iterator[tuple[str, Transformation]]:
    """Yield the transformations of records, the most common first, each with its difference of atoms.

    `templates` has the template of each record. A template that the included library has too gets its name.
    """
    names = shipped_library().names
    found: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for record, smarts in zip(records, templates, strict=True):
        if smarts is not None:
            used, made = record["reaction"].split(">>")
            found.setdefault((difference(canonical_smiles(made), joined([used])), smarts), []).append(record)
    for (key, smarts), group in sorted(found.items(), key=lambda item: (-len(item[1]), item[0])):
        classes = Counter(record["class"] for record in group if record["class"] is not None)
        commonest = next((number for number, _ in classes.most_common(1)), None)
        examples = [Example(record["reaction"], record["id"]) for record in group]
        examples.sort(key=lambda example: (example.source is None, len(example.smiles)))
        yield key, Transformation(smarts, len(group), commonest, tuple(examples[:EXAMPLES]), names.get(smarts))


def with_groups(
    rows: Iterable[tuple[str, Transformation]], reactions: Iterable[tuple[str, str]]
) -> Iterator[tuple[str, Transformation]]:
    """Yield the rows of a library, with the groups that stay in reactions: pairs of a product and its reactants.

    A reaction counts for the transformation that [`Library.match`] finds for it.
    """
    rows = list(rows)
    library, groups_of = Library(rows), dict[str, Counter[str]]()
    with Progress("counting groups", None, "reactions") as bar:
        for product, reactants in reactions:
            # no group depends on stereochemistry, which takes time
            product = canonical_smiles(without_stereo(product))
            transformation, _, mapped = library.match(product, list(map(without_stereo, reactants.split("."))))
            if transformation is not None:
                groups = ["", *kept_groups(product, mapped)]
                groups_of.setdefault(transformation.smarts, Counter()).update(groups)
            bar.update(1)
    for key, transformation in rows:
        yield key, replace(transformation, kept=dict(sorted(groups_of.get(transformation.smarts, {}).items())))


def write(rows: Iterable[tuple[str, Transformation]], path: str | Path) -> None:
    """Write a library atomically."""
    # without the name and the time, so that the same rows give the same bytes
    with atomic_write(path) as part, part.open("wb") as raw, gzip.GzipFile("", "wb", fileobj=raw, mtime=0) as stream:
        for key, transformation in rows:
            row = [
                key,
                transformation.smarts,
                transformation.count,
                transformation.reaction_class,
                transformation.examples,
                transformation.name,
                *filter(None, [transformation.kept]),
            ]
            stream.write((json.dumps(row, separators=(",", ":")) + "\n").encode())


def main() -> None:
    """Read mapped reactions and write a library."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("mapped", type=Path, metavar="MAPPED")
    parser.add_argument("library", type=Path, metavar="LIBRARY")
    arguments = parser.parse_args()
    records = [json.loads(line) for line in arguments.mapped.read_text(encoding="utf-8").splitlines()]
    reactions = [(made, used) for used, made in (record["reaction"].split(">>") for record in records)]
    rows = list(with_groups(build(records, [extract(record) for record in records]), reactions))
    write(rows, arguments.library)
    count = sum(transformation.count for _, transformation in rows)
    print(
        f"{len(reactions):,} reactions: {count:,} have a template, {len(rows):,} of them different. "
        f"Saved to {arguments.library}."
    )


if __name__ == "__main__":
    main()
