"""Routes whose molecules are written from like atoms: what does not react stands in product and reactant alike.

A SMILES may begin at any atom. Canonical SMILES of a product and of its reactants begin where each one's ranking says, and
a model has to learn how their characters move. Here each reactant is written from the atom whose text is nearest to that of
its product, as in R-SMILES (Zhong et al. 2022, https://doi.org/10.1039/D2SC02763A), and so down the tree; but no atom map
is needed, the texts themselves are compared. The reactants stand in the order in which the text of the product goes through
them. A route has such a text for each atom of its target.
"""

from __future__ import annotations

import itertools
import random
import re
from difflib import SequenceMatcher
from functools import lru_cache

from ...tokenization import build_route_tokenizer
from ..molecules import canonical_smiles, rooted_smiles
from ..tree import Route

__all__ = ["aligned_route", "aligned_routes"]

# Rings are numbered as they come: the same ring has another digit where another one is open before it.
_ANY_RING = str.maketrans("23456789", "1" * 8)
_ATOM = re.compile(r"[A-Za-z]")
# Stands in the text of a product for what a reactant has supplied; no SMILES has it.
_TAKEN = " "
# Texts with the most characters in common that are looked at piece by piece.
_COMPARED = 5


def aligned_routes(route: Route, count: int, rng: random.Random) -> list[Route]:
    """Distinct texts of a route, each aligned from another atom of the target.

    Args:
        route: a route of molecules that RDKit can read.
        count: most texts; a small or symmetric target has fewer.
        rng: draws the atoms. The first text always begins with the target's canonical SMILES.
    """
    first, *others = rooted_smiles(route.smiles)
    drawn = (text for text in rng.sample(others, len(others)) if _is_writable(text, first))
    return [aligned_route(route, smiles) for smiles in (first, *itertools.islice(drawn, count - 1))]


def aligned_route(route: Route, smiles: str) -> Route:
    """The route with its target written as `smiles`, and each other molecule as near to its product's text as can be."""
    left, placed = smiles, []
    # what the larger reactants supply is not there for the smaller ones
    for child in sorted(route.children, key=lambda child: -len(child.smiles)):
        text, pieces = _nearest(child.smiles, left)
        for start, size in pieces:
            left = left[:start] + _TAKEN * size + left[start + size :]
        # reagents, of which no atom is in the product, come last
        atoms = [(-size, start) for start, size in pieces if _ATOM.search(smiles, start, start + size)]
        place = min(atoms)[1] if atoms else len(smiles)
        placed.append((place, aligned_route(child, text)))
    return Route(smiles, tuple(child for _, child in sorted(placed, key=lambda pair: (pair[0], pair[1].smiles))))


# The sub-routes of a route ask for the same again.
@lru_cache(1 << 14)
def _nearest(smiles: str, product: str) -> tuple[str, list[tuple[int, int]]]:
    """The text of a molecule that is nearest to a product's: fewest characters put in and left out, and fewest pieces.

    Returns:
        The text; start and length of each piece of the product's text that stands in it without a break.
    """
    places = _places(product)
    ways = sorted((len(text) - 2 * _common(text, places, len(product)), number, text)
                  for number, text in enumerate(rooted_smiles(smiles)))  # fmt: skip
    best = []
    for distance, number, text in ways[:_COMPARED]:
        pieces = _pieces(text, product)
        best.append((distance + len(pieces), number, text, pieces))
    for _, _, text, pieces in sorted(best):
        if _is_writable(text, smiles):
            return text, pieces
    # who counts what is left out finds what the vocabulary lacks
    return smiles, _pieces(smiles, product)


def _is_writable(text: str, smiles: str) -> bool:
    """Whether the route vocabulary has all characters of a text, and RDKit reads it as the same molecule.

    Seen from some atoms more rings are open at once than the vocabulary has digits.
    """
    if not _characters().issuperset(text):
        return False
    try:
        return canonical_smiles(text) == canonical_smiles(smiles)
    except ValueError:
        return False


@lru_cache(1)
def _characters() -> frozenset[str]:
    return frozenset(build_route_tokenizer().get_vocab())


def _places(text: str) -> dict[str, int]:
    """For each character the positions where it stands, as bits of a number."""
    places: dict[str, int] = {}
    for position, character in enumerate(text.translate(_ANY_RING)):
        places[character] = places.get(character, 0) | 1 << position
    return places


def _common(text: str, places: dict[str, int], length: int) -> int:
    """Characters in the longest common subsequence of a text and another, given by its `places` and its length.

    One addition for each character (Hyyrö 2004, "Bit-parallel LCS-length computation revisited").
    """
    every = (1 << length) - 1
    left = every
    for character in text.translate(_ANY_RING):
        matched = left & places.get(character, 0)
        left = ((left + matched) | (left - matched)) & every
    return length - left.bit_count()


def _pieces(text: str, product: str) -> list[tuple[int, int]]:
    """Start (in the product) and length of what stands in both, as difflib finds it: the longest piece, then those beside it."""
    matcher = SequenceMatcher(None, product.translate(_ANY_RING), text.translate(_ANY_RING), autojunk=False)
    return [(piece.a, piece.size) for piece in matcher.get_matching_blocks() if piece.size]
