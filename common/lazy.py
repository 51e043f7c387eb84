"""Names of a package that are imported on first use, so that importing the package is quick."""

import ast
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any


def lazy_names(package: str, file: str) -> tuple[Callable[[str], Any], list[str]]:
    """Return the `__getattr__` and the names of a package, or of a module, that imports them `if TYPE_CHECKING`.

    Args:
        package: its `__package__`.
        file: its `__file__`, whose imports are read.
    """
    blocks = (node for node in ast.parse(Path(file).read_text(encoding="utf-8")).body if isinstance(node, ast.If))
    imports = (node for block in blocks for node in block.body if isinstance(node, ast.ImportFrom))
    modules = {alias.name: "." * node.level + str(node.module) for node in imports for alias in node.names}

    def find(name: str) -> Any:
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(modules[name], package), name)

    return find, list(modules)
