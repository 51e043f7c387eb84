"""Purchasable molecules, read from the lists of suppliers."""

from __future__ import annotations

import itertools
import json
import logging
import math
import re
from array import array
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, cast
from weakref import ref

import numpy as np
import xxhash
from rdkit import Chem, rdBase

from ...common.atomic import atomic_write
from ...common.folders import cache_folder
from ...common.progress import Progress
from ...common.workers import WorkerProcesses
from ..chemistry.forms import (
    OTHER_ANOMER,
    OTHER_SALT,
    OTHER_TAUTOMER,
    STEREOISOMER,
    anion_of,
    form_in_words,
    graph,
    isomers,
    parent_form,
    tautomers,
)
from ..chemistry.molecules import (
    KNOWN,
    canonical_or_given,
    canonical_smiles,
    hash64,
    lost_configuration,
    parse,
    structure,
)
from ..shipped import STOCK, stock_file
from ..tree import Route
from .bloom import is_filter, open_filter
from .offers import OWN, Kind, Offer
from .tables import LOOK_AT, NO_FIELDS, Entry, read_entries

_logger = logging.getLogger(__name__)

_INCHIKEY = re.compile(r"[A-Z]{14}-[A-Z]{10}-[A-Z]")
# The hashes of some entries and of their graphs, the entries that are not molecules, the notes, the number of salts,
# and what is not read of configurations.
_Hashed = tuple[list[int], list[int], list[str], list[Any], int, list[str]]
# Increase this number when the hashes or the cache are made in another way, so that older caches are not read.
_CACHE_VERSION = 9
# What a cache has besides arrays.
_FACTS = ("kind", "num_bad", "bad_lines", "num_salts", "num_flattened", "flattened")
# The number of entries that a worker process gets at once.
_CHUNK = 50


class _Notes:
    """Texts by 64-bit keys, for each key the one with the lowest price. A text takes its length and 24 bytes."""

    def __init__(self) -> None:
        self.keys: Any = array("Q")
        self.prices: Any = array("d")
        self.starts: Any = array("Q")
        self.text: Any = bytearray()

    def add(self, key: int, price: float, fields: Iterable[str]) -> None:
        self.keys.append(key)
        self.prices.append(price)
        self.starts.append(len(self.text))
        self.text += ("\t".join(" ".join(field.split()) for field in fields) + "\n").encode()

    def sort(self) -> None:
        keys, prices, starts = (np.array(column) for column in (self.keys, self.prices, self.starts))
        order = np.lexsort((prices, keys))  # NaN is last
        order = order[np.unique(keys[order], return_index=True)[1]]
        self.keys, self.prices, self.starts = keys[order], prices[order], starts[order]
        self.text = bytes(self.text)

    def get(self, key: int) -> tuple[float, list[str]] | None:
        """Return the price and the fields of a key. The notes have to be sorted."""
        if not _has(self.keys, key):
            return None
        place = np.searchsorted(self.keys, np.uint64(key))
        start = int(self.starts[place])
        return float(self.prices[place]), self.text[start : self.text.index(b"\n", start)].decode().split("\t")


def _has(keys: Any, key: int) -> bool:
    place = np.searchsorted(keys, np.uint64(key))
    return bool(place < len(keys) and keys[place] == np.uint64(key))


class Stock:
    """A set of molecules, stored as 64-bit hashes of canonical SMILES or InChIKeys.

    Each molecule takes sixteen bytes, and more if it is a salt or has a price, vendor or catalogue number. A molecule
    that is not in a stock of n molecules is mistaken for one of them with a probability of n / 2^64, about 10^-12 for
    23 million.

    In a stock of SMILES, a molecule also counts as present if another form of it is: another salt, charge or tautomer.
    Stereochemistry and isotopes are the same in all forms, but a molecule with some of its stereocentres undefined is
    present if one of its stereoisomers is. [`offer`] returns the form.

    Args:
        names: SMILES or InChIKeys. Others are counted in `num_bad`, as in `from_file`.
        kind: the kind of names: `"smiles"` or `"inchikey"`.
        is_strict: whether only the molecules themselves are in stock, and no other forms of them.
    """

    own: frozenset[str] = frozenset()  # molecules of the user, besides those of the file
    accepts: Callable[[Offer], bool] | None = None  # whether an offer is wanted
    path: Path | None = None  # the file, if the stock was read from one
    column: str | None = None  # the column of the molecules in it, if it was given
    num_bad = num_salts = num_flattened = 0
    flattened = ""  # the sentence about the first entry whose configuration is not read

    def __init__(self, names: Iterable[str], kind: str = "smiles", *, is_strict: bool = False):
        self.kind, self.is_strict = kind, is_strict
        self._fill(self._hashed([(name, math.nan, *NO_FIELDS) for name in names]))
        self._warn_of_flattened("stock")

    def _fill(self, chunks: Iterable[_Hashed], progress: Callable[[int], object] | None = None) -> None:
        """Set the entries of the stock. `progress` is called with the number of entries in each chunk."""
        self._notes, self.bad_lines = _Notes(), list[str]()
        hashes, graphs = array("Q"), array("Q")
        for some_hashes, some_graphs, wrong, notes, salts, losses in chunks:
            hashes.extend(some_hashes)
            graphs.extend(some_graphs)
            for note in notes:
                self._notes.add(*note)
            self.num_salts += salts
            self.num_bad += len(wrong)
            self.bad_lines += wrong[: 5 - len(self.bad_lines)]
            self.num_flattened += len(losses)
            self.flattened = self.flattened or next(iter(losses), "")
            if progress is not None:
                progress(len(some_hashes) + len(wrong))
        self._hashes, self._graphs = np.unique(np.array(hashes)), np.unique(np.array(graphs))
        self._notes.sort()

    @classmethod
    def from_file(
        cls,
        path: str | Path,
        *,
        workers: int = 1,
        progress: bool = True,
        cache: bool = True,
        column: str | None = None,
        is_strict: bool = False,
    ) -> Stock:
        """Read a file of SMILES, InChI or InChIKeys: one per line, or one column of a table with a header. Or read an
        SD file.

        For a table or an SD file, also read the lowest price of each molecule, its vendor and its catalogue number,
        from columns or fields with such names.

        The file is read as gzip if its name ends in `.gz`. The hashes are cached beside the file
        (`NAME.weft-stock.npz`), those of included stocks in the user's cache. The cache is used until the file
        changes. Lines that are not molecules, or have a SMILES of more than 2,000 characters, are counted in
        `num_bad`, and the first few of them are in `bad_lines`. Entries of several molecules are counted in
        `num_salts`, and those whose configuration is relative or racemic, which is not read, in `num_flattened`.

        Args:
            path: the file; or a Bloom filter, a `.bloom` file or a catalogue of molbloom such as `zinc-instock`; or
                `paroutes`, the starting materials of the recorded routes of PaRoutes.
            workers: the number of processes that canonicalise SMILES. The processes are spawned, so a script that uses
                more than one needs `if __name__ == "__main__":`.
            progress: whether to show a progress bar.
            cache: whether to read and write the cache.
            column: the column with the molecules (default: `smiles`, `structure`, `inchikey`, ...).
            is_strict: same as for the class.

        Returns:
            The stock.

        Raises:
            ValueError: the file is not a list of molecules. The message quotes it.
            OSError: the file cannot be read.
        """
        path = stock_file(path)
        if is_filter(path):
            return BloomStock(path, is_strict=is_strict)
        cache_file = _cache_of(path)
        stamp = json.dumps([_CACHE_VERSION, rdBase.rdkitVersion, path.stat().st_size, path.stat().st_mtime_ns, column])
        stock = cls._from_cache(cache_file, stamp) if cache and cache_file else None
        if stock is None:
            stock = cls._read(path, workers, progress, column)
            if cache and cache_file:
                stock._to_cache(cache_file, stamp)
        stock.is_strict, stock.path, stock.column = is_strict, path, column
        if stock.num_bad:
            first = "; ".join(repr(line) for line in stock.bad_lines)
            lines = "1 line is not a molecule" if stock.num_bad == 1 else f"{stock.num_bad:,} lines are not molecules"
            _logger.warning("%s: %s. The first of them: %s.", path, lines, first)
        stock._warn_of_flattened(path)
        return stock

    @classmethod
    def _read(cls, path: Path, workers: int, progress: bool, column: str | None) -> Stock:
        entries = read_entries(path, column)
        head = list(itertools.islice(entries, LOOK_AT))
        if not head:
            raise ValueError(f"{path} is empty: a stock contains one SMILES or InChIKey per line.")
        keys = sum(_INCHIKEY.fullmatch(entry) is not None for entry, *_ in head)
        kind = "inchikey" if keys > len(head) / 2 else "smiles"
        unreadable = [entry for entry, *_ in head if _name_and_graph(entry, kind) is None]
        if len(unreadable) > len(head) / 2:
            wrong = f"{len(unreadable)} of its first {len(head)} lines are neither SMILES nor InChIKeys"
            raise ValueError(f"{path} is not a stock: {wrong} ({unreadable[0][:80]!r}). Use --stock-column.")
        stock = cls([], kind)
        lines = itertools.chain(head, entries)
        chunks = iter(lambda: tuple(itertools.islice(lines, _CHUNK)), ())
        with (
            # an InChIKey only has to be matched and hashed: that is too little work for a second process
            WorkerProcesses(stock, 1 if kind == "inchikey" else workers) as pool,
            Progress(f"reading {path.name}", None, "molecules", is_shown=progress) as bar,
        ):
            stock._fill(pool.map(cls._hashed, chunks), bar.update)
        return stock

    def _hashed(self, entries: Sequence[Entry]) -> list[_Hashed]:
        """Return the hashes of the entries, and what else is known of them (see `_Hashed`)."""
        read = [(_name_and_graph(entry, self.kind), entry, price, about) for entry, price, *about in entries]
        rows = [(*found, price, about) for found, _, price, about in read if found is not None]
        wrong = [entry[:200] for found, entry, *_ in read if found is None]
        notes = [note for name, _, price, about in rows for note in self._noted(name, price, about)]
        hashes, graphs = [hash64(name) for name, *_ in rows], [key for _, keys, *_ in rows for key in keys]
        losses = list(filter(None, (lost_configuration(entry) for entry, *_ in entries)))
        return [(hashes, graphs, wrong, notes, sum("." in name for name, *_ in rows), losses)]

    def _warn_of_flattened(self, name: object) -> None:
        if self.num_flattened:
            _logger.warning(
                "%s: entries with a relative configuration: %d. %s", name, self.num_flattened, self.flattened
            )

    def _noted(self, name: str, price: float, about: Sequence[str]) -> Iterator[tuple[int, float, list[str]]]:
        """Yield the notes of an entry: price, unit, vendor and number by its name and, for a salt, also by its
        parent, or by its anion if it is its own.
        """
        if price == price or any(about):
            yield hash64(name), price, ["", "", *about]
        parent = parent_form(name) if self.kind == "smiles" else name
        parent = (anion_of(name) or name) if parent == name else parent
        if parent != name:
            yield hash64(f"parent {parent}"), price, [form_in_words(name, parent), name, *about]

    @classmethod
    def _from_cache(cls, file: Path, stamp: str) -> Stock | None:
        try:
            with np.load(file, allow_pickle=False) as data:
                if any(member.compress_type for member in data.zip.infolist()):
                    return None  # it was not written here, and may unpack to any size
                arrays = dict(data)
            if str(arrays.pop("digest")) != _digest(arrays) or str(arrays["stamp"]) != stamp:
                return None
            stock = cls([])
            stock._hashes, stock._graphs = arrays["hashes"], arrays["graphs"]
            vars(stock._notes).update({name: arrays[name] for name in vars(stock._notes)})
            stock._notes.text = arrays["text"].tobytes()
            facts = json.loads(str(arrays["facts"]))
            vars(stock).update({name: facts[name] for name in _FACTS})
            return stock if stock._is_sound() else None
        except Exception:  # there is no cache yet, or it is damaged, for which numpy and zipfile have many errors
            return None  # read the file itself

    def _is_sound(self) -> bool:
        """Return whether the sizes, the order and the places of arrays from a cache are right."""
        notes, text = self._notes, self._notes.text
        for keys in (self._hashes, self._graphs, notes.keys):
            if keys.dtype != np.uint64 or keys.ndim != 1 or not (keys[1:] > keys[:-1]).all():
                return False
        has_texts = not notes.starts.size or (text.endswith(b"\n") and int(notes.starts.max()) < len(text))
        return has_texts and notes.keys.shape == notes.prices.shape == notes.starts.shape

    def _to_cache(self, path: Path, stamp: str) -> None:
        arrays: dict[str, np.ndarray] = {
            "stamp": np.array(stamp), "hashes": self._hashes, "graphs": self._graphs,
            "facts": np.array(json.dumps({name: getattr(self, name) for name in _FACTS})),
            **vars(self._notes) | {"text": np.frombuffer(self._notes.text, np.uint8)},
        }  # fmt: skip
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with atomic_write(path) as temporary, temporary.open("wb") as file:
                np.savez(file, digest=np.array(_digest(arrays)), **arrays)  # type: ignore[arg-type]
        except OSError as error:
            _logger.warning("The cache %s cannot be written (%s): the next run reads the stock again.", path, error)

    def __len__(self) -> int:
        return len(self._hashes)

    @property
    def size(self) -> int | None:
        """The number of molecules, None if it is unknown."""
        return len(self)

    def __str__(self) -> str:
        """Return the numbers of molecules, salts and lines that are not molecules, for people."""
        counts = {"salts or mixtures": self.num_salts, "lines that are not molecules": self.num_bad}
        notes = ", ".join(f"{what}: {number:,}" for what, number in counts.items() if number)
        return f"{len(self):,} molecules{notes and f' ({notes})'}"

    def __contains__(self, smiles: str) -> bool:
        """Return whether a molecule, given as any of its SMILES, is in the stock. Return False for other texts."""
        return self.offer(smiles) is not None

    def offer(self, smiles: str) -> Offer | None:
        """Return the stock's data for a molecule, given as any of its SMILES, or None if it is not in the stock.

        The molecule itself comes first, then its salts and charges, then other tautomers, then stereoisomers.
        """
        is_own = self.own and canonical_or_given(smiles) in self.own
        offer = Offer(smiles, vendor=OWN) if is_own else _cached_offer(ref(self), smiles)
        return offer if offer is None or self.accepts is None or self.accepts(offer) else None

    def _find_offer(self, smiles: str) -> Offer | None:
        name = name_of(smiles, self.kind)
        if name is None:
            return None
        if _has(self._hashes, hash64(name)):
            return self._noted_offer(smiles, name)
        if self.is_strict:
            return None
        canonical = name if self.kind == "smiles" else cast(str, name_of(smiles, "smiles"))
        parent = parent_form(canonical)
        forms = [(parent, OTHER_ANOMER if form_in_words(canonical, parent) == OTHER_ANOMER else OTHER_SALT)]
        if self.kind == "smiles":  # most tautomers have the same InChIKey
            if (note := self._notes.get(hash64(f"parent {parent}"))) is not None:
                return _offer(smiles, note)
            # no molecule of the stock has the atoms and bonds of most molecules, whose tautomers would take most of a
            # search
            if _has(self._graphs, hash64(graph(structure(parent)))):
                forms += [(tautomer, OTHER_TAUTOMER) for tautomer in tautomers(parent)]
        for other, form in itertools.chain(forms, ((isomer, STEREOISOMER) for isomer in isomers(canonical))):
            name = other if self.kind == "smiles" else cast(str, name_of(other, self.kind))
            if _has(self._hashes, hash64(name)):
                return self._noted_offer(smiles, name, form, other)
        return None

    def _noted_offer(self, smiles: str, name: str, form: str = "", sold_as: str = "") -> Offer:
        price, (_, _, *details) = self._notes.get(hash64(name)) or (np.nan, ["", "", *NO_FIELDS])
        return _offer(smiles, (price, [form, sold_as, *details]))

    def missing(self, route: Route) -> list[str]:
        """Return the starting materials of a route that are not in the stock, each once, from left to right."""
        return [smiles for smiles in dict.fromkeys(route.leaves()) if smiles not in self]

    def offers(self, route: Route) -> list[Offer]:
        """Return the offers of the starting materials for which the stock has more data."""
        offers = [self.offer(smiles) for smiles in dict.fromkeys(route.leaves())]
        return [offer for offer in offers if offer is not None and offer.description]

    def without(self, target: str) -> Callable[[str], bool]:
        """Return a function that tests whether a canonical SMILES is in the stock and not a form of the target."""
        forms = {target}
        if not self.is_strict and (name := name_of(target, "smiles")) is not None:
            parent = parent_form(name)
            forms = {target, parent, *tautomers(parent)}
        return lambda smiles: (
            smiles not in forms
            and smiles in self
            and (self.is_strict or forms.isdisjoint({parent_form(smiles), *isomers(smiles)}))
        )


class BloomStock(Stock):
    """A stock in a Bloom filter of molbloom (https://github.com/whitead/molbloom), such as the 9.2 million molecules
    in stock of ZINC20.

    A filter has no prices and does not know its size, and a few molecules that are not in it count as present: 0.03%
    with `zinc-instock`, and 7% with `zinc-instock-mini`, which comes with molbloom. A molecule also matches its salts,
    but not its tautomers or stereoisomers.

    Args:
        name: a `.bloom` file, or the name of a catalogue, which molbloom downloads once.
        is_strict: same as for [`Stock`].

    Raises:
        ImportError: molbloom is not installed.
        ValueError: the file is cut off or damaged, or is not a Bloom filter.
        OSError: the file cannot be read, or the catalogue cannot be downloaded.
    """

    def __init__(self, name: str | Path, *, is_strict: bool = False):
        self.kind, self.is_strict, self.name = "smiles", is_strict, str(name)
        self._contains = open_filter(self.name)

    def __reduce__(self) -> Any:  # a filter has no state that can be pickled
        return partial(BloomStock, self.name, is_strict=self.is_strict), ()

    def __len__(self) -> int:
        raise TypeError("The number of molecules in a Bloom filter is unknown.")

    def __bool__(self) -> bool:
        return True

    def __str__(self) -> str:
        return f"{Path(self.name).name}, a Bloom filter: a few molecules that are not in it count as present"

    @property
    def size(self) -> None:
        """None: the number of molecules is unknown."""

    def _find_offer(self, smiles: str) -> Offer | None:
        name = name_of(smiles, self.kind)
        if name is None:
            return None
        if self._contains(name):
            return Offer(smiles)
        parent = name if self.is_strict else parent_form(name)
        return Offer(smiles, OTHER_SALT, parent) if parent != name and self._contains(parent) else None


# What a user may give for a stock: also its file or name as in [`Stock.from_file`], or SMILES.
StockLike = Stock | str | Path | Iterable[str]


def as_stock(stock: StockLike | None) -> Stock | None:
    """Return the stock that a user means."""
    if stock is None or isinstance(stock, Stock):
        return stock
    return Stock.from_file(stock) if isinstance(stock, (str, Path)) else Stock(stock)


def with_own(
    stock: Stock | None, own: Collection[str], accepts: Callable[[Offer], bool] | None = None
) -> Stock | None:
    """Return a stock that also has the user's own molecules, canonical SMILES, or None if there is neither. It has
    only offers that `accepts` returns True for.
    """
    if own or accepts is not None:
        stock = Stock([]) if stock is None else stock
        mine = type(stock).__new__(type(stock))  # a copy, which shares the arrays or the filter
        vars(mine).update(vars(stock), own=frozenset(own), accepts=accepts)
        return mine
    return stock


def _cache_of(path: Path) -> Path | None:
    """Return the file of the cache of a stock, None if there is no place for it."""
    name = f"{path.name}.weft-stock.npz"
    if path.parent != STOCK.parent:
        return path.with_name(name)
    try:  # the package belongs to all users, and there may be several of it
        return cache_folder("stocks") / f"{hash64(str(path)):016x}-{name}"
    except RuntimeError:
        return None


def _digest(arrays: Mapping[str, np.ndarray]) -> str:
    """Return a digest of the arrays of a cache, with their names, types and shapes."""
    digest = xxhash.xxh3_128()
    for name in sorted(arrays):
        array = arrays[name]
        digest.update(f"{name} {array.dtype} {array.shape} ".encode() + array.tobytes())
    return digest.hexdigest()


@lru_cache(KNOWN)
def _cached_offer(stock: ref[Stock], smiles: str) -> Offer | None:
    return cast(Stock, stock())._find_offer(smiles)


def _offer(smiles: str, note: tuple[float, list[str]]) -> Offer:
    price, (form, sold_as, *texts) = note
    unit, vendor, number, kind, reactions = texts
    return Offer(
        smiles, form or None, sold_as or None, None if np.isnan(price) else price, unit or None, vendor or None,
        number or None, cast(Kind, kind or "sold"), int(reactions) if reactions.isdecimal() else None,
    )  # fmt: skip


def name_of(smiles: str, kind: str) -> str | None:
    """Return the canonical SMILES or the InChIKey of a molecule, or None if it cannot be read."""
    try:
        return cast(Any, Chem).MolToInchiKey(parse(smiles)) if kind == "inchikey" else canonical_smiles(smiles)
    except ValueError:
        return None


def _name_and_graph(entry: str, kind: str) -> tuple[str, list[int]] | None:
    """Return the canonical SMILES or the InChIKey of an entry, with the hash of its graph if it has a SMILES, or None
    if the entry is not a molecule. A large stock takes its time here, so a molecule is read once.
    """
    if kind == "inchikey":
        return (entry, []) if _INCHIKEY.fullmatch(entry) else None
    try:
        molecule = parse(entry)
    except ValueError:
        return None
    return Chem.MolToSmiles(molecule), [hash64(graph(molecule))]
