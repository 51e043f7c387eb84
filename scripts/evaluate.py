"""`weftformer evaluate`: plan targets whose routes are recorded, and say how often and how well the routes are found.

The predictions come from a model, or from files: of `weftformer plan --json` or `--save-predictions`, or routes as
AiZynthFinder, RetroCast, DirectMultiStep or PaRoutes write them, those of a target in the order of their ranks.
"""

import argparse
import gzip
import json
import math
import os
import random
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Any

from weftformer.common.figures import check_figure
from weftformer.common.progress import Progress
from weftformer.common.whole_files import growing_file
from weftformer.routes.data.training_data import read_canonical
from weftformer.routes.files.entries import BROKEN_GZIP
from weftformer.routes.files.predictions import read_predictions as read_predicted_routes
from weftformer.routes.molecules import canonical_smiles
from weftformer.routes.planning.planner import RoutePlanner
from weftformer.routes.plans import Candidate, Plan
from weftformer.routes.scoring.evaluation import Evaluation, evaluate
from weftformer.routes.scoring.reports import as_markdown, as_text, plot, write_json
from weftformer.routes.stock import Stock
from weftformer.routes.tree import Route
from weftformer.scripts.arguments import check_folders, check_model, constraints_of, move_to, read_stock
from weftformer.scripts.parsers.evaluate import CONDITIONS, build_parser

# Targets planned between two writes of the predictions: some batches, so that each holds targets of like length.
CHUNK = 16

# A plan and the starting material that the model was told.
Told = tuple[Plan, str | None]


def load_references(file: Path, limit: int | None, seed: int) -> list[tuple[Route, str]]:
    """Recorded routes, canonical, each with the one of its leaves that the model may be told.

    Raises:
        ValueError: no route is left, or fewer than `limit`.
    """
    rng = random.Random(seed)
    references = []
    for route in read_canonical(file):
        # a salt stands in routes as one molecule, and is none that can be begun from
        leaves = [leaf for leaf in route.leaves() if "." not in leaf] or route.leaves()
        references.append((route, rng.choice(leaves)))
    if not references:
        raise ValueError(f"{file} holds no route that can be evaluated.")
    if limit is None:
        return references
    if limit > len(references):
        raise ValueError(f"--limit {limit}: {file} holds {len(references)} routes.")
    return [references[i] for i in sorted(rng.sample(range(len(references)), limit))]


def conditions_of(config: Any, asked: Sequence[str] | None) -> list[str]:
    """What the model is told, a column each.

    Raises:
        ValueError: a condition was asked for that the model does not know.
    """
    takes_steps = config.num_condition_features > 0
    if asked is None:
        return ["steps", "nothing"] if takes_steps else ["nothing"]
    for condition in asked:
        if "steps" in condition and not takes_steps:
            raise ValueError(f"--with {condition}: this model was trained without the number of steps.")
    return list(dict.fromkeys(asked))


def predict(
    planner: RoutePlanner, references: list[tuple[Route, str]], condition: str, settings: dict[str, Any], sink: IO[str]
) -> list[Told]:
    """Plan the targets; what is found goes to `sink` as it comes."""
    plans = []
    with Progress(CONDITIONS[condition], len(references), "targets") as bar:
        for start in range(0, len(references), CHUNK):
            chunk = references[start : start + CHUNK]
            materials = [material if "material" in condition else None for _, material in chunk]
            found = planner.plan(
                [route.smiles for route, _ in chunk],
                n_steps=[route.depth for route, _ in chunk] if "steps" in condition else None,
                starting_material=materials if "material" in condition else None,
                on_error="skip",  # counts as not found, and is told at the end
                bounded=False,  # the lengths of recorded routes are what they are
                progress=False,
                **settings,
            )
            for plan, material in zip(found, materials, strict=True):
                plans.append((plan, material))
                row = {"condition": CONDITIONS[condition], "starting_material": material} | plan.to_dict()
                sink.write(json.dumps(row, separators=(",", ":")) + "\n")
            sink.flush()
            bar.update(len(chunk))
    return plans


def read_predictions(files: Sequence[Path]) -> dict[str, dict[str, list[Told]]]:
    """Plans by column and canonical target: JSON lines, a list as `weftformer plan --json` writes it, or routes of any program.

    Raises:
        ValueError: a file holds something else; the message names the place.
    """
    columns: dict[str, dict[str, list[Told]]] = {}
    for file in files:
        if not _holds_plans(file):
            # the names of the files tell them apart, or their whole paths
            name = _column(file, files) if len(files) > 1 else "predictions"
            for target, routes in read_predicted_routes(file).items():
                columns.setdefault(name, {})[target] = [(_as_plan(target, routes), None)]
            continue
        for place, row in _rows(file):
            try:
                plan, material = Plan.from_dict(row), row.get("starting_material")
            except (TypeError, KeyError, ValueError, AttributeError) as error:
                raise ValueError(f"{file}, {place}: no plan of `weftformer plan --json`: {error!r}") from error
            names = [_column(file, files)] if len(files) > 1 else []
            names += [row["condition"]] if "condition" in row else []
            try:
                target = canonical_smiles(plan.target)
            except ValueError:
                continue  # what was asked for was no molecule: it is no target of the references
            columns.setdefault(", ".join(names) or "predictions", {}).setdefault(target, []).append((plan, material))
    if not columns:
        raise ValueError(f"{', '.join(map(str, files))}: there is no plan.")
    return columns


def _column(file: Path, files: Sequence[Path]) -> str:
    return file.stem if len({one.stem for one in files}) == len(files) else str(file)


def _holds_plans(file: Path) -> bool:
    """Whether a file is this package's own: a target with candidates, each of which has a text."""
    try:
        _, row = next(_rows(file))
    except (StopIteration, ValueError):
        return False
    candidates = row.get("candidates") if isinstance(row, dict) and isinstance(row.get("target"), str) else None
    return isinstance(candidates, list) and all(isinstance(one, dict) and "text" in one for one in candidates)


def _as_plan(target: str, routes: Sequence[Route]) -> Plan:
    """Routes as candidates; no model gave them a score."""
    return Plan(target, [Candidate(r.to_string(), -math.inf, None, r, rank=rank) for rank, r in enumerate(routes, 1)])


def _rows(file: Path) -> Iterator[tuple[str, Any]]:
    try:
        text = (gzip.decompress(file.read_bytes()) if file.suffix == ".gz" else file.read_bytes()).decode("utf-8")
    except (UnicodeDecodeError, *BROKEN_GZIP) as error:
        raise ValueError(f"{file} is no text, or no whole gzip file: {error}") from error
    try:
        if text.lstrip().startswith("["):
            yield from ((f"plan {number}", row) for number, row in enumerate(json.loads(text), 1))
            return
        # not `splitlines`: an id may have other ends of a line, which JSON leaves as they are
        for number, line in enumerate(text.split("\n"), 1):
            if line.strip():
                yield f"line {number}", json.loads(line)
    except json.JSONDecodeError as error:
        raise ValueError(f"{file} is neither a list of plans in JSON nor one plan a line: {error}") from error


def matched(
    column: dict[str, list[Told]], references: Sequence[tuple[Route, str]], name: str, missing_targets: str = "refuse"
) -> list[tuple[Route, Told]]:
    """Each reference with its plan; the second route to a target takes the second plan for it, where there are two.

    Args:
        missing_targets: targets without a plan are a mistake ("refuse"), left out ("skip"), or "count" as not found.

    Raises:
        ValueError: a plan is missing that must not be, or all are.
    """
    pairs, used, missing = list[tuple[Route, Told]](), dict[str, int](), 0
    for route, _ in references:
        plans = column.get(route.smiles)
        if plans:
            index = used.get(route.smiles, 0)
            used[route.smiles] = index + 1
            pairs.append((route, plans[min(index, len(plans) - 1)]))
            continue
        missing += 1
        if missing_targets == "count":
            pairs.append((route, (Plan(route.smiles, [], "there is no prediction"), None)))
    if missing == len(references) or (missing and missing_targets == "refuse"):
        hint = " --skip-missing scores the others, --count-missing counts these as not found."
        hint = "" if missing == len(references) else hint
        raise ValueError(f"{name}: {missing} of {len(references)} targets have no prediction.{hint}")
    if missing and missing_targets == "skip":
        _note(f"{name}: {missing} of {len(references)} targets have no prediction and are left out.")
    return pairs


def _note(text: str) -> None:
    print(f"weftformer evaluate: {text}", file=sys.stderr)


def _check(arguments: argparse.Namespace) -> None:
    """Mistakes that would show after the planning only."""
    for name, value in {**vars(arguments), "ks": min(arguments.ks)}.items():
        if (
            name in ("limit", "beams", "texts", "batch_size", "max_new_tokens", "ks")
            and value is not None
            and value < 1
        ):
            raise ValueError(f"--{name.replace('_', '-')} must be at least 1: got {value}.")
    if arguments.predictions and (arguments.conditions or arguments.save_predictions):
        raise ValueError("--with and --save-predictions go with --model: with --predictions nothing is planned.")
    constraints_of(arguments)
    check_folders(arguments, "json", "save_predictions")
    if arguments.plot is not None:
        check_figure(arguments.plot, "--plot")


def _planned(
    arguments: argparse.Namespace, references: list[tuple[Route, str]], stock: Stock | None
) -> dict[str, list[Any]]:
    check_model(arguments.model)
    planner = RoutePlanner.from_pretrained(arguments.model)
    conditions = conditions_of(planner.model.config, arguments.conditions)
    move_to(planner, arguments.device)
    settings = {
        name: getattr(arguments, name)
        for name in ("beams", "ranking", "impossible", "texts", "seed", "batch_size", "max_new_tokens")
    }
    settings |= {"grammar": not arguments.no_grammar, "constraints": constraints_of(arguments), "stock": stock}
    file = arguments.save_predictions
    with growing_file(file) if file else open(os.devnull, "w", encoding="utf-8") as sink:
        found = {name: predict(planner, references, name, settings, sink) for name in conditions}
    return {
        CONDITIONS[name]: [(route, told) for (route, _), told in zip(references, plans, strict=True)]
        for name, plans in found.items()
    }


def main(argv: Sequence[str] | None = None) -> int:
    arguments = build_parser().parse_args(argv)
    _check(arguments)
    references = load_references(arguments.routes, arguments.limit, arguments.seed)
    stock = None if arguments.stock is None else read_stock(arguments.stock)
    if arguments.model is not None:
        columns = _planned(arguments, references, stock)
    else:
        columns = {
            name: matched(column, references, name, arguments.missing_targets)
            for name, column in read_predictions(arguments.predictions).items()
        }
    results: dict[str, Evaluation] = {}
    for name, pairs in columns.items():
        results[name] = evaluate(
            [plan for _, (plan, _) in pairs],
            [route for route, _ in pairs],
            starting_materials=[material for _, (_, material) in pairs],
            stock=stock,
            ks=arguments.ks,
            seed=arguments.seed,
        )
        if failed := results[name].not_planned:
            target, problem = next(iter(failed.items()))
            _note(
                f"{name}: {len(failed)} of {len(pairs)} targets not planned, counted as not found: {target}: {problem}"
            )
    print((as_markdown if arguments.markdown else as_text)(results))
    if arguments.json is not None:
        write_json(results, vars(arguments), arguments.json)
    if arguments.plot is not None:
        plot(results, arguments.plot)
    return 0


if __name__ == "__main__":
    sys.exit(main())
