"""The wheel contains the whole package and nothing else, and works where only the wheel is installed."""

import os
import shutil
import site
import subprocess
import sys
import sysconfig
import tomllib
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LAYERS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"]["contracts"][0][
    "layers"
]
ONLY_IN_CLONES = {"benchmarks", "recipes"}
PACKAGES = {name for layer in LAYERS for name in layer.split(" | ")} - ONLY_IN_CLONES
DATA = (".py", ".smi", ".gz", ".css", ".html", ".js", ".yaml", ".json", ".safetensors", ".md", ".tsv")

# The first steps of a user. `weftformer` must be that of the wheel.
FIRST_STEPS = """
import sys
from pathlib import Path

import weftformer

assert Path(weftformer.__file__).is_relative_to(sys.prefix), weftformer.__file__
from transformers import AutoModelForSeq2SeqLM
from weftformer import WeftConfig, WeftForConditionalGeneration

config = WeftConfig.from_preset("modern-tiny", encoder_layers=1, decoder_layers=1)
model = AutoModelForSeq2SeqLM.from_config(config)
assert type(model) is WeftForConditionalGeneration
model.save_pretrained(sys.argv[1])
assert (Path(sys.argv[1]) / "modeling_weft.py").is_file()
"""


def command(*words: str | Path, cwd: Path, **environment: str) -> str:
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "PIP_"))}
    done = subprocess.run(
        [str(word) for word in words],
        cwd=cwd,
        env=inherited | {"HF_HUB_OFFLINE": "1", "PIP_NO_INDEX": "1"} | environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-3000:]
    return done.stdout


def sources() -> list[str]:
    """Return the files that git tracks or would track, so that build artifacts cannot end up in a wheel."""
    listed = command("git", "ls-files", "--cached", "--others", "--exclude-standard", cwd=ROOT).splitlines()
    return [name for name in listed if (ROOT / name).is_file()]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    """Built from a copy, so that the repository stays as it is."""
    folder = tmp_path_factory.mktemp("wheel")
    for name in sources():
        target = folder / "source" / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, target)
    words = ["-m", "build", "--wheel", "--no-isolation", "--outdir", folder / "dist", folder / "source"]
    command(sys.executable, *words, cwd=folder)
    (built,) = (folder / "dist").glob("*.whl")
    return built


@pytest.mark.integration
def test_the_wheel_holds_every_module_and_its_data_and_nothing_else(wheel):
    held = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    # in the packages: what else lies beside them is the user's
    files = [name for name in sources() if name.endswith(DATA) and ONLY_IN_CLONES.isdisjoint(name.split("/"))]
    expected = {f"weftformer/{name}" for name in files if name.split("/")[0] in PACKAGES}
    expected |= {f"weftformer/{path.name}" for path in ROOT.glob("*.py")} | {"weftformer/py.typed"}
    expected |= {"weftformer_command.py"}
    expected |= {f"weftformer/model_cards/{name}" for name in ("template.md", "facts.yaml")}
    assert held == expected


def libraries(folder: Path) -> Path:
    """Link all installed packages but Weft into a folder, to need no network and to hide an editable install."""
    folder.mkdir()
    for place in {sysconfig.get_path("purelib"), sysconfig.get_path("platlib"), *site.getsitepackages()}:
        for path in Path(place).glob("*"):
            is_weft = "weft" in path.name.lower() or path.suffix in (".pth", ".egg-link")
            if not is_weft and not (folder / path.name).exists():
                (folder / path.name).symlink_to(path)
    return folder


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory) -> Path:
    """The scripts folder of an environment with the wheel."""
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder / "venv", with_pip=False, symlinks=True)
    scripts = folder / "venv" / "bin"
    python = scripts / "python"
    target = Path(command(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", cwd=folder).strip())
    (target / "libraries.pth").write_text(f"{libraries(folder / 'libraries')}\n")
    command(python, "-m", "pip", "install", "-q", "--no-deps", "--no-index", wheel, cwd=folder)
    return scripts


@pytest.mark.integration
def test_an_installed_wheel_has_its_command_and_builds_and_saves_a_model(installed, tmp_path):
    assert "usage" in command(installed / "weftformer", "--help", cwd=tmp_path)
    assert "usage" in command(installed / "python", "-m", "weftformer", "--help", cwd=tmp_path)
    (tmp_path / "steps.py").write_text(FIRST_STEPS)
    assert not command(installed / "python", "steps.py", tmp_path / "model", cwd=tmp_path)
    assert not any((ROOT / name).exists() for name in ("build", "dist", "weftformer"))  # as it was
