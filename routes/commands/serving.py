"""What `weftformer serve` takes for a model of routes."""

from __future__ import annotations

import argparse
from typing import Any

from weftformer.routes.commands.arguments import add_stock_options, check_models, read_stock, take_shipped_model


def add_arguments(add: Any) -> None:
    """Add the options; `add` is `add_argument` of a parser."""
    add_stock_options(add, "for routes, purchasable molecules: SMILES or InChIKeys, one per line or in a table")
    add("--forward-model", metavar="MODEL",
        help="for routes, forward model of `routes prepare --forward`, or none (default: included)")  # fmt: skip
    add("--library", metavar="FILE",
        help="for routes, own reactions besides the included ones, made by `weftformer routes library`")  # fmt: skip


def options(args: argparse.Namespace) -> dict[str, Any]:
    """Return the options of the server's `load_task`, and name the included model as `args.model` by default.

    Raises:
        ValueError, OSError: there is no such model, or the stock cannot be read.
    """
    take_shipped_model(args)
    check_models(args)
    stock = read_stock(args.stock, column=args.stock_column, is_strict=args.stock_strict)
    return {"stock": stock, "forward_model": args.forward_model, "library": args.library}
