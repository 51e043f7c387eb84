"""Every Python block of README and the documentation runs, every command in it exists, and the pages are built without
a warning.
"""

import importlib.util
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from weftformer import WeftForConditionalGeneration
from weftformer.scripts import cli
from weftformer.scripts.parsing import parse_arguments

from ..conftest import printed_elsewhere
from ..routes.conftest import known, planner, planner_folder  # noqa: F401, fixtures

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def blocks(text: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", text, flags=re.DOTALL | re.MULTILINE)


CODE = r"^```(python|bash)\n(.*?)^```"


def own_text(page: Path) -> str:
    return page.read_text(encoding="utf-8")


def files_of(page: Path) -> dict[str, str]:
    """Return the files whose names stand above their code."""
    return dict(re.findall(r'^```python title="([\w.]+)"\n(.*?)^```', own_text(page), flags=re.DOTALL | re.MULTILINE))


@pytest.fixture
def pushed(monkeypatch):
    """A stand-in for the Hub that keeps the name of the repository and sends nothing."""
    names: list[str] = []
    monkeypatch.setattr(WeftForConditionalGeneration, "push_to_hub", lambda self, name: names.append(name))
    return names


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, id=page.stem, marks=() if page.stem == "quick-start" else pytest.mark.integration)
        for page in PAGES
        if blocks(own_text(page), "python")
    ],
)
def test_python_blocks_run(page, request, pushed, monkeypatch, tmp_path, capsys):
    monkeypatch.chdir(tmp_path)
    torch.manual_seed(0)
    if page.stem == "routes":
        Path("runs").mkdir()
        Path("runs/routes").symlink_to(request.getfixturevalue("planner_folder"))
        Path("stock.smi").write_text("CC(=O)O\nNCc1ccccc1\n")
    if page.stem == "README":
        Path("training").symlink_to(ROOT / "training")
    if page.stem == "changing":
        monkeypatch.syspath_prepend(tmp_path)
        for name, code in files_of(page).items():
            Path(name).write_text(code)
    namespace: dict = {}
    for number, (language, code) in enumerate(re.findall(CODE, own_text(page), flags=re.DOTALL | re.MULTILINE), 1):
        if language == "bash":  # of the commands, those that need no file from elsewhere
            for line in code.replace("\\\n", "").splitlines():
                if line.startswith("weftformer convert torch mine.pt"):
                    assert cli.main(shlex.split(line)[1:]) == 0
            continue
        exec(compile(code.replace("max_steps=400", "max_steps=2"), f"{page.name}, block {number}", "exec"), namespace)
    out = capsys.readouterr().out
    if page.stem == "quick-start":
        assert pushed == ["your-name/your-model"]
    if page.stem == "README":
        assert "['Anna Smith']" in out
    if page.stem == "changing":
        shutil.copytree("runs", "elsewhere/runs")  # without the other file
        code = f"import sys; sys.modules['weftformer'] = None\n{files_of(page)['elsewhere.py']}"
        lines = printed_elsewhere(code, folder=tmp_path / "elsewhere").splitlines()
        assert [line.partition(" tensor")[0] for line in lines] == ["GatedWeft 1.0", "ScaledWeft 1.0"]
    if page.stem == "routes":
        assert "True ()" in out and "False ('CCO',)" in out
        assert "precedented 532 amide coupling" in out and "is made from itself" in out


def test_commands_and_modules_exist():
    commands = [block.replace("\\\n", "") for page in PAGES for block in blocks(own_text(page), "bash")]
    for line in (line for block in commands for line in block.splitlines()):
        words = shlex.split(line, comments=True)
        name = " ".join(words[1 : 3 if words[1:2] == ["routes"] else 2])
        if words[:1] == ["weftformer"]:
            options = cli.build_parser([name])[1][name]._option_string_actions
            given = {word.partition("=")[0] for word in words if word.startswith("--")}
            assert name.endswith("train") or given <= {*options}, line
        for package, name in re.findall(r"-m weftformer\.((?:routes\.)?(?:scripts|benchmarks|recipes))\.?(\w*)", line):
            assert (ROOT / package.replace(".", "/") / f"{name or '__main__'}.py").is_file(), line


@pytest.mark.parametrize(("recipe", "preset", "rate"), [("multi30k", "tiny", 5e-3), ("starter", "modern-tiny", 3e-3)])
def test_the_recipe_is_read(recipe, preset, rate):
    needed = ["--train-file", "pairs.csv", "--output-dir", "runs/de", "--use-cpu", "--bf16", "false"]
    model, _, training = parse_arguments([str(ROOT / "recipes" / f"{recipe}.yaml"), *needed])
    assert (model.preset, training.learning_rate) == (preset, rate)


@pytest.fixture(scope="module")
def prepared():
    spec = importlib.util.spec_from_file_location("prepare", ROOT / "docs" / "prepare.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.main()
    return module


def test_generated_pages(prepared):
    text = own_text(prepared.GENERATED / "commands.md")
    assert re.findall(r"^## weftformer (.+)$", text, flags=re.MULTILINE) == list(cli.commands())
    for name in ("routes", "translation"):
        page = own_text(prepared.GENERATED / "notebooks" / f"{name}.md")
        assert page.startswith("# ") and "```python\n" in page


@pytest.mark.integration
def test_pages_are_built_without_a_warning(prepared):
    pytest.importorskip("zensical")
    words = ["-m", "zensical", "build", "--strict", "--clean"]
    done = subprocess.run([sys.executable, *words], cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, (done.stdout + done.stderr)[-3000:]
    site = ROOT / "runs" / "site"
    assert "WeftForConditionalGeneration" in (site / "api" / "index.html").read_text(encoding="utf-8")
    # zensical does not report a missing page of the navigation
    for page in re.findall(r": ([\w/-]+)\.md$", (ROOT / "mkdocs.yml").read_text(encoding="utf-8"), flags=re.MULTILINE):
        assert (site / page.removesuffix("index") / "index.html").is_file(), page
    assert "--only-purchasable" in (site / "generated" / "commands" / "index.html").read_text(encoding="utf-8")


NOTEBOOKS = sorted((ROOT / "docs" / "notebooks").glob("*.ipynb"))


@pytest.mark.integration
@pytest.mark.parametrize("file", NOTEBOOKS, ids=lambda file: file.stem)
def test_a_notebook_runs(file, tmp_path, monkeypatch):
    """From the first cell to the last, with few steps."""
    nbclient, nbformat = pytest.importorskip("nbclient"), pytest.importorskip("nbformat")
    pytest.importorskip("ipykernel")
    monkeypatch.setenv("STEPS", "4")
    monkeypatch.setenv("NUM_ROUTES", "60")
    book = nbformat.read(file, as_version=4)
    assert all(not cell.get("outputs") for cell in book.cells), "clear the outputs: they hide what is written"
    client = nbclient.NotebookClient(
        book, timeout=300, kernel_name="python3", resources={"metadata": {"path": tmp_path}}
    )
    client.execute()
    outputs = [output for cell in book.cells for output in cell.get("outputs", [])]
    kinds = {kind for output in outputs for kind in output.get("data", {})}
    assert "image/svg+xml" in kinds if file.stem == "routes" else "image/png" in kinds
