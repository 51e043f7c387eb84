"""A reader for JSON documents that may be larger than memory.

It yields the items of lists and of named targets one by one. The standard library's decoder reads one value at a time
from a moving buffer. That is as fast as decoding the whole document at once. Event
parsers such as `ijson` are slower, and refuse the `NaN` that `json.dump` writes.
"""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Iterable, Iterator
from typing import Any

from .formats import WRAPPERS, holds_routes

# The longest entry, in characters. The limit rejects a file without line breaks or brackets before it fills memory.
MAX_ENTRY = 1 << 26
# Characters added to the buffer at once.
_CHUNK = 1 << 16
# The number of nested lists whose items are read one by one. A deeper list is read as one entry, and refused later.
_MOST_LISTS = 8
# If a text ends too early, the decoder reports a position at most this far before its end.
_LONGEST_TOKEN = 16
# Members of the outermost object that belong to one route, and members that contain many routes.
_OF_ONE = frozenset({"children", "route", "target", "ground_truth"})
_OF_MANY = frozenset(WRAPPERS) - _OF_ONE

_BLANK = re.compile(r"[ \t\r\n]*")
_DECODER = json.JSONDecoder()


def document_entries(chunks: Iterable[bytes]) -> Iterator[tuple[str, Any]]:
    """
    Yield the entries of a document, each with its place, such as `[3][1]` or `targets['a']`.

    Args:
        chunks (`Iterable[bytes]`):
            The bytes of the document.

    Yields:
        `tuple[str, Any]`: the place and the value.

    Raises:
        ValueError: the rest of the document cannot be read. The message begins with the place or the line.
    """
    yield from _Document(chunks).parts()


def is_container(data: Any) -> bool:
    """Return whether a document contains several routes that are entries of their own."""
    if not isinstance(data, dict):
        return isinstance(data, list)
    if isinstance(data.get("target"), str):  # it is the entry of a target
        return False
    return any(key in _OF_MANY or (key not in _OF_ONE and holds_routes(value)) for key, value in data.items())


class _Document:
    def __init__(self, chunks: Iterable[bytes]):
        self.texts = codecs.iterdecode(chunks, "utf-8")
        self.text, self.position = "", 0
        # the number of lines and characters of the file before `text`
        self.lines, self.characters = 0, 0

    def parts(self) -> Iterator[tuple[str, Any]]:
        yield from self._object() if self._next() == "{" else self._value("", 0)
        if self._next():
            raise ValueError(f"{self._here()}: text after the end of the JSON document")

    def _value(self, place: str, depth: int) -> Iterator[tuple[str, Any]]:
        if self._next() != "[" or depth >= _MOST_LISTS:
            yield place, self._decode(place)
            return
        for index, _ in enumerate(self._items("]")):
            yield from self._value(f"{place}[{index}]", depth + 1)

    def _object(self) -> Iterator[tuple[str, Any]]:
        """Yield the members of the outermost object that contain routes.

        If no member does, the object itself is a route. It is then yielded whole.
        """
        others: dict[str, Any] = {}
        found = False
        for _ in self._items("}"):
            key = self._key()
            if key in _OF_MANY and self._next() in ("[", "{"):
                found = True
                yield from self._named(key) if self._next() == "{" else self._value(key, 1)
                continue
            place = f"[{key!r}]"
            value = self._decode(place)
            if is_container({key: value}):
                found = True
                yield place, value
            else:
                others[key] = value
        if not found:
            yield "", others

    def _named(self, place: str) -> Iterator[tuple[str, Any]]:
        for _ in self._items("}"):
            yield from self._value(f"{place}[{self._key()!r}]", 1)

    def _items(self, close: str) -> Iterator[None]:
        """Yield before each item of a list or an object, so that the caller can read the item."""
        self.position += 1
        if self._next() == close:
            self.position += 1
            return
        while True:
            yield
            mark = self._next()
            if mark not in (",", close) or not mark:
                found = repr(mark) if mark else "the end of the file"
                raise ValueError(f"{self._here()}: expected ',' or {close!r}, found {found}")
            self.position += 1
            if mark == close:
                return

    def _key(self) -> str:
        key = self._decode(self._here()) if self._next() == '"' else None
        if not isinstance(key, str) or self._next() != ":":
            raise ValueError(f"{self._here()}: expected a name and ':' in an object")
        self.position += 1
        return key

    def _decode(self, place: str) -> Any:
        """Decode the value at the position, and read as much more of the file as it needs."""
        self._next()
        while True:
            try:
                value, end = _DECODER.raw_decode(self.text, self.position)
            except RecursionError:
                raise _broken(place, "nested too deeply") from None
            except json.JSONDecodeError as error:
                cut_off = error.msg.startswith("Unterminated") or error.pos >= len(self.text) - _LONGEST_TOKEN
                # read twice as much each time, so that the time for repeated decoding stays proportional to the length
                if not (cut_off and self._more(max(_CHUNK, len(self.text) - self.position))):
                    raise _broken(place, f"{error.msg} ({self._here(error.pos)})") from error
                continue
            if end == len(self.text) and isinstance(value, int | float) and self._more(_CHUNK):
                continue  # the number may have more digits
            self.position = end
            return value

    def _next(self) -> str:
        """Return the next character that is not blank, or an empty string at the end of the file."""
        while True:
            match = _BLANK.match(self.text, self.position)
            self.position = match.end() if match else self.position
            if self.position < len(self.text):
                return self.text[self.position]
            if not self._more(1):
                return ""

    def _more(self, length: int) -> bool:
        """Read more of the file and drop the text before the position. Return whether there was more."""
        if len(self.text) - self.position > MAX_ENTRY:
            raise ValueError(f"{self._here()}: an entry is longer than {MAX_ENTRY} characters, so it is not a route")
        self.lines += self.text.count("\n", 0, self.position)
        self.characters += self.position
        texts, self.position = [self.text[self.position :]], 0
        found = 0
        try:
            for text in self.texts:
                texts.append(text)
                found += len(text)
                if found >= length:
                    break
        except UnicodeDecodeError as error:
            raise ValueError(f"{self._here()} or after it: the text is not UTF-8: {error}") from error
        self.text = "".join(texts)
        return found > 0

    def _here(self, position: int | None = None) -> str:
        position = self.position if position is None else position
        line = 1 + self.lines + self.text.count("\n", 0, position)
        return f"line {line}, character {self.characters + position} of the file"


def _broken(place: str, why: str) -> ValueError:
    return ValueError(
        f"{place or 'the document'}: {why}; the file is cut off, or the entries after this place cannot be found"
    )
