"""Compiled code, kept in files so that later processes load it instead of compiling.

The name of a package is a hash of everything that it depends on, so a change of the model, versions, processor, GPU
or number of threads compiles a new one. Loading a package runs its code, so the folder must be one that only its user
may write to, and each name also has a hash of the content: a package that is damaged, or stands under another's name,
is not loaded.
"""

import hashlib
import io
import json
import os
import platform
import stat
import threading
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
import transformers
import xxhash
from filelock import FileLock
from torch import _inductor, nn
from transformers.utils import logging

from ...common.atomic import atomic_write
from ...common.folders import cache_folder
from ...common.words import first_line
from ..transformers_names import attention_implementation

logger = logging.get_logger(__name__)

# What torch says about its own code while it exports and compiles.
warnings.filterwarnings("ignore", "TypedStorage is deprecated", module="torch._inductor")
warnings.filterwarnings("ignore", "`isinstance.treespec, LeafSpec.` is deprecated", FutureWarning)

# Turns off what inductor prints for its own developers, and before torch 2.13 a search for memory to use again, which
# fails in loops.
_SETTINGS = {
    "autotune_num_choices_displayed": 0,
    "max_autotune_report_choices_stats": False,
    "allow_buffer_reuse": torch.__version__ >= "2.13",
}
# torch exports and compiles one graph at a time, because it changes state that all threads share.
_COMPILING = threading.Lock()
# The number of packages that stay in the folder, the most recently used ones.
MAX_PACKAGES = 50
# The types of attributes that [`scalar_attrs`] returns.
_SCALARS = frozenset((bool, int, float, str))
# Fields of a configuration that record where a model comes from, and the dtype, which the weights record themselves.
IGNORED_KEYS = ("_name_or_path", "architectures", "auto_map", "dtype", "transformers_version")
# Attributes of modules that change nothing in evaluation mode.
_IGNORED_ATTRIBUTES = frozenset(("gradient_checkpointing", "has_checked_values", "name_or_path"))


def compiled_folder() -> Path:
    """Return the folder of compiled code: `WEFT_COMPILED_FOLDER`, or `weftformer/compiled` in the user's cache."""
    if folder := os.environ.get("WEFT_COMPILED_FOLDER"):
        return Path(folder)
    return cache_folder("compiled")


def has_compiled_folder() -> bool:
    """Return whether there is a folder of compiled code that this user may see."""
    try:
        return compiled_folder().is_dir()
    except (OSError, RuntimeError):  # no right to the folder above, a name that is too long, or no home
        return False


class Package:
    """Compiled code that is called only with the inputs that it was compiled for.

    Compiled code checks neither the types nor the sizes nor the strides of its inputs.

    Args:
        file: the package, written by [`write_package`].
        device: the device that the code runs on.
    """

    def __init__(self, file: Path, device: torch.device):
        self.device = device
        self.code = _inductor.aoti_load_package(str(file), device_index=-1 if device.index is None else device.index)
        self.inputs: list[tuple[str, list[int | str]]] = json.loads(self.code.get_metadata()["inputs"])
        # In compiled code, a second thread would wait with Python's lock, which an operator written in Python needs.
        self._lock = threading.Lock()
        self._process: int | None = None  # the first that ran the code

    def __call__(self, *inputs: torch.Tensor | None) -> Any:
        """Return the outputs, or None if the code was compiled for other inputs.

        Raises:
            RuntimeError: the process was forked from one that had run the code in several threads.
        """
        arguments = [None if tensor is None else tensor.contiguous() for tensor in inputs]
        if not self._fits([tensor for tensor in arguments if tensor is not None]):
            return None
        self._process, threads = self._process or os.getpid(), torch.get_num_threads()
        if self._process != os.getpid() and threads > 1:  # it would wait for ever
            raise RuntimeError(
                f"A forked process cannot run compiled code with {threads} threads: start it by `spawn`."
            )
        with self._lock:
            return self.code(*arguments)

    def _fits(self, tensors: list[torch.Tensor]) -> bool:
        """Return whether tensors are of the types and sizes of the inputs. Equal symbols are equal sizes from 2 on."""
        symbols: dict[str, int] = {}
        if len(tensors) != len(self.inputs):
            return False
        for tensor, (dtype, sizes) in zip(tensors, self.inputs, strict=True):
            if type(tensor) not in (torch.Tensor, nn.Parameter) or tensor.device != self.device:
                return False
            if str(tensor.dtype) != dtype or tensor.ndim != len(sizes):
                return False
            for size, symbol in zip(tensor.shape, sizes, strict=True):
                if isinstance(symbol, str) and (size < 2 or symbols.setdefault(symbol, size) != size):
                    return False
                if isinstance(symbol, int) and size != symbol:
                    return False
        return True


def described_inputs(program: torch.export.ExportedProgram) -> list[tuple[str, list[int | str]]]:
    """Return the type and the sizes of each input that is a tensor. A size that is free is a symbol."""
    values = {node.name: node.meta.get("val") for node in program.graph.find_nodes(op="placeholder")}
    tensors = [values[name] for name in program.graph_signature.user_inputs if isinstance(name, str)]
    return [
        (str(tensor.dtype), [size if isinstance(size, int) else str(size) for size in tensor.shape])
        for tensor in tensors
        if isinstance(tensor, torch.Tensor)
    ]


def _reason_against(path: Path, is_kind: Callable[[int], bool]) -> str | None:
    """Return why code from a folder or a file is not run, or None if only its user, or root, may write to it."""
    facts = path.lstat()
    if not is_kind(facts.st_mode):
        return f"{path} is a link, or not a {'folder' if is_kind is stat.S_ISDIR else 'file'}"
    if os.name != "posix":
        return None
    if facts.st_uid not in (0, os.geteuid()):
        return f"{path} belongs to another user"
    if facts.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        return f"other users may write to {path} (`chmod go-w` takes the right away)"
    return None


def load_package(
    facts: dict[str, Any], config: Any, device: torch.device, build: Callable[[Path], None] | None
) -> Package | None:
    """Load the package of some compiled code.

    Args:
        facts: what the code depends on, besides the configuration, the versions and the machine.
        config: the configuration of the model.
        device: the device of the model.
        build: writes the package to a file, if there is none. None leaves it out.

    Returns:
        The package. None if there is none, or if it is damaged or others may write to it, with a warning.

    Raises:
        ValueError: the package cannot be compiled, or not into this folder. The message is one line.
    """
    fields = json.loads(config.to_json_string(use_diff=False))
    facts = facts | {
        "config": {name: value for name, value in fields.items() if name not in IGNORED_KEYS},
        "implementations": [attention_implementation(config), getattr(config, "_experts_implementation", None)],
        "code": _hash_of_code(),
        "versions": [torch.__version__, transformers.__version__],
        "processor": _processor(),
        "gpu": _gpu(device),
        "threads": torch.get_num_threads(),
    }
    key = hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:32]
    try:
        folder = compiled_folder()
        if build is None:
            return _load(folder, key, device)
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if reason := _reason_against(folder, stat.S_ISDIR):
            raise ValueError(f"Code is not compiled into this folder: {reason}.")
        if package := _load(folder, key, device):
            return package
        with _COMPILING, FileLock(folder / "lock"):
            if package := _load(folder, key, device):  # another process may have compiled it
                return package
            _compile(folder, key, build)
        return _load(folder, key, device)
    except (OSError, RuntimeError) as error:  # a full or unreadable disk, no compiler
        if build is not None:
            raise ValueError(f"The code cannot be compiled: {first_line(error)}") from error
        logger.warning_once(f"Compiled code is not used: {first_line(error)}")
        return None


def _load(folder: Path, key: str, device: torch.device) -> Package | None:
    """Load the package of a key. Return None, with a warning if there is one that cannot be used."""
    if not folder.exists():
        return None
    files = [] if (reason := _reason_against(folder, stat.S_ISDIR)) else sorted(folder.glob(f"{key}-*.pt2"))
    for file in files:
        reason = _reason_against(file, stat.S_ISREG)
        if reason is None and file.name != f"{key}-{_hash_of_file(file, key)}.pt2":
            reason = f"{file} is damaged"
        if reason is None:
            with suppress(OSError):  # a folder of root
                os.utime(file)
            return Package(file, device)
    if reason:
        logger.warning_once(f"Compiled code is not used: {reason}.")
    return None


def _compile(folder: Path, key: str, build: Callable[[Path], None]) -> None:
    """Write the package of a key, in place of one that cannot be used, and remove packages that are not used."""
    draft = folder / f"draft-{key}.pt2"
    for file in (draft, *folder.glob(f"{key}-*.pt2")):
        file.unlink(missing_ok=True)
    build(draft)
    draft.chmod(0o600)
    draft.rename(folder / f"{key}-{_hash_of_file(draft, key)}.pt2")
    for file in sorted(folder.glob("*.pt2"), key=lambda file: file.lstat().st_mtime)[:-MAX_PACKAGES]:
        file.unlink()


def _hash_of_file(file: Path, key: str) -> str:
    return xxhash.xxh3_128_hexdigest(key.encode() + file.read_bytes())


def write_package(program: torch.export.ExportedProgram, package: Path, settings: dict[str, Any]) -> None:
    """Compile an exported program, and write the package.

    Raises:
        OSError, RuntimeError: there is no compiler, or no space for its files or for the package.
    """
    from torch._inductor.utils import fresh_cache  # a slow import, which only this function needs

    content, failure = io.BytesIO(), None  # torch ends the process if it cannot write a file
    # torch's own cache may contain empty libraries left by killed processes, which fail to load
    with TemporaryDirectory() as folder, fresh_cache(dir=folder):
        # a new dictionary, because torch adds to it
        settings = settings | _SETTINGS | {"aot_inductor.metadata": {"inputs": json.dumps(described_inputs(program))}}
        try:
            _inductor.aoti_compile_and_package(program, package_path=content, inductor_configs=settings)
        except Exception as error:  # raised again below: torch would leave its files
            failure = error
    if failure is not None:
        raise failure
    with atomic_write(package) as file:
        file.write_bytes(content.getvalue())


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


def _gpu(device: torch.device) -> list[Any] | None:
    """Return the GPU that kernels are written for: its name, its compute capability and the version of CUDA."""
    if device.type == "cpu":
        return None
    return [torch.cuda.get_device_name(device), torch.cuda.get_device_capability(device), torch.version.cuda]


def scalar_attrs(parts: Sequence[nn.Module]) -> list[list[Any]]:
    """Return the numbers and names that each module has as attributes, such as `eps` of a norm, and its type."""
    return [
        [type(module).__name__]
        + [
            [name, value]
            for name, value in vars(module).items()
            if type(value) in _SCALARS and name[0] != "_" and name not in _IGNORED_ATTRIBUTES
        ]
        for part in parts
        for module in part.modules()
    ]
