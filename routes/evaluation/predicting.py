"""The plans to evaluate: made by a model for recorded targets, or read from files of this or another program."""

from __future__ import annotations

import json
import logging
import random
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any

from ...common.progress import Progress
from ..chemistry.molecules import canonical_or_given
from ..files import read_canonical
from ..files.plan_files import read_plans
from ..planning.planner import RoutePlanner
from ..planning.requests import no_material_because
from ..planning.settings import PlanSettings
from ..planning.stock_search import LISTED_STEPS
from ..plans import Plan
from ..tree import Route
from . import CONDITIONS

_logger = logging.getLogger(__name__)

# A recorded route, the plan for its target, and the starting material that the model was given.
Prediction = tuple[Route, Plan, str | None]
# Plans and starting materials by target.
Column = dict[str, list[tuple[Plan, str | None]]]


def load_references(file: Path, limit: int | None, seed: int) -> list[tuple[Route, str]]:
    """Return the recorded routes, canonicalised, each with the leaf that may be given to the model.

    Raises:
        ValueError: no route is left, or fewer than `limit`.
    """
    rng = random.Random(seed)
    references = []
    for route in read_canonical(file):
        # a salt is one molecule of a route, but a route cannot begin from it
        leaves = [leaf for leaf in route.leaves() if "." not in leaf] or route.leaves()
        references.append((route, rng.choice(leaves)))
    if not references:
        raise ValueError(f"{file} contains no route that can be evaluated.")
    if limit is None:
        return references
    if limit > len(references):
        raise ValueError(f"--limit {limit} exceeds the {len(references)} routes of {file}.")
    return [references[i] for i in sorted(rng.sample(range(len(references)), limit))]


def conditions_of(model: Any, conditions: Sequence[str] | None) -> list[str]:
    """Return the conditions to evaluate, one per column.

    Raises:
        ValueError: the model does not support a condition.
    """
    takes_steps = model.config.num_condition_features > 0
    if conditions is None:
        return ["steps", "nothing"] if takes_steps else ["nothing"]
    for condition in conditions:
        if "steps" in condition and not takes_steps:
            raise ValueError(f"--with {condition} is unsupported: the model was trained without the number of steps.")
        if "material" in condition and (reason := no_material_because(model)):
            raise ValueError(f"--with {condition} is not supported. {reason}")
    return list(dict.fromkeys(conditions))


def predict(
    planner: RoutePlanner,
    references: list[tuple[Route, str]],
    condition: str,
    settings: PlanSettings,
    sink: IO[str],
    **options: Any,
) -> list[Prediction]:
    """Plan the targets, and write each plan to `sink` when it is done.

    If all routes are single reactions and the model is told so, the library proposes reactions too, unless the
    settings are `direct`.

    Args:
        planner: the planner.
        references: recorded routes, each with the leaf that may be given to the model.
        condition: one of `CONDITIONS`.
        settings: how routes are searched.
        sink: the file.
        options: `stock` and `batch_size`, as in [`RoutePlanner.stream`].
    """
    materials = [material if "material" in condition else None for _, material in references]
    plans: dict[int, Plan] = {}
    targets = [route.smiles for route, _ in references]
    if condition == "steps" and not settings.direct and all(route.depth == 1 for route, _ in references):
        results = planner.expansions(targets, LISTED_STEPS + settings.beams, settings, **options)
    else:
        results = planner.stream(
            targets,
            settings,
            n_steps=[route.depth for route, _ in references] if "steps" in condition else None,
            starting_material=materials if "material" in condition else None,
            on_error="skip",  # counts as not found, and is reported at the end
            progress=False,
            **options,
        )
    with Progress(CONDITIONS[condition], len(references), "targets") as bar:
        for index, plan in results:
            plans[index] = plan
            about = {"condition": CONDITIONS[condition], "index": index, "starting_material": materials[index]}
            row = about | plan.to_dict()
            sink.write(json.dumps(row, separators=(",", ":")) + "\n")
            sink.flush()
            bar.update(1)
    return [(route, plans[index], materials[index]) for index, (route, _) in enumerate(references)]


def read_predictions(files: Sequence[Path]) -> dict[str, Column]:
    """Read plans by column and canonical target.

    The files contain JSON lines, a list of `weftformer routes plan --json`, or routes of any program.

    Raises:
        ValueError: a file has other content; the message names the place.
    """
    columns: dict[str, Column] = {}
    is_named = len({file.stem for file in files}) == len(files)
    for file in files:
        # searches for one target with different numbers of steps may have ended in another order
        for plan, row in sorted(read_plans(file), key=lambda pair: pair[1].get("index", 0)):
            # columns are named after the files, or after their paths if names repeat
            names = [file.stem if is_named else str(file)] if len(files) > 1 else []
            names += [row["condition"]] if "condition" in row else []
            column = columns.setdefault(", ".join(names) or "predictions", {})
            column.setdefault(canonical_or_given(plan.target), []).append((plan, row.get("starting_material")))
    if not columns:
        raise ValueError(f"{', '.join(map(str, files))}: no plan found.")
    return columns


def matched(column: Column, references: Sequence[tuple[Route, str]], name: str) -> list[Prediction]:
    """Return each reference with its plan. The second route to a target takes the second plan for it, if there is one.

    A target without a plan counts as not found, with a warning.

    Raises:
        ValueError: all plans are missing.
    """
    predictions, counts = list[Prediction](), Counter[str]()
    for route, _ in references:
        plans = column.get(route.smiles, [(Plan(route.smiles, [], "no prediction found"), None)])
        predictions.append((route, *plans[min(counts[route.smiles], len(plans) - 1)]))
        counts[route.smiles] += 1
    missing, total = sum(route.smiles not in column for route, _ in references), len(references)
    if missing == total:
        raise ValueError(f"{name}: none of the {missing} targets has a prediction.")
    if missing:
        _logger.warning("%s: %d of %d targets have no prediction and count as not found.", name, missing, total)
    return predictions
