"""Draw the routes of a file, on a page or as pictures, and write them in other formats."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from weftformer.common.words import counted
from weftformer.routes.commands.arguments import add_export, add_stock_options, export, read_stock
from weftformer.routes.files.plan_files import read_plans
from weftformer.routes.plans import Candidate, Plan
from weftformer.routes.shipped import provenance
from weftformer.scripts.arguments import new_file, positive

# The number of targets of a file whose routes are drawn by default. A page with thousands of routes is slow.
LIMIT = 100


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("routes", type=Path, metavar="ROUTES",
        help="output of `weftformer routes plan`, or routes in any format that `routes prepare` reads")  # fmt: skip
    add("--html", type=new_file, metavar="FILE", help="draw the routes on one page, target by target")
    add("--picture", type=new_file, metavar="FILE",
        help="draw the best route of each target, as .svg or .png (several: FILE-1, FILE-2, ...)")  # fmt: skip
    add("--show", type=positive, default=1, metavar="N",
        help="routes of each target with a picture (default: %(default)s)")  # fmt: skip
    add_export(parser)
    add_stock_options(add, "purchasable molecules, to mark the starting materials; replaces the marks in the file")
    add("--limit", type=positive, metavar="N",
        help=f"only the first N targets (default: {LIMIT}, or all of a file from `routes plan --json`)")  # fmt: skip


def main(args: argparse.Namespace) -> None:
    """Read the routes and draw them.

    Raises:
        ValueError, OSError: an argument does not fit, the file contains no route, or a file cannot be read or written.
    """
    from weftformer.routes.drawing.svg import check_picture
    from weftformer.routes.ranking import complete

    if args.html is None and args.picture is None and not args.export:
        raise ValueError("Nothing to write: give --html FILE, --picture FILE or --export FILE.")
    if args.picture is not None:
        check_picture(args.picture)
    stock = read_stock(args.stock, column=args.stock_column, is_strict=args.stock_strict)
    rows = read_plans(args.routes, args.limit or LIMIT)
    is_planned = any(row for _, row in rows)
    limit = args.limit or (None if is_planned else LIMIT)
    if limit is not None and len(rows) > limit:
        print(f"Only {counted(limit, 'target')} of the file {'is' if limit == 1 else 'are'} drawn (--limit).")
    plans = [plan for plan, _ in rows[:limit]]
    plans = [replace(plan, candidates=[complete(candidate, stock) for candidate in plan.candidates]) for plan in plans]
    if not any(plan.distinct for plan in plans) and not (is_planned and args.picture is None):
        raise ValueError(f"{args.routes} contains no route.")
    options: dict[str, Any] = next((row["settings"] for _, row in rows if isinstance(row.get("settings"), dict)), {})
    candidates = [candidate for plan in plans for candidate in plan.distinct[: args.show]]
    # the page of planned routes is the one that `weftformer routes plan --html` writes
    page = {} if is_planned else {"title": args.routes.name}
    about = provenance(options.get("model"), args.stock or options.get("stock"), None if stock is None else stock.size)
    write_drawings(args, plans, candidates, about, **page)


def write_drawings(
    args: argparse.Namespace, plans: Sequence[Plan], pictured: Sequence[Candidate | None], about: Any, **page: str
) -> None:
    """Write the page, the exports and the pictures that the arguments name.

    Args:
        args: the arguments, with `html`, `export` and `picture`.
        plans: the plans on the page and in the exports.
        pictured: the routes with a picture of their own, numbered if there are several. None stands for a target
            without a route.
        about, **page: arguments of `save_page`.

    Raises:
        OSError: a file cannot be written.
    """
    if args.html is not None:
        from weftformer.routes.pages.page import save_page

        save_page(plans, args.html, about=about, **page)
        number = sum(len(plan.distinct) for plan in plans)
        print(f"Drew {counted(number, 'route')} in {args.html}.")
    for file in args.export:
        export(file, plans)
        print(f"Saved {file}.")
    if args.picture is None:
        return
    from weftformer.routes.drawing.svg import save_picture

    for place, candidate in enumerate(pictured, start=1):
        if candidate is not None and candidate.route is not None:
            path = args.picture if len(pictured) == 1 else args.picture.with_stem(f"{args.picture.stem}-{place}")
            save_picture(
                candidate.route, path, missing=candidate.missing, steps=candidate.steps, common=candidate.common
            )
            print(f"Drew a route to {candidate.route.smiles} in {path}.")
