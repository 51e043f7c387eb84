"""Calls a method of an object for each item of a stream, in several processes, with the results in order."""

from __future__ import annotations

import itertools
import multiprocessing
import pickle
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures.process import BrokenProcessPool
from functools import partial
from typing import Any

from pebble import ProcessExpired, ProcessFuture, ProcessPool

import weftformer_command

# Number of items that a process gets at once, if their time is not limited.
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
        seconds: the longest time for an item, for work that may hang in a library where no exception reaches it. The
            process is then ended, and the result of the item is None. A single batch has no limit.
    """

    def __init__(self, subject: Any, count: int, seconds: float | None = None):
        self._subject, self._count, self._seconds = subject, count, seconds
        self._pool: ProcessPool | None = None

    def __enter__(self) -> WorkerProcesses:
        return self

    def __exit__(self, *error: Any) -> None:
        if self._pool is not None:
            self._pool.stop()
            self._pool.join()

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
        tasks: Iterable[list[Any]] = itertools.chain([first, second], batches)
        if (self._count == 1 and self._seconds is None) or not second:
            for item in itertools.chain.from_iterable(tasks):
                yield from method(self._subject, item)
            return
        ahead = _AHEAD * self._count
        if self._seconds is not None:  # a process that is ended takes no other item along
            tasks, ahead = ([item] for batch in tasks for item in batch), _BATCH * ahead
        under_way: deque[ProcessFuture] = deque()
        try:
            for task in tasks:
                under_way.append(self._submit(method.__name__, task))
                if len(under_way) > ahead:
                    yield from _results(under_way.popleft())
            while under_way:
                yield from _results(under_way.popleft())
        except (ProcessExpired, BrokenProcessPool) as error:
            raise ChildProcessError(
                "a worker process was killed: it ran out of memory (try fewer workers), or the script that starts it "
                'has no `if __name__ == "__main__":`'
            ) from error

    def _submit(self, name: str, items: list[Any]) -> ProcessFuture:
        if self._pool is None:
            # "spawn", because a forked copy of a process with threads (tokenizers, torch) may hang
            spawn, begin = multiprocessing.get_context("spawn"), pickle.dumps(partial(_begin, self._subject))
            self._pool = ProcessPool(self._count, 0, weftformer_command.call_with_parts, (begin,), spawn)
        try:
            return self._pool.schedule(_work, (name, items), timeout=self._seconds)
        except RuntimeError as error:  # the pool has broken since
            raise BrokenProcessPool(str(error)) from error


def _results(future: ProcessFuture) -> list[Any]:
    try:
        return future.result()
    except TimeoutError:
        return [None]


def _begin(subject: Any) -> None:
    global _subject
    _subject = subject


def _work(name: str, items: list[Any]) -> list[Any]:
    return [result for item in items for result in getattr(_subject, name)(item)]
