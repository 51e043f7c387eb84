"""Command lines and files of arguments, as the dataclasses of `weftformer train` and `weftformer pretrain`."""

import json
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml
from transformers import HfArgumentParser

from ..configuration.fields import closest
from .arguments import (
    DataArguments,
    ModelArguments,
    PretrainingArguments,
    WeftPretrainingArguments,
    WeftTrainingArguments,
)

_WORDS = {"true": True, "false": False, "none": None, "null": None}


class ArgumentParser(HfArgumentParser):
    """`HfArgumentParser` that raises ValueError instead of printing two hundred lines of usage, and reads files.

    Args:
        dataclass_types: the dataclasses to fill, as in `HfArgumentParser`.
        **kwargs: as in `argparse.ArgumentParser`.
    """

    def __init__(self, dataclass_types, **kwargs):
        super().__init__(dataclass_types, allow_abbrev=False, **kwargs)
        self.add_argument("--help-all", action="help", help="show this list")
        for action in self._actions:  # help shows one spelling; both are understood
            hyphens = [name for name in action.option_strings if "_" not in name]
            action.option_strings = hyphens or action.option_strings

    def error(self, message: str):
        raise ValueError(message)

    def parse(self, argv: Sequence[str]) -> tuple[Any, ...]:
        """Arguments, or a YAML or JSON file and then arguments, which win over the file.

        Returns:
            One instance of each dataclass.

        Raises:
            ValueError: an argument is unknown, mistyped or has no value; the file holds no mapping.
            FileNotFoundError: the file does not exist.
        """
        argv = list(argv)
        if argv and not argv[0].startswith("-") and Path(argv[0]).suffix in (".yaml", ".yml", ".json"):
            # as defaults, not as arguments: texts are then converted as on the command line (YAML reads 5e-4 as text)
            self.set_defaults(**self._read(Path(argv.pop(0))))
        *parsed, unknown = self.parse_args_into_dataclasses(
            argv, return_remaining_strings=True, look_for_args_file=False
        )
        for word in unknown:
            if not word.startswith("-"):
                raise ValueError(f"{word!r} belongs to no argument; arguments begin with --, a file comes first.")
            name = word.lstrip("-").split("=")[0].replace("_", "-")
            names = {known.replace("_", "-") for known in self._names()}
            raise ValueError(f"there is no argument --{name}.{closest(name, names)}")
        return tuple(parsed)

    def _names(self) -> set[str]:
        return {action.dest for action in self._actions if action.dest not in ("help", "help_all")}

    def _read(self, file: Path) -> dict[str, Any]:
        if not file.is_file():
            raise FileNotFoundError(f"the file of arguments {file} does not exist.")
        text = file.read_text(encoding="utf-8")
        try:
            values = json.loads(text) if file.suffix == ".json" else yaml.safe_load(text)
        except (ValueError, yaml.YAMLError) as error:
            raise ValueError(f"{file} cannot be read: {error}") from error
        if not isinstance(values, dict):
            raise ValueError(f"{file} must hold a mapping of arguments to values, and holds {type(values).__name__}.")
        for name in values:
            if name not in self._names():
                raise ValueError(f"{file}: there is no argument `{name}`.{closest(str(name), self._names())}")
        self._check_choices(file, values)
        return values

    def _check_choices(self, file: Path, values: dict[str, Any]) -> None:
        """Check in place what argparse checks on the command line only."""
        for action in self._actions:
            value = values.get(action.dest)
            if not action.choices or value is None:
                continue
            if value is False and "no" in action.choices:  # YAML's reading of `eval_strategy: no`
                value = values[action.dest] = "no"
            if value not in action.choices:
                options = ", ".join(map(str, action.choices))
                raise ValueError(f"{file}: {action.dest}={value!r} is not allowed: choose one of {options}.")


def parse_arguments(
    argv: Sequence[str] | None = None,
) -> tuple[ModelArguments, DataArguments, WeftTrainingArguments]:
    """The arguments of `weftformer train`, from the command line or a file; see [`ArgumentParser.parse`].

    Args:
        argv: the words of the command line (default: those of this process).
    """
    parser = ArgumentParser(
        [ModelArguments, DataArguments, WeftTrainingArguments],
        prog="weftformer train",
        usage="weftformer train [FILE.yaml] --train-file PAIRS --output-dir FOLDER [--option value ...]",
        description="Train a Weft model on pairs of texts, evaluate it by generation, save it in a folder that loads.",
    )
    model_args, data_args, training_args = parser.parse(sys.argv[1:] if argv is None else argv)
    return model_args, data_args, training_args


def parse_pretraining_arguments(
    argv: Sequence[str] | None = None,
) -> tuple[ModelArguments, PretrainingArguments, WeftPretrainingArguments]:
    """The arguments of `weftformer pretrain`, as [`parse_arguments`] has those of `weftformer train`."""
    parser = ArgumentParser(
        [ModelArguments, PretrainingArguments, WeftPretrainingArguments],
        prog="weftformer pretrain",
        usage="weftformer pretrain [FILE.yaml] --train-file TEXTS --output-dir FOLDER --max-steps N [--argument value ...]",
        description="Train a Weft model to mend corrupted texts, and save it in a folder that `weftformer train` goes on from.",
    )
    model_args, data_args, training_args = parser.parse(sys.argv[1:] if argv is None else argv)
    return model_args, data_args, training_args


def parse_overrides(text: dict | str | None, argument: str = "config_overrides") -> dict[str, Any]:
    """Fields of a configuration from JSON or from `key=value,key=value`; values are read as JSON where they are JSON.

    Args:
        argument: the argument that holds the text, for messages.

    Raises:
        ValueError: the text is neither.
    """
    if not text:
        return {}
    if isinstance(text, dict):
        return dict(text)
    if text.lstrip().startswith("{"):
        try:
            return json.loads(text)
        except ValueError as error:
            raise ValueError(f"{argument} is not valid JSON ({error}): {text}") from error
    overrides: dict[str, Any] = {}
    for item in re.split(r",(?=\s*\w+\s*=)", text):  # commas in values, as in ["dense","sparse"], separate nothing
        name, equals, value = (part.strip() for part in item.partition("="))
        if not equals or not name.isidentifier():
            raise ValueError(f"{argument} must be JSON or key=value,key=value: {item!r} is neither.")
        overrides[name] = _value(value)
    return overrides


def _value(text: str) -> Any:
    if text.lower() in _WORDS:
        return _WORDS[text.lower()]
    try:
        return json.loads(text)
    except ValueError:
        return text
