"""The code that travels with the weights: complete, flat, and never half written."""

import ast
import json
import re
import sys
from pathlib import Path

import pytest
from transformers.dynamic_module_utils import get_relative_import_files

from weftformer import WeftConfig, WeftForConditionalGeneration, WeftModel
from weftformer.hub import export_code
from weftformer.hub.export import AUTO_MAP, ROOT, flat_files

from ..models import TINY_CONFIG


def imported(text: str) -> set[str]:
    """Return the modules that a file imports: `.name` from its own folder, or the first part of a full name."""
    found = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ImportFrom):
            found.add("." * node.level + node.module if node.level else node.module.split(".")[0])
        elif isinstance(node, ast.Import):
            found |= {alias.name.split(".")[0] for alias in node.names}
    return found


def test_fast_path_and_splitting_over_processes_stay_here():
    here = {path.name for path in (ROOT / "modeling" / "decoding").glob("*.py")} | {"parallel.py"}
    assert len(here) > 5 and not here & set(flat_files())


def test_every_import_is_of_the_same_folder_or_of_what_transformers_needs():
    files = flat_files()
    allowed = {"torch", "transformers", "huggingface_hub", "safetensors"}
    for name, text in files.items():
        compile(text, name, "exec")
        for module in imported(text):
            if module.startswith("."):
                assert re.fullmatch(r"\.\w+", module) and f"{module[1:]}.py" in files, f"{name}: {module}"
            else:
                assert module in allowed | sys.stdlib_module_names, f"{name}: {module}"


def test_transformers_follows_every_import(tmp_path):
    """It copies what `from .name import` names, and nothing that `from . import name` does."""
    export_code(tmp_path)
    found = {Path(path).name for path in get_relative_import_files(tmp_path / "modeling_weft.py")}
    assert found | {"modeling_weft.py"} == set(flat_files())


@pytest.mark.parametrize("kind", [WeftConfig, WeftModel, WeftForConditionalGeneration])
def test_every_save_writes_the_code_and_names_it(kind, tmp_path):
    config = WeftConfig(**TINY_CONFIG)
    (config if kind is WeftConfig else kind(config)).save_pretrained(tmp_path)
    assert json.loads((tmp_path / "config.json").read_text())["auto_map"] == AUTO_MAP
    assert {path.name: path.read_text() for path in tmp_path.glob("*.py")} == flat_files()
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".") or path.is_dir()]
