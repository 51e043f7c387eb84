"""Runs a task: computes the missing results, here or on workers, and writes them to parts."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from ..common.progress import Progress
from . import cluster

if TYPE_CHECKING:
    from .parts import Parts
    from .tasks import Items, Result, Task


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
    task: Task,
    items: Items,
    parts: Parts | None,
    workers: cluster.WorkerSettings | None = None,
    *,
    is_shown: bool = True,
    take: Callable[[Result], str | None] = lambda result: None,
) -> Counter[str]:
    """Process the items that are not done.

    Args:
        task: what to do with the items.
        items: all items of this process.
        parts: the folder for the results, after `begin`, if they are to be written.
        workers: the workers on Ray, or None for this process.
        is_shown: whether to show the progress.
        take: called with each result. It may return a text to print.

    Returns:
        The number of items in each state, including items of earlier runs.

    Raises:
        ValueError, OSError: as in [`cluster.run`], or a part cannot be written.
    """
    finished_states = {} if parts is None else parts.states()
    states = Counter(finished_states[index] for index, _ in items if index in finished_states)
    remaining = [item for item in items if item[0] not in finished_states]
    if not remaining:
        return states
    progress = Progress(task.command, len(items), task.unit, done=states.total(), is_shown=is_shown)

    def watch() -> None:
        if parts is not None:
            parts.add([])  # writes the rows that have waited long enough
        progress.update(0)

    batches = _here(task, remaining, watch) if workers is None else cluster.run(task, remaining, workers, watch)
    try:
        with progress:
            for results in batches:
                if parts is not None:
                    parts.add([task.line(result) if workers is None else result.value for result in results])
                for result in results:
                    states[result.state] += 1
                    if (text := take(result)) is not None:
                        progress.print(text)
                progress.update(len(results))
    finally:
        if parts is not None:
            parts.flush()
    return states


def _here(task: Task, items: Items, watch: Callable[[], None]) -> Iterator[list[Result]]:
    task.load()
    for batch in task.batches(items, None):
        yield from task(batch, watch)
