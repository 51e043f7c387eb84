"""Aligned routes: the part of a molecule that does not react is written alike in the product and in its reactants.

A SMILES may begin at any atom. In canonical SMILES, the ranking of the atoms decides where the product and each of its
reactants begin, so a model has to learn how their characters move. In an aligned route, each reactant begins at the
atom that makes its SMILES most similar to that of its product, as in R-SMILES (Zhong et al. 2022,
https://doi.org/10.1039/D2SC02763A). This continues down the tree. Unlike R-SMILES, it needs no atom maps, because the
SMILES themselves are compared. The reactants are in the order in which they appear in the SMILES of the product. A
route has one aligned text for each atom of its target.
"""

from __future__ import annotations

import itertools
import random
import re
from difflib import SequenceMatcher
from functools import lru_cache

from ..family import build_route_tokenizer
from ..tree import Route
from .molecules import canonical_smiles, rooted_smiles

# The digit of a ring depends on the rings that are open before it, so all digits of rings count as equal.
_ANY_RING = str.maketrans("23456789", "1" * 8)
_ATOM = re.compile(r"[A-Za-z]")
# Replaces the characters of a product that a reactant has supplied. No SMILES contains it.
_TAKEN = " "
# The number of SMILES that are compared piece by piece: those with the most characters in common with the product.
_COMPARED = 5


def aligned_routes(route: Route, count: int, rng: random.Random) -> list[Route]:
    """Return distinct aligned texts of a route, each beginning at a different atom of the target.

    Args:
        route: a route whose molecules RDKit can read.
        count: the largest number of texts. A small or symmetric target has fewer.
        rng: draws the atoms. The first text always begins with the target's canonical SMILES.

    Returns:
        The aligned routes.
    """
    first, *others = rooted_smiles(route.smiles)
    texts = (text for text in rng.sample(others, len(others)) if _is_writable(text, first))
    return [aligned_route(route, smiles) for smiles in (first, *itertools.islice(texts, count - 1))]


def aligned_route(route: Route, smiles: str) -> Route:
    """Return the route with `smiles` as its target's text, and each other molecule as similar as possible to its
    product.

    Args:
        route: a route whose molecules RDKit can read.
        smiles: a SMILES of the target.

    Returns:
        The aligned route.
    """
    rest, placed = smiles, []
    # a part that a larger reactant supplies is not available to a smaller one
    for child in sorted(route.children, key=lambda child: -len(child.smiles)):
        text, pieces = _nearest(child.smiles, rest)
        for start, size in pieces:
            rest = rest[:start] + _TAKEN * size + rest[start + size :]
        # reagents have no atom in the product and come last
        atoms = [(-size, start) for start, size in pieces if _ATOM.search(smiles, start, start + size)]
        place = min(atoms)[1] if atoms else len(smiles)
        placed.append((place, aligned_route(child, text)))
    return Route(smiles, tuple(child for _, child in sorted(placed, key=lambda pair: (pair[0], pair[1].smiles))))


# Cached, because the sub-routes of a route need the same results.
@lru_cache(1 << 14)
def _nearest(smiles: str, product: str) -> tuple[str, list[tuple[int, int]]]:
    """Return the SMILES of a molecule that is most similar to a product's: the fewest characters and pieces differ.

    Returns:
        The SMILES, and the start and length of each piece of the product's SMILES that it contains without a break.
    """
    places = _places(product)
    ways = sorted((len(text) - 2 * _common(text, places, len(product)), number, text)
                  for number, text in enumerate(rooted_smiles(smiles)))  # fmt: skip
    pieces_of = {text: _pieces(text, product) for _, _, text in ways[:_COMPARED]}
    best = sorted((distance + len(pieces_of[text]), number, text) for distance, number, text in ways[:_COMPARED])
    for _, _, text in best:
        if _is_writable(text, smiles):
            return text, pieces_of[text]
    # No text is writable, so the SMILES stays as it is. The check of the vocabulary then reports the route.
    return smiles, _pieces(smiles, product)


def _is_writable(text: str, smiles: str) -> bool:
    """Return whether the route vocabulary has all characters of a SMILES, and RDKit reads it as the same molecule.

    From some atoms, more rings are open at once than the vocabulary has digits.
    """
    if not _characters().issuperset(text):
        return False
    try:
        return canonical_smiles(text) == canonical_smiles(smiles)
    except ValueError:
        return False


@lru_cache(1)
def _characters() -> frozenset[str]:
    return frozenset(build_route_tokenizer("weft").get_vocab())


def _places(text: str) -> dict[str, int]:
    """Return the positions of each character, as the bits of a number."""
    places: dict[str, int] = {}
    for position, character in enumerate(text.translate(_ANY_RING)):
        places[character] = places.get(character, 0) | 1 << position
    return places


def _common(text: str, places: dict[str, int], length: int) -> int:
    """Return the length of the longest common subsequence of a text and another, given by its `places` and its length.

    It takes one addition per character (Hyyrö 2004, "Bit-parallel LCS-length computation revisited").
    """
    every = (1 << length) - 1
    bits = every
    for character in text.translate(_ANY_RING):
        match = bits & places.get(character, 0)
        bits = ((bits + match) | (bits - match)) & every
    return length - bits.bit_count()


def _pieces(text: str, product: str) -> list[tuple[int, int]]:
    """Return the start (in the product) and the length of each common piece.

    difflib finds the longest piece first, then the pieces beside it.
    """
    matcher = SequenceMatcher(None, product.translate(_ANY_RING), text.translate(_ANY_RING), autojunk=False)
    return [(piece.a, piece.size) for piece in matcher.get_matching_blocks() if piece.size]
