"""The console command: quick help, arguments read once, one line for an error, an exit code for the shell."""

import json
import os
import re
import subprocess
import sys
import types
from pathlib import Path

import pytest

import weftformer
import weftformer_command
from weftformer.scripts import cli
from weftformer.scripts.arguments import check_model
from weftformer.scripts.parsing import parse_arguments

HEAVY = ("torch", "transformers", "datasets", "numpy", "rdkit", "accelerate", "tokenizers")
LINES, COLUMNS = 70, 120


@pytest.fixture
def fake(monkeypatch):
    """Register a command `fake` whose `main` is the given function."""

    def register(main):
        module = types.ModuleType("fake", "What it does.")
        module.add_arguments = lambda parser: [
            parser.add_argument("--max-steps", type=int), parser.add_argument("rest", nargs="*")
        ]  # fmt: skip
        module.main = main
        monkeypatch.setitem(sys.modules, "weftformer.scripts.fake", module)
        monkeypatch.setitem(cli.COMMANDS, "fake", "does nothing")
        monkeypatch.delenv("WEFT_DEBUG", raising=False)

    return register


@pytest.fixture(scope="module")
def helps():
    """The output of each command for --help and mistakes in a fresh process, and the modules imported by then."""
    code = f"""
import contextlib, io, json, sys
import weftformer_command
weftformer_command.import_parts()
from weftformer.scripts import cli
from weftformer.common.extensions import parts_of_extensions
results = {{}}
for words in [["--help"], ["--version"], [], *([kind] for kind in parts_of_extensions("commands")), *([*name.split(), "--help"] for name in cli.commands()),
              ["convert"], ["generate", "--beams", "x"], ["generate", "--model", "./no", "x"],
              ["evaluate", "no.csv", "--model", "./no"]]:
    out, err, code = io.StringIO(), io.StringIO(), 0
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            code = cli.main(words)
        except SystemExit as exit_:
            code = exit_.code
    heavy = [name for name in {HEAVY!r} if name in sys.modules]
    results[" ".join(words)] = [code, out.getvalue(), err.getvalue(), heavy]
print(json.dumps(results))
"""
    words = [sys.executable, "-c", code]
    surroundings = os.environ | {"COLUMNS": str(COLUMNS)}
    return json.loads(subprocess.run(words, capture_output=True, text=True, check=True, env=surroundings).stdout)


def test_help_and_mistakes_import_nothing_heavy(helps):
    assert {words: heavy for words, (*_, heavy) in helps.items() if heavy} == {}
    for words, message in {
        "generate --model ./no x": "--model ./no: there is no such folder.",
        "evaluate no.csv --model ./no": "the file no.csv does not exist",
    }.items():
        code, _, err, _ = helps[words]
        assert code == 1 and message in err
    assert helps["--version"][:2] == [0, f"weftformer {weftformer.__version__}\n"]
    assert helps[""] == helps["--help"] and all(
        f"\n    {name.split()[-1]}" in helps[name.rpartition(" ")[0]][1] for name in cli.commands()
    )
    assert "\ncommands for texts:\n" in helps[""][1]
    code, _, err, _ = helps["convert"]
    assert code == 2 and "the following arguments are required: PATH, OUT" in err
    code, _, err, _ = helps["generate --beams x"]
    assert code == 2 and "argument --beams: 'x' is not a whole number" in err


@pytest.mark.integration
def test_the_package_registers_the_family_whatever_was_imported_before():
    code = """
import weftformer_command, weftformer.common.workers
from transformers import AutoConfig
assert type(AutoConfig.for_model("weft")) is weftformer.WeftConfig
"""
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("name", cli.commands())
def test_help_is_a_screen_and_a_half(helps, name):
    code, text, _, _ = helps[f"{name} --help"]
    assert code == 0 and text.startswith(f"usage: weftformer {name}")
    assert len(text.splitlines()) <= LINES
    options = re.findall(r"^  (?:-\w, )?(--[\w-]+)", text, flags=re.MULTILINE)
    assert options and not any("_" in option for option in options)


@pytest.mark.parametrize(("word", "hint"), [("xyz", ""), ("trian", " Did you mean `train`?")])
def test_unknown_command(capsys, word, hint):
    assert cli.main(word.split()) == 2
    assert capsys.readouterr().err == (
        f"weftformer: there is no command {word!r}.{hint}\nCommands: {', '.join(cli.commands())}\n"
    )


def test_a_missing_extra_is_named_before_the_long_imports(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "fastapi", None)
    assert cli.main(["serve"], import_package=lambda: pytest.fail("imported")) == 1
    assert 'needs fastapi. Install it in your clone of Weft: pip install -e ".[serve]"' in capsys.readouterr().err


def test_arguments_and_exit_code_pass_through(fake, capsys):
    seen = []
    fake(lambda args: seen.append((args.max_steps, args.rest)) or 3)
    # underscores are hyphens, in the names of options alone
    assert cli.main(["fake", "--max_steps=4", "a_b", "--", "--c_d"]) == 3 and seen == [(4, ["a_b", "--c_d"])]
    fake(lambda args: None)
    assert cli.main(["fake"]) == 0
    with pytest.raises(SystemExit) as exit_:
        cli.main(["fake", "--mix-steps"])
    assert exit_.value.code == 2
    assert capsys.readouterr().err.endswith("there is no argument --mix-steps. Did you mean `--max-steps`?\n")


@pytest.mark.parametrize("model", ["file", "folder", "./none", "a/b/c"])
def test_a_folder_without_a_model_is_refused(tmp_path, monkeypatch, model):
    monkeypatch.chdir(tmp_path)
    Path("file").touch()
    Path("folder").mkdir()
    with pytest.raises(ValueError, match=f"--model {model}"):
        check_model(model)


MEMORY = "error: There is not enough memory: use fewer beams, smaller batches or a smaller model."


@pytest.mark.parametrize(
    ("error", "code", "line"),
    [
        (ValueError("column x\n  is missing"), 1, "error: column x is missing"),
        (PermissionError("no"), 1, "error: no"),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried ..."), 1, MEMORY),
        (MemoryError(), 1, MEMORY),
        (
            ChildProcessError("it ran out of memory (try fewer workers)"),
            1,
            "error: it ran out of memory (try fewer workers)",
        ),
        (type("PanicException", (BaseException,), {})("a pattern"), 1, "error: a pattern"),
        (KeyboardInterrupt(), 130, "interrupted"),
    ],
)
def test_an_error_is_one_line(fake, monkeypatch, capsys, error, code, line):
    def fail(args):
        raise error

    fake(fail)
    assert cli.main(["fake"]) == code
    assert capsys.readouterr().err == f"weftformer fake: {line}\n"
    monkeypatch.setenv("WEFT_DEBUG", "1")
    if code == 1:
        with pytest.raises(type(error)):
            cli.main(["fake"])
    monkeypatch.delenv("WEFT_DEBUG")
    fake(lambda args: {}["bug"])
    with pytest.raises(KeyError):
        cli.main(["fake"])


@pytest.mark.parametrize(("is_terminal", "expected"), [(False, "1"), (True, None)])
def test_a_log_has_no_bars_of_other_packages(monkeypatch, is_terminal, expected):
    names = [f"{package}_DISABLE_PROGRESS_BARS" for package in ("HF_HUB", "HF_DATASETS")]
    for name in names:
        monkeypatch.setenv(name, "0")  # restored afterwards
        monkeypatch.delenv(name)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: is_terminal, raising=False)
    monkeypatch.setattr(sys, "argv", ["weftformer", "--version"])
    with pytest.raises(SystemExit):
        weftformer_command.main()
    assert [os.environ.get(name) for name in names] == [expected] * 2


def test_help_of_all_options_is_short_and_names_both_spellings(capsys):
    with pytest.raises(SystemExit):
        cli.main(["train", "--help"])
    assert "--epochs N, --num-train-epochs N" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        parse_arguments(["--help-all"])
    text = capsys.readouterr().out
    assert len(text.splitlines()) < 450 and "--epochs" in text and "--lr-scheduler-type VALUE" in text
