"""Facts that are written twice in the files around the code are the same in both places, and the package is imported
once.
"""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml
from transformers import AutoConfig

import weftformer

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def read(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def jobs():
    return yaml.safe_load(read(".github/workflows/tests.yml"))["jobs"]


def numbers(version: str) -> list[int]:
    return [int(part) for part in re.findall(r"\d+", version)]


def test_python_and_transformers_are_tested_as_declared(jobs):
    matrix = jobs["versions"]["strategy"]["matrix"]
    declared = [line.rpartition(" ")[2] for line in PROJECT["classifiers"] if re.search(r"Python :: 3\.\d", line)]
    assert matrix["python"] == declared
    assert PROJECT["requires-python"] == f">={declared[0]}"
    oldest = {}
    for name, limit in (("transformers", ",<6"), ("torch", "")):
        tested = [*matrix[name], *(row[name] for row in matrix["include"])]
        ends = [min(tested, key=numbers), max(tested, key=numbers)]
        low, high = (end.removesuffix(".*") for end in ends)
        assert f"{name}>={low}{limit}" in PROJECT["dependencies"]
        assert f"{name} {low} to {high}" in read("README.md")
        oldest[name] = f"{name}=={low}.*"
    assert f"oldest := {oldest['torch']} {oldest['transformers']}\n" in read("Makefile")
    (pinned,) = re.findall(r"^transformers==(\d+\.\d+)\.", read("constraints.txt"), flags=re.MULTILINE)
    assert matrix["transformers"][-1] == f"{pinned}.*"
    # each extra row is a pair of its own, and not one of the matrix
    assert all(row["torch"] not in matrix["torch"] for row in matrix["include"])


def test_every_extra_is_installed_alone(jobs):
    rows = jobs["extras"]["strategy"]["matrix"]["include"]
    assert [row["extra"] for row in rows] == list(PROJECT["optional-dependencies"])
    for row in rows:
        compile(row["check"], row["extra"], "exec")


def test_every_package_is_explained():
    table = re.findall(r"^\| `(\w+)/` \|", read("CONTRIBUTING.md"), flags=re.MULTILINE)
    layers = re.search(r"layers = \[(.*?)\]", read("pyproject.toml"), flags=re.DOTALL)
    assert layers is not None
    assert table == re.findall(r'"(\w+)"', layers[1])[::-1]


def test_is_imported_once():
    # pytest imports a repository root that is a package under the name of its folder, unless `confcutdir` keeps it
    # out; that copy would register classes of its own under "weft"
    files = {name: getattr(module, "__file__", None) for name, module in sys.modules.items()}
    assert [name for name, file in files.items() if file == str(ROOT / "__init__.py")] == ["weftformer"]
    assert AutoConfig.for_model("weft").__class__ is weftformer.WeftConfig


@pytest.mark.integration
def test_models_of_texts_need_no_chemistry():
    code = "import sys; sys.modules['rdkit'] = None; import weftformer.distributed.tasks, weftformer.scripts.generate"
    subprocess.run([sys.executable, "-c", code], check=True)
