"""Writes the model's code beside its weights, so that the folder loads with transformers alone.

The code is one file: the modules of `configuration` and `modeling`, and `common/rules.py`, one after the other. A
folder for it would not last: when transformers saves a loaded model again, it copies files flat and corrects only one
name in `auto_map`. The file contains the model and the plain path of decoding. The fast path and the splitting over
processes come only with the installed package: they use many private names of transformers, which a later version may
not have. `modeling/transformers_names.py` imports the other private names.

A model of a subclass travels with the file of that class and the files that it imports, whose imports are rewritten.
"""

import ast
import os
import sys
import sysconfig
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from graphlib import TopologicalSorter
from importlib import import_module
from importlib.util import find_spec
from itertools import accumulate
from pathlib import Path
from typing import Any

from transformers import logging
from transformers.dynamic_module_utils import get_relative_import_files

from ..common.atomic import staging_folder

logger = logging.get_logger(__name__)

ROOT = Path(__file__).resolve().parent.parent
_PACKAGE = __name__.split(".", maxsplit=1)[0]
_PACKAGES = ("configuration", "modeling")
_STAYS_HERE = ("__init__", "parallel")
# Code that transformers has loaded from a folder or from the Hub.
_LOADED = "transformers_modules."
# The file of the model's code.
CODE_FILE = "modeling_weft.py"
_HEADER = "# The modules of Weft that transformers needs for this model where `weftformer` is not installed.\n"
AUTO_MAP = {
    "AutoConfig": "modeling_weft.WeftConfig",
    "AutoModel": "modeling_weft.WeftModel",
    "AutoModelForSeq2SeqLM": "modeling_weft.WeftForConditionalGeneration",
}
# The class of the model that is being saved, whose configuration writes the code.
_saved_class: ContextVar[type | None] = ContextVar("_saved_class", default=None)


@cache
def exported_modules() -> dict[str, Path]:
    """Return the files whose code travels, by the names of their modules."""
    paths = [path for package in _PACKAGES for path in sorted((ROOT / package).glob("*.py"))]
    paths = [ROOT / "common" / "rules.py", *(path for path in paths if path.stem not in _STAYS_HERE)]
    return {f"{_PACKAGE}.{path.parent.name}.{path.stem}": path for path in paths}


@cache
def code_text() -> str:
    """Return the text of the one file: each module comes after those that it imports."""
    texts, imports = dict[str, str](), dict[str, list[str]]()
    for module, path in exported_modules().items():
        text = path.read_text(encoding="utf-8")
        lines, imports[module] = text.split("\n"), []
        for node in reversed(ast.parse(text).body):  # from the end, so that numbers stay right
            if isinstance(node, ast.ImportFrom) and node.level:
                imports[module].append(_source(module, node))
                names = [f"{alias.asname} = {alias.name}" for alias in node.names if alias.asname]
                lines[node.lineno - 1 : node.end_lineno] = names
        texts[module] = "\n".join([f"# {path.relative_to(ROOT).as_posix()}", *lines])
    return "\n\n".join([_HEADER, *(texts[module] for module in TopologicalSorter(imports).static_order())])


def _source(module: str, node: ast.ImportFrom) -> str:
    """Return the full name of the module that an import of a module names."""
    package = module.split(".")[: -node.level] if node.level else []
    return ".".join([*package, *(node.module or "").split(".")]).strip(".")


def export_code(folder: str | os.PathLike, config_class: type | None = None) -> dict[str, str]:
    """Write the model's code into a folder, each file atomically.

    Files that have this code already are left alone, because a push in the background may be listing the folder.
    Within [`saving`], the code of that model is written, too.

    Args:
        folder: the folder, which is made if it does not exist.
        config_class: the class of the configuration. Defaults to the family's.

    Returns:
        The `auto_map` for `config.json`, which names the classes for transformers' Auto classes.

    Raises:
        ValueError: a class cannot be exported, see [`code_of`].
    """
    folder = Path(folder)
    files, auto_map = code_of(_saved_class.get(), config_class)
    folder.mkdir(parents=True, exist_ok=True)
    here = {name: (folder / name).read_bytes() for name in files if (folder / name).is_file()}
    files = {name: text for name, text in files.items() if here.get(name) != text.encode()}
    if files:
        with staging_folder(folder, f".saving-code-{uuid.uuid4().hex}") as staging:
            staging.mkdir(parents=True)
            for name, text in files.items():
                (staging / name).write_text(text, encoding="utf-8")
                os.replace(staging / name, folder / name)
    return auto_map


def check_code(model: Any) -> None:
    """Raise a ValueError if a model's class cannot be exported, as [`code_of`] does."""
    code_of(_class_of(model), type(model.config))


@contextmanager
def saving(model: Any) -> Iterator[None]:
    """While this is open, [`export_code`] writes the code of this model's class."""
    token = _saved_class.set(_class_of(model))
    try:
        yield
    finally:
        _saved_class.reset(token)


def _class_of(model: Any) -> type:
    # FSDP2 puts a class of its own before that of the model
    return next(kind for kind in type(model).__mro__ if not kind.__name__.startswith("FSDP"))


def code_of(model_class: type | None, config_class: type | None) -> tuple[dict[str, str], dict[str, str]]:
    """Return the files of a model's code by their names, and the `auto_map` that names its classes.

    A class that is not the family's travels with its file, and with the files beside it that it imports.

    Args:
        model_class: the class of the model. None for a configuration that is saved alone.
        config_class: the class of the configuration.

    Raises:
        ValueError: a class that was registered with `register_for_auto_class` cannot be exported: it is not defined at
            the top of a file, its file imports something that does not travel, or two files have the same name. The
            message says what to change. For a class that was not registered, there is a warning, and `auto_map` does
            not name it.
    """
    files, auto_map = {CODE_FILE: code_text()}, dict(AUTO_MAP)
    if model_class is not None and model_class.__module__.startswith(_LOADED):  # all of its code travels already
        files = {}
    for kind in (config_class, model_class):
        if kind is None or _is_of_family(kind):
            continue
        is_config = kind is config_class
        if not is_config:
            auto_map = {"AutoConfig": auto_map["AutoConfig"]} if "AutoConfig" in auto_map else {}
        try:
            files = _joined(files, _files_of(kind))
        except ValueError as error:
            problem = f"{kind.__name__} cannot be saved with its code: {error}"
            if getattr(kind, "_auto_class", None) is not None:
                raise ValueError(problem) from error
            logger.warning_once(f"{problem} Only {kind.__name__}.from_pretrained will load it.")
            if is_config:
                del auto_map["AutoConfig"]
            continue
        name = f"{kind.__module__.rsplit('.', 1)[-1]}.{kind.__name__}"
        auto_map |= {"AutoConfig": name} if is_config else dict.fromkeys(_auto_classes(kind), name)
    return files, auto_map


def _is_of_family(kind: type) -> bool:
    return kind.__module__.startswith(tuple(f"{_PACKAGE}.{package}." for package in _PACKAGES))


def _auto_classes(model_class: type) -> set[str]:
    """Return the names of the Auto classes that load a class: that of its base class, and the one it is registered
    for.
    """
    can_generate = any(kind.__name__ == "WeftForConditionalGeneration" for kind in model_class.__mro__)
    auto_class = getattr(model_class, "_auto_class", None)
    return {"AutoModelForSeq2SeqLM" if can_generate else "AutoModel"} | ({auto_class} if auto_class else set())


def _files_of(kind: type) -> dict[str, str]:
    """Return the file of a class and those that it imports, with imports within one folder.

    Raises:
        ValueError: as in [`code_of`].
    """
    if kind.__module__ == "__main__" or "." in kind.__qualname__:
        place = "in a notebook or a script" if kind.__module__ == "__main__" else "inside a function or a class"
        raise ValueError(f"it is defined {place}. Define it at the top of a file, and import it from there.")
    path = Path(getattr(sys.modules.get(kind.__module__), "__file__", None) or "")
    if not path.is_file() or path.stem == "__init__":
        raise ValueError(f"it is defined in {path.name or 'no file'}. Define it in a file of its own.")
    if kind.__module__.startswith(_LOADED):
        return {Path(file).name: Path(file).read_text("utf-8") for file in (path, *get_relative_import_files(path))}
    files: dict[str, str] = {}
    modules = [kind.__module__]
    for module in modules:  # which grows
        path = Path(str(import_module(module).__file__))
        text, others = _flattened(module, path.read_text(encoding="utf-8"), kind.__module__)
        files = _joined(files, {path.name: text})
        modules += [name for name in others if name not in modules]
    return files


def _joined(files: dict[str, str], others: dict[str, str]) -> dict[str, str]:
    for name, text in others.items():
        if files.get(name, text) != text:
            raise ValueError(f"two files are named {name}, but all travel in one folder: rename yours.")
    return files | others


def _flattened(module: str, text: str, first: str) -> tuple[str, list[str]]:
    """Return the text of a module with imports within one folder, and the modules beside `first` that it imports.

    Raises:
        ValueError: an import names something that does not travel.
    """
    data, modules = text.encode(), list[str]()
    starts = [0, *accumulate(len(line) for line in data.splitlines(keepends=True))]
    nodes = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Import | ast.ImportFrom)]
    for node in sorted(nodes, key=lambda node: node.lineno, reverse=True):  # from the end, so that offsets stay right
        if isinstance(node, ast.Import):
            for alias in node.names:
                if _travels(alias.name, first):
                    raise ValueError(
                        f'{module} has "import {alias.name}", which does not travel: write '
                        f'"from {alias.name} import ..." with the names.'
                    )
            continue
        source = _source(module, node)
        if not _travels(source, first):
            continue
        for alias in node.names:
            _check_travels(source, alias.name)
        is_own = source.split(".")[0] != _PACKAGE
        modules += [source] * is_own
        start = starts[node.lineno - 1] + node.col_offset
        end = data.index(b" import", start)  # the names stay as they are laid out
        stem = source.rsplit(".", 1)[-1] if is_own else CODE_FILE.removesuffix(".py")
        data = data[:start] + f"from .{stem}".encode() + data[end:]
    return data.decode(), modules


def _travels(module: str, first: str) -> bool:
    """Return whether a module is the family's, or stands beside the first one rather than in an installed package."""
    if module.split(".")[0] == _PACKAGE:
        return True
    try:
        spec = find_spec(module)
    except (ImportError, ValueError):  # it is optional, or made without a file
        return False
    folder = Path(str(sys.modules[first].__file__)).resolve().parents[first.count(".")]
    site_folders = {Path(sysconfig.get_path(name)).resolve() for name in ("stdlib", "purelib", "platlib")}
    parents = set(Path(spec.origin).resolve().parents) if spec and spec.has_location and spec.origin else set()
    return folder in parents and not site_folders & parents


def _check_travels(source: str, name: str) -> None:
    """Raise a ValueError if a name that a module has is itself a module, or of a part of Weft that does not travel."""
    module = import_module(source)
    if source.split(".")[0] != _PACKAGE:
        if isinstance(getattr(module, name, None), type(sys)):
            raise ValueError(f'"from {source} import {name}" names a module: write "from {source}.{name} import ...".')
        if hasattr(module, "__path__"):
            raise ValueError(f'"from {source} import {name}" names a package: import from the file that defines it.')
        return
    home = source if source in exported_modules() else getattr(getattr(module, name, None), "__module__", source)
    if home not in exported_modules():
        raise ValueError(
            f'"from {source} import {name}" does not travel, and {home} neither: import it elsewhere, or copy it.'
        )
