"""`weftformer plan`: routes for target molecules, best first, with a model that `weftformer train-routes` made."""

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from weftformer.common.whole_files import write_json
from weftformer.routes.drawing.page import save_page
from weftformer.routes.drawing.svg import check_picture, save_picture
from weftformer.routes.planning.planner import RoutePlanner
from weftformer.routes.plans import Plan
from weftformer.routes.stock import Stock
from weftformer.scripts.arguments import check_folders, constraints_of, move_to
from weftformer.scripts.parsers.plan import build_parser


def show(plan: Plan, count: int) -> None:
    if plan.problem is not None:
        print(f"\n{plan.target}: not planned. {plan.problem}")
        return
    failed, total = len(plan.failed), len(plan.candidates)
    impossible = sum(candidate.possible is False for candidate in plan.distinct)
    print(
        f"\n{plan.target}: {len(plan.routes)} distinct routes{f', {impossible} of them impossible' if impossible else ''}; "
        f"{failed} of {total} candidates are no routes"
    )
    if not plan.routes:
        for problem in dict.fromkeys(candidate.problem for candidate in plan.failed[:count]):
            print(f"  {problem}")
    for candidate in plan.distinct[:count]:
        assert candidate.route is not None and candidate.check is not None
        wrong = f", impossible: {candidate.check.reason}" if candidate.check.reason else ""
        print(f"\nrank {candidate.rank}{_purchasable(candidate.missing)}{wrong}\n{candidate.route.format_tree()}")
        for remark in candidate.check.remarks:
            print(f"note: {remark}")


def draw(plans: Sequence[Plan], file: Path) -> None:
    for number, plan in enumerate(plans, start=1):
        for candidate in plan.distinct[:1]:
            assert candidate.route is not None
            path = file if len(plans) == 1 else file.with_stem(f"{file.stem}-{number}")
            save_picture(candidate.route, path, missing=candidate.missing)
            print(f"The best route for {plan.target} is drawn in {path}.")


def _purchasable(missing: tuple[str, ...] | None) -> str:
    if missing is None:
        return ""
    return f", not in stock: {', '.join(missing)}" if missing else ", purchasable"


def main(argv: Sequence[str] | None = None) -> int:
    arguments = build_parser().parse_args(argv)
    for name in ("beams", "show", "texts"):
        if getattr(arguments, name) < 1:
            raise ValueError(f"--{name} must be at least 1: got {getattr(arguments, name)}.")
    check_folders(arguments, "json", "html", "picture")
    constraints = constraints_of(arguments)
    if arguments.picture is not None:
        check_picture(arguments.picture)
    stock = (
        None if arguments.stock is None else Stock.from_file(arguments.stock, workers=os.cpu_count() or 1)
    )  # its mistakes show first
    planner = RoutePlanner.from_pretrained(arguments.model)
    move_to(planner, arguments.device)
    plans = planner.plan(
        arguments.targets,
        n_steps=arguments.steps,
        starting_material=arguments.starting_material,
        beams=arguments.beams,
        texts=arguments.texts,
        seed=arguments.seed,
        ranking=arguments.ranking,
        stock=stock,
        grammar=not arguments.no_grammar,
        constraints=constraints,
        impossible=arguments.impossible,
        on_error="skip",  # the others are still worth planning; the exit code tells
    )
    for plan in plans:
        show(plan, arguments.show)
    if arguments.json is not None:
        write_json(arguments.json, [plan.to_dict() for plan in plans])
        print(f"\nAll candidates are in {arguments.json}.")
    if arguments.html is not None:
        save_page(plans, arguments.html)
        print(f"All routes are drawn in {arguments.html}.")
    if arguments.picture is not None:
        draw(plans, arguments.picture)
    failed = sum(plan.problem is not None for plan in plans)
    if failed:
        print(f"weftformer plan: {failed} of {len(plans)} targets could not be planned", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
