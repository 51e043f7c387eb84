"""The molecules that the vocabulary of a model can write, and an error for all others."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any, cast

from ..tree import SMILES_CHARACTERS

# An atom in brackets, a ring number of two digits, an element of two letters, or a character.
_PARTS = re.compile(r"\[[^\]]*\]|%\d\d|Br|Cl|.")
# The elements up to bismuth: all heavier ones are radioactive.
_ELEMENTS = 83


def check_spelling(tokenizer: Any, smiles: str) -> None:
    """Refuse a SMILES with a character outside the vocabulary.

    Args:
        tokenizer: the tokenizer of the model.
        smiles: the molecule.

    Raises:
        ValueError: the message names the unsupported atoms, the missing characters, and the supported elements.
    """
    known = _characters(tokenizer)
    if known.issuperset(smiles):
        return
    parts = dict.fromkeys(part for part in _PARTS.findall(smiles) if not known.issuperset(part))
    lacking = dict.fromkeys(character for part in parts for character in part if character not in known)
    others = sorted(character for character in known & SMILES_CHARACTERS if not character.isalpha())
    raise ValueError(
        f"{smiles!r} contains {', '.join(parts)}, and the vocabulary of this model has no {' and no '.join(map(repr, lacking))}. "
        f"Supported elements: {', '.join(_elements(known))}; other characters: {' '.join(others)}"
    )


def _characters(tokenizer: Any) -> frozenset[str]:
    special = set(tokenizer.all_special_tokens)
    return frozenset(token for token in tokenizer.get_vocab() if len(token) == 1 and token not in special)


@lru_cache(8)
def _elements(known: frozenset[str]) -> tuple[str, ...]:
    from rdkit import Chem

    table = cast(Any, Chem).GetPeriodicTable()
    symbols = (table.GetElementSymbol(number) for number in range(1, _ELEMENTS + 1))
    return tuple(symbol for symbol in symbols if known.issuperset(symbol))
