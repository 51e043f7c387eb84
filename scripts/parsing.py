"""Command lines and argument files, parsed into the dataclasses of the training commands."""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml
from transformers import HfArgumentParser
from transformers.hf_argparser import string_to_bool

from weftformer.configuration.fields import closest
from weftformer.training.arguments import WeftTrainingArguments
from weftformer.training.options import DataArguments, ModelArguments


class ArgumentParser(HfArgumentParser):
    """`HfArgumentParser` that raises ValueError instead of printing two hundred lines of usage, and reads files.

    Args:
        dataclass_types: the dataclasses to fill, as in `HfArgumentParser`.
        **kwargs: as in `argparse.ArgumentParser`.
    """

    def __init__(self, dataclass_types, **kwargs):
        super().__init__(dataclass_types, allow_abbrev=False, **kwargs)
        self.add_argument("--help-all", action="help", help="show this list")
        for action in list(self._actions):  # help shows one spelling; both are accepted
            hyphens = [name for name in action.option_strings if "_" not in name]
            action.option_strings = hyphens or action.option_strings
            if action.type is string_to_bool and action.nargs is None:  # a switch that may also be unset
                action.nargs, action.const = "?", True
                self.add_argument(
                    f"--no-{hyphens[0].lstrip('-')}", action="store_false", dest=action.dest, default=None,
                    help=f"see {hyphens[0]}",
                )  # fmt: skip

    def error(self, message: str):
        raise ValueError(message)

    def parse(self, argv: Sequence[str]) -> tuple[Any, ...]:
        """Parse arguments, or a YAML or JSON file and then arguments, which override the file.

        Returns:
            One instance of each dataclass.

        Raises:
            ValueError: an argument is unknown, mistyped or has no value; the file is not a mapping.
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
                raise ValueError(
                    f"unexpected argument {word!r}: options begin with --, and a file of arguments must come first."
                )
            name = word.lstrip("-").split("=")[0].replace("_", "-")
            names = {option.replace("_", "-") for option in self._by_name()}
            raise ValueError(f"there is no argument --{name}.{closest(name, names)}")
        return tuple(parsed)

    def _by_name(self) -> dict[str, argparse.Action]:
        return {action.dest: action for action in self._actions if action.dest not in ("help", "help_all")}

    def _read(self, file: Path) -> dict[str, Any]:
        if not file.is_file():
            raise FileNotFoundError(f"the file of arguments {file} does not exist.")
        text = file.read_text(encoding="utf-8")
        try:
            values = json.loads(text) if file.suffix == ".json" else yaml.safe_load(text)
        except (ValueError, yaml.YAMLError) as error:
            raise ValueError(f"{file} cannot be read: {error}") from error
        if not isinstance(values, dict):
            raise ValueError(
                f"{file} must contain a mapping of arguments to values, but contains a {type(values).__name__}."
            )
        actions = self._by_name()
        for name, value in values.items():
            if name not in actions:
                raise ValueError(f"{file}: there is no argument `{name}`.{closest(str(name), actions)}")
            choices = actions[name].choices  # which argparse checks on the command line only
            if value is False and choices and "no" in choices:  # YAML's reading of `eval_strategy: no`
                value = values[name] = "no"
            if choices and value is not None and value not in choices:
                options = ", ".join(map(str, choices))
                raise ValueError(f"{file}: {name}={value!r} is not allowed: choose one of {options}.")
        return values


def parse_arguments(argv: Sequence[str]) -> tuple[ModelArguments, DataArguments, WeftTrainingArguments]:
    """Return the arguments of `weftformer train`, from the command line or a file; see [`ArgumentParser.parse`]."""
    model, data, training = ArgumentParser(
        [ModelArguments, DataArguments, WeftTrainingArguments], prog="weftformer train"
    ).parse(argv)
    return model, data, training
