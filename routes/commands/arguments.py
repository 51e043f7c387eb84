"""Options and checks of arguments that several commands of routes share: the settings of a planner, the included model
and stock, stocks and exported files.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterable
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from weftformer.common.options import add_options, option_flag
from weftformer.common.rules import NotAllowed
from weftformer.common.words import counted
from weftformer.routes.planning.settings import RULES, Constraints, PlanSettings
from weftformer.scripts.arguments import new_file

if TYPE_CHECKING:
    from weftformer.routes.plans import Plan


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
        OSError: the library cannot be read.
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


def add_export(parser: Any) -> None:
    """Add `--export`, the option for the files that [`export`] writes."""
    parser.add_argument("--export", type=_exported, action="append", default=[], metavar="FILE",
        help="also write .sdf (molecules), .rdf (reactions), .summary.csv, ... (repeatable)")  # fmt: skip


def _exported(name: str) -> Path:
    from weftformer.routes.files.streams import ENDINGS, plan_form

    if plan_form(Path(name)) is None:
        raise argparse.ArgumentTypeError(f"{name}: give a name that ends in one of {', '.join(ENDINGS)}")
    return new_file(name)


def export(file: Path, plans: Iterable[Plan], form: str | None = None) -> None:
    """Write plans to a file, and report skipped routes on stderr.

    Args:
        form: one of `PLAN_FORMS` (default: that of the name).

    Raises:
        OSError: the file cannot be written.
    """
    from weftformer.routes.files.streams import plan_form, write_plans

    left_out = write_plans(file, plans, form or plan_form(file) or "")
    if left_out:
        print(f"Left out of {file}: {counted(len(left_out), 'route')}. The first: {left_out[0]}", file=sys.stderr)


def add_forward_model(add: Any) -> None:
    """Add `--forward-model`, which scripts for earlier versions pass. It is ignored, with a warning.

    Args:
        add: `add_argument` of a parser.
    """
    add("--forward-model", action=_Ignored, default=argparse.SUPPRESS, help=argparse.SUPPRESS)


class _Ignored(argparse.Action):
    def __call__(self, parser: Any, namespace: Any, values: Any, option_string: str | None = None) -> None:
        print(
            f"{option_string} is ignored: Weft no longer has a forward model, which was no evidence for a step.",
            file=sys.stderr,
        )


def take_shipped_model(arguments: argparse.Namespace) -> None:
    """Use the included model and stock by default, and name the model on stderr.

    Args:
        arguments: with `model`, and with `stock` where the command has one.
    """
    if arguments.model is not None:
        return
    from weftformer.routes.shipped import MODEL, STOCK, describe_model

    arguments.model = str(MODEL)
    print(describe_model(), file=sys.stderr)
    if getattr(arguments, "stock", STOCK) is None:
        arguments.stock = STOCK
        print(
            "Stock: molecules in ZINC20 or used by recorded reactions (included in Weft). Use --stock for another.",
            file=sys.stderr,
        )


def add_stock_options(add: Any, text: str) -> None:
    """Add the options of a stock.

    Args:
        add: `add_argument` of a parser.
        text: the help of `--stock`.
    """
    add("--stock", type=Path, metavar="FILE", help=text)
    add("--stock-column", metavar="NAME", help="column with the molecules (default: smiles, structure, inchikey, ...)")
    add("--stock-strict", action="store_true",
        help="match exact molecules only, not other salts, charges, tautomers or stereoisomers")  # fmt: skip


def read_stock(file: Path | None, is_shown: bool = True, *, column: str | None = None, is_strict: bool = False) -> Any:
    """Read a stock with all cores, and describe it on stderr, but not the included one.

    Args:
        file: the file, or None for no stock.
        is_shown: whether progress is shown.
        column, is_strict: as in `Stock.from_file`.

    Raises:
        ValueError, OSError: as in `Stock.from_file`.
    """
    from weftformer.routes.shipped import STOCK
    from weftformer.routes.stock.stock import Stock

    if file is None:
        return None
    if file == STOCK:
        return Stock.from_file(file, progress=False, is_strict=is_strict, column=column)
    stock = Stock.from_file(file, workers=os.cpu_count() or 1, progress=is_shown, column=column, is_strict=is_strict)
    print(f"Stock: {stock}.", file=sys.stderr)
    return stock
