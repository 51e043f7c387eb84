"""Propose reactions that make a molecule: recorded transformations of the library and the model's, in one list."""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING

from weftformer.common.options import add_options
from weftformer.routes.commands.arguments import (
    add_forward_model,
    add_stock_options,
    plan_settings,
    read_stock,
    take_shipped_model,
)
from weftformer.routes.planning.settings import Constraints, PlanSettings
from weftformer.scripts.arguments import add_model_options, add_threads_option, check_model, load_model, positive

if TYPE_CHECKING:
    from weftformer.routes.plans import Candidate, Plan

EPILOG = """examples:
  weftformer routes expand 'CCN(CC)CC(=O)Nc1c(C)cccc1C'
  weftformer routes expand 'CC(=O)NCc1ccccc1' --have 'NCc1ccccc1' --forbid 'CC(=O)Cl' --json-lines > steps.jsonl"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = "%(prog)s SMILES [--number N] [--model MODEL] [--stock FILE] [--option value ...]"
    add = parser.add_argument
    add("smiles", metavar="SMILES", help="the molecule to make")
    add("--number", type=positive, default=20, metavar="N",
        help="largest number of reactions (default: %(default)s)")  # fmt: skip
    add("--json-lines", action="store_true", help="print JSON lines, as the server answers")
    add("--model", help="folder or Hub id (default: the included route model and stock)")
    add_stock_options(add, "purchasable molecules: SMILES or InChIKeys, one per line or in a table, .gz too")
    add_model_options(add)
    add_threads_option(add)
    add_forward_model(add)
    add_options(parser, PlanSettings, "beams", "max_new_tokens", "on_salt", "have", "library")
    add_options(parser, Constraints, "forbidden", "forbidden_substructures", "kept_substructures")


def main(args: argparse.Namespace) -> int:
    """Print the reactions, and their number at the end.

    Returns:
        0 if there is a reaction, 3 otherwise.

    Raises:
        ValueError, OSError: an argument does not fit, there is no such model, or a file cannot be read.
    """
    take_shipped_model(args)
    check_model(args.model)
    stock = read_stock(args.stock, column=args.stock_column, is_strict=args.stock_strict)
    settings = plan_settings(args)

    from weftformer.routes.planning.expansion import last_row, proposal_row
    from weftformer.routes.planning.planner import RoutePlanner

    planner = RoutePlanner(*load_model(args, "routes"))

    def show(candidate: Candidate) -> None:
        print(json.dumps(proposal_row(candidate)) if args.json_lines else _described(candidate), flush=True)

    plan = planner.expand(args.smiles, args.number, settings, stock=stock, on_found=show)
    print(json.dumps(last_row(plan)) if args.json_lines else _ending(plan))
    return 0 if plan.candidates else 3


def _described(candidate: Candidate) -> str:
    """Describe a reaction in three lines: its judgement, its reactants, and what the stock says of them."""
    [step] = candidate.steps
    marks = [
        leaf
        if candidate.missing is None or leaf in candidate.missing
        else f"{'◦' if leaf in candidate.common else '•'} {leaf}"
        for leaf in step.reactants
    ]
    offers = [f"   {offer.smiles}: {offer.description}" for offer in candidate.offers]
    return "\n".join([step.words(str(candidate.rank)), f"   {' + '.join(marks)}", *offers])


def _ending(plan: Plan) -> str:
    """Return the number of reactions and the remarks."""
    notes = [f"note: {remark}" for remark in plan.remarks]
    return "\n".join([f"reactions that make {plan.target}: {len(plan.candidates)}", *notes])
