"""The package as a whole."""

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
