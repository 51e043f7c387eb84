"""The console command: quick help, the right script, one line for an error, an exit code for the shell."""

import runpy
import sys
import types
from pathlib import Path

import pytest

from weftformer.scripts import cli

SCRIPTS = Path(cli.__file__).parent


def _script(monkeypatch, main):
    """Register `main` as the command `fake`."""
    module = types.ModuleType("fake_script")
    module.main = main
    monkeypatch.setitem(sys.modules, "fake_script", module)
    monkeypatch.setitem(cli.COMMANDS, "fake", ("fake_script", "does nothing"))


def test_help_lists_every_command(capsys):
    assert cli.main(["--help"]) == 0
    output = capsys.readouterr().out
    for name in cli.COMMANDS:
        assert f"\n  {name} " in output


def test_every_command_names_a_script():
    for module, text in cli.COMMANDS.values():
        package, _, name = module.rpartition(".")
        assert package in ("weftformer.scripts", "weftformer.benchmarks") and text
        assert (SCRIPTS.parent / package.split(".")[1] / f"{name}.py").is_file()


def test_without_a_command_the_help(capsys):
    assert cli.main([]) == 0
    assert "usage: weftformer" in capsys.readouterr().out


@pytest.mark.parametrize(("word", "hint"), [("trian", " Did you mean `train`?"), ("xyz", "")])
def test_unknown_command(capsys, word, hint):
    assert cli.main([word]) == 2
    assert capsys.readouterr().err == (
        f"weftformer: there is no command {word!r}.{hint}\nCommands: {', '.join(cli.COMMANDS)}\n"
    )


def test_arguments_and_exit_code_pass_through(monkeypatch):
    seen = []
    _script(monkeypatch, lambda argv: seen.append(argv) or 3)
    assert cli.main(["fake", "--help", "x"]) == 3
    assert seen == [["--help", "x"]]
    _script(monkeypatch, lambda argv: None)
    assert cli.main(["fake"]) == 0


@pytest.mark.parametrize("error", [ValueError, FileNotFoundError, PermissionError])
def test_an_error_is_one_line(monkeypatch, capsys, error):
    def fail(argv):
        raise error("column x\n  is missing")

    _script(monkeypatch, fail)
    monkeypatch.delenv("WEFT_DEBUG", raising=False)
    assert cli.main(["fake"]) == 1
    assert capsys.readouterr().err == "weftformer fake: error: column x is missing\n"
    monkeypatch.setenv("WEFT_DEBUG", "1")
    with pytest.raises(error):
        cli.main(["fake"])


def test_a_bug_keeps_its_traceback(monkeypatch):
    def fail(argv):
        raise KeyError("bug")

    _script(monkeypatch, fail)
    with pytest.raises(KeyError):
        cli.main(["fake"])


def test_python_m_weft(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["weftformer", "--version"])
    with pytest.raises(SystemExit) as exit_:
        runpy.run_module("weftformer", run_name="__main__")
    assert exit_.value.code == 0
    assert capsys.readouterr().out.startswith("weftformer ")


def test_help_of_train(capsys):
    with pytest.raises(SystemExit) as exit_:
        cli.main(["train", "--help"])
    assert exit_.value.code == 0
    output = capsys.readouterr().out
    for words in ("usage: weftformer train", "--train-file", "--preset", "--learning-rate", "--overwrite-output-dir"):
        assert words in output


def test_errors_of_train_are_one_line(capsys, monkeypatch):
    monkeypatch.delenv("WEFT_DEBUG", raising=False)
    assert cli.main(["train", "--train-file", "nowhere.csv", "--output-dir", "out", "--use-cpu"]) == 1
    last = capsys.readouterr().err.splitlines()[-1]
    assert last.startswith("weftformer train: error: the file nowhere.csv does not exist.")
