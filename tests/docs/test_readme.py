"""The commands of README run and print what it shows except for figures. `test_pages.py` runs its Python."""

import re
import shlex
from pathlib import Path

import pytest

from weftformer.scripts import cli

from .test_pages import ROOT, blocks

README = (ROOT / "README.md").read_text(encoding="utf-8")


def commands(text: str) -> list[list[str]]:
    """Return the words of the `weftformer` commands in a text, in order, without the first word."""
    lines = "\n".join(blocks(text, "bash")).replace("\\\n", " ").splitlines()
    words = [shlex.split(line, comments=True) for line in lines]
    return [rest for first, *rest in filter(None, words) if Path(first).name == "weftformer"]


def section(title: str) -> str:
    return README.split(f"\n## {title}\n")[1].split("\n## ")[0]


def printed(name: str) -> list[str]:
    """Return the lines that README shows as output."""
    return re.findall(rf"<!-- printed: {name} -->\n```text\n(.*?)```", README, flags=re.DOTALL)[0].splitlines()


def shape(line: str) -> str:
    """Return a line without its figures and spaces."""
    return " ".join(re.sub(r"\d[\d,.]*", "#", line).split())


@pytest.fixture(autouse=True)
def surroundings(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def test_it_is_short():
    assert len(README.splitlines()) < 140


def test_the_picture_is_what_the_command_draws():
    pytest.importorskip("rdkit")
    (line,) = re.findall(r"`(weftformer routes draw [^`]*)`", README)
    words = [str(ROOT / word) if word.startswith("docs/") else word for word in shlex.split(line)[1:]]
    stock = Path("stock.smi")
    stock.write_text((ROOT / "docs" / "bought.smi").read_text())  # a cache is written beside it
    words[words.index("--stock") + 1] = str(stock)
    assert cli.main(words) == 0
    assert Path("route.svg").read_text() == (ROOT / "docs" / "route.svg").read_text()


@pytest.mark.integration
def test_a_target_is_planned(capsys):
    pytest.importorskip("rdkit")
    plan, serve = commands(section("You have a target molecule"))
    assert cli.main(plan) == 0 and serve == ["serve"]
    output = capsys.readouterr().out
    lines = output.splitlines()
    # only the kinds of lines, because two searches share the time, and another processor may find another route first
    kinds = ("├", "│", "└", "rank", "step 1: ", "step 2: ")
    for line in printed("plan"):
        kind = next((kind for kind in kinds if line.startswith(kind)), line)
        assert any(other.startswith(kind) for other in lines), line
    assert sum(line.startswith("rank 1") for line in lines) == 1 and Path("routes.html").is_file()


@pytest.mark.integration
def test_pairs_are_learned_and_new_lines_answered(capsys):
    rows = [f"{first} {second},{second} {first}" for first in "abcdefgh" for second in "abcdefgh"]
    Path("pairs.csv").write_text("question,answer\n" + "\n".join(rows) + "\n")
    Path("new.csv").write_text("question\na b\nc d\ne f\n")
    train, generate = commands(section("You have a csv of pairs"))
    assert cli.main([*train, "--max-steps", "2", "--use-cpu"]) == 0
    assert cli.main(generate) == 0
    assert Path("answers.txt").read_text().count("\n") == 3
    found = [shape(line) for line in "".join(capsys.readouterr()).splitlines()]
    for line in printed("csv"):
        assert shape(line) in found, line


def test_links_lead_somewhere():
    for link in re.findall(r"\]\(([^)#]+)", README):
        assert link.startswith("https://") or (ROOT / link).exists(), link
