"""Propose reactions that make a molecule: recorded transformations of the library and the model's, in one list."""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING

from weftformer.common.options import add_options
from weftformer.routes.commands.arguments import (
    add_stock_options,
    check_models,
    plan_settings,
    read_stock,
    take_shipped_model,
)
from weftformer.routes.planning.settings import Constraints, PlanSettings
from weftformer.scripts.arguments import add_model_options, add_threads_option, load_model, positive

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
    add("--forward-model", metavar="MODEL",
        help="forward model trained on `routes prepare --forward`, or none (default: included)")  # fmt: skip
    add_options(parser, PlanSettings, "beams", "max_new_tokens", "on_salt", "have", "library")
    add_options(parser, Constraints, "forbidden", "forbidden_substructures", "kept_substructures")


def main(args: argparse.Namespace) -> int:
    """Print the reactions, and the forward ranks at the end.

    Returns:
        0 if there is a reaction, 3 otherwise.

    Raises:
        ValueError, OSError: an argument does not fit, there is no such model, or a file cannot be read.
    """
    take_shipped_model(args)
    check_models(args)
    stock = read_stock(args.stock, column=args.stock_column, is_strict=args.stock_strict)
    settings = plan_settings(args)

    from weftformer.routes.evaluation.round_trip import load_forward
    from weftformer.routes.planning.expansion import last_rows, proposal_row
    from weftformer.routes.planning.planner import RoutePlanner

    planner = RoutePlanner(*load_model(args, "routes"))
    forward = load_forward(args.forward_model, args.device, args.dtype)

    def show(candidate: Candidate) -> None:
        print(json.dumps(proposal_row(candidate)) if args.json_lines else _described(candidate), flush=True)

    finish = None if forward is None else forward.with_forward_ranks
    plan = planner.expand(args.smiles, args.number, settings, stock=stock, on_found=show, finish=finish)
    print("\n".join(map(json.dumps, last_rows(plan)) if args.json_lines else _ending(plan)))
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


def _ending(plan: Plan) -> list[str]:
    """Return the number of reactions, those whose product the forward model predicts, and the remarks."""
    ranks = ((candidate.rank, candidate.steps[0].forward_rank) for candidate in plan.candidates)
    predictions = [f"{number} (rank {rank})" for number, rank in ranks if rank]
    notes = [f"note: {remark}" for remark in plan.remarks]
    notes += [f"predicted back: {', '.join(predictions)}"] if predictions else []
    return [f"reactions that make {plan.target}: {len(plan.candidates)}", *notes]
