"""Compiled decoding steps, kept in files so that later processes load them instead of compiling.

A step is exported and compiled ahead of time, to one AOTInductor package for each shape of its inputs. Lengths from 2
on are not part of the shape, so one package serves them all.

A package is machine code that contains the weights. Its name is a hash of everything that it depends on, so a change
of the model, weights, versions, processor or number of threads compiles a new one. Loading a package runs its code, so
packages are only read from a folder that no other user can write to. The least recently used packages are removed when
they take too much space.
"""

import hashlib
import json
import os
import platform
import stat
import tempfile
import threading
import warnings
from collections.abc import Callable
from contextlib import suppress
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import torch
import transformers
from filelock import FileLock
from torch import nn
from transformers.utils import logging

from ...common.atomic import atomic_write, write_json
from .weights import hashes_of, numbers_of

logger = logging.get_logger(__name__)

# Weights as constants in the layout of the kernels, and inductor's own C++ products, which are faster than the BLAS
# library for a few rows.
_COMPILER = {"freezing": True, "max_autotune": True, "max_autotune_gemm_backends": "CPP,ATEN"}
# Turns off what inductor prints for its own developers.
_PRINTED = {"autotune_num_choices_displayed": 0, "max_autotune_report_choices_stats": False}
# torch exports and compiles one graph at a time, because it changes state that all threads share.
_COMPILING = threading.Lock()
# The most space that packages may take.
_MOST_BYTES = 8 << 30
# The inputs, each with the dimension that is a length. A package takes any length from 2 on.
_LENGTHS: dict[str, int | None] = {
    "ids_W": None,
    "position_ids": None,
    "prefix": 4,
    "suffixes": 4,
    "prefix_positions": 0,
    "suffix_positions": 0,
    "prefix_mask": 1,
    "suffix_mask": 1,
    "source": 4,
    "source_positions": 1,
    "source_mask": 3,
}
# Fields of a configuration that record where a model comes from.
_OF_NO_EFFECT = ("_name_or_path", "architectures", "auto_map", "transformers_version")


def compiled_folder() -> Path:
    """Return the folder of compiled steps: `WEFT_COMPILED_FOLDER`, or `weftformer/compiled` in the user's cache."""
    if named := os.environ.get("WEFT_COMPILED_FOLDER"):
        return Path(named)
    caches = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(caches) / "weftformer" / "compiled"


class CompiledStep:
    """Runs the `forward` of a step as compiled code.

    Args:
        step: the `DecodeStep`. Its weights must not change while the compiled step is in use.
    """

    def __init__(self, step: Any):
        self.step = step
        self.packages: dict[tuple, Callable] = {}

    def __call__(self, arguments: tuple) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the outputs of `DecodeStep.forward` for these arguments, without `into`."""
        arguments = tuple(None if argument is None else argument.contiguous() for argument in arguments)
        shape = _shape_of(arguments)
        if shape not in self.packages:
            with _COMPILING:
                if shape not in self.packages:
                    self.packages[shape] = self._package(shape, arguments)
        return self.packages[shape](*arguments)

    def _package(self, shape: tuple, arguments: tuple) -> Callable:
        facts = self.facts | {"inputs": repr(shape), "threads": torch.get_num_threads()}
        folder = compiled_folder()
        if _is_ours(folder):
            if (found := kept(facts, folder)) is not None:
                return load(found)
            if os.access(folder, os.W_OK):
                with FileLock(folder / "lock"):  # another process may have compiled it meanwhile
                    return load(kept(facts, folder) or build(self.step, arguments, facts, folder))
        logger.warning(
            f"The compiled step is not cached: {folder} cannot be written to, or other users may write to it or to a folder above it."
        )
        with tempfile.TemporaryDirectory() as own:
            return load(build(self.step, arguments, facts, Path(own)))

    @cached_property
    def facts(self) -> dict[str, Any]:
        """The facts that the compiled code depends on, except the shape of the inputs and the number of threads."""
        config = self.step.config
        fields = json.loads(config.to_json_string(use_diff=False))
        return {
            # with the buffers that are not saved, such as rotary frequencies
            "weights": repr(hashes_of([*self.step.parameters(), *self.step.buffers()])),
            "numbers": numbers_of([self.step.decoder, self.step.lm_head]),
            "config": {name: value for name, value in fields.items() if name not in _OF_NO_EFFECT},
            "implementations": [config._attn_implementation, getattr(config, "_experts_implementation", None)],
            "code": _hash_of_code(),
            "versions": [torch.__version__, transformers.__version__],
            "processor": _processor(),
            "compiler": _COMPILER,
        }


def exported(step: nn.Module, arguments: tuple) -> torch.export.ExportedProgram:
    """Export the `forward` of a step for arguments of the same shape, with any lengths."""
    any_length = torch.export.Dim.AUTO
    shapes = tuple(
        None if argument is None else {} if length is None else {length: any_length}
        for length, argument in zip(_LENGTHS.values(), arguments, strict=True)
    )
    with torch.no_grad():
        return torch.export.export(step, arguments, dynamic_shapes=shapes, strict=False)


def build(step: nn.Module, arguments: tuple, facts: dict[str, Any], folder: Path) -> Path:
    """Compile a step for the shape of some arguments, and return the file of the package.

    Args:
        step: the step.
        arguments: arguments of its `forward`.
        facts: the facts that the package depends on. Their hash is its name.
        folder: the folder of the package.
    """
    from torch._inductor.utils import fresh_cache  # a slow import, which only this function needs

    rows = len(arguments[0])
    logger.warning_once(
        f"Compiling the decoding step for {rows} row{'s' * (rows > 1)}, which takes about a minute. It is written to {folder}."
    )
    package = folder / f"{_name(facts)}.pt2"
    warnings.filterwarnings("ignore", "TypedStorage is deprecated", module="torch._inductor")
    # torch's own cache may contain empty libraries left by killed processes, which fail to load
    with fresh_cache(), atomic_write(package) as file:
        program = exported(step, arguments)
        settings = _COMPILER | _PRINTED  # a new dictionary, because torch adds to it
        torch._inductor.aoti_compile_and_package(program, package_path=str(file), inductor_configs=settings)
    write_json(package.with_suffix(".json"), {"sha256": _hash_of_file(package), "facts": facts})
    _make_room(folder)
    return package


def kept(facts: dict[str, Any], folder: Path) -> Path | None:
    """Return the package that was compiled for the same facts, or None if there is none or its file has changed."""
    package = folder / f"{_name(facts)}.pt2"
    try:
        record = json.loads(package.with_suffix(".json").read_text(encoding="utf-8"))
        is_whole = record["sha256"] == _hash_of_file(package)
    except (OSError, ValueError, KeyError, TypeError):
        return None
    with suppress(OSError):
        os.utime(package)  # it is in use
    return package if is_whole else None


def load(package: Path) -> Callable:
    """Load the compiled code of a package."""
    return torch._inductor.aoti_load_package(str(package))


def _make_room(folder: Path) -> None:
    """Remove the least recently used packages until the others fit. The most recently used one stays."""
    packages = sorted(folder.glob("*.pt2"), key=lambda package: package.stat().st_mtime)
    size = sum(package.stat().st_size for package in packages)
    for package in packages[:-1]:
        if size > _MOST_BYTES:
            size -= package.stat().st_size
            package.unlink()
            package.with_suffix(".json").unlink(missing_ok=True)


def _shape_of(arguments: tuple) -> tuple:
    """Return the types and sizes of all arguments, with each length replaced by whether it is 1.

    Export treats a size of 1 as a constant.
    """
    found: list[tuple] = []
    for (name, length), argument in zip(_LENGTHS.items(), arguments, strict=True):
        if argument is not None:
            sizes = [size if dim != length else size == 1 for dim, size in enumerate(argument.shape)]
            found.append((name, argument.dtype, *sizes))
    return tuple(found)


def _name(facts: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:32]


def _hash_of_file(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


@cache
def _hash_of_code() -> str:
    found = hashlib.sha256()
    for file in sorted(Path(__file__).parent.parent.rglob("*.py")):
        found.update(file.read_bytes())
    return found.hexdigest()


@cache
def _processor() -> list[str]:
    """Return the machine that kernels are written for: its system, architecture, processor and vector instructions."""
    name = platform.processor()
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as stream:
            lines = [line for line in stream if line.startswith(("model name", "flags", "Features"))]
        name = " ".join(sorted(set(lines)))
    except OSError:  # not Linux
        pass
    return [
        platform.system(),
        platform.machine(),
        hashlib.sha256(name.encode()).hexdigest(),
        torch.backends.cpu.get_cpu_capability(),
    ]


def _is_ours(folder: Path) -> bool:
    """Make the folder if it is missing. Return whether only this user may write to it, and nobody else replace it."""
    try:
        for one in (*reversed(folder.absolute().parents), folder):
            if not one.exists():
                one.mkdir(mode=0o700, exist_ok=True)
        if not hasattr(os, "getuid"):
            return True
        own, *above = (one.stat() for one in (folder.resolve(), *folder.resolve().parents))
    except OSError:
        return False
    if own.st_uid != os.getuid() or own.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        return False
    return all(one.st_uid in (0, os.getuid()) and _is_closed(one) for one in above)


def _is_closed(above: os.stat_result) -> bool:
    """Return whether only the owner of a folder may replace its entries. The user's own group counts as the user."""
    by_others = above.st_mode & stat.S_IWOTH or (above.st_mode & stat.S_IWGRP and above.st_gid != os.getgid())
    return not by_others or bool(above.st_mode & stat.S_ISVTX)  # the sticky bit, as of /tmp
