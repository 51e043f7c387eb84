"""The commands of `make demo` are commands of `weftformer`, on files of this repository."""

import re
import shlex
from pathlib import Path

import pytest

from weftformer.scripts import cli
from weftformer.scripts.parsing import parse_arguments

ROOT = Path(__file__).parents[2]
RECIPE = re.search(r"^demo:.*\n((?:\t.*\n)+)", (ROOT / "Makefile").read_text(), flags=re.MULTILINE)[1]
COMMANDS = [shlex.split(line)[1:] for line in RECIPE.splitlines() if "/weftformer " in line]


@pytest.mark.parametrize("words", COMMANDS, ids=lambda words: words[0])
def test_its_commands_parse(words, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    Path("docs").symlink_to(ROOT / "docs")
    Path("runs/demo-output").mkdir(parents=True)
    name = " ".join(words[: 2 if words[0] == "routes" else 1])
    if name not in cli.commands():
        pytest.skip("the package of routes is not here")
    args = cli.build_parser([name])[1][name].parse_args(words[len(name.split()) :])
    if name == "train":
        _, data, _ = parse_arguments(args.words)
        data.check()
    assert all(Path(word).is_file() for word in words if word.startswith("docs/"))
