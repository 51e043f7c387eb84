"""Plan synthesis routes for target molecules, best first, with the included model or a model of `routes train`.
Exit status: 0, 3 when at least one target is not solved, 2 for a wrong option, 1 after any other error.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from weftformer.common.words import counted
from weftformer.routes.commands.arguments import (
    add_export,
    add_forward_model,
    add_plan_options,
    add_stock_options,
    changed_options,
    export,
    plan_settings,
    read_stock,
    take_shipped_model,
)
from weftformer.routes.commands.draw import write_drawings
from weftformer.routes.files.streams import PLAN_FORMS, plan_form, write_lines
from weftformer.routes.plans import IDEAS, Candidate, Plan, steps_in_words
from weftformer.routes.shipped import provenance, stock_file
from weftformer.routes.stock.offers import CATALOGUES
from weftformer.scripts.arguments import add_model_options, check_model, check_output, loading_options, new_file
from weftformer.scripts.sharing import add_sharing_options, is_shared, output_place, run_shared, unfinished_rows

if TYPE_CHECKING:
    from weftformer.routes.files.targets import Target
    from weftformer.routes.stock.stock import Stock
    from weftformer.routes.tree import Route

EPILOG = """examples:
  weftformer routes plan 'O=C(Nc1ccccc1)c1ccc(F)cc1' --html routes.html
  weftformer routes plan --input-file targets.sdf --output-file routes.jsonl --time-limit 60 --resume"""

COMMAND = "routes plan"
# The exit status when at least one target has no route, or none that starts from the stock.
NO_ROUTE = 3
# The largest number of targets without a route that are named at the end.
MOST_NAMES = 10
_FILES = (".smi", ".txt", ".csv", ".tsv", ".sdf", ".gz")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = (
        "%(prog)s [TARGET ...] [--model MODEL] [--input-file FILE] [--output-file FILE] [--option value ...]"
    )
    add = parser.add_argument
    add("targets", nargs="*", metavar="TARGET", help="SMILES (default: standard input)")
    add("--model", help="folder or Hub id (default: the included route model and stock)")
    add("--input-file", metavar="FILE",
        help="targets: .smi, .csv, .tsv, .sdf, .gz too, or .parquet; - is standard input")  # fmt: skip
    add("--steps", type=steps, metavar="N[-M]",
        help="plan whole routes whose longest path has N reactions (default: search to the stock)")  # fmt: skip
    add_stock_options(add, "purchasable molecules: SMILES or InChIKeys, one per line or in a table, .gz too")
    add("--show", type=int, default=3, metavar="N", help="routes to print for each target (default: %(default)s)")
    add("--html", type=new_file, metavar="FILE", help="draw all routes on one page for a browser")
    add("--picture", type=new_file, metavar="FILE", help="draw the best route of each target, as .svg or .png")
    add_model_options(add)
    files = parser.add_argument_group("files")
    add = files.add_argument
    add("--output-file", type=output_place, metavar="FILE",
        help="output file, in the format of its name or --format (from FILE.parts at the end)")  # fmt: skip
    add("--format", choices=PLAN_FORMS, metavar="FORM", help=", ".join(PLAN_FORMS))
    add("--resume", action="store_true", help="continue after the finished targets of an interrupted run")
    add("--overwrite", action="store_true", help="replace --output-file")
    add("--json", type=new_file, metavar="FILE", help="write all candidates as one JSON list")
    add_export(files)
    add("--smiles-column", metavar="NAME", help="column with the SMILES (default: smiles, target, ...)")
    add("--id-column", metavar="NAME", help="column, or field of an .sdf, with the names (default: id, name, ...)")
    add("--no-progress", action="store_true", help="show no progress")
    add_sharing_options(add)
    search = parser.add_argument_group("how routes are searched and ranked")
    add = search.add_argument
    add("--starting-material", metavar="SMILES", help="starting material, for a model trained with one")
    add_forward_model(add)
    add_plan_options(search)


def steps(text: str) -> int | range:
    """Parse a number such as `3`, or a range such as `2-5`, which includes its end."""
    first, dash, last = text.partition("-")
    try:
        number = range(int(first), int(last) + 1) if dash else int(first)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is neither a number nor a range such as 2-5") from None
    if isinstance(number, range) and not number:
        raise argparse.ArgumentTypeError(f"{text!r} ends before it begins: give a range such as 2-5")
    if (number[0] if isinstance(number, range) else number) < 1:
        raise argparse.ArgumentTypeError(f"{text!r}: a route has at least 1 step")
    return number


def main(args: argparse.Namespace) -> int:
    """Plan the targets here or with workers, or join the parts of workers.

    Returns:
        3 when at least one target has no route, or none that starts from the stock, 0 otherwise.

    Raises:
        ValueError, OSError: an argument does not fit, there is no such model, or a file cannot be read or written.
    """
    if args.join is not None:
        return _join(args)
    from weftformer.distributed import job
    from weftformer.distributed.tasks import Result
    from weftformer.routes.commands.tasks import PlanTask

    take_shipped_model(args)
    settings = plan_settings(args)
    targets = read(args)
    check_model(args.model)
    stock = read_stock(args.stock, not args.no_progress, column=args.stock_column, is_strict=args.stock_strict)
    conditions = {"n_steps": args.steps, "starting_material": args.starting_material, "stock": stock}
    task = PlanTask(args.model, loading_options(args), args.threads, _options(args), settings, conditions)
    if is_shared(args):
        return _status(run_shared(args, task, targets))
    plans = dict[int, Plan]()

    waiting = list(range(len(targets)))

    def take(result: Result) -> str | None:
        """Return the targets to print: in the order of the input, whichever ends first."""
        plans[result.index] = result.value
        texts = []
        while waiting and waiting[0] in plans:
            if (index := waiting.pop(0)) not in finished:
                texts.append(described(plans[index], args.show))
        return "\n".join(texts) or None

    if len(targets) == 1:
        task.on_first = partial(_print_first, stock)
    with unfinished_rows(args, task, targets) as parts:
        for row in [] if parts is None else parts.rows(COMMAND, is_whole=False):
            plans[row["number"] - 1] = Plan.from_dict(row)
        finished = set(plans)
        states = job.run(task, list(enumerate(targets)), parts, is_shown=not args.no_progress, take=take)
        _finish(args, targets, [plans[index] for index in range(len(targets))], stock)
    return _status(states)


def _join(args: argparse.Namespace) -> int:
    """Write the parts of workers or shards as one file, and return the exit status.

    Raises:
        ValueError: targets are missing; the message names them. OSError: a file cannot be read or written.
    """
    from weftformer.distributed.parts import Parts

    parts = Parts(args.join)
    _save(args, map(Plan.from_dict, parts.rows(COMMAND)), parts.rows(COMMAND))
    return _status(Counter(row["state"] for row in parts.rows(COMMAND)))


def _print_first(stock: Stock, _: Any, route: Route) -> None:
    tree = route.format_tree((), Candidate("", 0.0, None, route).with_stock(stock).common)
    print(f"\nFirst purchasable route, not ranked yet; the search continues:\n{tree}", flush=True)


def check(args: argparse.Namespace) -> None:
    """Check the arguments as far as possible without a model.

    Raises:
        ValueError: naming the argument.
    """
    from weftformer.routes.chemistry.molecules import one_molecule

    if args.show < 0:
        raise ValueError(f"--show must be at least 0: got {args.show}.")
    if args.targets and args.input_file:
        raise ValueError("Targets on the command line and --input-file are mutually exclusive: give one.")
    if args.format and args.output_file is None:
        raise ValueError("--format requires --output-file FILE.")
    for word in args.targets:
        if word.endswith(_FILES) and Path(word).is_file():
            raise ValueError(f"{word} is a file: use --input-file {word} to read targets from it.")
    if args.stock is not None and not stock_file(args.stock).is_file() and str(args.stock) not in CATALOGUES:
        raise ValueError(f"--stock {args.stock}: there is no such file.")
    if not is_shared(args):
        check_output(args.output_file, args.resume, args.overwrite)
    _check_drawing(args)
    if args.starting_material is not None:
        one_molecule(args.starting_material)


def _check_drawing(args: argparse.Namespace) -> None:
    if args.picture is None and args.html is None:
        return
    # only here: RDKit's drawing needs X libraries, which servers often lack
    from weftformer.routes.drawing.svg import check_picture

    if args.picture is not None:
        check_picture(args.picture)


def read(args: argparse.Namespace) -> list[Target]:
    """Return the targets to plan.

    Raises:
        ValueError: there are none, or a file is not valid. OSError: a file cannot be read.
    """
    from weftformer.routes.files.targets import Target, read_targets, targets_in

    columns = {"smiles_column": args.smiles_column, "id_column": args.id_column}
    if args.targets:
        return [Target(str(number), word) for number, word in enumerate(args.targets, 1)]
    if args.input_file not in (None, "-"):
        return read_targets(Path(args.input_file), **columns)
    if args.input_file is None and sys.stdin.isatty():
        raise ValueError("Nothing to plan: give SMILES, --input-file FILE, or targets on standard input.")
    return targets_in(sys.stdin.buffer, "standard input", **columns)


def _options(args: argparse.Namespace) -> dict[str, Any]:
    """Return the options that determine the routes. A resumed run must have the same."""
    names = ("model", "steps", "stock", "stock_column", "stock_strict", "starting_material", "dtype")
    values = {name: getattr(args, name) for name in names}
    if isinstance(args.steps, range):
        values["steps"] = f"{args.steps[0]}-{args.steps[-1]}"
    options = {
        name.replace("_", "-"): str(value) for name, value in values.items() if value not in (None, False, "auto")
    }
    return options | changed_options(args)


def _status(states: Counter[str]) -> int:
    return 0 if states.total() == states["done"] else NO_ROUTE


def _save(args: argparse.Namespace, plans: Iterable[Plan], rows: Iterable[dict[str, Any]]) -> None:
    """Write the plans, or as JSON lines the rows with the number, the state and the options of each target.

    Raises:
        OSError: a file cannot be read or written.
    """
    form = args.format or plan_form(args.output_file) or "jsonl"
    if form == "jsonl":
        write_lines(args.output_file, rows)
    else:
        export(args.output_file, plans, form)
    print(f"Saved the routes in {args.output_file}.")


def described(plan: Plan, count: int) -> str:
    """Return the printed text of a plan: the number of routes, or the reason for none, and the best routes."""
    # an id that is a number is only the target's position
    name = plan.target if plan.id is None or plan.id.isdigit() else f"{plan.id} ({plan.target})"
    notes = [f"note: {remark}" for remark in plan.remarks]
    if plan.problem is not None:
        return "\n".join([f"\n{name}: not planned. {plan.problem}", *notes])
    routes, num_failures = plan.found, len(plan.failed)
    if not routes:
        return "\n".join([f"\n{name}: {plan.nothing_because}", *notes])
    failing = plan.summary["failing"]
    counts = counted(len(routes), "distinct route")
    counts += "; " + _answer(plan) if plan.solved is not None else ""
    counts += f", {failing} of them with a failing step" if failing else ""
    counts += f"; {num_failures} of {len(plan.candidates)} candidates are not routes" if num_failures else ""
    text = [f"\n{name}: {counts}", *notes]
    ideas = plan.ideas
    for candidate, route in routes[:count]:
        if ideas and candidate is ideas[0]:
            text.append(f"\n--- {IDEAS} ---")
        facts = [f"rank {candidate.rank}", f"group {candidate.group}"]
        if candidate.missing is not None:
            facts.append(f"not in stock: {', '.join(candidate.missing)}" if candidate.missing else "purchasable")
            facts += [f"{len(candidate.common)} widely used"] if candidate.common and candidate.purchasable else []
        if candidate.steps:
            facts.append(candidate.recorded_in_words)
        if candidate.fails_because:
            facts.append(f"fails: {candidate.fails_because}")
        text.append(f"\n{', '.join(facts)}\n{route.format_tree(candidate.missing, candidate.common)}")
        text += [step.words(f"step {number}") for number, step in enumerate(candidate.steps, 1)]
        text += [f"buy {offer.smiles}: {offer.description}" for offer in candidate.offers]
        text += [f"price: {candidate.price_in_words}"] if candidate.price_in_words else []
    if 0 < count < len(routes):
        text.append(f"\n{count} of {len(routes)} routes are shown (--show).")
    return "\n".join(text)


def _answer(plan: Plan) -> str:
    """Say whether a target is solved, and by which evidence."""
    return f"{'solved' if plan.solved else 'not solved'} by {steps_in_words(plan.evidence)} from the stock"


def table(lines: list[dict[str, Any]]) -> str:
    """Return a table with a line for each target, with the number of routes of each kind."""
    counts = ("routes", "groups", "purchasable", "precedented", "textbook", "failing")
    names = ("id", "solved", *counts, "best_score", "seconds")
    rows = [["recorded" if name == "precedented" else name.replace("_", " ") for name in names]]
    for line in lines:
        score, seconds = line["best_score"], line["seconds"]
        numbers = line | {
            "solved": {True: "yes", False: "no"}.get(line["solved"]),
            "best_score": None if score is None else f"{score:.2f}",
            "seconds": None if seconds is None else f"{seconds:.1f}",
        }
        rows.append(["-" if numbers[name] is None else str(numbers[name]) for name in names])
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]).rstrip() for row in rows
    )


def _finish(args: argparse.Namespace, targets: list[Target], plans: list[Plan], stock: Stock | None) -> None:
    """Print the table of all targets, write the files, and report the unsolved targets on stderr."""
    print(f"\n{table([plan.summary for plan in plans])}")
    if args.output_file is not None:
        pairs = enumerate(zip(targets, plans, strict=True), 1)
        _save(args, plans, (target.row(number, plan, _options(args)) for number, (target, plan) in pairs))
    if args.json is not None:
        export(args.json, plans, "json")
        print(f"Saved all candidates in {args.json}.")
    if any((args.export, args.html, args.picture)):
        best = [next(iter(plan.distinct), None) for plan in plans]
        write_drawings(args, plans, best, provenance(args.model, args.stock, None if stock is None else stock.size))
    if names_of_rest := [str(plan.id) for plan in plans if plan.solved is False]:
        names = ", ".join(names_of_rest[:MOST_NAMES]) + (", ..." if len(names_of_rest) > MOST_NAMES else "")
        message = f"not solved: {len(names_of_rest)} of {counted(len(plans), 'target')}: {names}"
        print(f"weftformer routes plan: {message}", file=sys.stderr)
