"""The help of the commands of training, from their dataclasses of options, which need no torch."""

import argparse
import dataclasses
from typing import Any, Literal, get_args, get_origin

from weftformer.training.options import CommonHelp

_METAVARS = {"file": "FILE", "dir": "FOLDER", "path": "MODEL", "teacher": "MODEL", "overrides": "A=1,B=2"}


def add_options(parser: argparse.ArgumentParser, *kinds: type) -> None:
    """Add the options that are used most to a parser that only answers `--help`; `main` reads the words.

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
