"""What a whole checkpoint holds: a list of its files with their sizes and sums, written last."""

import hashlib
import json
import os
from pathlib import Path

MANIFEST = "weft_manifest.json"


def write_manifest(folder: str | os.PathLike) -> None:
    """List every file of a folder, and of those in it, in `MANIFEST`.

    Raises:
        OSError: a file cannot be read, or the list not be written.
    """
    files = {
        path.relative_to(folder).as_posix(): [path.stat().st_size, _sum(path)]
        for path in sorted(Path(folder).rglob("*"))
        if path.is_file()
    }
    (Path(folder) / MANIFEST).write_text(json.dumps(files, indent=1) + "\n", encoding="utf-8")


def damage(folder: str | os.PathLike) -> list[str]:
    """What is not as the list says, each with the file's name; nothing where there is no list."""
    folder, problems = Path(folder), []
    if not (folder / MANIFEST).is_file():
        return []
    try:
        files = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
        listed = {str(name): (int(size), str(total)) for name, (size, total) in files.items()}
    except (ValueError, TypeError, AttributeError):
        return [f"{MANIFEST} is damaged"]
    for name, (size, total) in listed.items():
        path = folder / name
        if not path.is_file():
            problems.append(f"{name} is missing")
        elif path.stat().st_size != size:
            problems.append(f"{name} has {path.stat().st_size} bytes where {size} were written")
        elif _sum(path) != total:
            problems.append(f"{name} is damaged: other bytes than were written")
    return problems


def _sum(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=16)).hexdigest()
