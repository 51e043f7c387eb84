"""Atomic writing: a file or a folder appears under its name only when it is complete.

Files and folders that grow for a long time are locked, so that two runs cannot write the same one. The system removes
the lock when the process ends, even if it is killed.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

try:
    import fcntl
except ImportError:  # Windows has no such locks
    fcntl = None  # type: ignore[assignment]


@contextmanager
def full_disk_named(name: str | os.PathLike[str]) -> Iterator[None]:
    """Raise an OSError with the name of a file or folder if the disk is full, whatever error a library raises for that."""
    try:
        yield
    except Exception as error:
        if getattr(error, "filename", None):
            raise  # it has a name already
        # errors of safetensors and `torch.save`
        if any(words in str(error) for words in (os.strerror(errno.ENOSPC), "PytorchStreamWriter failed writing")):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(name)) from error
        raise


def is_stream(path: Path) -> bool:
    """Return whether a path is a pipe or a device, such as /dev/stdout."""
    return path.exists() and not (path.is_file() or path.is_dir())


@contextmanager
def atomic_write(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Yield a temporary path with the same suffix to write to, and rename it to `path` when the block ends.

    Readers see the old file or the complete new one. If the block raises an error, the old file stays. A symbolic link
    stays a link, to the new file. A device or a pipe is yielded itself.

    Raises:
        OSError: the temporary file cannot be renamed.
    """
    name, path = Path(path), Path(os.path.realpath(path))
    if is_stream(name):
        yield name
        return
    temporary = path.with_name(f".{os.getpid()}.{path.name}")
    try:
        yield temporary
        os.replace(temporary, path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        if str(error.filename) == str(temporary):  # the caller does not know this name
            raise type(error)(error.errno, error.strerror, str(name)) from error
        raise
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def _lock(descriptor: int, path: Path, name: Path) -> None:
    """Lock the open file or folder `path` until its descriptor is closed. Pipes and devices are not locked.

    Raises:
        ValueError: another process has the lock, or has just finished. The message names the output, `name`.
    """
    kind = os.fstat(descriptor).st_mode
    if fcntl is None or not (stat.S_ISREG(kind) or stat.S_ISDIR(kind)):
        return
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        is_taken = not os.path.samestat(os.fstat(descriptor), os.stat(path))
    except (BlockingIOError, FileNotFoundError):
        is_taken = True
    except OSError:  # a file system without locks
        return
    if is_taken:
        raise ValueError(f"Another run is writing {name}: wait until it has ended, or choose another name.")


@contextmanager
def partial_file(path: str | os.PathLike[str]) -> Iterator[IO[str]]:
    """Yield a text file to write to. It is called `path` plus `.part` until the block ends.

    If the block is interrupted, the partial file stays under that name: it may be the work of hours.

    Raises:
        ValueError: another run is writing the file.
        OSError: the file cannot be written, or cannot be renamed.
    """
    path = os.path.realpath(path)
    part = Path(f"{path}.part")
    with part.open("a", encoding="utf-8", newline="\n") as file:
        _lock(file.fileno(), part, part)
        if stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            file.truncate(0)  # once it is locked
        yield file
        file.flush()
        if fcntl is not None:  # while the file is locked, because another run would empty it
            os.replace(part, path)
    if fcntl is None:
        os.replace(part, path)


@contextmanager
def atomic_folder(folder: str | os.PathLike[str], *, replace: bool = False) -> Iterator[Path]:
    """Yield a temporary folder to write into, and rename it to `folder` when the block ends.

    An error removes the temporary folder. The next call for the same `folder` removes the remains of a killed process.

    Args:
        folder: its name.
        replace: whether the new folder replaces one that has this name and is not empty.

    Raises:
        ValueError: `folder` is a file, or is not empty and `replace` is False, or another run is writing it.
        OSError: the folder cannot be made or renamed.
    """
    name, folder = Path(folder), Path(os.path.realpath(folder))  # a symbolic link or "." cannot be renamed

    def check() -> None:
        if _is_filled(folder) and not (replace and folder.is_dir()):
            raise ValueError(f"{name} exists and is not empty: choose another output folder.")

    check()
    staging, old = (folder.with_name(f".{folder.name}.{kind}") for kind in ("part", "old"))
    try:
        staging.mkdir(parents=True, exist_ok=True)
    except OSError as error:  # the caller does not know the temporary name
        raise type(error)(error.errno, error.strerror, str(name)) from error
    with full_disk_named(name), _locked(staging, name):
        for path in staging.iterdir():  # left by a killed process
            shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
        try:
            _restore(folder, old)
            check()  # again: another run may have ended, or a folder that a killed run had put aside may be back
            yield staging
            if replace and _is_filled(folder):
                os.replace(folder, old)
            os.replace(staging, folder)
        except BaseException:
            shutil.rmtree(staging, ignore_errors=True)
            raise
        finally:
            _restore(folder, old)


def _is_filled(path: Path) -> bool:
    return path.exists() and (not path.is_dir() or any(path.iterdir()))


@contextmanager
def locked_folder(folder: str | os.PathLike[str]) -> Iterator[None]:
    """Lock a folder while the block runs. It is made if it does not exist, and removed at the end if it is empty.

    Raises:
        ValueError: another run has the lock, or it is a file.
        OSError: the folder cannot be made.
    """
    path = Path(folder)
    if path.exists() and not path.is_dir():
        raise ValueError(f"{folder} is a file: give a folder.")
    path.mkdir(parents=True, exist_ok=True)
    with full_disk_named(path), _locked(path, path):
        try:
            yield
        finally:
            with suppress(OSError):  # it is not empty
                path.rmdir()


@contextmanager
def _locked(folder: Path, name: Path) -> Iterator[None]:
    if fcntl is None:
        yield
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        _lock(descriptor, folder, name)
        yield
    finally:
        os.close(descriptor)


def _restore(folder: Path, old: Path) -> None:
    """Restore a folder that was put aside if nothing has taken its place, or else remove it."""
    if old.exists() and not folder.exists():
        os.replace(old, folder)
    shutil.rmtree(old, ignore_errors=True)


def write_json(path: str | os.PathLike[str], data: Any, **settings: Any) -> None:
    """Write data as indented JSON, atomically.

    Args:
        path: the file.
        data: the data.
        settings: further arguments of `json.dumps`.
    """
    with atomic_write(path) as temporary:
        temporary.write_text(json.dumps(data, indent=2, **settings) + "\n", encoding="utf-8")
