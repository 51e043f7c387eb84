"""Planning as a step between data sets of Ray."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from ..routes.files.targets import Target
from ..routes.planning.settings import PlanSettings
from ..routes.shipped import MODEL
from . import crew
from .works import PlanWork

if TYPE_CHECKING:
    from ray.data import Dataset

    from ..routes.stock import Stock


def plan(
    dataset: Dataset,
    settings: PlanSettings | None = None,
    *,
    model: str | None = None,
    stock: Stock | None = None,
    smiles_column: str = "smiles",
    workers: crew.Workers | None = None,
) -> Dataset:
    """
    Plan routes for the molecules of a data set.

    The rows of the data set are read before the workers begin, and the rows with plans are in Ray's object store when the
    last one is done: for jobs of days use `weftformer routes plan --workers`, which writes parts meanwhile and resumes from them.

    Args:
        dataset (`ray.data.Dataset`):
            The targets. All its columns are kept.
        settings ([`PlanSettings`], *optional*):
            How routes are searched and ranked.
        model (`str`, *optional*):
            Folder or Hub id of a route model, which all nodes can read (default: the model that comes with Weft).
        stock ([`Stock`], *optional*):
            The purchasable molecules.
        smiles_column (`str`, *optional*, defaults to `"smiles"`):
            The column with the targets.
        workers ([`~distributed.crew.Workers`], *optional*):
            How many workers there are (default: one for each CPU of the cluster).

    Returns:
        `ray.data.Dataset`: the rows of `dataset` in their order, with `state` ("done", "unfinished", "no route", "refused"
        or "failed"), `problem`, `seconds`, and `plan`, a text of JSON that `Plan.from_dict` reads.

    Raises:
        ValueError: there is no such column, the cluster has no room for the workers, or the model cannot be loaded.
    """
    ray = crew.import_ray()
    settings = settings or PlanSettings()
    settings.check_stock(stock)
    rows = dataset.take_all()  # before the workers take the CPUs that reading needs
    if rows and smiles_column not in rows[0]:
        raise ValueError(f"The data set has no column {smiles_column!r}: it has {', '.join(rows[0])}.")
    items = [(index, Target(str(index + 1), str(row[smiles_column]))) for index, row in enumerate(rows)]
    if workers is None:
        workers = crew.Workers(max(1, int(ray.cluster_resources().get("CPU", 1))))
    work = PlanWork(str(model or MODEL), settings, stock=stock)
    found: dict[int, dict[str, Any]] = {}
    for batch in crew.run(work, items, workers):
        for one in batch:
            line = json.loads(one.line)
            known = {name: line[name] for name in ("state", "problem", "seconds")}
            found[one.index] = known | {"plan": one.line.rstrip("\n")}
    return ray.data.from_items([row | found[index] for index, row in enumerate(rows)])
