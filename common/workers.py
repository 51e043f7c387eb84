"""One method of one object over a stream, in several processes, in order."""

from __future__ import annotations

import itertools
import multiprocessing
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import Any

# Items that a process is given at once.
_BATCH = 256
# Batches under way for each process: none of them waits, and memory stays bounded.
_AHEAD = 3

_subject: Any = None


class Workers:
    """Processes that each hold a copy of an object; started when there is enough to do, ended by the `with` statement.

    Args:
        subject: the object; it can be pickled.
        count: processes; with one, or for a single batch, the work is done in this process.
    """

    def __init__(self, subject: Any, count: int):
        self._subject, self._count = subject, count
        self._pool: ProcessPoolExecutor | None = None

    def __enter__(self) -> Workers:
        return self

    def __exit__(self, *error: Any) -> None:
        if self._pool is not None:
            self._pool.shutdown(wait=True, cancel_futures=True)

    def map(self, method: Callable[[Any, Any], list[Any]], items: Iterable[Any]) -> Iterator[Any]:
        """What the method of the subject makes of each item, one after the other, in order.

        Args:
            method: a method of the subject's class that returns a list for an item.
            items: taken a few batches ahead.

        Raises:
            ChildProcessError: a process died. Whatever the method or the items raise, in its place in the order.
        """
        batches = _batched(items)
        first, second = next(batches, []), next(batches, [])
        if self._count == 1 or not second:
            for item in itertools.chain(first, second, *batches):
                yield from method(self._subject, item)
            return
        if self._pool is None:
            # spawned: a forked copy of a process with threads (tokenizers, torch) may hang
            self._pool = ProcessPoolExecutor(
                self._count, multiprocessing.get_context("spawn"), _begin, (self._subject,)
            )
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
                "a worker process was killed, for want of memory (try with fewer workers), or because the script that asks for "
                'them has no `if __name__ == "__main__":`'
            ) from error


def _batched(items: Iterable[Any]) -> Iterator[list[Any]]:
    items = iter(items)
    while batch := list(itertools.islice(items, _BATCH)):
        yield batch


def _begin(subject: Any) -> None:
    global _subject
    _subject = subject


def _work(name: str, batch: list[Any]) -> list[Any]:
    method = getattr(_subject, name)
    return [result for item in batch for result in method(item)]
