"""Calls a method of an object for each item of a stream, in several processes, with the results in order."""

from __future__ import annotations

import faulthandler
import itertools
import multiprocessing
import os
import pickle
import time
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
        seconds: the longest time for an item, for work that may hang in a library where no exception reaches it. The
            process is then ended, and the result of the item is None. A single batch has no limit.
    """

    def __init__(self, subject: Any, count: int, seconds: float | None = None):
        self._subject, self._count, self._seconds = subject, count, seconds
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
        if (self._count == 1 and self._seconds is None) or not second:
            for item in itertools.chain(first, second, *batches):
                yield from method(self._subject, item)
            return
        under_way: deque[tuple[list[Any], Future[list[Any]]]] = deque()
        try:
            for batch in itertools.chain([first, second], batches):
                under_way.append((batch, self._submit(method.__name__, batch)))
                if len(under_way) > _AHEAD * self._count:
                    yield from self._next(method.__name__, under_way)
            while under_way:
                yield from self._next(method.__name__, under_way)
        except BrokenProcessPool as error:
            raise ChildProcessError(
                "a worker process was killed: it ran out of memory (try fewer workers), or the script that starts it "
                'has no `if __name__ == "__main__":`'
            ) from error

    def _submit(self, name: str, batch: list[Any]) -> Future[list[Any]]:
        if self._pool is None:
            # "spawn", because a forked copy of a process with threads (tokenizers, torch) may hang
            spawn, begin = multiprocessing.get_context("spawn"), pickle.dumps(partial(_begin, self._subject))
            self._pool = ProcessPoolExecutor(self._count, spawn, weftformer_command.call_with_parts, (begin,))
        try:
            return self._pool.submit(_work, name, batch, self._seconds)
        except BrokenProcessPool as error:  # a process has ended since: [`_next`] submits the batch again
            lost: Future[list[Any]] = Future()
            lost.set_exception(error)
            return lost

    def _next(self, name: str, under_way: deque[tuple[list[Any], Future[list[Any]]]]) -> list[Any]:
        """Return the results of the earliest batch."""
        batch, future = under_way.popleft()
        try:
            return future.result()
        except BrokenProcessPool:
            if self._seconds is None:
                raise
        # the other batches are lost with the process: one item at a time shows which one hangs
        self._pool, results = None, list[Any]()
        for item in batch:
            begun = time.monotonic()
            try:
                results += self._submit(name, [item]).result()
            except BrokenProcessPool:
                if time.monotonic() - begun < self._seconds:
                    raise  # it has not hung
                self._pool = None
                results.append(None)
        for _ in range(len(under_way)):
            lost, _ = under_way.popleft()
            under_way.append((lost, self._submit(name, lost)))
        return results


def _begin(subject: Any) -> None:
    global _subject
    _subject = subject


def _work(name: str, batch: list[Any], seconds: float | None) -> list[Any]:
    method, results = getattr(_subject, name), list[Any]()
    with open(os.devnull, "w", encoding="utf-8") as nowhere:
        for item in batch:
            if seconds is not None:
                # ends the process from a thread of C, where code that holds Python's lock cannot prevent it
                faulthandler.dump_traceback_later(seconds, exit=True, file=nowhere)
            results += method(item)
        faulthandler.cancel_dump_traceback_later()
    return results
