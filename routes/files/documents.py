"""The parts of a JSON document that may be larger than memory: its lists and named targets are walked through.

JSON is cut with the standard library's own decoder on a moving buffer. That is as fast as reading the document whole, and a
part that is no JSON can be stepped over where its brackets close, which event parsers such as `ijson` do not offer.
"""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Iterable, Iterator
from typing import Any

from .formats import WRAPPERS, holds_routes

# The longest part, in characters; a file without line breaks or brackets is refused, not swallowed.
MAX_ENTRY = 1 << 26
# Characters added to the buffer at once.
_CHUNK = 1 << 16
# Lists within lists that are walked through; what is deeper is one part, and refused there.
_MOST_LISTS = 8
# The decoder points at most so far before the end of a text that ends too early.
_LONGEST_TOKEN = 16
# Members of the outermost object that belong to one route, and those that hold many.
_OF_ONE = frozenset({"children", "route", "target", "ground_truth"})
_OF_MANY = frozenset(WRAPPERS) - _OF_ONE

_BLANK = re.compile(r"[ \t\r\n]*")
# The last is a string that goes on after the end of the buffer.
_BRACKETS = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"|[\[\]{}]|"', re.DOTALL)
_DECODER = json.JSONDecoder()


def document_entries(chunks: Iterable[bytes]) -> Iterator[tuple[str, Any]]:
    """The parts of a document, each with its place, such as `[3][1]` or `targets['a']`.

    Args:
        chunks: the bytes of the document.

    Yields:
        Place and value; instead of a value, the ValueError that says why a part is no JSON.

    Raises:
        ValueError: what follows cannot be read; the message begins with the place or the line.
    """
    yield from _Document(chunks).parts()


def is_container(data: Any) -> bool:
    """Whether a document holds many routes, each a part of its own."""
    if not isinstance(data, dict):
        return isinstance(data, list)
    return any(key in _OF_MANY or (key not in _OF_ONE and holds_routes(value)) for key, value in data.items())


class _Document:
    def __init__(self, chunks: Iterable[bytes]):
        self.texts = codecs.iterdecode(chunks, "utf-8")
        self.text, self.position = "", 0
        # lines and characters of the file before `text`
        self.lines, self.characters = 0, 0

    def parts(self) -> Iterator[tuple[str, Any]]:
        yield from self._object() if self._next() == "{" else self._value("", 0)
        if self._next():
            raise ValueError(f"{self._here()}: there is more after the end of the JSON document")

    def _value(self, place: str, depth: int) -> Iterator[tuple[str, Any]]:
        if self._next() != "[" or depth >= _MOST_LISTS:
            yield place, self._decode(place)
            return
        for index, _ in enumerate(self._items("]")):
            yield from self._value(f"{place}[{index}]", depth + 1)

    def _object(self) -> Iterator[tuple[str, Any]]:
        """The members of the outermost object that hold routes, or the object itself, a route."""
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
            if isinstance(value, ValueError) or is_container({key: value}):
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
        """Stop before each item of a list or an object, which the caller then reads."""
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
        """The value that stands here, with as much more of the file as it needs; a ValueError where it is none."""
        self._next()
        while True:
            try:
                value, end = _DECODER.raw_decode(self.text, self.position)
            except RecursionError:
                return self._step_over(place, "nested too deeply")
            except json.JSONDecodeError as error:
                cut_off = error.msg.startswith("Unterminated") or error.pos >= len(self.text) - _LONGEST_TOKEN
                # twice as much each time, so that what is decoded in vain stays in proportion
                if not (cut_off and self._more(max(_CHUNK, len(self.text) - self.position))):
                    return self._step_over(place, f"{error.msg} ({self._here(error.pos)})")
                continue
            if end == len(self.text) and isinstance(value, int | float) and self._more(_CHUNK):
                continue  # a number may go on
            self.position = end
            return value

    def _step_over(self, place: str, why: str) -> ValueError:
        """Go to where the brackets close; in a file in which they do not, nothing after them can be told apart."""
        depth, position = 0, self.position
        while self.text[self.position : self.position + 1] in ("{", "["):
            found = _BRACKETS.search(self.text, position)
            if found is None or found[0] == '"':
                position = (found.start() if found else len(self.text)) - self.position
                if not self._more(max(_CHUNK, len(self.text) - self.position)):
                    break
                continue
            position = found.end()
            depth += (found[0] in "[{") - (found[0] in "]}")
            if depth == 0:
                self.position = position
                return ValueError(why)
        raise ValueError(
            f"{place or 'the document'}: {why}; the file is cut off, or what follows cannot be told apart"
        )

    def _next(self) -> str:
        """The next character that is not blank; empty at the end of the file."""
        while True:
            match = _BLANK.match(self.text, self.position)
            self.position = match.end() if match else self.position
            if self.position < len(self.text):
                return self.text[self.position]
            if not self._more(1):
                return ""

    def _more(self, length: int) -> bool:
        """Read further and forget what was passed; whether there was anything."""
        if len(self.text) - self.position > MAX_ENTRY:
            raise ValueError(f"{self._here()}: longer than {MAX_ENTRY} characters: this is no route")
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
            raise ValueError(f"{self._here()} or after it: this is no UTF-8 text: {error}") from error
        self.text = "".join(texts)
        return found > 0

    def _here(self, position: int | None = None) -> str:
        position = self.position if position is None else position
        line = 1 + self.lines + self.text.count("\n", 0, position)
        return f"line {line}, character {self.characters + position} of the file"
