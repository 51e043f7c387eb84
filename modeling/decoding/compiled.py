"""Compiled code, kept in files so that later processes load it instead of compiling, and compiled decoding steps.

A step is exported and compiled ahead of time, to one AOTInductor package for each shape of its inputs. Lengths from 2
on are not part of the shape, so one package serves them all.

The name of a package is a hash of everything that it depends on, so a change of the model, versions, processor or
number of threads compiles a new one. A compiled step contains the weights, so a change of them does too. Loading a
package runs its code, so the folder must be one that only its user may write to.
"""

import hashlib
import json
import os
import platform
import threading
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache, cached_property, partial
from pathlib import Path
from typing import Any

import torch
import transformers
import xxhash
from filelock import FileLock
from torch import nn
from transformers.utils import logging

from ...common.atomic import atomic_write

logger = logging.get_logger(__name__)

# Weights as constants in the layout of the kernels, and inductor's own C++ products, which are faster than the BLAS
# library for a few rows.
_COMPILER = {"freezing": True, "max_autotune": True, "max_autotune_gemm_backends": "CPP,ATEN"}
# Turns off what inductor prints for its own developers.
_PRINTED = {"autotune_num_choices_displayed": 0, "max_autotune_report_choices_stats": False}
# torch exports and compiles one graph at a time, because it changes state that all threads share.
_COMPILING = threading.Lock()
# The number of packages that stay in the folder, the most recently used ones.
MAX_PACKAGES = 50
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
# The types of attributes that [`scalar_attrs`] returns.
_SCALARS = frozenset((bool, int, float, str))
# Fields of a configuration that record where a model comes from.
IGNORED_KEYS = ("_name_or_path", "architectures", "auto_map", "transformers_version")


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
            self.packages[shape] = self._package(shape, arguments)
        return self.packages[shape](*arguments)

    def _package(self, shape: tuple, arguments: tuple) -> Callable:
        """Load the package of a shape, which is compiled first if there is none."""
        package = load_package(
            self.facts | {"inputs": repr(shape)}, self.step.config, partial(_build, self.step, arguments)
        )
        assert package is not None
        return package

    @cached_property
    def facts(self) -> dict[str, Any]:
        """The facts that the compiled code depends on, except the shape of the inputs and the number of threads."""
        return {
            # with the buffers that are not saved, such as rotary frequencies
            "weights": repr(hashes_of([*self.step.parameters(), *self.step.buffers()])),
            "scalars": scalar_attrs([self.step.decoder, self.step.lm_head]),
            "compiler": _COMPILER,
        }


def load_package(facts: dict[str, Any], config: Any, build: Callable[[Path], None] | None) -> Any:
    """Load the package of some compiled code.

    Args:
        facts: what the code depends on, besides the configuration, the versions and the machine.
        config: the configuration of the model.
        build: writes the package to a file, if there is none. None leaves it out.

    Returns:
        The package, or None if there is none.
    """
    fields = json.loads(config.to_json_string(use_diff=False))
    facts = facts | {
        "config": {name: value for name, value in fields.items() if name not in IGNORED_KEYS},
        "implementations": [config._attn_implementation, getattr(config, "_experts_implementation", None)],
        "code": _hash_of_code(),
        "versions": [torch.__version__, transformers.__version__],
        "processor": _processor(),
        "threads": torch.get_num_threads(),
    }
    folder = compiled_folder()
    package = folder / f"{hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:32]}.pt2"
    if not package.exists():
        if build is None:
            return None
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with _COMPILING, FileLock(folder / "lock"):
            if not package.exists():  # another process may have compiled it
                build(package)
                for unused in sorted(folder.glob("*.pt2"), key=lambda file: file.stat().st_mtime)[:-MAX_PACKAGES]:
                    unused.unlink()
    os.utime(package)
    return torch._inductor.aoti_load_package(str(package))


def exported(step: nn.Module, arguments: tuple) -> torch.export.ExportedProgram:
    """Export the `forward` of a step for arguments of the same shape, with any lengths."""
    any_length = torch.export.Dim.AUTO
    shapes = tuple(
        None if argument is None else {} if length is None else {length: any_length}
        for length, argument in zip(_LENGTHS.values(), arguments, strict=True)
    )
    with torch.no_grad():
        return torch.export.export(step, arguments, dynamic_shapes=shapes, strict=False)


def _build(step: nn.Module, arguments: tuple, package: Path) -> None:
    """Compile a step for the shape of some arguments, and write the package."""
    rows = len(arguments[0])
    logger.warning_once(
        f"Compiling the decoding step for {rows} row{'s' * (rows > 1)}, which takes about a minute. It is written to {package}."
    )
    write_package(exported(step, arguments), package, _COMPILER)


def write_package(program: torch.export.ExportedProgram, package: Path, settings: dict[str, Any]) -> None:
    """Compile an exported program, and write the package."""
    from torch._inductor.utils import fresh_cache  # a slow import, which only this function needs

    warnings.filterwarnings("ignore", "TypedStorage is deprecated", module="torch._inductor")
    # torch's own cache may contain empty libraries left by killed processes, which fail to load
    with fresh_cache(), atomic_write(package) as file:
        settings = settings | _PRINTED  # a new dictionary, because torch adds to it
        torch._inductor.aoti_compile_and_package(program, package_path=str(file), inductor_configs=settings)


def _shape_of(arguments: tuple) -> tuple:
    """Return the types and sizes of all arguments, with each length replaced by whether it is 1.

    Export treats a size of 1 as a constant.
    """
    shape: list[tuple] = []
    for (name, length), argument in zip(_LENGTHS.items(), arguments, strict=True):
        if argument is not None:
            sizes = [size if dim != length else size == 1 for dim, size in enumerate(argument.shape)]
            shape.append((name, argument.dtype, *sizes))
    return tuple(shape)


@cache
def _hash_of_code() -> str:
    code = hashlib.sha256()
    for file in sorted(Path(__file__).parent.parent.rglob("*.py")):
        code.update(file.read_bytes())
    return code.hexdigest()


@cache
def _processor() -> list[str]:
    """Return the machine that kernels are written for: its architecture, and its vector instructions if Linux."""
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text(encoding="utf-8").splitlines() if cpuinfo.exists() else [platform.processor()]
    flags = next((line for line in lines if line.startswith(("flags", "Features"))), lines[0])
    return [platform.system(), platform.machine(), flags]


def snapshot(parts: Sequence[nn.Module]) -> tuple[list[Any], ...]:
    """Return the state that modules compute with: modules, hashes of tensors, and the scalars among their attributes.

    No cheaper check detects every change: version counters do not count writes through `.data`. A hash takes a third
    of the time of a token.
    """
    modules = [module for part in parts for module in part.modules()]
    tensors = {id(tensor): tensor for part in parts for tensor in (*part.parameters(), *part.buffers())}
    return modules, scalar_attrs(parts), hashes_of(list(tensors.values()))  # the head may have the table's


def hashes_of(tensors: Sequence[torch.Tensor]) -> list[tuple[torch.Size, torch.dtype, bytes]]:
    """Return the shape and type of each tensor and a hash of its values, computed in as many threads as torch has."""

    def hash_of(tensor: torch.Tensor) -> tuple[torch.Size, torch.dtype, bytes]:
        values = tensor.detach().contiguous().flatten().view(torch.uint8)
        return tensor.shape, tensor.dtype, xxhash.xxh3_128_digest(values.numpy().data)

    with ThreadPoolExecutor(torch.get_num_threads()) as threads:
        return list(threads.map(hash_of, tensors))


def scalar_attrs(parts: Sequence[nn.Module]) -> list[list[Any]]:
    """Return the numbers and names that each module has as attributes, such as `eps` of a norm, and its type."""
    return [
        [type(module).__name__]
        + [[name, value] for name, value in vars(module).items() if type(value) in _SCALARS and name[0] != "_"]
        for part in parts
        for module in part.modules()
    ]
