"""The options of a planner, and its settings from them."""

import argparse
from dataclasses import fields
from typing import Any

from weftformer.common.options import add_options, option_flag
from weftformer.common.rules import NotAllowed
from weftformer.routes.planning.settings import RULES, Constraints, PlanSettings


def add_plan_options(parser: Any, *names: str) -> None:
    """Add the options of [`PlanSettings`], all or the named ones, and those of the constraints."""
    add_options(parser, PlanSettings, *names)
    parser.add_argument("--allow", action="append", choices=list(RULES), default=[], metavar="RULE",
                        help=f"switch off a rule: {', '.join(RULES)} (repeatable)")  # fmt: skip
    add_options(parser, Constraints)


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


def changed_options(args: argparse.Namespace) -> dict[str, Any]:
    """Return the options of [`add_plan_options`] that are not at their defaults, by their names for users."""
    options: dict[str, Any] = {"allow": args.allow} if args.allow else {}
    for field in (*fields(PlanSettings), *fields(Constraints)):
        value = getattr(args, field.name, None)
        if "help" in field.metadata and value is not None and value not in (field.default, []):
            options[option_flag(field).removeprefix("--")] = value or True  # a switch that is off
    return options
