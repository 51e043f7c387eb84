"""The commands of routes in the help and in hints."""

import sys

import pytest

from weftformer.scripts import cli


def test_the_commands_have_a_heading_of_their_own(capsys):
    with pytest.raises(SystemExit):
        cli.main(["--help"])
    texts, molecules = capsys.readouterr().out.split("\ncommands for molecules:\n")
    assert "\ncommands for texts:\n" in texts and molecules.startswith("    routes ")


@pytest.mark.parametrize(("words", "hint"), [("routes drwa", "routes draw"), ("plan", "routes plan")])
def test_a_hint_names_the_command(capsys, words, hint):
    assert cli.main(words.split()) == 2
    assert f"Did you mean `{hint}`?" in capsys.readouterr().err


def test_a_missing_extra_is_named_before_the_long_imports(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "rdkit", None)
    assert cli.main(["routes", "plan", "CCO"], import_package=lambda: pytest.fail("imported")) == 1
    assert '".[chem]"' in capsys.readouterr().err


@pytest.mark.parametrize("name", ["routes plan", "routes expand", "serve"])
def test_the_option_of_scripts_for_earlier_versions_is_ignored(name, capsys):
    parser, words = cli.build_parser([name])[1][name], [] if name == "serve" else ["CCO"]
    assert parser.parse_args([*words, "--forward-model", "none"]) == parser.parse_args(words)
    assert capsys.readouterr().err.count("--forward-model is ignored") == 1
    assert "--forward-model" not in parser.format_help()
