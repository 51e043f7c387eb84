"""The folder of a Space: whole or not at all, with a card the Hub reads, and alone enough to start."""

import os
import re
import subprocess
import sys
import time
import urllib.request
from importlib.metadata import version

import pytest
from huggingface_hub import SpaceCard

from weftformer.demo import space as module
from weftformer.demo.space import write_space
from weftformer.scripts import cli

from ..packaging.test_wheel import libraries


@pytest.fixture(scope="module")
def space(untrained_folder, tmp_path_factory):
    out = tmp_path_factory.mktemp("space") / "mine"
    models = ["--model", untrained_folder, "--text-model", "somebody/some-text"]
    assert cli.main(["space", str(out), *models, "--title", "Mine: all"]) == 0  # the name of 0.1 for `app --space`
    return out


def test_the_card(space):
    data = SpaceCard.load(space / "README.md").data
    assert (data.sdk, data.sdk_version, data.app_file) == ("gradio", version("gradio"), "app.py")
    assert data.title == "Mine: all" and data.license == "apache-2.0" and data.models == ["somebody/some-text"]
    assert data.python_version == f"{sys.version_info.major}.{sys.version_info.minor}"  # a text: 3.10 is not 3.1
    assert {"weft", "retrosynthesis"} <= set(data.tags) and len(data.short_description) <= 60
    assert (space / data.app_file).is_file()


def test_what_it_needs(space):
    lines = (space / "requirements.txt").read_text().splitlines()
    needs = {re.match(r"[\w-]+", line)[0] for line in lines if not line.startswith("--")}
    assert {"torch", "transformers", "tokenizers", "rdkit", "pillow"} <= needs
    assert not {"gradio", "pytest", "sacrebleu", "weftformer"} & needs and not any(";" in line for line in lines)


def test_what_is_in_it(space, untrained_folder):
    assert {path.name for path in space.iterdir()} == {
        "README.md",
        "app.py",
        "model",
        "requirements.txt",
        "weftformer",
    }
    assert "'--model', 'model', '--text-model', 'somebody/some-text'" in (space / "app.py").read_text()
    inside = {path.name for path in (space / "weftformer").iterdir()}
    assert {"__init__.py", "demo", "modeling", "routes", "LICENSE"} <= inside
    assert not {"tests", ".venv", "runs", "docs", ".git"} & inside
    assert (space / "weftformer" / "routes" / "drawing" / "page.css").is_file() and not list(
        space.rglob("__pycache__")
    )
    texts = [path.read_text(encoding="utf-8") for path in space.rglob("*.json")]
    assert texts and not any(untrained_folder in text for text in texts)


def test_all_or_nothing(untrained_folder, tmp_path, monkeypatch):
    with pytest.raises(ValueError, match="nothing to show"):
        write_space(tmp_path / "out")
    with pytest.raises(ValueError, match="give it as --model"):
        write_space(tmp_path / "out", None, untrained_folder)
    with pytest.raises((OSError, ValueError)):
        write_space(tmp_path / "out", str(tmp_path))  # a folder without a model

    def fail(target):
        raise OSError("the disk is full")

    monkeypatch.setattr(module, "_copy_sources", fail)
    with pytest.raises(OSError, match="full"):
        write_space(tmp_path / "out", untrained_folder)
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "file").touch()
    with pytest.raises(ValueError, match="not empty"):
        write_space(tmp_path / "taken", untrained_folder)


# As `python app.py`, but that it says first whose Weft it is, and that this alone brings no gradio.
START = """
import sys
sys.path.insert(0, "space")
import weftformer
assert "gradio" not in sys.modules
print("weftformer of", weftformer.__file__, flush=True)
import runpy
runpy.run_path("space/app.py", run_name="__main__")
"""


@pytest.mark.slow
def test_it_starts_alone(untrained_folder, tmp_path):
    out = tmp_path / "space"
    write_space(out, untrained_folder)
    # -S: no site-packages, and so no editable install
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "GRADIO"))}
    environment |= {
        "PYTHONPATH": str(libraries(tmp_path / "libraries")),
        "PYTHONUNBUFFERED": "1",
        "OMP_NUM_THREADS": "1",
        "HF_HUB_OFFLINE": "1",
    }
    log = tmp_path / "log"
    with log.open("w") as file:
        running = subprocess.Popen(
            [sys.executable, "-S", "-c", START], cwd=tmp_path, env=environment, stdout=file, stderr=subprocess.STDOUT
        )
    try:
        end = time.monotonic() + 120
        while not (address := re.search(r"http://[\w.:]+", log.read_text())):
            assert running.poll() is None and time.monotonic() < end, log.read_text()[-3000:]
            time.sleep(0.5)
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(address[0], timeout=60) as answer:
            assert answer.status == 200 and "Starting material" in answer.read().decode()
    finally:
        running.kill()
        running.wait()
    assert f"weftformer of {out}" in log.read_text()
