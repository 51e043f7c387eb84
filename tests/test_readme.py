"""What README shows, run."""

import re
import shlex
from pathlib import Path

import pytest

from weftformer import WeftForConditionalGeneration
from weftformer.configuration import PRESETS
from weftformer.scripts import cli

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, flags=re.DOTALL)


@pytest.fixture
def pushed(monkeypatch, tmp_path):
    """Stand-in for the Hub: keeps the name that would be pushed to, sends nothing."""
    names: list[str] = []
    monkeypatch.setattr(WeftForConditionalGeneration, "push_to_hub", lambda self, name: names.append(name))
    monkeypatch.chdir(tmp_path)
    return names


def test_quick_start_runs(pushed, capsys):
    code, _ = blocks("python")
    exec(compile(code.replace("max_steps=400", "max_steps=2"), "README.md", "exec"), {})
    assert pushed == ["your-name/your-model"]


@pytest.mark.slow
def test_quick_start_learns(pushed, capsys):
    code, _ = blocks("python")
    exec(compile(code, "README.md", "exec"), {})
    assert "['four one three']" in capsys.readouterr().out


def test_routes_run(planner, monkeypatch, tmp_path, capsys):
    monkeypatch.chdir(tmp_path)
    planner.model.save_pretrained("runs/routes")
    planner.tokenizer.save_pretrained("runs/routes")
    Path("stock.smi").write_text("CC(=O)O\nNCc1ccccc1\n")
    _, code = blocks("python")
    exec(compile(code, "README.md", "exec"), {})
    out = capsys.readouterr().out
    assert "True ()" in out and "False ('CCO',)" in out
    assert "{'smiles': 'CC(=O)NCc1ccccc1', 'children': [{'smiles': 'CC(=O)O'}, {'smiles': 'NCc1ccccc1'}]}" in out


def test_commands_exist():
    text = "\n".join(blocks("bash")).replace("\\\n", " ")
    commands = {
        words[1]
        for line in text.splitlines()
        if (words := shlex.split(line, comments=True)) and words[0] == "weftformer"
    }
    assert commands and commands <= set(cli.COMMANDS)


def test_every_preset_is_listed():
    table = README[README.index("## Sizes") : README.index("## Results")]
    assert set(re.findall(r"`([a-z0-9-]+)`", table)) == set(PRESETS)
