"""Packages on top of the family, which bring commands and endpoints of their own.

The family works without them, and knows no more of them than their names here.
"""

from importlib import import_module
from importlib.util import find_spec
from types import ModuleType

# By the kind of output of their models, which is also the first word of their commands.
EXTENSIONS = {"routes": "weftformer.routes"}


def extension(kind: str, part: str) -> ModuleType | None:
    """Return a part of an extension, such as `commands`, or None if the extension is not there."""
    package = EXTENSIONS.get(kind)
    return None if package is None or find_spec(package) is None else import_module(f"{package}.{part}")


def parts_of_extensions(part: str) -> dict[str, ModuleType]:
    """Return a part of each extension that is there, by its kind."""
    parts = {kind: extension(kind, part) for kind in EXTENSIONS}
    return {kind: module for kind, module in parts.items() if module is not None}
