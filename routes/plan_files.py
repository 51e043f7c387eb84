"""Reads plans from the files of `weftformer plan` and from the answers of the server."""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path
from typing import IO, Any

from .files.entries import BROKEN_GZIP
from .plans import Plan

# How such a file begins, with fields in any order: a list of plans, plans one a line, or the server's `{"plans": [...]}`.
_HEAD = 1 << 16
_TEXT = r'"(?:[^"\\]|\\.)*"'
_BEGINNING = re.compile(rf'\s*(?:\{{\s*"plans"\s*:\s*)?\[?\s*\{{(?:{_TEXT}|[^"{{}}])*?"candidates"\s*:\s*\[')


def read_plans(path: Path) -> list[Plan] | None:
    """
    Read the plans of a file, with their scores, what their routes lack and why others are no routes.

    Args:
        path (`Path`):
            A JSON list of what `Plan.to_dict` gives, the same as one object a line, or an object with such a list as
            `plans`, as the server answers. It can be gzipped.

    Returns:
        `list[Plan]` or None: the plans, or None for a file of another kind, of which only the beginning is read.

    Raises:
        ValueError: the file is damaged, or a plan lacks something. The message names the file and the place.
        OSError: the file cannot be read.
    """
    try:
        with _opened(path) as file:
            head = file.read(_HEAD)
            if not _BEGINNING.match(head):
                return None
            found = _parsed(head + file.read())
    except (*BROKEN_GZIP, UnicodeDecodeError):
        return None  # those who read routes say what is wrong
    except json.JSONDecodeError as error:
        raise ValueError(f"{path} cannot be read as JSON: {error}") from error
    if any(not isinstance(data, dict) or not isinstance(data.get("target"), str) for data in found):
        return None
    plans = []
    for number, data in enumerate(found, 1):
        try:
            plans.append(Plan.from_dict(data))
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            reason = f"it lacks {error}" if isinstance(error, KeyError) else str(error)
            raise ValueError(f"{path}, plan {number}: not a plan of `weftformer plan --json`: {reason}") from error
    return plans


def _opened(path: Path) -> IO[str]:
    with path.open("rb") as file:
        is_gzip = file.read(2) == b"\x1f\x8b"
    return gzip.open(path, "rt", encoding="utf-8") if is_gzip else path.open(encoding="utf-8")


def _parsed(text: str) -> list[Any]:
    try:
        data = json.loads(text)
    except json.JSONDecodeError:
        return [json.loads(line) for line in text.splitlines() if line.strip()]
    if isinstance(data, dict):
        data = data.get("plans", data)
    return data if isinstance(data, list) else [data]
