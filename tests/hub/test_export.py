"""The code that travels with the weights: complete, flat, and never half written."""

import ast
import json
import re
import sys
import threading
from pathlib import Path

import pytest
from transformers.dynamic_module_utils import get_relative_import_files

import weftformer
from weftformer import WeftConfig, WeftForConditionalGeneration, WeftModel
from weftformer.hub import export_code
from weftformer.hub.export import AUTO_MAP, ROOT, flat_files

from ..models import TINY_CONFIG


def sources() -> set[str]:
    names = [
        path.name
        for room in ("configuration", "modeling")
        for path in (ROOT / room).glob("*.py")
        if path.name not in ("__init__.py", "parallel.py")
    ]
    assert len(set(names)) == len(names)  # they are exported to one folder
    return set(names)


def imported(text: str) -> set[str]:
    """Return the modules that a file imports: `.name` from its own folder, or the first part of a full name."""
    found = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ImportFrom):
            names = [node.module] if node.module else [alias.name for alias in node.names]
            found |= {"." * node.level + name if node.level else name.split(".")[0] for name in names}
        elif isinstance(node, ast.Import):
            found |= {alias.name.split(".")[0] for alias in node.names}
    return found


def test_every_file_but_the_fast_path_and_the_splitting_over_processes_is_there():
    assert Path(weftformer.__file__).parent == ROOT
    assert set(flat_files()) == sources()
    assert {"configuration_weft.py", "modeling_weft.py", "generation.py", "moe.py"} <= set(flat_files())
    fast = {path.name for path in (ROOT / "modeling" / "decoding").glob("*.py")}
    assert len(fast) > 5 and not (fast | {"parallel.py"}) & set(flat_files())


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
    assert found | {"modeling_weft.py"} == sources()


@pytest.mark.parametrize("kind", [WeftConfig, WeftModel, WeftForConditionalGeneration])
def test_every_save_writes_the_code_and_names_it(kind, tmp_path):
    config = WeftConfig(**TINY_CONFIG)
    (config if kind is WeftConfig else kind(config)).save_pretrained(tmp_path)
    assert json.loads((tmp_path / "config.json").read_text())["auto_map"] == AUTO_MAP
    written = {path.name for path in tmp_path.glob("*.py")}
    assert written == sources()
    for name, text in flat_files().items():
        assert (tmp_path / name).read_text() == text
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".") or path.is_dir()]


def test_two_savers_of_one_folder_do_not_meet(tmp_path):
    """Two threads, as two ranks of one job would."""
    errors = []

    def save():
        try:
            for _ in range(20):
                export_code(tmp_path)
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=save) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == flat_files()
