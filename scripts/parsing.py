"""The parser of all commands."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from weftformer.common.commands import FILES_OF_ARGUMENTS
from weftformer.common.extensions import parts_of_extensions
from weftformer.common.options import first_sentence
from weftformer.common.rules import closest

# The most characters of choices that help shows.
_WIDTH = 60


class _Formatter(argparse.RawDescriptionHelpFormatter):
    """A formatter that leaves texts as they are, has space for long options, and titles groups."""

    def __init__(self, prog: str, **kwargs: Any):
        super().__init__(prog, max_help_position=32, **kwargs)

    def _format_action(self, action: argparse.Action) -> str:
        # argparse has one heading for all commands of a parser
        group = parts_of_extensions("commands").get(str(action.metavar))
        return (f"\n{group.TITLE}:\n" if group else "") + super()._format_action(action)


class Parser(argparse.ArgumentParser):
    """`argparse.ArgumentParser` that takes underscores for hyphens in the names of options, as transformers' own does,
    and names the option closest to an unknown one.

    Args:
        raises: whether mistakes are raised as a ValueError, instead of the usage and exit status 2.
        **kwargs: as in `argparse.ArgumentParser`.

    Attributes:
        is_only_help (`bool`): whether it only answers `--help`, and returns the words as they are, as `words`.
    """

    is_only_help = False

    def __init__(self, *, raises: bool = False, **kwargs: Any):
        super().__init__(**{"formatter_class": _Formatter} | kwargs)
        self.raises = raises

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        words = list(sys.argv[1:] if args is None else args)
        if self.is_only_help:
            if {"-h", "--help"} & set(words):
                self.print_help()
                self.exit()
            return argparse.Namespace(words=words), []
        end = words.index("--") if "--" in words else len(words)
        return super().parse_known_args([*map(_hyphens, words[:end]), *words[end:]], namespace)

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        values, unknown = self.parse_known_args(args, namespace)
        for word in unknown:
            if word.startswith("-"):
                name = word.partition("=")[0]
                self.error(f"there is no argument {name}.{closest(name, self._option_string_actions)}")
            self.error(f"unexpected argument {word!r}: `{self.prog} --help` shows the arguments.")
        return values

    def error(self, message: str) -> Any:
        if self.raises:
            raise ValueError(message)
        super().error(message)


def _hyphens(word: str) -> str:
    if not word.startswith("--"):
        return word
    name, equals, value = word.partition("=")
    return name.replace("_", "-") + equals + value


def parse_dataclasses(words: Sequence[str], *kinds: type, prog: str) -> tuple[Any, ...]:
    """Parse arguments into dataclasses, with transformers' `HfArgumentParser`.

    Args:
        words: arguments, or a YAML or JSON file and then arguments, which override the file.
        *kinds: the dataclasses.
        prog: the name of the command.

    Returns:
        One instance of each dataclass.

    Raises:
        ValueError: an argument is unknown, mistyped or has no value; the file is not a mapping.
        FileNotFoundError: the file does not exist.
    """
    from transformers import HfArgumentParser
    from transformers.hf_argparser import string_to_bool

    filler = HfArgumentParser(kinds, add_help=False)
    about = {"usage": f"{prog} [FILE.yaml] [--option value ...]", "epilog": "--no-NAME turns a switch --NAME off."}
    parser = Parser(prog=prog, parents=[filler], allow_abbrev=False, raises=True, **about)
    actions = {action.dest: action for action in filler._actions}
    for action in list(filler._actions):  # help shows one spelling; both are accepted
        action.option_strings = [name for name in action.option_strings if "_" not in name]
        _shorten(action)
        if action.type is string_to_bool and action.nargs is None:  # a switch that may also be unset
            action.nargs, action.const, flag = "?", True, action.option_strings[0]
            no = {"action": "store_false", "dest": action.dest, "default": None, "help": argparse.SUPPRESS}
            parser.add_argument(f"--no-{flag.lstrip('-')}", **no)
    parser.add_argument("--help-all", action="help", help="show this list")
    words = list(words)
    if words and Path(words[0]).suffix in FILES_OF_ARGUMENTS:
        # as defaults, not as arguments: texts are then converted as on the command line (YAML reads 5e-4 as text)
        parser.set_defaults(**_read(Path(words.pop(0)), actions))
    return filler.parse_dict(vars(parser.parse_args(words)), allow_extra_keys=True)


def _shorten(action: argparse.Action) -> None:
    """Let the help of an option of transformers be as short as that of others: one sentence, and its default."""
    if action.nargs == 0:  # --no-NAME, beside --NAME
        action.help = argparse.SUPPRESS
    else:
        action.help = first_sentence(action.help or "").replace("%", "%%")
        if action.default not in (None, False, "", []):
            action.help += f" (default: {getattr(action.default, 'value', action.default)})".replace("%", "%%")
        if action.choices is None or sum(len(str(choice)) for choice in action.choices) > _WIDTH:
            action.metavar = "VALUE" if action.const is None else "BOOL"


def _read(file: Path, actions: dict[str, argparse.Action]) -> dict[str, Any]:
    """Return the values in a file, by the names of arguments."""
    import yaml

    if not file.is_file():
        raise FileNotFoundError(f"the file of arguments {file} does not exist.")
    text = file.read_text(encoding="utf-8")
    try:
        values = json.loads(text) if file.suffix == ".json" else yaml.safe_load(text)
    except (ValueError, yaml.YAMLError) as error:
        raise ValueError(f"{file} cannot be read: {error}") from error
    if not isinstance(values, dict):
        raise ValueError(f"{file} must contain a mapping of arguments to values, not a {type(values).__name__}.")
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


def parse_arguments(words: Sequence[str]) -> tuple[Any, ...]:
    """Return the arguments of `weftformer train` as `ModelArguments`, `DataArguments` and `WeftTrainingArguments`; see
    [`parse_dataclasses`].
    """
    from weftformer.training.arguments import WeftTrainingArguments
    from weftformer.training.options import DataArguments, ModelArguments

    return parse_dataclasses(words, ModelArguments, DataArguments, WeftTrainingArguments, prog="weftformer train")
