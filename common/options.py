"""Options are fields of dataclasses. A field has its help text, bounds and choices in its metadata, and every door is
made from it: Python ([`check_options`]), the command line ([`add_options`]) and HTTP ([`request_fields`]).

This module needs neither torch nor pydantic until a request is described, so that commands show their help at once.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from typing import Any, Literal, get_args, get_origin, get_type_hints

from .rules import choice, number

# The placeholders of texts on the command line, by the last word of the option.
_METAVARS = {"file": "FILE", "dir": "FOLDER", "path": "MODEL", "overrides": "A=1,B=2"}


class CommonHelp(str):
    """The help text of an option that is among the most used of a command with many options."""


def option(default: Any, help: str, is_common: bool = False, **metadata: Any) -> Any:
    """Return a dataclass field for an option.

    Args:
        default: the default: a switch (bool), one value or None, or an empty tuple for an option that can be repeated.
        help: the help text. The command line shows its first sentence.
        is_common: whether the option is among the most used of a command with many options.
        **metadata: for every door, `choices` and `least`, the smallest number. For the command line, `flag` (default:
            the name of the field), `metavar`, and `off`, the help of a switch that is on by default.
            `HfArgumentParser` takes only arguments of `add_argument`.
    """
    return dataclasses.field(default=default, metadata={"help": CommonHelp(help) if is_common else help, **metadata})


def first_sentence(help: str) -> str:
    """Return the first sentence of a help text, without its full stop."""
    return re.split(r"\.(?: (?=[A-Z0-9])|$)", " ".join(help.split()))[0]


def check_options(settings: Any) -> None:
    """Check the fields of a dataclass by their metadata: `choices`, and `least`, the smallest number (or None).

    Raises:
        NotAllowed: the message names the field and the allowed values.
    """
    for field in dataclasses.fields(settings):
        value, bounds = getattr(settings, field.name), field.metadata
        if "choices" in bounds:
            choice(bounds["choices"]).check(field.name, value)
        if "least" in bounds:
            number(bounds["least"], optional=True).check(field.name, value)


def option_flag(field: dataclasses.Field) -> str:
    """Return the flag of a field, such as `--time-limit`, or `--no-grammar` for a switch that is on by default."""
    return field.metadata.get("flag", f"--{'no-' if field.default is True else ''}{field.name.replace('_', '-')}")


def add_options(parser: Any, kind: type, *names: str, common_only: bool = False) -> None:
    """Add an option for each field of a dataclass that has a help text.

    Args:
        parser: an `argparse` parser, or a group of one.
        kind: the dataclass.
        names: the fields (default: all).
        common_only: whether to add only those with `is_common`.
    """
    hints = get_type_hints(kind)
    for field in dataclasses.fields(kind):
        about, hint = field.metadata, hints[field.name]
        default: Any = field.default
        if "help" not in about or (names and field.name not in names):
            continue
        if common_only and not isinstance(about["help"], CommonHelp):
            continue
        help = first_sentence(about.get("off", about["help"])).replace("%", "%%")
        settings: dict[str, Any] = {"dest": field.name, "default": default, "help": help}
        if bool in (hint, *get_args(hint)):
            settings["action"] = "store_false" if default else "store_true"
        elif isinstance(default, tuple):
            settings |= {"action": "append", "default": [], "metavar": about["metavar"]}
        elif get_origin(hint) is Literal:
            settings["choices"] = get_args(hint)
        else:
            value = next((part for part in get_args(hint) if part is not type(None)), hint)
            metavar = "N" if value in (int, float) else _METAVARS.get(field.name.split("_")[-1], "NAME")
            settings |= {"type": value, "metavar": about.get("metavar", metavar)}
        if "choices" in about:
            settings |= {"choices": about["choices"], "type": lambda text: text.replace("-", "_")}
        if not isinstance(default, bool | tuple) and default not in (None, "none"):
            settings["help"] += " (default: %(default)s)"
        parser.add_argument(*about.get("aliases", ()), option_flag(field), **settings)


def request_fields(
    kind: type,
    largest: Mapping[str, float],
    text: Any = str,
    most_items: int = 16,
    descriptions: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """Return the fields of a request for `pydantic.create_model`, one for each option of a dataclass.

    Args:
        kind: the dataclass.
        largest: the largest allowed numbers by the names of their fields. Defaults are not above them.
        text: the type of texts without choices.
        most_items: the largest number of values of an option that can be repeated.
        descriptions: texts in place of the help of options, by the names of their fields.
    """
    from pydantic import Field as RequestField

    request: dict[str, Any] = {}
    hints = get_type_hints(kind)
    for field in dataclasses.fields(kind):
        about, hint = field.metadata, hints[field.name]
        default: Any = field.default
        if "help" not in about:
            continue
        bounds: dict[str, Any] = {"ge": about.get("least"), "le": largest.get(field.name)}
        if "choices" in about:
            hint = Literal[about["choices"]]
        elif isinstance(default, tuple):
            hint, default, bounds = list[text], [], {"max_length": most_items}
        elif str in get_args(hint):
            hint = text | None
        elif field.name in largest and default is not None:
            default = min(default, largest[field.name])
        description = (descriptions or {}).get(field.name, about["help"])
        request[field.name] = hint, RequestField(default, description=description, **bounds)
    return request
