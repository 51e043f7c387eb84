"""Every Python block of the documentation runs, every command in it exists, and the pages are built without a warning."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from weftformer.scripts import cli

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted((ROOT / "docs").glob("*.md"))
README = (ROOT / "README.md").read_text(encoding="utf-8")


def blocks(text: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", text, flags=re.DOTALL | re.MULTILINE)


def own_text(page: Path) -> str:
    """Without what is included from README, whose blocks have a test of their own."""
    return page.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    "page", [page for page in PAGES if blocks(own_text(page), "python")], ids=lambda page: page.stem
)
def test_python_blocks_run(page, monkeypatch, tmp_path, capsys):
    monkeypatch.chdir(tmp_path)
    namespace: dict = {}
    for number, code in enumerate(blocks(own_text(page), "python"), 1):
        exec(compile(code, f"{page.name}, block {number}", "exec"), namespace)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_commands_exist(page):
    for block in blocks(own_text(page), "bash"):
        for line in block.replace("\\\n", " ").splitlines():
            words = shlex.split(line, comments=True)
            if words and words[0] == "weftformer":
                assert words[1] in cli.COMMANDS, line
            modules = re.findall(r"-m weftformer\.(scripts|benchmarks)\.(\w+)", line)
            assert all((ROOT / room / f"{name}.py").is_file() for room, name in modules), line


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_included_parts_of_readme_are_there(page):
    for name in re.findall(r'^--8<-- "README.md:([\w-]+)"$', own_text(page), flags=re.MULTILINE):
        assert README.count(f"<!-- --8<-- [start:{name}] -->") == README.count(f"<!-- --8<-- [end:{name}] -->") == 1


def test_pages_are_built_without_a_warning(tmp_path):
    pytest.importorskip("material")
    words = ["-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path / "site")]
    done = subprocess.run([sys.executable, *words], cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    assert "WeftForConditionalGeneration" in (tmp_path / "site" / "api" / "index.html").read_text(encoding="utf-8")
    assert "--8&lt;--" not in (tmp_path / "site" / "routes" / "index.html").read_text(encoding="utf-8")
