"""Pages: their templates, and the hash by which a policy allows a script or a style."""

from __future__ import annotations

import base64
import hashlib
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined


def templates(folder: Path) -> Environment:
    """Return the templates of a folder. They escape what they are given, and a name that is not given is an error."""
    return Environment(
        loader=FileSystemLoader(folder), autoescape=True, undefined=StrictUndefined, keep_trailing_newline=True
    )


def policy_hash(text: str) -> str:
    """Return the source of a Content-Security-Policy that allows a script or a style."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
