"""Atomic writing: a file or a folder appears under its name only when it is complete.

Files and folders that grow for a long time are locked, so that two runs cannot write the same one. The system removes
the lock when the process ends, even if it is killed.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

# huggingface_hub keeps its own records in a folder of this name, and never uploads a file from it. Temporary files go
# there, so that an upload that begins at the same time, or after a crash, does not include them.
NOT_UPLOADED = ".cache/huggingface"


@contextmanager
def full_disk_named(name: str | os.PathLike[str]) -> Iterator[None]:
    """Raise an OSError with the name of a file or folder if the disk is full, whatever a library raises for that."""
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
        OSError: the temporary file cannot be renamed, or the disk is full. The message names `path`.
    """
    name, path = Path(path), Path(os.path.realpath(path))
    if is_stream(name):
        with full_disk_named(name):
            yield name
        return
    temporary = path.with_name(f".{os.getpid()}.{path.name}")
    try:
        with full_disk_named(name):
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


@contextmanager
def _locked(path: Path, name: Path) -> Iterator[None]:
    """Lock a path while the block runs, by a file beside it. Without rights or support for that, it is not locked.

    Raises:
        ValueError: another process has the lock. The message names the output, `name`.
    """
    from filelock import FileLock, Timeout  # not needed for `--help`

    lock = FileLock(path.with_name(f".{path.name}.lock"), timeout=0)
    with suppress(OSError, NotImplementedError):
        try:
            lock.acquire()
        except Timeout as error:
            message = f"Another run is writing {name}: wait until it has ended, or choose another name."
            raise ValueError(message) from error
    try:
        yield
    finally:
        if lock.is_locked:
            Path(lock.lock_file).unlink(missing_ok=True)
            lock.release()


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
    with _locked(part, part):
        with full_disk_named(part), part.open("w", encoding="utf-8", newline="\n") as file:
            yield file
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
    old, part = folder.with_name(f".{folder.name}.old"), f".{folder.name}.part"
    with full_disk_named(name), _locked(folder, name), staging_folder(folder.parent, part) as staging:
        try:
            staging.mkdir(parents=True)
        except OSError as error:  # the caller does not know the temporary name
            raise type(error)(error.errno, error.strerror, str(name)) from error
        try:
            _restore(folder, old)
            check()  # again: another run may have ended, or a folder that a killed run had put aside may be back
            yield staging
            put_folder(staging, folder, old if replace else None)
        finally:
            _restore(folder, old)


def put_folder(new: Path, folder: Path, old: Path | None = None) -> None:
    """Rename a complete folder to `folder`.

    Args:
        new: the complete folder.
        folder: its name.
        old: the name under which an existing folder is put aside (default: an existing one has to be empty).
    """
    if old is not None and _is_filled(folder):
        os.replace(folder, old)
    os.replace(new, folder)


@contextmanager
def staging_folder(folder: Path, name: str, trainer: Any = None) -> Iterator[Path]:
    """Yield the path of a new folder in `folder / name`, which is removed at the end, for files to move into `folder`.

    Args:
        folder, name: their names. What a killed process has left there is removed.
        trainer: the Trainer whose processes all write there, and all call this function.
    """
    saving = folder / name
    if trainer is None or trainer.args.should_save:
        shutil.rmtree(saving, ignore_errors=True)
    if trainer is not None:  # otherwise another process could make its folder while it is being removed
        trainer.accelerator.wait_for_everyone()
    try:
        yield saving / NOT_UPLOADED
    finally:
        if trainer is None or trainer.args.should_save:
            shutil.rmtree(saving, ignore_errors=True)


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
    with full_disk_named(path), _locked(Path(os.path.realpath(path)), path):
        try:
            yield
        finally:
            with suppress(OSError):  # it is not empty
                path.rmdir()


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
