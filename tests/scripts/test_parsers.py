"""Help waits for nothing and fits a screen and a half; what it says without torch is what the scripts do with it."""

import argparse
import importlib
import importlib.util
import json
import os
import subprocess
import sys
from dataclasses import fields

import pytest

from weftformer.benchmarks.decoding import CASES
from weftformer.conversion import SOURCES
from weftformer.conversion.adaptation import DTYPES, FAMILIES
from weftformer.conversion.files import READABLE
from weftformer.routes.data.preparation import Preparation
from weftformer.routes.data.rows import STARTING_MATERIALS
from weftformer.routes.data.selection import EXCLUDE_BY
from weftformer.routes.planning.constraints import RULES
from weftformer.routes.planning.search import RANKINGS
from weftformer.routes.plans import IMPOSSIBLE
from weftformer.routes.scoring.evaluation import KS
from weftformer.scripts import adapt, arguments, cli
from weftformer.scripts.parsers import benchmark, convert
from weftformer.scripts.parsing import ArgumentParser
from weftformer.training import DataArguments, ModelArguments, WeftTrainingArguments

HEAVY = ("torch", "transformers", "datasets", "numpy", "rdkit", "accelerate", "tokenizers")
LINES, COLUMNS = 60, 120
# Their arguments are fields of dataclasses, and common help a choice of them.
TRAINING = ("train", "train-routes", "pretrain")


def parser(name):
    module = f"weftformer.scripts.parsers.{name.replace('-', '_')}"
    if importlib.util.find_spec(module) is not None:
        return importlib.import_module(module).build_parser()
    return cli.build_parser(name, importlib.import_module(cli.COMMANDS[name][0]))


def actions(parser):
    return {action.dest: action for action in parser._actions if action.dest not in ("help", "help_all")}


@pytest.fixture(scope="module")
def helps():
    """What each command answers to --help in a process that was started as the command, and what it had imported."""
    code = f"""
import contextlib, io, json, sys
sys.argv = ["/somewhere/bin/weftformer"]
from weftformer.scripts import cli
from weftformer.scripts.cli import main
found = {{}}
for words in [["--help"], ["--version"], [], *([name, "--help"] for name in cli.COMMANDS), ["convert"], ["generate", "--beams", "x"]]:
    out, err, code = io.StringIO(), io.StringIO(), 0
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            code = main(words)
        except SystemExit as exit_:
            code = exit_.code
    found[" ".join(words)] = [code, out.getvalue(), err.getvalue(), [name for name in {HEAVY!r} if name in sys.modules]]
print(json.dumps(found))
"""
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env=os.environ | {"COLUMNS": str(COLUMNS)},
    )
    return json.loads(done.stdout)


def test_help_and_mistakes_import_nothing_heavy(helps):
    assert len(helps) == len(cli.COMMANDS) + 5
    assert {words: heavy for words, (*_, heavy) in helps.items() if heavy} == {}
    assert helps["--version"][1].startswith("weftformer 0.")
    code, _, err, _ = helps["convert"]
    assert code == 2 and "the following arguments are required: PATH, OUT" in err
    code, _, err, _ = helps["generate --beams x"]
    assert code == 2 and "argument --beams: invalid int value" in err


@pytest.mark.parametrize("name", cli.COMMANDS)
def test_help_is_a_screen_and_a_half(helps, name):
    code, text, _, _ = helps[f"{name} --help"]
    assert code == 0 and text.startswith(f"usage: weftformer {name}")
    assert len(text.splitlines()) <= LINES
    assert max(map(len, text.splitlines())) <= COLUMNS + 10  # examples are not broken
    if name in TRAINING:
        assert "--help-all" in text


def test_python_m_weftformer_is_as_quick():
    words = [sys.executable, "-X", "importtime", "-m", "weftformer", "plan", "--help"]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    assert done.stdout.startswith("usage: weftformer plan") and "torch" not in done.stderr


@pytest.mark.integration
def test_the_package_gives_its_names_in_the_command_too():
    code = """
import sys
sys.argv = ["weftformer"]
import weftformer
assert "transformers" not in sys.modules
import weftformer.family as family
assert all(getattr(weftformer, name) is getattr(family, name) for name in weftformer.__all__)
assert weftformer.__all__ == family.__all__
try:
    weftformer.nothing
except AttributeError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "module 'weftformer' has no attribute 'nothing'\n"


def test_help_all_shows_everything_with_hyphens(capsys):
    with pytest.raises(SystemExit):
        ArgumentParser([ModelArguments, DataArguments, WeftTrainingArguments]).parse(["--help-all"])
    text = capsys.readouterr().out
    assert "--max-source-length" in text and "--fsdp-config" in text and "--max_source_length" not in text


def test_choices_and_defaults_that_are_written_twice():
    found = actions(parser("prepare-routes"))
    assert tuple(found["exclude_by"].choices) == EXCLUDE_BY
    assert tuple(found["starting_material"].choices) == STARTING_MATERIALS
    default = Preparation()
    for field in fields(default):
        if field.name in found and field.name != "weights":
            assert found[field.name].default == getattr(default, field.name), field.name
    assert {name: source.title for name, source in SOURCES.items()} == convert.SOURCES
    assert sorted(READABLE) == sorted(convert.READABLE)
    assert [str(dtype) for dtype in DTYPES] == [f"torch.{name}" for name in adapt.DTYPES]
    assert all(family in adapt.EPILOG for family in FAMILIES)
    assert tuple(RANKINGS) == arguments.RANKINGS
    assert tuple(RULES) == arguments.RULES_TO_SWITCH_OFF
    assert tuple(IMPOSSIBLE) == arguments.IMPOSSIBLE
    assert actions(parser("evaluate"))["ks"].default == list(KS)
    assert tuple(CASES) == benchmark.CASES


def test_bounds_of_the_server():
    limits = pytest.importorskip("weftformer.serving").Limits
    found = actions(parser("serve"))
    assert {field.name: getattr(limits(), field.name) for field in fields(limits)} == {
        field.name: found[field.name].default for field in fields(limits)
    }


@pytest.mark.parametrize("name", [name for name in cli.COMMANDS if name not in TRAINING])
def test_options_have_hyphens_and_take_underscores(name):
    for action in parser(name)._actions:
        assert all("_" not in option for option in action.option_strings)
    words = argparse.Namespace()
    one = arguments.Parser()
    one.add_argument("--max-new-tokens", type=int)
    one.add_argument("rest", nargs="*")
    one.parse_args(["--max_new_tokens", "3", "a_b", "--", "--c_d"], words)
    assert words.max_new_tokens == 3 and words.rest == ["a_b", "--c_d"]
    assert one.parse_args(["--max_new_tokens=4"]).max_new_tokens == 4


def test_old_spellings_are_understood():
    assert str(parser("prepare-routes").parse_args(["a.json", "--out", "b"]).out) == "b"
