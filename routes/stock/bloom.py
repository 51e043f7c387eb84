"""Bloom filters of molbloom as stocks."""

from __future__ import annotations

import os
import struct
from collections.abc import Callable
from functools import partial
from pathlib import Path

from .offers import CATALOGUES

# The header of a Bloom filter of molbloom: a mark, the version, the number of hashes and that of bits. molbloom trusts
# it.
_BLOOM = struct.Struct("=5sBIQ")


def is_filter(path: Path) -> bool:
    """Return whether a stock is a Bloom filter: a file of one, or the name of a catalogue."""
    return path.suffix == ".bloom" or (str(path) in CATALOGUES and not path.exists())


def open_filter(name: str) -> Callable[[str], bool]:
    """Return the function that tests whether a SMILES is in a filter.

    Args:
        name: a `.bloom` file, or the name of a catalogue, which molbloom downloads once.

    Raises:
        ImportError, ValueError, OSError: as for [`BloomStock`].
    """
    import molbloom

    if name in CATALOGUES and not Path(name).exists():
        try:
            molbloom.buy("C", catalog=name)  # which downloads it
        except (OSError, ValueError) as error:
            raise OSError(f"{name} could not be downloaded ({error}). Use zinc-instock-mini, a file.") from error
        return partial(molbloom.buy, catalog=name)
    with Path(name).open("rb") as file:  # molbloom ends the process if there is no file
        header = file.read(_BLOOM.size)
        is_filter = len(header) == _BLOOM.size and header.startswith(b"BLOOM")
        _, _, hashes, bits = _BLOOM.unpack(header) if is_filter else (b"", 0, 0, 0)
        if not hashes or not bits or os.fstat(file.fileno()).st_size != _BLOOM.size + bits // 8:
            raise ValueError(f"{name} is not a whole Bloom filter of molbloom: it is damaged or another file.")
    try:
        bloom = molbloom.BloomFilter(name)
    except MemoryError as error:  # also of a version that it does not read
        raise ValueError(f"molbloom cannot read {name}: it may be a filter of another version.") from error
    return lambda smiles: molbloom.canon(smiles) in bloom
