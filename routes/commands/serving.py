"""What `weftformer serve` takes for a model of routes."""

from __future__ import annotations

import argparse
from typing import Any

from weftformer.routes.commands.arguments import (
    add_forward_model,
    add_stock_options,
    read_stock,
    take_shipped_model,
)
from weftformer.scripts.arguments import check_model


def add_arguments(add: Any) -> None:
    """Add the options; `add` is `add_argument` of a parser."""
    add_stock_options(add, "for routes, purchasable molecules: SMILES or InChIKeys, one per line or in a table")
    add_forward_model(add)
    add("--library", metavar="FILE",
        help="for routes, own reactions besides the included ones, made by `weftformer routes library`")  # fmt: skip


def options(args: argparse.Namespace) -> dict[str, Any]:
    """Return the options of the server's `load_task`, and name the included model as `args.model` by default.

    Raises:
        ValueError, OSError: there is no such model, or the stock cannot be read.
    """
    take_shipped_model(args)
    check_model(args.model)
    stock = read_stock(args.stock, column=args.stock_column, is_strict=args.stock_strict)
    return {"stock": stock, "library": args.library}
