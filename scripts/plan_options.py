"""Command-line options from the fields of a dataclass, and the settings of a planner from options."""

import argparse
from dataclasses import fields
from typing import Any, get_args, get_type_hints

from weftformer.common.options import NotAllowed
from weftformer.routes.planning.settings import RULES, Constraints, PlanSettings


def add_fields(parser: Any, kind: type, *names: str) -> None:
    """Add an option for each field of a dataclass that has a help text.

    Args:
        parser: a parser or a group of one.
        kind: the dataclass. The metadata of its fields are explained at `option` of `routes.planning.settings`.
        names: the fields (default: all).
    """
    hints = get_type_hints(kind)
    for field in fields(kind):
        about, default = field.metadata, field.default
        if "help" not in about or (names and field.name not in names):
            continue
        more: dict[str, Any] = {"dest": field.name, "default": default, "help": about.get("off", about["help"])}
        if isinstance(default, bool):
            more["action"] = "store_false" if default else "store_true"
        elif isinstance(default, tuple):
            more |= {"action": "append", "default": [], "metavar": about["metavar"]}
        else:
            value = next((one for one in get_args(hints[field.name]) if one is not type(None)), hints[field.name])
            more |= {"type": value, "metavar": about.get("metavar", "N")}
        if "choices" in about:
            more |= {"choices": about["choices"], "type": lambda text: text.replace("-", "_")}
        if not isinstance(default, bool | tuple) and default is not None:
            more["help"] += " (default: %(default)s)"
        parser.add_argument(_flag(field), **more)


def _flag(field: Any) -> str:
    return field.metadata.get("flag", f"--{'no-' if field.default is True else ''}{field.name.replace('_', '-')}")


def add_plan_options(parser: Any, *names: str) -> None:
    """Add the options of [`PlanSettings`], all or the named ones, and those of the constraints."""
    add_fields(parser, PlanSettings, *names)
    parser.add_argument("--allow", action="append", choices=list(RULES), default=[], metavar="RULE",
                        help=f"switch off a rule: {', '.join(RULES)} (repeatable)")  # fmt: skip
    add_fields(parser, Constraints)


def plan_settings(args: argparse.Namespace) -> PlanSettings:
    """Return the settings from the options that [`add_plan_options`] added.

    Raises:
        ValueError: an option is not allowed, or needs a stock that is not given.
    """
    try:
        settings = PlanSettings.from_options(vars(args))
    except NotAllowed as error:
        raise ValueError(f"--{error.name.replace('_', '-')} {error.value} is not allowed: {error.remedy}") from error
    settings.check_stock(args.stock)
    return settings


def told_settings(args: argparse.Namespace) -> dict[str, Any]:
    """Return the options of [`add_plan_options`] that are not at their defaults, by their names for users."""
    told = {"allow": args.allow} if args.allow else {}
    for field in (*fields(PlanSettings), *fields(Constraints)):
        value = getattr(args, field.name, None)
        if "help" in field.metadata and value is not None and value not in (field.default, []):
            told[_flag(field).removeprefix("--")] = value or True  # a switch that is off
    return told
