"""What can be bought: lists of molecules as suppliers write them."""

from __future__ import annotations

import csv
import gzip
import itertools
import json
import logging
import re
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, cast

import numpy as np
from rdkit import Chem, rdBase
from tqdm.auto import tqdm

from ..common.whole_files import whole_file
from ..common.workers import Workers
from .molecules import hash64
from .tree import Route

_logger = logging.getLogger(__name__)

_INCHIKEY = re.compile(r"[A-Z]{14}-[A-Z]{10}-[A-Z]")
_COLUMNS = ("inchikey", "inchi_key", "smiles", "canonical_smiles", "mol")
# Lines that decide what a file holds; more than half of them unreadable, and it is no stock.
_LOOK_AT = 1000
# Changes when entries are made in another way, so that older caches are not read.
_CACHE_VERSION = 1
# Entries that are handed to a process together.
_CHUNK = 50
# Buckets of the table: its upper bits, so that about one entry falls into each.
_MOST_BITS = 24


class Stock:
    """A set of molecules, as 64-bit hashes of their canonical SMILES or InChIKeys: eight bytes and a few bits each.

    Membership takes the same time however many there are. A molecule that is not in a stock of n is taken for one with
    a probability of n / 2^64, about 10^-12 for 23 million.

    Args:
        names: canonical SMILES, or InChIKeys.
        kind: "smiles" or "inchikey".
    """

    def __init__(self, names: Iterable[str], kind: str = "smiles"):
        hashes = np.fromiter((hash64(name) for name in names), dtype=np.uint64)
        self._fill(np.unique(hashes), kind)
        self.num_bad, self.bad_lines = 0, cast(list[str], [])

    def _fill(self, hashes: np.ndarray, kind: str) -> None:
        self.kind, self._hashes = kind, hashes
        self._shift = np.uint64(64 - min(_MOST_BITS, max(1, len(hashes).bit_length())))
        edges = np.arange((1 << (64 - int(self._shift))), dtype=np.uint64) << self._shift
        self._starts = np.append(np.searchsorted(hashes, edges), len(hashes)).astype(np.uint32)

    @classmethod
    def from_file(cls, path: str | Path, *, workers: int = 1, progress: bool = True) -> Stock:
        """Read a file of SMILES or InChIKeys: one a line, or a column of a table with a header; gzip by the name.

        What was read is kept beside the file (`NAME.weft-stock.npz`), and read from there as long as the file does not
        change. Lines that are no molecules are counted (`num_bad`), and the first few kept (`bad_lines`).

        Args:
            workers: processes that canonicalise SMILES. A script that asks for more than one needs
                `if __name__ == "__main__":`, as they are spawned.
            progress: show a bar.

        Raises:
            ValueError: the file holds no list of molecules; the message says what was found. OSError: it cannot be read.
        """
        path = Path(path)
        known = path.with_name(f"{path.name}.weft-stock.npz")
        stamp = json.dumps([_CACHE_VERSION, rdBase.rdkitVersion, path.stat().st_size, path.stat().st_mtime_ns])
        stock = cls._from_cache(known, stamp)
        if stock is None:
            stock = cls._read(path, workers, progress)
            stock._to_cache(known, stamp)
        if stock.num_bad:
            first = "; ".join(repr(line) for line in stock.bad_lines)
            _logger.warning("%s: %d lines are no molecules, the first: %s.", path, stock.num_bad, first)
        return stock

    @classmethod
    def _read(cls, path: Path, workers: int, progress: bool) -> Stock:
        entries = _entries(path)
        head = list(itertools.islice(entries, _LOOK_AT))
        if not head:
            raise ValueError(f"{path} is empty: a stock holds one SMILES or InChIKey a line.")
        keys = sum(_INCHIKEY.fullmatch(entry) is not None for entry in head)
        kind = "inchikey" if keys > len(head) / 2 else "smiles"
        unreadable = [entry for entry in head if _name(entry, kind) is None]
        if len(unreadable) > len(head) / 2:
            raise ValueError(
                f"{path} is no stock: {len(unreadable)} of its first {len(head)} lines are neither SMILES nor InChIKeys, "
                f"the first of them {unreadable[0][:80]!r}. Give one molecule a line, or a table with a column 'smiles' or "
                "'inchikey'."
            )
        stock, bad = cls([], kind), cast(list[str], [])
        hashes, num_bad = np.zeros(0, np.uint64), 0
        parts: list[np.ndarray] = []
        with tqdm(desc=f"reading {path.name}", unit=" molecules", disable=not progress) as bar:
            for found, wrong in _canonical(itertools.chain(head, entries), kind, workers):
                parts.append(found)
                num_bad += len(wrong)
                bad += wrong[: 5 - len(bad)]
                bar.update(len(found) + len(wrong))
                if len(parts) > 100_000:
                    hashes, parts = np.unique(np.concatenate([hashes, *parts])), []
        stock._fill(np.unique(np.concatenate([hashes, *parts])), kind)
        stock.num_bad, stock.bad_lines = num_bad, bad
        return stock

    @classmethod
    def _from_cache(cls, known: Path, stamp: str) -> Stock | None:
        try:
            with np.load(known, allow_pickle=False) as data:
                if str(data["stamp"]) != stamp:
                    return None
                stock = cls([])
                stock._fill(data["hashes"], str(data["kind"]))
                stock.num_bad, stock.bad_lines = int(data["num_bad"]), [str(line) for line in data["bad_lines"]]
                return stock
        except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile):
            return None  # none yet, or damaged: read the file itself

    def _to_cache(self, known: Path, stamp: str) -> None:
        try:
            with whole_file(known) as temporary, temporary.open("wb") as file:
                np.savez(
                    file, stamp=np.array(stamp), kind=np.array(self.kind), hashes=self._hashes,
                    num_bad=np.array(self.num_bad), bad_lines=np.array(self.bad_lines, dtype=np.str_),
                )  # fmt: skip
        except OSError as error:
            _logger.warning(
                "What was read cannot be kept in %s (%s): the next run reads the stock again.", known, error
            )

    def __len__(self) -> int:
        return len(self._hashes)

    def __contains__(self, smiles: str) -> bool:
        """Whether a molecule, in any SMILES of it, is there; False for what is no molecule."""
        name = _canonical_name(smiles, self.kind)
        if name is None:
            return False
        wanted = np.uint64(hash64(name))
        bucket = int(wanted >> self._shift)
        return bool((self._hashes[self._starts[bucket] : self._starts[bucket + 1]] == wanted).any())

    def missing(self, route: Route) -> list[str]:
        """The starting materials of a route that are not there, each once, from left to right."""
        return [smiles for smiles in dict.fromkeys(route.leaves()) if smiles not in self]


def _canonical_name(smiles: str, kind: str) -> str | None:
    with rdBase.BlockLogs():
        molecule = Chem.MolFromSmiles(smiles)
    if molecule is None or molecule.GetNumAtoms() == 0:
        return None
    return cast(Any, Chem).MolToInchiKey(molecule) if kind == "inchikey" else Chem.MolToSmiles(molecule)


def _name(entry: str, kind: str) -> str | None:
    """What an entry of a file is known by, None where it is no molecule."""
    if kind == "inchikey":
        return entry if _INCHIKEY.fullmatch(entry) else None
    return _canonical_name(entry, kind)


def _entries(path: Path) -> Iterator[str]:
    """What stands for a molecule in each line that is not empty."""
    try:
        # Excel marks its UTF-8
        encoding = "utf-8-sig"
        with (
            gzip.open(path, "rt", encoding=encoding) if path.suffix == ".gz" else path.open(encoding=encoding) as file
        ):
            first = next((line for line in file if line.strip()), "")
            for delimiter in (",", "\t", ";"):
                header = [name.strip().lower() for name in next(csv.reader([first], delimiter=delimiter), [])]
                column = next((header.index(name) for name in _COLUMNS if name in header), None)
                if column is not None:
                    break
            else:  # a list: what follows the SMILES is a name
                lines = itertools.chain([first], file)
                yield from (re.split(r"[\s,;]", line.strip(), maxsplit=1)[0] for line in lines if line.strip())
                return
            for row in csv.reader(file, delimiter=delimiter):
                if row:
                    yield row[column].strip() if len(row) > column else ""
    except (UnicodeDecodeError, gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise ValueError(
            f"{path} is not a text file (or, with the ending .gz, not a whole gzip file): {error}."
        ) from error
    except csv.Error as error:
        raise ValueError(f"{path} is no table that can be read, a quote may be left open in it: {error}.") from error


class _Names:
    """What a process needs to know to hash entries."""

    def __init__(self, kind: str):
        self.kind = kind

    def hashed(self, entries: tuple[str, ...]) -> list[tuple[np.ndarray, list[str]]]:
        """Hashes of the entries, and those that are no molecules."""
        named = [(entry, _name(entry, self.kind)) for entry in entries]
        found = np.array([hash64(name) for _, name in named if name is not None], dtype=np.uint64)
        return [(found, [entry[:200] for entry, name in named if name is None])]


def _canonical(entries: Iterator[str], kind: str, workers: int) -> Iterator[tuple[np.ndarray, list[str]]]:
    """Hashes and unreadable entries, a few at a time."""
    # InChIKeys are only looked at: a second process would not be worth its start
    with Workers(_Names(kind), 1 if kind == "inchikey" else workers) as pool:
        yield from pool.map(_Names.hashed, iter(lambda: tuple(itertools.islice(entries, _CHUNK)), ()))
