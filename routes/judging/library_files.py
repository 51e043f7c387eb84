"""Files of recorded transformations, and the library that the package includes."""

from __future__ import annotations

import gc
import hashlib
import json
from collections.abc import Iterable, Sequence
from functools import cache, lru_cache
from importlib.resources import files
from os import PathLike
from pathlib import Path
from typing import Any

from rdkit import rdBase

from ...common.tables import named_errors, text_of
from ..chemistry.molecules import MOST_CHARACTERS, read_molecule
from .library import Library
from .ranker import RANKER, Ranker
from .templates import check_template, patterns
from .transformation import Example, ReagentSet, Row, Transformation

SHIPPED, TEXTBOOK = "transformations.jsonl.gz", "textbook.jsonl.gz"
# The number of libraries with transformations of a user that a process keeps.
_LIBRARIES = 4
# The values of the last fields of a line, if it lacks them: name, core, reagents and textbook.
_DEFAULTS: tuple[Any, ...] = (None, None, (), None)


@cache
def shipped_library() -> Library:
    """Return the library that the package includes: 250,630 reactions of USPTO-50K's training part, USPTO-15K,
    PaRoutes n5 and parts of USPTO-full and USPTO-480K, and beside them named reactions of textbooks.
    """
    return load_library(
        *(str(files("weftformer.routes.shipped").joinpath(name)) for name in (SHIPPED, RANKER, TEXTBOOK))
    )


def library_of(path: str | PathLike[str]) -> Library:
    """Return the included library with the transformations of a user's file.

    Args:
        path: a file that `weftformer routes library` has written.

    Raises:
        OSError: the file cannot be read.
        ValueError: it is not such a library.
    """
    file = Path(path).resolve()
    return _library_with(file, file.stat().st_mtime_ns)


@lru_cache(_LIBRARIES)
def _library_with(path: Path, changed: int) -> Library:
    rows, library = list(read_rows(path)), shipped_library()
    for _, transformation in rows:
        if not _is_readable(transformation):
            raise ValueError(
                f"{path}: RDKit cannot read the transformation {transformation.smarts[:80]!r}, its core or an "
                "example. Make the library anew with `weftformer routes library`."
            )
    return UsersLibrary(library, rows, _digest(f"{library.version} ".encode() + path.read_bytes()))


class UsersLibrary(Library):
    """A library that also has the transformations of a user. It is sent to other processes without those of the
    package.

    Args:
        library: the other transformations.
        rows: the transformations of the user.
        version: as in [`Library`].
    """

    def __init__(self, library: Library, rows: Sequence[Row], version: str | None = None):
        super().__init__(
            combined(rows, library.rows()), Library(rows, by_similarity=True), library.ranker,
            version=version, textbook=library.textbook,
        )  # fmt: skip
        self._rows = rows

    def __reduce__(self) -> Any:
        return _users_library, (self._rows, self.version)


def _users_library(rows: Sequence[Row], version: str | None) -> Library:
    return UsersLibrary(shipped_library(), rows, version)


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:8]


def load_library(path: str | Path, ranker: str | Path | None = None, textbook: str | Path | None = None) -> Library:
    """Read a library that `weftformer routes library` has written.

    Args:
        path: the file of the library.
        ranker: the file of its ranker.
        textbook: the file of a library of textbook reactions.

    Raises:
        OSError: a file cannot be read.
        ValueError: it is not such a library, or the ranker belongs to another one.
    """
    # the collector would look at all of the new objects again and again, which takes half of the time
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        rows, data, ranked = list(read_rows(path)), Path(path).read_bytes(), None
        if ranker is not None:
            classes = Ranker.load(ranker, [transformation.smarts for _, transformation in rows])
            ranked = classes, [rows[place][1] for place in classes.places]
        if textbook is None:
            return Library(rows, ranker=ranked, version=_digest(data))
        version = _digest(data + Path(textbook).read_bytes())
        of_textbook = Library(read_rows(textbook), by_similarity=True)
        return Library(rows, ranker=ranked, version=version, textbook=of_textbook)
    finally:
        if was_enabled:
            gc.enable()


def combined(*libraries: Iterable[Row]) -> list[Row]:
    """Return the transformations of several libraries, each once, with the facts of earlier libraries first."""
    by_key: dict[tuple[str, str], Transformation] = {}
    for library in libraries:
        for key, transformation in library:
            earlier = by_key.get((key, transformation.smarts))
            by_key[key, transformation.smarts] = transformation if earlier is None else earlier.plus(transformation)
    return [(key, transformation) for (key, _), transformation in by_key.items()]


def named(rows: Iterable[Row], like: Library | None = None) -> list[Row]:
    """Return the rows of a library, the most common first, with a name and a class wherever a similar one has them.

    A transformation without them gets those of the most common one that makes the same change in its first example:
    the same transformation with other atom maps, or one with the same core.

    Args:
        rows: the transformations.
        like: the library with the names. Defaults to the rows that have one.
    """
    rows = sorted(rows, key=lambda row: (-row[1].count, row[0], row[1].smarts))
    names = like or Library(row for row in rows if row[1].name is not None)
    return [(key, row if row.name is not None else names.with_name(row)) for key, row in rows]


def read_rows(path: str | Path) -> Iterable[Row]:
    """Yield the transformations of a library file, each with its difference of atoms."""
    with open(path, "rb") as file, named_errors(path):
        for number, line in enumerate(text_of(file, str(path), errors="surrogateescape"), 1):
            try:
                yield _row(json.loads(line))
            except (ValueError, TypeError, AttributeError, RecursionError) as error:
                raise ValueError(
                    f"{path} is not a library of transformations: line {number} is {line[:80]!r}. Give a file of "
                    "`weftformer routes library`."
                ) from error


def _row(fields: Sequence[Any]) -> Row:
    """Return a row of a library from the fields of its line.

    Raises:
        TypeError, AttributeError, ValueError: a field has a wrong type or value.
    """
    rest: list[Any]
    key, smarts, count, reaction_class, rows, *rest = fields
    rest = [value for value in rest if not isinstance(value, dict)]  # earlier versions counted groups
    name, core, reagents, textbook = (*rest, *_DEFAULTS[len(rest) :])
    examples, sets = tuple(map(Example._make, rows)), tuple(map(ReagentSet._make, reagents))
    texts: list[Any] = [key, smarts, *(row[0] for row in (*examples, *sets))]
    texts += [text for text in (name, core, textbook, *(example.source for example in examples)) if text is not None]
    counts = [count, *(compounds.num_reactions for compounds in sets)]
    "".join(texts).encode()  # no other type, and no half of a surrogate pair
    if any(type(number) is not int for number in counts) or type(reaction_class) not in (int, type(None)):
        raise TypeError("a count or a class is not a whole number")
    if count < 1 or len(smarts) > MOST_CHARACTERS:
        raise ValueError("a count or the length of a template is out of bounds")
    return key, Transformation(smarts, count, reaction_class, examples, name, core, sets, textbook)


def _is_readable(transformation: Transformation) -> bool:
    """Return whether RDKit can read the template, the core and the examples of a transformation."""
    try:
        with rdBase.BlockLogs():
            check_template(transformation.smarts)
            sides = [patterns(smarts) for smarts in (transformation.smarts, transformation.core) if smarts is not None]
    except (ValueError, RuntimeError):
        return False
    if any(product is None or None in reactants for product, reactants in sides):
        return False
    reactions = [example.smiles.split(">>") for example in transformation.examples]
    return all(len(reaction) == 2 and all(map(read_molecule, reaction)) for reaction in reactions)
