"""Writes the model's code beside its weights, so that a machine with transformers alone loads the folder.

transformers copies the files of a custom model flat, and follows only imports of the same folder; Weft's rooms are
folders, so their files are flattened here and their imports with them. What travels is the model and the plain path of
decoding. The fast path and the splitting over processes read many private names of transformers, which a folder that is
pushed today may not find next year: they come with the installed package. What else is not promised to be there next year
stands in `modeling/transformers_names.py`, with what is done without it.
"""

import os
import re
from pathlib import Path
from tempfile import TemporaryDirectory

from ..common.whole_files import whole_file

ROOT = Path(__file__).resolve().parent.parent
_ROOMS = ("configuration", "modeling")
_STAYS_HERE = re.compile(r"__init__|parallel|decoding_\w+")
# huggingface_hub keeps notes of its own in such a folder, and uploads nothing that lies in one, however deep and whoever
# asks. What is being written goes there: an upload that begins meanwhile, or after a crash, does not list it.
NOT_UPLOADED = ".cache/huggingface"
AUTO_MAP = {
    "AutoConfig": "configuration_weft.WeftConfig",
    "AutoModel": "modeling_weft.WeftModel",
    "AutoModelForSeq2SeqLM": "modeling_weft.WeftForConditionalGeneration",
}


def flat_files() -> dict[str, str]:
    """File name to text, every import pointing into the same folder.

    Raises:
        ValueError: two rooms have a file of one name, which a flat folder cannot hold.
    """
    files: dict[str, str] = {}
    for room in _ROOMS:
        for path in sorted((ROOT / room).glob("*.py")):
            if _STAYS_HERE.fullmatch(path.stem):
                continue
            if path.name in files:
                raise ValueError(f"{path.name} stands in two rooms: rename one, or the folder cannot be flat.")
            text = path.read_text(encoding="utf-8")
            files[path.name] = re.sub(rf"from \.\.(?:{'|'.join(_ROOMS)})\.(\w+) import", r"from .\1 import", text)
    return files


def export_code(folder: str | os.PathLike) -> dict[str, str]:
    """Write the code into `folder` (each file whole or not at all) and return the `auto_map` that names its classes."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(prefix=".saving-code-", dir=folder) as temporary:
        staging = Path(temporary, NOT_UPLOADED)
        staging.mkdir(parents=True)
        for name, text in flat_files().items():
            with whole_file(folder / name, staging) as file:
                file.write_text(text, encoding="utf-8")
    return dict(AUTO_MAP)
