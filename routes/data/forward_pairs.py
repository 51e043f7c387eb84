"""Reactions as pairs of texts: reactants and product, for a model that predicts what a reaction gives.

Such a model checks planned routes from the other side ([`weftformer.routes.scoring.round_trip`]). It is a model of texts:
`weftformer train` trains it on the file that [`write_forward_pairs`] writes.
"""

from __future__ import annotations

import csv
import gzip
import io
import random
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from ...common.atomic import atomic_write
from ...common.progress import Progress
from ..files import read_routes
from ..molecules import canonical_smiles, drawn_smiles
from ..tree import Route

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


def forward_pairs(reactions: Iterable[Reaction], *, texts: int = 1, seed: int = 0) -> Iterator[tuple[str, str]]:
    """
    Yield pairs of reactants and product.

    Args:
        reactions (`Iterable[Reaction]`):
            The reactions.
        texts (`int`, *optional*, defaults to 1):
            The largest number of pairs of each reaction. The first has canonical SMILES in the order of the alphabet. In
            the others, the order of the reactants is random, and so is the atom that each SMILES begins at. The product is
            always written in the same way, so that there is one right answer.
        seed (`int`, *optional*, defaults to 0):
            The seed of the draws. The pairs of a reaction do not depend on the other reactions.

    Yields:
        `tuple[str, str]`: the SMILES of the reactants, joined by dots, and the canonical SMILES of the product.
    """
    for product, reactants in reactions:
        rng = random.Random(f"{seed} {product} {reactants}")
        written = {".".join(reactants): None}
        choices = [drawn_smiles(reactant, texts, seed, rooted=True) for reactant in reactants]
        for _ in range(2 * (texts - 1)):  # some are drawn twice
            drawn = [rng.choice(found) for found in choices]
            rng.shuffle(drawn)
            written.setdefault(".".join(drawn))
        for text in list(written)[:texts]:
            yield text, product


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
            Route files. Reactions that make a molecule that these routes make are left out, whatever they make it from.
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
            for pair in forward_pairs([reaction], texts=texts, seed=seed):
                table.writerow(pair)
                counts["pairs"] += 1
            bar.update()
    counts["reactions"] = len(found)
    content = text.getvalue().encode()
    with atomic_write(out) as temporary:
        temporary.write_bytes(gzip.compress(content, mtime=0) if out.suffix == ".gz" else content)
    return counts
