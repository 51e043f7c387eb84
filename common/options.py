"""Dataclasses of settings. Each field's metadata has its help and its bounds, from which every interface builds its
options."""

from __future__ import annotations

from dataclasses import fields
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


def check_options(settings: Any) -> None:
    """Check the fields of a dataclass by their metadata: `choices`, and `least`, the smallest number (or None).

    Raises:
        NotAllowed: the message names the field and the allowed values.
    """
    for field in fields(settings):
        value, bounds = getattr(settings, field.name), field.metadata
        if "choices" in bounds and value not in bounds["choices"]:
            raise NotAllowed(field.name, value, f"choose one of {', '.join(bounds['choices'])}.")
        # false for NaN too
        if "least" in bounds and value is not None and not bounds["least"] <= value < float("inf"):
            raise NotAllowed(field.name, value, f"give at least {bounds['least']}.")
