"""The molecules that can be bought, read from the lists that suppliers publish."""

from __future__ import annotations

import csv
import gzip
import itertools
import json
import logging
import re
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any, cast

import numpy as np
from rdkit import Chem, rdBase

from ..common.atomic import atomic_write
from ..common.progress import Progress
from ..common.workers import Workers
from .molecules import MOST_CHARACTERS, hash64
from .tables import table_header
from .tree import Route

_logger = logging.getLogger(__name__)

_INCHIKEY = re.compile(r"[A-Z]{14}-[A-Z]{10}-[A-Z]")
_COLUMNS = ("inchikey", "inchi_key", "smiles", "canonical_smiles", "mol")
# The number of lines that decide what a file contains. A file is refused if more than half of them are unreadable.
_LOOK_AT = 1000
# Increase this number when the hashes are computed in another way, so that older caches are not read.
_CACHE_VERSION = 1
# The number of entries that a worker process gets at once.
_CHUNK = 50


class Stock:
    """
    A set of molecules, stored as 64-bit hashes of canonical SMILES or InChIKeys.

    Each molecule takes eight bytes. A molecule that is not in a stock of n molecules is mistaken for one of them with a
    probability of n / 2^64, about 10^-12 for 23 million.

    Args:
        names (`Iterable[str]`):
            Canonical SMILES or InChIKeys.
        kind (`str`, *optional*, defaults to `"smiles"`):
            The kind of names: `"smiles"` or `"inchikey"`.
    """

    def __init__(self, names: Iterable[str], kind: str = "smiles"):
        self.kind = kind
        self._hashes = np.unique(np.fromiter((hash64(name) for name in names), dtype=np.uint64))
        self.num_bad, self.bad_lines = 0, cast(list[str], [])

    @classmethod
    def from_file(
        cls,
        path: str | Path,
        *,
        workers: int = 1,
        progress: bool = True,
        cache: bool = True,
        check: Callable[[], None] | None = None,
    ) -> Stock:
        """
        Read a file of SMILES or InChIKeys: one per line, or one column of a table with a header.

        The file is read as gzip if its name ends in `.gz`. The hashes are cached beside the file
        (`NAME.weft-stock.npz`). The cache is used until the file changes. Lines that are not molecules, or have a
        SMILES of more than 2,000 characters, are counted in `num_bad`, and the first few of them are in `bad_lines`.

        Args:
            path (`str` or `Path`):
                The file.
            workers (`int`, *optional*, defaults to 1):
                The number of processes that canonicalise SMILES. The processes are spawned, so a script that asks for
                more than one needs `if __name__ == "__main__":`.
            progress (`bool`, *optional*, defaults to `True`):
                Whether to show a progress bar.
            cache (`bool`, *optional*, defaults to `True`):
                Whether to read and write the cache.
            check (`Callable[[], None]`, *optional*):
                A function that is called again and again while the file is read. An error that it raises ends the reading.

        Returns:
            `Stock`: the stock.

        Raises:
            ValueError: the file is not a list of molecules. The message says what was found.
            OSError: the file cannot be read.
        """
        path = Path(path)
        known = path.with_name(f"{path.name}.weft-stock.npz")
        stamp = json.dumps([_CACHE_VERSION, rdBase.rdkitVersion, path.stat().st_size, path.stat().st_mtime_ns])
        stock = cls._from_cache(known, stamp) if cache else None
        if stock is None:
            stock = cls._read(path, workers, progress, check)
            if cache:
                stock._to_cache(known, stamp)
        if stock.num_bad:
            first = "; ".join(repr(line) for line in stock.bad_lines)
            _logger.warning("%s: %d lines are not molecules. The first of them: %s.", path, stock.num_bad, first)
        return stock

    @classmethod
    def _read(cls, path: Path, workers: int, progress: bool, check: Callable[[], None] | None = None) -> Stock:
        entries = _checked(_entries(path), check)
        head = list(itertools.islice(entries, _LOOK_AT))
        if not head:
            raise ValueError(f"{path} is empty: a stock contains one SMILES or InChIKey per line.")
        keys = sum(_INCHIKEY.fullmatch(entry) is not None for entry in head)
        kind = "inchikey" if keys > len(head) / 2 else "smiles"
        unreadable = [entry for entry in _checked(head, check) if _name(entry, kind) is None]
        if len(unreadable) > len(head) / 2:
            raise ValueError(
                f"{path} is not a stock: {len(unreadable)} of its first {len(head)} lines are neither SMILES nor "
                f"InChIKeys, the first of them {unreadable[0][:80]!r}. Give one molecule per line, or a table with a "
                "column 'smiles' or 'inchikey'."
            )
        stock, parts = cls([], kind), list[np.ndarray]()
        lines = itertools.chain(head, entries)
        chunks = iter(lambda: tuple(itertools.islice(lines, _CHUNK)), ())
        with (
            # an InChIKey only has to be matched and hashed: that is too little work for a second process
            Workers(stock, 1 if kind == "inchikey" else workers) as pool,
            Progress(f"reading {path.name}", None, "molecules", is_shown=progress) as bar,
        ):
            for found, wrong in pool.map(cls._hashed, chunks):
                parts.append(found)
                stock.num_bad += len(wrong)
                stock.bad_lines += wrong[: 5 - len(stock.bad_lines)]
                bar.update(len(found) + len(wrong))
                if len(parts) > 100_000:
                    parts = [np.unique(np.concatenate(parts))]
        stock._hashes = np.unique(np.concatenate(parts))
        return stock

    def _hashed(self, entries: tuple[str, ...]) -> list[tuple[np.ndarray, list[str]]]:
        """Return the hashes of the entries, and the entries that are not molecules."""
        named = [(entry, _name(entry, self.kind)) for entry in entries]
        found = np.array([hash64(name) for _, name in named if name is not None], dtype=np.uint64)
        return [(found, [entry[:200] for entry, name in named if name is None])]

    @classmethod
    def _from_cache(cls, known: Path, stamp: str) -> Stock | None:
        try:
            with np.load(known, allow_pickle=False) as data:
                if str(data["stamp"]) != stamp:
                    return None
                stock = cls([], str(data["kind"]))
                stock._hashes = data["hashes"]
                stock.num_bad, stock.bad_lines = int(data["num_bad"]), [str(line) for line in data["bad_lines"]]
                return stock
        except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile):
            return None  # there is no cache yet, or it is damaged: read the file itself

    def _to_cache(self, known: Path, stamp: str) -> None:
        try:
            with atomic_write(known) as temporary, temporary.open("wb") as file:
                np.savez(
                    file, stamp=np.array(stamp), kind=np.array(self.kind), hashes=self._hashes,
                    num_bad=np.array(self.num_bad), bad_lines=np.array(self.bad_lines, dtype=np.str_),
                )  # fmt: skip
        except OSError as error:
            _logger.warning("The cache %s cannot be written (%s): the next run reads the stock again.", known, error)

    def __len__(self) -> int:
        return len(self._hashes)

    def __contains__(self, smiles: str) -> bool:
        """Return whether a molecule, given as any of its SMILES, is in the stock. Return False for other texts."""
        name = _known_name(smiles, self.kind)
        if name is None:
            return False
        wanted = np.uint64(hash64(name))
        place = int(np.searchsorted(self._hashes, wanted))
        return place < len(self._hashes) and bool(self._hashes[place] == wanted)

    def missing(self, route: Route) -> list[str]:
        """Return the starting materials of a route that are not in the stock, each once, from left to right."""
        return [smiles for smiles in dict.fromkeys(route.leaves()) if smiles not in self]


def _canonical_name(smiles: str, kind: str) -> str | None:
    if len(smiles) > MOST_CHARACTERS:
        return None
    with rdBase.BlockLogs():
        molecule = Chem.MolFromSmiles(smiles)
    if molecule is None or molecule.GetNumAtoms() == 0:
        return None
    return cast(Any, Chem).MolToInchiKey(molecule) if kind == "inchikey" else Chem.MolToSmiles(molecule)


# Candidates share molecules.
_known_name = lru_cache(1 << 16)(_canonical_name)


def _name(entry: str, kind: str) -> str | None:
    """Return the canonical SMILES or the InChIKey of an entry, or None if the entry is not a molecule."""
    if kind == "inchikey":
        return entry if _INCHIKEY.fullmatch(entry) else None
    return _canonical_name(entry, kind)


def _checked(entries: Iterable[str], check: Callable[[], None] | None) -> Iterator[str]:
    """Call a function before each entry."""
    for entry in entries:
        if check is not None:
            check()
        yield entry


def _entries(path: Path) -> Iterator[str]:
    """Yield the SMILES or InChIKey of each line that is not empty."""
    try:
        # Excel writes a byte order mark before UTF-8
        encoding = "utf-8-sig"
        with (
            gzip.open(path, "rt", encoding=encoding) if path.suffix == ".gz" else path.open(encoding=encoding) as file
        ):
            first = next((line for line in file if line.strip()), "")
            table = table_header(first, _COLUMNS)
            if table is None:  # a list: the text after the SMILES is a name
                lines = itertools.chain([first], file)
                yield from (re.split(r"[\s,;]", line.strip(), maxsplit=1)[0] for line in lines if line.strip())
                return
            delimiter, header = table
            column = next(header.index(name) for name in _COLUMNS if name in header)
            for row in csv.reader(file, delimiter=delimiter):
                if row:
                    yield row[column].strip() if len(row) > column else ""
    except (UnicodeDecodeError, gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise ValueError(
            f"{path} is not a text file (or, if its name ends in .gz, not a complete gzip file): {error}."
        ) from error
    except csv.Error as error:
        raise ValueError(
            f"{path} cannot be read as a table, perhaps because a quote is not closed: {error}."
        ) from error
