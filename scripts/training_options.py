"""Help of the training commands, and a first check of their words, from dataclasses that do not need torch."""

import argparse
import dataclasses
from collections.abc import Sequence
from typing import Any, Literal, get_args, get_origin

from weftformer.scripts.arguments import check_model
from weftformer.training.options import CommonHelp

_METAVARS = {"file": "FILE", "dir": "FOLDER", "path": "MODEL", "teacher": "MODEL", "overrides": "A=1,B=2"}


def add_options(parser: argparse.ArgumentParser, *kinds: type) -> None:
    """Add the most used options to a parser that only answers `--help`. `main` reads the words.

    Args:
        parser: the parser of the command.
        kinds: dataclasses whose fields are options, see `training.options.option`.
    """
    parser.is_only_help = True  # type: ignore[attr-defined]
    for kind in kinds:
        group = parser.add_argument_group(vars(kind).get("_argument_group_name", "training"))
        for field in dataclasses.fields(kind):
            if isinstance(field.metadata.get("help"), CommonHelp):
                group.add_argument(f"--{field.name.replace('_', '-')}", **_shown(field))
    parser.add_argument_group("the rest").add_argument("--help-all", action="store_true", help="show every option")


def check_words(words: Sequence[str], *kinds: type) -> None:
    """Check the words of a command as far as possible without torch. Its own parser finds other mistakes.

    Args:
        words: the words after the command. With a file of arguments in front, nothing is checked.
        kinds: the dataclasses.

    Raises:
        ValueError, OSError: as in the dataclasses, their method `check` if they have one, and [`check_model`].
    """
    if "--help-all" in words or (words and not words[0].startswith("-")):
        return
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
    for field in {field.name: field for kind in kinds for field in dataclasses.fields(kind)}.values():
        types = {field.type, *get_args(field.type)}
        value = float if float in types else int if int in types else str
        names = {f"--{field.name}", f"--{field.name.replace('_', '-')}"}
        takes = {"nargs": "?", "const": True} if bool in types else {"type": value}
        parser.add_argument(*names, default=argparse.SUPPRESS, **takes)
    try:
        given = vars(parser.parse_known_args(words)[0])
    except argparse.ArgumentError:
        return
    for kind in kinds:
        arguments = kind(
            **{field.name: given[field.name] for field in dataclasses.fields(kind) if field.name in given}
        )
        getattr(arguments, "check", lambda: None)()
    for name in ("model_name_or_path", "teacher"):
        if name in given:
            check_model(given[name], f"--{name.replace('_', '-')}")


def _shown(field: dataclasses.Field) -> dict[str, Any]:
    help = field.metadata["help"].split(". ")[0].rstrip(".").replace("%", "%%")
    if field.type is bool:
        return {"action": "store_true", "help": help}
    if field.default not in (None, "none"):
        help += " (default: %(default)s)"
    if get_origin(field.type) is Literal:
        return {"choices": get_args(field.type), "default": field.default, "help": help}
    metavar = "N" if {int, float} & {field.type, *get_args(field.type)} else "NAME"
    return {"default": field.default, "metavar": _METAVARS.get(field.name.split("_")[-1], metavar), "help": help}
