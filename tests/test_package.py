"""The package as a whole."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from transformers import AutoConfig

import weftformer

ROOT = Path(weftformer.__file__).resolve().parent


def test_is_imported_once():
    # pytest imports a repository root that is a package under the name of its folder, unless `confcutdir` keeps it out;
    # that copy would register classes of its own under "weft"
    files = {name: getattr(module, "__file__", None) for name, module in sys.modules.items()}
    assert [name for name, file in files.items() if file == str(ROOT / "__init__.py")] == ["weftformer"]
    assert AutoConfig.for_model("weft").__class__ is weftformer.WeftConfig


@pytest.mark.integration
def test_models_of_texts_need_no_chemistry():
    code = "import sys; sys.modules['rdkit'] = None; import weftformer.serving.lines, weftformer.scripts.generate"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_nothing_tells_people_to_install_or_import_another_project():
    # "weft" on PyPI is not this project, and other packages bring a command of that name
    named = re.compile(
        r"pip install (-\S+ )*['\"]?weft\b|\b(import|from|-m) weft\b|(?<![\w./\"'-])weft (--?\w|train|plan|convert|serve|benchmark)"
    )
    rooms = [
        path for path in ROOT.iterdir() if path.is_dir() and not path.name.startswith(".") and path.name != "runs"
    ]
    files = [path for room in rooms for path in room.rglob("*") if path.suffix in (".py", ".md", ".ipynb", ".yaml")]
    texts = {path: path.read_text(encoding="utf-8") for path in [*files, ROOT / "README.md", ROOT / "pyproject.toml"]}
    assert len(texts) > 100 and not named.search("pip install weftformer[train]")
    texts.pop(Path(__file__).resolve())
    assert {str(path): found[0] for path, text in texts.items() if (found := named.search(text))} == {}
