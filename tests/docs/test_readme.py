"""The commands of README run and print what it shows except for figures."""

import re
import shlex
from pathlib import Path

import pytest

from weftformer.scripts import cli

from .test_pages import ROOT, blocks

README = (ROOT / "README.md").read_text(encoding="utf-8")


def commands(text: str) -> list[list[str]]:
    """Return the words of the `weftformer` commands in a text, in order, without the first word. Files of the
    repository get their whole paths."""
    lines = "\n".join(blocks(text, "bash")).replace("\\\n", " ").splitlines()
    words = [shlex.split(line, comments=True) for line in lines]
    return [
        [str(ROOT / word) if word.startswith(("docs/", "training/")) else word for word in rest]
        for first, *rest in filter(None, words)
        if Path(first).name == "weftformer"
    ]


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
    lines = README.splitlines()
    assert len(lines) <= 110 and max(map(len, lines)) <= 120
    assert "`make demo`" in README and "`make test`" in README


def test_the_picture_is_what_the_command_draws():
    pytest.importorskip("rdkit")
    (words,) = [words for words in commands(README) if "draw" in words]
    stock = Path("stock.smi")
    stock.write_text((ROOT / "docs" / "bought.smi").read_text())  # a cache is written beside it
    words[words.index("--stock") + 1] = str(stock)
    assert cli.main(words) == 0
    assert Path("route.svg").read_text() == (ROOT / "docs" / "route.svg").read_text()


def test_the_starter_tidies_a_table(capsys):
    _, tidy = commands(section("Try the included models"))
    entries = Path(tidy[-1]).read_text(encoding="utf-8").replace('"', "").splitlines()[1:]
    assert cli.main(tidy) == 0
    answers = capsys.readouterr().out.splitlines()
    assert all(f"`{entry}`" in section("Try the included models") for entry in entries)
    assert answers == printed("included")[-len(entries) :]


@pytest.mark.integration
def test_targets_are_planned(capsys):
    pytest.importorskip("rdkit")
    lidocaine, _ = commands(section("Try the included models"))
    safinamide, _, serve = commands(section("You have a target molecule"))
    assert cli.main(lidocaine) == 0 and cli.main(safinamide) == 0 and serve == ["serve"]
    found = {shape(line) for line in capsys.readouterr().out.splitlines()}
    for line in printed("included")[:-4] + printed("plan"):
        assert shape(line) in found, line
    assert Path("routes.html").is_file()


@pytest.mark.integration
def test_pairs_are_learned_and_new_lines_answered(capsys):
    rows = [f"{first} {second},{second} {first}" for first in "abcdefgh" for second in "abcdefgh"]
    Path("pairs.csv").write_text("question,answer\n" + "\n".join(rows) + "\n")
    Path("new.csv").write_text("question\na b\nc d\ne f\n")
    train, generate = commands(section("You have a csv of pairs"))
    assert cli.main([*train, "--max-steps", "2", "--use-cpu"]) == 0
    assert cli.main(generate) == 0
    assert Path("answers.txt").read_text().count("\n") == 3
    found = [shape(line).partition(":")[0] for line in "".join(capsys.readouterr()).splitlines()]
    for line in printed("csv"):
        assert shape(line).partition(":")[0] in found, line


def test_links_lead_somewhere():
    for link in re.findall(r"\]\(([^)#]+)", re.sub(r"```.*?```", "", README, flags=re.DOTALL)):
        assert link.startswith("https://") or (ROOT / link).exists(), link
