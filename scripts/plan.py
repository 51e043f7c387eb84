"""`weftformer plan`: routes for target molecules, best first, with a model that `weftformer train-routes` made."""

import sys
from argparse import Namespace
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

from weftformer.common.progress import Progress
from weftformer.common.whole_files import write_json
from weftformer.inference.tasks import RouteTask, WhileWanted, load_task
from weftformer.routes.drawing.page import save_page
from weftformer.routes.drawing.svg import check_picture, save_picture
from weftformer.routes.files.plan_files import PlanLog, write_plans
from weftformer.routes.files.targets import Target, read_targets, targets_in
from weftformer.routes.molecules import one_molecule
from weftformer.routes.planning.planner import RoutePlanner, one_target
from weftformer.routes.plans import Candidate, Plan
from weftformer.routes.reaction_names import plan_with_names
from weftformer.scripts.arguments import (
    check_folders,
    check_model,
    check_output,
    constraints_of,
    move_to,
    read_forward_model,
    read_stock,
    take_shipped_model,
)
from weftformer.scripts.parsers.plan import build_parser

# The exit status when at least one target has no route.
NO_ROUTE = 3
# What decides which routes are found: a run that is finished by another has to have the same.
_SETTINGS = (
    "model", "steps", "stock", "beams", "time_limit", "expand_leaves", "salts", "per_reaction", "starting_material", "ranking",
    "texts", "seed", "forward_model", "no_grammar", "allow", "impossible", "only_purchasable", "required_leaf", "forbid", "forbid_substructure",
)  # fmt: skip
_FORMS = {".csv": "csv", ".json": "json"}
_FILES = (".smi", ".txt", ".csv", ".tsv", ".sdf", ".gz")


def main(argv: Sequence[str] | None = None) -> int:
    """Plan the targets, print and write each when it is done.

    Returns:
        3 when at least one target has no route, 0 otherwise.

    Raises:
        ValueError, OSError: an argument does not fit, there is no such model, or a file cannot be read or written.
    """
    arguments = build_parser().parse_args(argv)
    check(arguments)
    take_shipped_model(arguments)
    constraints = constraints_of(arguments)
    targets = read(arguments)
    log = _log(arguments)
    done = log.done(targets) if log is not None and arguments.resume else {}
    is_shown = not arguments.no_progress
    stock = None if arguments.stock is None else read_stock(arguments.stock, is_shown)

    def is_wanted() -> bool:
        progress.update(0)  # a long search says how far the run is, too
        return True

    watch = [WhileWanted(is_wanted)]
    plans = _plans(arguments, targets, done, stock=stock, constraints=constraints, logits_processor=watch)
    lines = {index: plan.summary for index, plan in done.items()}
    is_kept = any((arguments.html, arguments.picture, arguments.json))  # what is only written need not be in memory
    kept = dict(done) if is_kept else {}
    if done:
        print(f"{len(done):,} of {len(targets):,} targets are in {log.path if log else ''} already.", file=sys.stderr)
    progress = Progress("plan", len(targets), "targets", done=len(done), is_shown=is_shown)
    sink = None if log is None else log.open(append=arguments.resume)
    try:
        with progress:
            for index, plan in plans:
                if log is not None and sink is not None:
                    sink.write(log.line(index, targets[index], plan))
                    sink.flush()
                progress.print(described(plan, arguments.show))
                lines[index] = plan.summary
                if is_kept:
                    kept[index] = plan
                progress.update(1)
    except KeyboardInterrupt:
        if log is not None:
            print(f"{len(lines):,} of {len(targets):,} targets are in {log.path}: --resume goes on.", file=sys.stderr)
        raise
    finally:
        if sink is not None:
            sink.close()
    print(f"\n{table([lines[index] for index in sorted(lines)])}")
    _finish(arguments, log, [kept[index] for index in sorted(kept)])
    failed = sum(line["routes"] == 0 for line in lines.values())
    if failed:
        print(f"weftformer plan: {failed} of {len(targets)} targets have no route", file=sys.stderr)
    return NO_ROUTE if failed else 0


def check(arguments: Namespace) -> None:
    """Mistakes that need no model to be seen.

    Raises:
        ValueError: naming the argument.
    """
    _check_numbers(arguments)
    if arguments.expand_leaves and arguments.stock is None and arguments.model is not None:
        raise ValueError("--expand-leaves needs --stock FILE: what it lacks is made in its turn.")
    if arguments.targets and arguments.input_file:
        raise ValueError("Targets on the command line and --input-file exclude each other: give one.")
    if arguments.format and arguments.output_file is None:
        raise ValueError("--format is of --output-file FILE: give one.")
    for word in arguments.targets:
        if word.endswith(_FILES) and Path(word).is_file():
            raise ValueError(f"{word} is a file: --input-file {word} reads targets from it.")
    if arguments.stock is not None and not arguments.stock.is_file():
        raise ValueError(f"--stock {arguments.stock}: there is no such file.")
    check_folders(arguments, "output_file", "json", "html", "picture")
    check_output(arguments.output_file, arguments.resume, arguments.overwrite)
    if arguments.picture is not None:
        check_picture(arguments.picture)
    if arguments.starting_material is not None:
        one_molecule(arguments.starting_material)


def _check_numbers(arguments: Namespace) -> None:
    for name, least in (("beams", 1), ("texts", 1), ("per_reaction", 1), ("show", 0), ("expand_leaves", 0)):
        value = getattr(arguments, name)
        if value is not None and value < least:
            raise ValueError(f"--{name.replace('_', '-')} must be at least {least}: got {value}.")
    if arguments.time_limit is not None and not 0 < arguments.time_limit < float("inf"):
        raise ValueError(f"--time-limit must be a number of seconds above 0: got {arguments.time_limit:g}.")


def read(arguments: Namespace) -> list[Target]:
    """The targets to plan.

    Raises:
        ValueError: there are none, or a file is not as it should be. OSError: a file cannot be read.
    """
    columns = {"smiles_column": arguments.smiles_column, "id_column": arguments.id_column}
    if arguments.targets:
        found: list[Target] = []
        for word in arguments.targets:
            of_file = word.startswith("@")
            found += read_targets(Path(word[1:]), **columns) if of_file else [Target(str(len(found) + 1), word)]
        return found
    if arguments.input_file not in (None, "-"):
        return read_targets(Path(arguments.input_file), **columns)
    if arguments.input_file is None and sys.stdin.isatty():
        raise ValueError("Nothing to plan: give SMILES, --input-file FILE, or targets on standard input.")
    return targets_in(sys.stdin.buffer.read(), "standard input", **columns)


def _form(arguments: Namespace) -> str:
    name = arguments.output_file.name.removesuffix(".gz")
    return arguments.format or _FORMS.get(Path(name).suffix, "jsonl")


def _log(arguments: Namespace) -> PlanLog | None:
    """The file of lines that grows: the output itself, or a file beside it that the output is made of in the end.

    Raises:
        ValueError: there is one of a run that was cut, and nothing is said of it; or there is none to go on with.
    """
    file = arguments.output_file
    if file is None:
        return None
    settings = {name: getattr(arguments, name) for name in _SETTINGS}
    parser = build_parser()
    told = {
        name.replace("_", "-"): _plain(value) for name, value in settings.items() if value != parser.get_default(name)
    }
    if _form(arguments) == "jsonl" and file.suffix != ".gz":
        return PlanLog(file, told)
    part = file.with_name(f"{file.name}.part")
    if part.exists() and not (arguments.resume or arguments.overwrite):
        raise ValueError(
            f"{part} is of a run that was cut: --resume goes on behind its last whole line, --overwrite begins it again."
        )
    if arguments.resume and file.exists() and not part.exists():
        raise ValueError(f"{file} is finished: there is nothing to resume. --overwrite begins it again.")
    return PlanLog(part, told)


def _plain(value: Any) -> Any:
    """A setting as JSON has it."""
    if isinstance(value, range):
        return f"{value[0]}-{value[-1]}"
    return str(value) if isinstance(value, Path) else value


def _load(arguments: Namespace) -> RoutePlanner:
    try:
        task = load_task(arguments.model)
    except OSError as error:
        first = str(error).strip().partition("\n")[0]
        raise ValueError(
            f"--model {arguments.model}: there is no such folder here, and it was not had from the Hub. {first}"
        ) from error
    if not isinstance(task, RouteTask):
        raise ValueError(
            f"--model {arguments.model} writes texts, not routes: `weftformer generate --model {arguments.model}` asks it."
        )
    move_to(task.planner, arguments.device, arguments.compile)
    return task.planner


def _plans(
    arguments: Namespace, targets: list[Target], done: dict[int, Plan], **settings: Any
) -> Iterator[tuple[int, Plan]]:
    """The index and the plan of each target that is not done, as their searches end; first those that cannot be read.

    The model is loaded at once, unless no target can be read: what is wrong with it is told before a file is opened.
    """
    left = [index for index in range(len(targets)) if index not in done]
    problems = {
        index: problem
        for index in left
        if (problem := targets[index].problem or _problem(targets[index].smiles, arguments.salts)) is not None
    }
    wrong = ((index, Plan(targets[index].smiles, [], text, targets[index].id)) for index, text in problems.items())
    asked = [index for index in left if index not in problems]
    check_model(arguments.model)
    if not asked:
        return wrong
    planner, forward = _load(arguments), read_forward_model(arguments)
    found = planner.stream(
        [targets[index].smiles for index in asked],
        n_steps=arguments.steps,
        starting_material=arguments.starting_material,
        beams=arguments.beams,
        texts=arguments.texts,
        seed=arguments.seed,
        ranking=arguments.ranking,
        grammar=not arguments.no_grammar,
        impossible=arguments.impossible,
        time_limit=arguments.time_limit,
        salts=arguments.salts,
        expand_leaves=arguments.expand_leaves,
        per_reaction=arguments.per_reaction,
        bounded=not arguments.no_bounds,
        progress=False,
        on_error="skip",  # the others are still worth planning; the exit status tells
        **settings,
    )

    def named() -> Iterator[tuple[int, Plan]]:
        for place, plan in found:
            judged = plan if forward is None else forward.judged(plan)
            yield asked[place], replace(judged, id=targets[asked[place]].id)

    return chain(wrong, named())


def _problem(smiles: str, salts: str) -> str | None:
    try:
        one_target(smiles, salts)
    except ValueError as error:
        return str(error)
    return None


def described(plan: Plan, count: int) -> str:
    """What is printed of a plan: how many routes there are, why there are none, and the best of them."""
    # an id that is a number is the target's place
    name = plan.target if plan.id is None or plan.id.isdigit() else f"{plan.id} ({plan.target})"
    told = [f"note: {remark}" for remark in plan.remarks]
    if plan.problem is not None:
        return "\n".join([f"\n{name}: not planned. {plan.problem}", *told])
    routes, failed = plan.distinct, len(plan.failed)
    if not routes:
        return "\n".join([f"\n{name}: {plan.nothing_because}", *told])
    impossible = sum(candidate.possible is False for candidate in routes)
    text = [
        f"\n{name}: {len(routes)} distinct routes{f', {impossible} of them impossible' if impossible else ''}; "
        f"{failed} of {len(plan.candidates)} candidates are no routes",
        *told,
    ]
    for candidate in routes[:count]:
        assert candidate.route is not None and candidate.check is not None
        wrong = f", impossible: {candidate.check.reason}" if candidate.check.reason else ""
        text.append(
            f"\nrank {candidate.rank}, group {candidate.group}"
            f"{_purchasable(candidate.missing)}{wrong}{_round_trip(candidate)}\n{candidate.route.format_tree()}"
        )
        if candidate.joined_at:
            text.append(f"joined at {', '.join(candidate.joined_at)}")
        text += [f"note: {remark}" for remark in candidate.check.remarks]
    return "\n".join(text)


def _round_trip(candidate: Candidate) -> str:
    if candidate.predicted_reactions is None or candidate.route is None:
        return ""
    return f", round trip of {candidate.predicted_reactions} of {candidate.route.num_reactions} reactions"


def _purchasable(missing: tuple[str, ...] | None) -> str:
    if missing is None:
        return ""
    return f", not in stock: {', '.join(missing)}" if missing else ", purchasable"


def table(lines: list[dict[str, Any]]) -> str:
    """A line for each target, with the number of routes and what they are."""
    # the check finds routes that cannot be, and does not know which can: "possible" would promise too much
    names = ("id", "routes", "groups", "purchasable", "impossible", "best_score", "seconds")
    rows = [[name.replace("_", " ") for name in names]]
    for line in lines:
        score, seconds = line["best_score"], line["seconds"]
        numbers = line | {
            "impossible": line["routes"] - line["possible"],
            "best_score": None if score is None else f"{score:.2f}",
            "seconds": None if seconds is None else f"{seconds:.1f}",
        }
        rows.append(["-" if numbers[name] is None else str(numbers[name]) for name in names])
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]).rstrip() for row in rows
    )


def _finish(arguments: Namespace, log: PlanLog | None, plans: list[Plan]) -> None:
    """The files that are written when all is done."""
    if log is not None:
        if log.path != arguments.output_file:
            left_out = write_plans(arguments.output_file, log.plans(), _form(arguments))
            log.path.unlink()
            if left_out:
                print(f"{len(left_out)} routes were left out. The first: {left_out[0]}", file=sys.stderr)
        print(f"The routes are in {arguments.output_file}.")
    if arguments.json is not None:
        write_json(arguments.json, [plan_with_names(plan) for plan in plans])
        print(f"All candidates are in {arguments.json}.")
    if arguments.html is not None:
        save_page(plans, arguments.html)
        print(f"All routes are drawn in {arguments.html}.")
    if arguments.picture is not None:
        draw(plans, arguments.picture)


def draw(plans: Sequence[Plan], file: Path) -> None:
    """The best route of each target in a picture of its own, numbered where there are several targets."""
    for number, plan in enumerate(plans, start=1):
        for candidate in plan.distinct[:1]:
            assert candidate.route is not None
            path = file if len(plans) == 1 else file.with_stem(f"{file.stem}-{number}")
            save_picture(candidate.route, path, missing=candidate.missing, joined_at=candidate.joined_at)
            print(f"The best route for {plan.target} is drawn in {path}.")


if __name__ == "__main__":
    sys.exit(main())
