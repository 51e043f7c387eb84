"""One thread that owns the model and takes waiting inputs of equal settings into one batch."""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from threading import Condition, Thread
from typing import Any, Protocol

_logger = logging.getLogger(__name__)


class Work(Protocol):
    """One input; those with equal `settings` may be computed together."""

    @property
    def settings(self) -> Hashable: ...


# Computes works of equal settings and yields the index and the answer of each as it is done. The function it is given says
# whether anybody still wants an answer; once it says no, [`Unwanted`] may be raised.
Compute = Callable[[Sequence[Any], Callable[[], bool]], Iterable[tuple[int, Any]]]


class Unwanted(Exception):
    """Nobody waits for the answers of this batch any more."""


class QueueFull(Exception):
    """There is no room for a request's inputs now."""


class Stopping(Exception):
    """The server stops and computes nothing new."""


class Failed(Exception):
    """The model failed on an input; the log has the cause."""


@dataclass(eq=False)
class Item:
    """An input on its way: `answer` will hold what it gives, unless it is abandoned before."""

    work: Work
    answer: Future[Any] = field(default_factory=Future)
    since: float = field(default_factory=time.monotonic)
    is_wanted: bool = True


class Batcher:
    """Queue and worker.

    Args:
        compute: see [`Compute`]; called in the worker's thread only.
        max_batch_size: works of one call.
        max_wait_s: how long the first of a batch waits for others of its settings.
        max_queue: works that may wait.
    """

    def __init__(self, compute: Compute, *, max_batch_size: int, max_wait_s: float, max_queue: int):
        self._compute, self._max_batch_size, self._max_wait_s = compute, max_batch_size, max_wait_s
        self._max_queue = max_queue
        self._waiting: deque[Item] = deque()
        self._changed = Condition()
        self._is_stopping = False
        self.computing = 0
        self._thread = Thread(target=self._work, name="weft-batches", daemon=True)

    @property
    def waiting(self) -> int:
        """Works that wait."""
        return len(self._waiting)

    @property
    def is_ready(self) -> bool:
        """Whether new works are computed."""
        return self._thread.is_alive() and not self._is_stopping

    def start(self) -> None:
        self._thread.start()

    def submit(self, works: Sequence[Work]) -> list[Item]:
        """Put works in the queue, all or none.

        Raises:
            QueueFull: they do not fit. Stopping: [`stop`] was called.
        """
        with self._changed:
            if self._is_stopping:
                raise Stopping
            if len(self._waiting) + len(works) > self._max_queue:
                raise QueueFull
            items = [Item(work) for work in works]
            self._waiting.extend(items)
            self._changed.notify()
            return items

    def abandon(self, items: Iterable[Item]) -> None:
        """Nobody waits for these: they leave the queue, and a batch of nothing else ends early."""
        with self._changed:
            for item in items:
                item.is_wanted = False
                if item in self._waiting:
                    self._waiting.remove(item)

    def stop(self) -> None:
        """Finish what is computed; what waits fails with [`Stopping`]."""
        with self._changed:
            self._is_stopping = True
            dropped = list(self._waiting)
            self._waiting.clear()
            self._changed.notify()
        for item in dropped:
            if item.answer.set_running_or_notify_cancel():
                item.answer.set_exception(Stopping())

    def join(self, timeout: float | None = None) -> None:
        """Wait until the worker has ended, after [`stop`]."""
        if self._thread.ident is not None:
            self._thread.join(timeout)

    def _work(self) -> None:
        while batch := self._take():
            self._run(batch)
            self.computing = 0
            del batch  # else the last answers stay in memory for as long as nobody asks

    def _take(self) -> list[Item]:
        """The oldest work and those that may be computed with it, once there are enough or it has waited enough."""
        with self._changed:
            while True:
                if self._is_stopping:
                    return []
                if not self._waiting:
                    self._changed.wait()
                    continue
                first = self._waiting[0]
                batch = [item for item in self._waiting if item.work.settings == first.work.settings]
                left = first.since + self._max_wait_s - time.monotonic()
                if len(batch) < self._max_batch_size and left > 0:
                    self._changed.wait(left)
                    continue
                batch = batch[: self._max_batch_size]
                for item in batch:
                    self._waiting.remove(item)
                # from here on a future cannot be cancelled, and setting its result cannot fail
                batch = [item for item in batch if item.answer.set_running_or_notify_cancel()]
                if batch:
                    self.computing = len(batch)
                    return batch

    def _run(self, batch: list[Item]) -> None:
        failure: str | None = None
        try:
            works = [item.work for item in batch]
            for index, answer in self._compute(works, lambda: any(item.is_wanted for item in batch)):
                batch[index].answer.set_result(answer)
        except Unwanted:
            _logger.info("%d inputs were abandoned while they were computed", len(batch))
        except Exception as error:
            _logger.exception("a batch of %d failed: %r", len(batch), works)
            failure = type(error).__name__  # not the error itself: its traceback holds tensors
        if failure is None:
            return
        left = [item for item in batch if not item.answer.done() and item.is_wanted]
        if len(batch) > 1:
            # which of them it was nobody knows; the others are not to suffer for it, nor for the size of the batch
            for item in left:
                self._run([item])
        elif left:
            left[0].answer.set_exception(Failed(failure))
