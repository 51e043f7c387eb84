"""README's install line, as written, in an empty environment with the newest releases, and its first example there."""

import os
import shlex
import subprocess
import sys
import venv
from pathlib import Path

import pytest

from ..test_readme import blocks, section

ROOT = Path(__file__).parents[2]


def run(line: str, folder: Path, **environment: str) -> str:
    surroundings = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    done = subprocess.run(
        ["bash", "-c", line], cwd=folder, env=surroundings | environment, stdin=subprocess.DEVNULL,
        capture_output=True, text=True, timeout=1200, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-3000:]
    return done.stdout


@pytest.mark.integration
def test_the_install_line_gives_a_package_that_runs_the_first_example(tmp_path):
    asks = [sys.executable, "-m", "pip", "index", "versions", "transformers"]
    if subprocess.run(asks, capture_output=True, check=False, timeout=300).returncode:
        pytest.skip("there is no package index")
    if not (ROOT / ".git").exists():
        pytest.skip("this is not a clone")
    venv.create(tmp_path / "empty", with_pip=True)
    programs = {"PATH": os.pathsep.join([str(tmp_path / "empty" / "bin"), os.environ["PATH"]])}
    (line,) = blocks("bash", section("Install"))
    assert "REPOSITORY-URL" in line and "transformers" not in line
    run(line.replace("REPOSITORY-URL", shlex.quote(str(ROOT))), tmp_path, **programs)
    (example,) = blocks("python", section("Install"))
    (tmp_path / "example.py").write_text(example, encoding="utf-8")
    printed = run("python example.py", tmp_path, HF_HUB_OFFLINE="1", **programs)
    assert f"This prints `{printed.strip()}`" in section("Install")
    assert run("weftformer --version", tmp_path, **programs).startswith("weftformer ")
