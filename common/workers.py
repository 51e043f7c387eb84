"""Calls a method of an object for each item of a stream, in several processes, with the results in order."""

from __future__ import annotations

import itertools
import multiprocessing
import pickle
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from functools import partial
from typing import Any

import weftformer_command

# Number of items that a process gets at once.
_BATCH = 256
# Number of batches in progress for each process: enough to keep it busy, few enough to limit memory.
_AHEAD = 3

_subject: Any = None


class WorkerProcesses:
    """Processes that each have a copy of an object.

    They start with the second batch, and end with the `with` statement.

    Args:
        subject: the object, which must be picklable.
        count: number of processes. With 1, or for a single batch, the work is done in this process.
    """

    def __init__(self, subject: Any, count: int):
        self._subject, self._count = subject, count
        self._pool: ProcessPoolExecutor | None = None

    def __enter__(self) -> WorkerProcesses:
        return self

    def __exit__(self, *error: Any) -> None:
        if self._pool is not None:
            self._pool.shutdown(wait=True, cancel_futures=True)

    def map(self, method: Callable[[Any, Any], list[Any]], items: Iterable[Any]) -> Iterator[Any]:
        """Yield the results of a method of the object for each item, in the order of the items.

        Args:
            method: a method of the object's class, which returns a list of results for an item.
            items: the items, which are read a few batches ahead.

        Raises:
            ChildProcessError: a process died. An error of the method or of `items` is raised at its place in the
                order.
        """
        items = iter(items)
        batches = iter(lambda: list(itertools.islice(items, _BATCH)), [])
        first, second = next(batches, []), next(batches, [])
        if self._count == 1 or not second:
            for item in itertools.chain(first, second, *batches):
                yield from method(self._subject, item)
            return
        if self._pool is None:
            # "spawn", because a forked copy of a process with threads (tokenizers, torch) may hang
            spawn, begin = multiprocessing.get_context("spawn"), pickle.dumps(partial(_begin, self._subject))
            self._pool = ProcessPoolExecutor(self._count, spawn, weftformer_command.call_with_parts, (begin,))
        under_way: deque[Future[list[Any]]] = deque()
        try:
            for batch in itertools.chain([first, second], batches):
                under_way.append(self._pool.submit(_work, method.__name__, batch))
                if len(under_way) > _AHEAD * self._count:
                    yield from under_way.popleft().result()
            while under_way:
                yield from under_way.popleft().result()
        except BrokenProcessPool as error:
            raise ChildProcessError(
                "a worker process was killed: it ran out of memory (try fewer workers), or the script that starts it "
                'has no `if __name__ == "__main__":`'
            ) from error


def _begin(subject: Any) -> None:
    global _subject
    _subject = subject


def _work(name: str, batch: list[Any]) -> list[Any]:
    method = getattr(_subject, name)
    return [result for item in batch for result in method(item)]
