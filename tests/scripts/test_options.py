"""What help says without torch is what the rooms do with it."""

from dataclasses import fields

import pytest

from weftformer.conversion.adaptation import DTYPES, FAMILIES
from weftformer.estimation import Workload
from weftformer.scripts import adapt, cli
from weftformer.scripts.parsing import ArgumentParser
from weftformer.training import DataArguments, ModelArguments, WeftTrainingArguments


def test_help_all_shows_everything_with_hyphens(capsys):
    with pytest.raises(SystemExit):
        ArgumentParser([ModelArguments, DataArguments, WeftTrainingArguments]).parse(["--help-all"])
    text = capsys.readouterr().out
    assert "--max-source-length" in text and "--fsdp-config" in text and "--max_source_length" not in text


def test_choices_and_defaults_are_those_of_the_rooms():
    assert [str(dtype) for dtype in DTYPES] == [f"torch.{name}" for name in adapt.DTYPES]
    assert all(family in adapt.EPILOG for family in FAMILIES)
    parser = cli.build_parser(["estimate"])[1]["estimate"]
    default = Workload()
    for field in fields(default):
        assert parser.get_default(field.name) == getattr(default, field.name), field.name
