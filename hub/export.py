"""Writes the model's code beside its weights, so that the folder loads with transformers alone.

transformers copies the files of a custom model into one flat folder, and follows only imports within it. So the files
of `configuration` and `modeling` are written into one folder here, and their imports are rewritten. They contain the
model and the plain path of decoding. The fast path and the splitting over processes come only with the installed
package: they use many private names of transformers, which a later version may not have.
`modeling/transformers_names.py` imports the other private names.
"""

import os
import re
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).resolve().parent.parent
_PACKAGES = ("configuration", "modeling")
_STAYS_HERE = ("__init__", "parallel")
# huggingface_hub keeps its own records in a folder of this name, and never uploads a file from it. Temporary files go
# there, so that an upload that begins at the same time, or after a crash, does not include them.
NOT_UPLOADED = ".cache/huggingface"
AUTO_MAP = {
    "AutoConfig": "configuration_weft.WeftConfig",
    "AutoModel": "modeling_weft.WeftModel",
    "AutoModelForSeq2SeqLM": "modeling_weft.WeftForConditionalGeneration",
}


def flat_files() -> dict[str, str]:
    """Return the texts of the exported files by file name, with imports within one folder."""
    files: dict[str, str] = {}
    for package in _PACKAGES:
        for path in sorted((ROOT / package).glob("*.py")):
            if path.stem not in _STAYS_HERE:
                text = path.read_text(encoding="utf-8")
                files[path.name] = re.sub(
                    rf"from \.\.(?:{'|'.join(_PACKAGES)})\.(\w+) import", r"from .\1 import", text
                )
    return files


def export_code(folder: str | os.PathLike) -> dict[str, str]:
    """Write the model's code into a folder, each file atomically.

    Files that have this code already are left alone, because a push in the background may be listing the folder.

    Args:
        folder: the folder, which is made if it does not exist.

    Returns:
        The `auto_map` for `config.json`, which names the classes for transformers' Auto classes.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    files = {name: text for name, text in flat_files().items() if not _has_text(folder / name, text)}
    if files:
        with TemporaryDirectory(prefix=".saving-code-", dir=folder) as temporary:
            staging = Path(temporary, NOT_UPLOADED)  # `os.replace` is atomic only within one file system
            staging.mkdir(parents=True)
            for name, text in files.items():
                (staging / name).write_text(text, encoding="utf-8")
                os.replace(staging / name, folder / name)
    return dict(AUTO_MAP)


def _has_text(path: Path, text: str) -> bool:
    return path.is_file() and path.read_bytes() == text.encode()
