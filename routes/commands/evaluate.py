"""Plan targets with recorded routes, and report how often and how well these routes are found. The predictions come
from a model, or from files of `weftformer routes plan --json`, `--save-predictions`, AiZynthFinder, RetroCast,
DirectMultiStep or PaRoutes, with the routes of each target in rank order.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from weftformer.common.options import add_options
from weftformer.routes.commands.arguments import add_plan_options, plan_settings, read_stock, take_shipped_model
from weftformer.routes.evaluation import CONDITIONS
from weftformer.routes.planning.settings import PlanSettings
from weftformer.scripts.arguments import (
    add_model_options,
    add_threads_option,
    check_model,
    load_model,
    new_file,
    plain_file,
    positive,
)
from weftformer.training.options import check_exist

if TYPE_CHECKING:
    from weftformer.routes.evaluation.predicting import Prediction
    from weftformer.routes.stock.stock import Stock
    from weftformer.routes.tree import Route


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = "%(prog)s FILE [--model MODEL | --predictions FILE ...] [--option value ...]"
    add = parser.add_argument
    add("routes", type=Path, metavar="FILE", help="recorded routes, JSON lines (.gz works)")
    source = parser.add_mutually_exclusive_group()
    source.add_argument("--model", help="folder or Hub id (default: the included route model and stock)")
    source.add_argument("--predictions", nargs="+", type=Path, metavar="FILE",
                        help="score these files instead, from any program; several are compared")  # fmt: skip
    add("--stock", type=Path, metavar="FILE",
        help="purchasable molecules: counts the targets with a purchasable route")  # fmt: skip
    add_options(parser, PlanSettings, "library")
    add("--limit", type=positive, metavar="N", help="only N random targets")
    add("--seed", type=int, default=0, metavar="N",
        help="seed of the targets, starting materials and augmentations (default: %(default)s)")  # fmt: skip
    add("--ks", type=positive, nargs="+", default=[1, 5, 10, 50], metavar="K",
        help="ranks to report, up to the number of candidates (default: 1 5 10 50)")  # fmt: skip
    planning = parser.add_argument_group("planning, with --model")
    add = planning.add_argument
    add("--with", nargs="+", choices=list(CONDITIONS), dest="conditions", metavar="WHAT",
        help="conditions of the model besides the target, one column each: steps (the depth of the recorded "
        "route), material (one of its leaves, for a model that was trained with starting materials), "
        "steps+material, nothing (default: steps, if the model supports them, and nothing)")  # fmt: skip
    names = ("beams", "ranking", "num_augmentations", "grammar", "max_new_tokens", "time_limit", "direct")
    add_plan_options(planning, *names)
    add("--batch-size", type=positive, metavar="N",
        help="concurrent searches (default: 80 beams in total, 160 for a search to the stock)")  # fmt: skip
    add_model_options(add)
    add_threads_option(add)
    add("--save-predictions", type=plain_file, metavar="FILE",
        help="write all candidates, one target per line (until done, to FILE.part, which can be scored)")  # fmt: skip
    add = parser.add_argument_group("output").add_argument
    add("--json", type=new_file, metavar="FILE", help="write all scores as JSON, also by depth, and all ranks")


def main(args: argparse.Namespace) -> None:
    """Plan, or read plans, and print the scores.

    Raises:
        ValueError, OSError: an argument does not fit, or a file is not valid.
    """
    from dataclasses import replace

    from weftformer.routes.evaluation.evaluation import Evaluation, evaluate
    from weftformer.routes.evaluation.predicting import load_references, matched, read_predictions
    from weftformer.routes.evaluation.reports import as_text, write_json

    if not args.predictions:
        take_shipped_model(args)
    settings = replace(plan_settings(args), enforce_limits=False)  # recorded routes may exceed the limits
    references = load_references(args.routes, args.limit, args.seed)
    stock = read_stock(args.stock, is_strict=True)  # as other programs count
    if not args.predictions:
        columns = _planned(args, settings, references, stock)
    else:
        columns = {
            name: matched(column, references, name) for name, column in read_predictions(args.predictions).items()
        }
    library = None if settings.library is None else settings.transformations
    results: dict[str, Evaluation] = {}
    for name, predictions in columns.items():
        routes, plans, materials = zip(*predictions, strict=True)
        results[name] = evaluate(
            plans,
            routes,
            starting_materials=materials,
            stock=stock,
            ks=args.ks,
            library=library,
        )
        if problems := [plan for plan in plans if plan.problem is not None]:
            what = f"{len(problems)} of {len(plans)} targets not planned, counted as not found"
            message = f"{what}: {problems[0].target}: {problems[0].problem}"
            print(f"weftformer routes evaluate: {name}: {message}", file=sys.stderr)
    print(as_text(results))
    if args.json is not None:
        write_json(results, vars(args), args.json)


def check(args: argparse.Namespace) -> None:
    """Find mistakes that would otherwise show only after planning."""
    if args.predictions and (args.conditions or args.save_predictions):
        raise ValueError("--with and --save-predictions require --model: --predictions plans nothing.")
    if args.predictions and args.library and args.stock is None:
        raise ValueError("--library judges the steps of purchasable routes: give --stock FILE too.")
    check_exist(str(args.routes), *map(str, args.predictions or ()))
    if args.model is not None:
        check_model(args.model)


def _planned(
    args: argparse.Namespace, settings: PlanSettings, references: list[tuple[Route, str]], stock: Stock | None
) -> dict[str, list[Prediction]]:
    from weftformer.common.atomic import partial_file
    from weftformer.routes.evaluation.predicting import conditions_of, predict
    from weftformer.routes.planning.planner import RoutePlanner

    planner = RoutePlanner(*load_model(args, "routes"))
    conditions = conditions_of(planner.model, args.conditions)
    file = args.save_predictions
    with partial_file(file) if file else open(os.devnull, "w", encoding="utf-8") as sink:
        return {
            CONDITIONS[name]: predict(
                planner, references, name, settings, sink, stock=stock, batch_size=args.batch_size
            )
            for name in conditions
        }
