"""The package as a whole."""

import sys
from pathlib import Path

from transformers import AutoConfig

import weft

ROOT = Path(weft.__file__).resolve().parent


def test_is_imported_once():
    # pytest imports a repository root that is a package under the name of its folder, unless `confcutdir` keeps it out;
    # that copy would register classes of its own under "weft"
    files = {name: getattr(module, "__file__", None) for name, module in sys.modules.items()}
    assert [name for name, file in files.items() if file == str(ROOT / "__init__.py")] == ["weft"]
    assert AutoConfig.for_model("weft").__class__ is weft.WeftConfig


def test_files_stay_small():
    # the longest file of the house is the one nobody wants to read
    lengths = {path: len(path.read_text().splitlines()) for room in ROOMS for path in (ROOT / room).glob("*.py")}
    assert lengths and {str(path): length for path, length in lengths.items() if length > 300} == {}


ROOMS = (
    "configuration",
    "modeling",
    "tokenization",
    "exporting",
    "training",
    "routes",
    "hub",
    "serving",
    "demo",
    "scripts",
)
