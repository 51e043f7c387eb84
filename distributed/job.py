"""Runs a job: computes its missing rows, here or on workers, and writes them in parts."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator

from ..common.progress import Progress
from . import cluster
from .parts import Parts
from .tasks import AnyTask, Items, PartRow


def shard(text: str | None) -> tuple[int, int]:
    """Parse a shard such as `3/16`, the third of sixteen. None is the whole, 1/1.

    Raises:
        ValueError: the text is not a shard such as 3/16.
    """
    match = re.fullmatch(r"(\d+)/(\d+)", text or "1/1")
    if match is None or not 1 <= int(match[1]) <= int(match[2]):
        raise ValueError(f"--shard {text} is not allowed: expected a shard such as 3/16, the third of sixteen.")
    return int(match[1]), int(match[2])


def of_shard(items: Items, text: str | None, window: int = 1) -> Items:
    """Return the items of a shard: every n-th one, so that shards are alike whatever the order of the input.

    Args:
        items: all items.
        text: as in [`shard`].
        window: the number of items that stay together.
    """
    which, count = shard(text)
    return [item for item in items if item[0] // window % count == which - 1]


def run(
    task: AnyTask,
    items: Items,
    parts: Parts,
    workers: cluster.WorkerSettings | None,
    *,
    what: str,
    unit: str,
    is_shown: bool = True,
) -> Counter[str]:
    """Process the items that are not done, and write their rows.

    Args:
        task: what to do with the items.
        items: all items of this process.
        parts: the folder for the rows, after `begin`.
        workers: the workers on Ray, or None for this process.
        what, unit: for the progress, as in [`Progress`].
        is_shown: whether to show it.

    Returns:
        The number of items in each state, including items of earlier runs.

    Raises:
        ValueError, OSError: as in [`cluster.run`], or a part cannot be written.
    """
    before = parts.states()
    states = Counter(before[index] for index, _ in items if index in before)
    remaining = [item for item in items if item[0] not in before]
    if not remaining:
        return states
    progress = Progress(what, len(items), unit, done=len(items) - len(remaining), is_shown=is_shown)

    def watch() -> None:
        parts.add([])  # writes the rows that have waited long enough
        progress.update(0)

    batches = _here(task, remaining, watch) if workers is None else cluster.run(task, remaining, workers, watch)
    try:
        with progress:
            for rows in batches:
                parts.add([row.line for row in rows])
                states.update(row.state for row in rows)
                progress.update(len(rows))
    finally:
        parts.flush()
    return states


def _here(task: AnyTask, items: Items, watch: Callable[[], None]) -> Iterator[list[PartRow]]:
    task.load()
    for batch in task.batches(items, None):
        yield from task(batch, watch)
