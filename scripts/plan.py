"""`weft plan`: routes for target molecules, best first, with a model that `weft train-routes` made."""

import argparse
import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from weft.routes.planner import RANKINGS, Plan, RoutePlanner


def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="weft plan", description=__doc__)
    parser.add_argument("targets", nargs="+", metavar="TARGET", help="SMILES of a target molecule")
    parser.add_argument("--model", required=True, help="folder or Hub id of a trained route model")
    parser.add_argument("--steps", type=int, help="longest path of the routes, in reactions (default: try 1 to 5)")
    parser.add_argument("--starting-material", help="SMILES of a molecule to begin from, for a model trained with one")
    parser.add_argument("--beams", type=int, default=5, help="width of the search (default: %(default)s)")
    parser.add_argument("--ranking", choices=list(RANKINGS), default="log_probability",
                        help="how candidates are scored; sqrt_length is DirectMultiStep's way (default: %(default)s)")  # fmt: skip
    parser.add_argument("--show", type=int, default=3, help="routes to print for each target (default: %(default)s)")
    parser.add_argument("--json", type=Path, help="also write all candidates, failed ones included, to this file")
    return parser


def to_json(plan: Plan) -> dict[str, Any]:
    candidates = [
        asdict(candidate) | {"route": candidate.route and candidate.route.to_dict()} for candidate in plan.candidates
    ]
    return {"target": plan.target, "candidates": candidates}


def show(plan: Plan, count: int) -> None:
    failed = sum(candidate.route is None for candidate in plan.candidates)
    total = len(plan.candidates)
    print(f"\n{plan.target}: {len(plan.routes)} distinct routes; {failed} of {total} candidates are not well-formed")
    for rank, route in enumerate(plan.routes[:count], start=1):
        print(f"\nrank {rank}\n{route.format_tree()}")


def main(argv: Sequence[str] | None = None) -> None:
    arguments = build_parser().parse_args(argv)
    for name in ("beams", "show"):
        if getattr(arguments, name) < 1:
            raise ValueError(f"--{name} must be at least 1: got {getattr(arguments, name)}.")
    planner = RoutePlanner.from_pretrained(arguments.model)
    plans = planner.plan(
        arguments.targets,
        n_steps=arguments.steps,
        starting_material=arguments.starting_material,
        beams=arguments.beams,
        ranking=arguments.ranking,
    )
    for plan in plans:
        show(plan, arguments.show)
    if arguments.json is not None:
        temporary = arguments.json.with_name(f".{arguments.json.name}.part")
        temporary.write_text(json.dumps([to_json(plan) for plan in plans], indent=2) + "\n", encoding="utf-8")
        temporary.replace(arguments.json)
        print(f"\nAll candidates are in {arguments.json}.")


if __name__ == "__main__":
    main()
