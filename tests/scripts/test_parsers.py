"""Help waits for nothing and fits a screen and a half; what it says without torch is what the scripts do with it."""

import importlib
from dataclasses import fields

import pytest

from weftformer.conversion.adaptation import DTYPES, FAMILIES
from weftformer.routes.data.training_data import RouteArguments
from weftformer.scripts import arguments
from weftformer.scripts.parsers import adapt
from weftformer.scripts.train_routes import RouteTrainingArguments
from weftformer.training import (
    DEVICES,
    ArgumentParser,
    DataArguments,
    ModelArguments,
    PretrainingArguments,
    WeftPretrainingArguments,
    WeftTrainingArguments,
    Workload,
)


def parser(name):
    return importlib.import_module(f"weftformer.scripts.parsers.{name.replace('-', '_')}").build_parser()


def actions(parser):
    return {action.dest: action for action in parser._actions if action.dest not in ("help", "help_all")}


@pytest.mark.parametrize(
    ("name", "types"),
    [
        ("train", [ModelArguments, DataArguments, WeftTrainingArguments]),
        ("pretrain", [ModelArguments, PretrainingArguments, WeftPretrainingArguments]),
        ("train-routes", [RouteArguments, RouteTrainingArguments]),
        ("pretrain", [ModelArguments, PretrainingArguments, WeftPretrainingArguments]),
    ],
)
def test_common_options_of_training_are_those_that_are_read(name, types):
    real = actions(ArgumentParser(types))
    for dest, action in actions(parser(name)).items():
        assert dest in real, f"{action.option_strings}: there is no such option"
        if action.choices:
            assert set(action.choices) == set(real[dest].choices)
        if action.default is not None and not isinstance(action.default, bool):
            assert action.default == real[dest].default, dest
        known = {
            spelling for one in real[dest].container._actions if one.dest == dest for spelling in one.option_strings
        }
        assert set(action.option_strings) <= known


def test_help_all_shows_everything_with_hyphens(capsys):
    with pytest.raises(SystemExit):
        ArgumentParser([ModelArguments, DataArguments, WeftTrainingArguments]).parse(["--help-all"])
    text = capsys.readouterr().out
    assert "--max-source-length" in text and "--fsdp-config" in text and "--max_source_length" not in text


def test_choices_and_defaults_that_are_written_twice():
    assert tuple(FAMILIES) == adapt.FAMILIES
    assert [str(dtype) for dtype in DTYPES] == [f"torch.{name}" for name in adapt.DTYPES]
    assert tuple(DEVICES) == arguments.GPUS
    found, default = actions(parser("estimate")), Workload()
    for field in fields(default):
        assert found[field.name].default == getattr(default, field.name), field.name
