"""Fields of a configuration, as given on a command line."""

import json
import re
from typing import Any

_WORDS = {"true": True, "false": False, "none": None, "null": None}


def parse_overrides(text: dict | str | None, argument: str = "config_overrides") -> dict[str, Any]:
    """Return configuration fields from JSON or from `key=value,key=value`. Values that are valid JSON are parsed.

    Args:
        argument: the name of the argument, for messages.

    Raises:
        ValueError: the text is neither.
    """
    if not text:
        return {}
    if isinstance(text, dict):
        return dict(text)
    if text.lstrip().startswith("{"):
        try:
            return json.loads(text)
        except ValueError as error:
            raise ValueError(f"{argument} is not valid JSON ({error}): {text}") from error
    overrides: dict[str, Any] = {}
    for item in re.split(r",(?=\s*\w+\s*=)", text):  # commas in values, as in ["dense","sparse"], separate nothing
        name, equals, value = (part.strip() for part in item.partition("="))
        if not equals or not name.isidentifier():
            raise ValueError(f"{argument} must be JSON or key=value,key=value: {item!r} is neither.")
        is_word = name.endswith("_type") and value.lower() == "none"  # a type of its own, not a missing value
        overrides[name] = "none" if is_word else _value(value)
    return overrides


def _value(text: str) -> Any:
    if text.lower() in _WORDS:
        return _WORDS[text.lower()]
    try:
        return json.loads(text)
    except ValueError:
        return text
