"""Rules for the values of a field or of an argument, with the message for a value that is not allowed.

This file travels with the configuration of a model (`hub/export.py`), so it imports nothing of Weft.
"""

import dataclasses
import difflib
import math
import sys
from collections.abc import Callable, Iterable
from typing import Any


class NotAllowed(ValueError):
    """A setting has a value that is not allowed.

    Args:
        name: the field.
        value: its value.
        remedy: what to do, a sentence.
    """

    def __init__(self, name: str, value: Any, remedy: str):
        super().__init__(f"{name}={value!r} is not allowed: {remedy}")
        self.name, self.value, self.remedy = name, value, remedy


@dataclasses.dataclass(frozen=True)
class Rule:
    """The allowed values of a field. Called with the default, a rule returns the field of a dataclass.

    Args:
        allows: returns whether a value is allowed.
        allowed: describes the allowed values in a message.
        optional: whether None is allowed too.
        options: names of which a message suggests the closest.
    """

    allows: Callable[[Any], bool]
    allowed: str
    optional: bool = False
    options: tuple[str, ...] = ()

    def __call__(self, default: Any) -> Any:
        return dataclasses.field(default=default, metadata={"rule": self})

    def check(self, field: str, value: Any) -> None:
        """Raise a [`NotAllowed`] for a value that is not allowed."""
        if value is None and self.optional:
            return
        if not self.allows(value):
            values = self.allowed + (" or None" if self.optional else "")
            meant = closest(value, self.options) if isinstance(value, str) else ""
            raise NotAllowed(field, value, f"give {values}.{meant}")


def _is(value: Any, kinds: Any) -> bool:
    return isinstance(value, kinds) and not isinstance(value, bool)


def integer(minimum: int, optional: bool = False, maximum: float = math.inf) -> Rule:
    values = f"an integer of at least {minimum}" if maximum == math.inf else f"an integer from {minimum} to {maximum}"
    return Rule(lambda value: _is(value, int) and minimum <= value <= maximum, values, optional)


def number(minimum: float, below: float = math.inf, above: bool = False, optional: bool = False) -> Rule:
    """Return a rule for a finite number in [minimum, below), or in (minimum, below) with `above`."""

    def allows(value: Any) -> bool:
        is_finite = _is(value, int | float) and abs(value) <= sys.float_info.max
        return is_finite and (value > minimum if above else value >= minimum) and value < below

    start = f"above {minimum}" if above else f"of at least {minimum}"
    end = "" if below == math.inf else f" and below {below}"
    return Rule(allows, f"a finite number {start}{end}", optional)


def choice(options: Iterable[str]) -> Rule:
    names = tuple(options)
    values = "one of " + ", ".join(f'"{name}"' for name in names)
    return Rule(lambda value: isinstance(value, str) and value in names, values, options=names)


def closest(name: str, names: Iterable[str]) -> str:
    """Return " Did you mean `...`?" with the name closest to the given one, or "" if none is close."""
    matches = difflib.get_close_matches(name, sorted(names), n=1)
    return f" Did you mean `{matches[0]}`?" if matches else ""
