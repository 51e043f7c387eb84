"""Reactions as pairs of texts (reactants and product), for a forward model.

Such a model checks planned routes from the other side ([`weftformer.routes.scoring.round_trip`]). It is a text model:
`weftformer train` trains it on the file that [`write_forward_pairs`] writes.
"""

from __future__ import annotations

import csv
import gzip
import io
import random
from collections.abc import Iterator, Sequence
from pathlib import Path

from ...common.atomic import atomic_write
from ...common.progress import Progress
from ..files import read_routes
from ..molecules import canonical_smiles
from ..tree import Route
from .alignment import aligned_routes

COLUMNS = ("reactants", "product")

# A reaction: the product, and the reactants in the order of their SMILES. All SMILES are canonical.
Reaction = tuple[str, tuple[str, ...]]


def reactions_of(route: Route) -> Iterator[Reaction]:
    """
    Yield the reactions of a route, from the target backwards.

    Raises:
        ValueError: RDKit cannot read a molecule.
    """
    if not route.children:
        return
    yield canonical_smiles(route.smiles), tuple(sorted(canonical_smiles(child.smiles) for child in route.children))
    for child in route.children:
        yield from reactions_of(child)


def forward_pairs(reaction: Reaction, texts: int = 1, seed: int = 0) -> Iterator[tuple[str, str]]:
    """
    Yield the pairs of a reaction: its aligned texts, in which the part that does not react is written alike in the product and in the
    reactants (see `alignment`).

    Args:
        reaction (`Reaction`):
            The reaction.
        texts (`int`, *optional*, defaults to 1):
            The largest number of pairs, each from another atom of the product. The first has its canonical SMILES.
        seed (`int`, *optional*, defaults to 0):
            The seed of the draws.

    Yields:
        `tuple[str, str]`: SMILES of the reactants, joined by dots, and of the product.
    """
    product, reactants = reaction
    route = Route(product, tuple(map(Route, reactants)))
    for text in aligned_routes(route, texts, random.Random(f"{seed} {product} {reactants}")):
        yield ".".join(reactant.smiles for reactant in text.children), text.smiles


def write_forward_pairs(
    files: Sequence[Path],
    out: Path,
    *,
    exclude: Sequence[Path] = (),
    texts: int = 1,
    seed: int = 0,
    progress: bool = True,
) -> dict[str, int]:
    """
    Write the reactions of route files as a table of pairs, each reaction once, in the order of the files.

    Args:
        files (`Sequence[Path]`):
            Route files of any form, single reactions included.
        out (`Path`):
            The file to write, a csv with the columns `reactants` and `product`. It is gzipped if its name ends in `.gz`.
        exclude (`Sequence[Path]`, *optional*):
            Route files. Reactions with a product of these routes are excluded, whatever their reactants.
        texts (`int`, *optional*, defaults to 1):
            The largest number of pairs of each reaction, see [`forward_pairs`].
        seed (`int`, *optional*, defaults to 0):
            The seed of the draws.
        progress (`bool`, *optional*, defaults to `True`):
            Whether to show the progress.

    Returns:
        `dict[str, int]`: how many routes were `read`, how many of them were `unreadable`, how many reactions were
        `excluded`, and how many `reactions` and `pairs` were written.

    Raises:
        ValueError: a file is not a file of routes, or no reaction is left.
        OSError: a file cannot be read or written.
    """
    held_out = {product for file in exclude for route in read_routes(file) for product, _ in reactions_of(route)}
    counts = dict.fromkeys(("read", "unreadable", "excluded", "reactions", "pairs"), 0)
    found: dict[Reaction, None] = {}
    with Progress("reading", None, "routes", is_shown=progress) as bar:
        for file in files:
            for route in read_routes(file):
                bar.update()
                counts["read"] += 1
                try:
                    reactions = list(reactions_of(route))
                except ValueError:
                    counts["unreadable"] += 1
                    continue
                for reaction in reactions:
                    if reaction[0] in held_out:
                        counts["excluded"] += 1
                    else:
                        found.setdefault(reaction)
    if not found:
        raise ValueError(f"No reaction is left of the {counts['read']} routes in {', '.join(map(str, files))}.")
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    table.writerow(COLUMNS)
    with Progress("writing", len(found), "reactions", is_shown=progress) as bar:
        for reaction in found:
            for pair in forward_pairs(reaction, texts, seed):
                table.writerow(pair)
                counts["pairs"] += 1
            bar.update()
    counts["reactions"] = len(found)
    content = text.getvalue().encode()
    with atomic_write(out) as temporary:
        temporary.write_bytes(gzip.compress(content, mtime=0) if out.suffix == ".gz" else content)
    return counts
