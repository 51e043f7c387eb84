"""A queue of inputs, and a worker thread that computes them.

An input joins a pool: a running computation that inputs join and leave between steps. Those that no pool takes are computed
in batches: waiting inputs with equal settings, from beginning to end.
"""

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
    """One input. Inputs with equal `settings` can be computed in one batch."""

    @property
    def settings(self) -> Hashable: ...


# A function that computes inputs with equal settings, and yields the index and the answer of each when it is done. Its
# second argument is a function that returns whether any answer is still wanted. If not, [`Unwanted`] may be raised.
Compute = Callable[[Sequence[Any], Callable[[], bool]], Iterable[tuple[int, Any]]]


class Pool(Protocol):
    """A running computation."""

    def __len__(self) -> int:
        """Return the number of inputs in it."""

    def add(self, key: Hashable, work: Any) -> None:
        """Let an input join, under a key of the caller."""

    def remove(self, key: Hashable) -> None:
        """Let an input leave that nobody wants any more."""

    def step(self) -> Iterable[tuple[Any, Any]]:
        """Go on for a moment. Return the keys and answers of the inputs that are done, which have left."""


class Pools(Protocol):
    """Knows which inputs may be computed in a pool."""

    def pool_key(self, work: Any) -> Hashable | None:
        """Return what inputs of one pool have in common, or None if the input is to be computed in a batch."""

    def open_pool(self, key: Any) -> Pool:
        """Return an empty pool for inputs of this key."""


class Unwanted(Exception):
    """The answers of the current batch are not wanted any more."""


class QueueFull(Exception):
    """The queue has no room for the inputs of a request."""


class Stopping(Exception):
    """The worker is stopping and accepts no new inputs."""


class Failed(Exception):
    """The model failed on an input. The log has the cause."""


@dataclass(eq=False)
class Item:
    """An input in the queue or in a batch. `answer` will have its result, unless the input is abandoned."""

    work: Work
    answer: Future[Any] = field(default_factory=Future)
    since: float = field(default_factory=time.monotonic)
    is_wanted: bool = True


class Batcher:
    """A queue with a worker thread. Inputs are begun in the order in which they came; pools take their steps in turn.

    Args:
        compute: the function that computes a batch, see [`Compute`]. Only the worker's thread calls it.
        max_batch_size: the largest number of inputs in a batch, and in all pools together.
        max_wait_s: the time in seconds that the first input of a batch waits for others with its settings.
        max_queue: the largest number of waiting inputs.
        pools: makes pools; without, there are only batches. Only the worker's thread calls it.
    """

    def __init__(
        self,
        compute: Compute,
        *,
        max_batch_size: int,
        max_wait_s: float,
        max_queue: int,
        pools: Pools | None = None,
    ):
        self._compute, self._max_batch_size, self._max_wait_s = compute, max_batch_size, max_wait_s
        self._max_queue = max_queue
        self._waiting: deque[Item] = deque()
        self._changed = Condition()
        self._is_stopping = False
        self._make = pools
        self._pools: dict[Hashable, Pool] = {}
        self._members: dict[Item, Hashable] = {}  # inputs in pools, and the keys of the pools
        self.computing = 0
        self._thread = Thread(target=self._work, name="weft-batches", daemon=True)

    @property
    def waiting(self) -> int:
        """The number of waiting inputs."""
        return len(self._waiting)

    @property
    def is_ready(self) -> bool:
        """Whether the worker runs and accepts new inputs."""
        return self._thread.is_alive() and not self._is_stopping

    def start(self) -> None:
        self._thread.start()

    def submit(self, works: Sequence[Work]) -> list[Item]:
        """Put inputs into the queue: all of them, or none if an error is raised.

        Raises:
            QueueFull: they do not fit.
            Stopping: [`stop`] was called.
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
        """Remove inputs from the queue. A batch with only such inputs may end early."""
        with self._changed:
            for item in items:
                item.is_wanted = False
                if item in self._waiting:
                    self._waiting.remove(item)

    def stop(self) -> None:
        """Stop after the current batch, and when the pools are empty. Waiting inputs fail with [`Stopping`]."""
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
        while (turn := self._next()) is not None:
            joining, batch = turn
            for item, key in joining:
                self._join(item, key)
            if batch:
                self._run(batch)
            for key in list(self._pools):
                self._step(key)
            self.computing = len(self._members)
            del turn, joining, batch  # otherwise their answers stay in memory until the next turn

    def _next(self) -> tuple[list[tuple[Item, Hashable]], list[Item]] | None:
        """Return the inputs that join pools now, and a batch. Wait as long as there is nothing to do.

        Return None after [`stop`], once the pools are empty.
        """
        with self._changed:
            while True:
                joining: list[tuple[Item, Hashable]] = []
                batch: list[Item] = []
                left: float | None = None
                while self._waiting and len(self._members) + len(joining) < self._max_batch_size:
                    key = self._key_of_first()
                    if key is None:
                        break
                    item = self._waiting.popleft()
                    # after this call a future cannot be cancelled, so setting its result cannot fail
                    if item.answer.set_running_or_notify_cancel():
                        joining.append((item, key))
                if self._waiting and self._key_of_first() is None:
                    batch, left = self._take()
                if joining or batch or self._members:
                    self.computing = len(self._members) + len(joining) + len(batch)
                    return joining, batch
                if self._is_stopping:
                    return None
                self._changed.wait(left)

    def _key_of_first(self) -> Hashable | None:
        """Return the key of the pool that the oldest waiting input may join, or None if it is for a batch."""
        if self._make is None:
            return None
        try:
            return self._make.pool_key(self._waiting[0].work)
        except Exception:
            _logger.exception("it is not known whether an input may join a pool: %r", self._waiting[0].work)
            return None

    def _take(self) -> tuple[list[Item], float | None]:
        """Return the next batch, the oldest input and others with its settings, or the seconds that it waits for others.

        The batch is ready when it is full, or when its oldest input has waited for `max_wait_s`.
        """
        first = self._waiting[0]
        batch = [item for item in self._waiting if item.work.settings == first.work.settings]
        left = first.since + self._max_wait_s - time.monotonic()
        if len(batch) < self._max_batch_size and left > 0:
            return [], left
        batch = batch[: self._max_batch_size]
        for item in batch:
            self._waiting.remove(item)
        # after this call a future cannot be cancelled, so setting its result cannot fail
        return [item for item in batch if item.answer.set_running_or_notify_cancel()], 0.0

    def _join(self, item: Item, key: Hashable) -> None:
        assert self._make is not None
        try:
            if key not in self._pools:
                self._pools[key] = self._make.open_pool(key)
            self._pools[key].add(item, item.work)
            self._members[item] = key
        except Exception:
            _logger.exception("an input could not join: %r", item.work)
            self._run([item])

    def _step(self, key: Hashable) -> None:
        """Take a step of a pool. If it fails, each of its inputs is computed by itself, as one may be the cause."""
        pool = self._pools[key]
        try:
            for item in [item for item, own in self._members.items() if own == key and not item.is_wanted]:
                del self._members[item]
                pool.remove(item)
            for item, answer in pool.step():
                del self._members[item]
                item.answer.set_result(answer)
        except Exception:
            _logger.exception("a step of %d inputs failed", len(pool))
            left = [item for item, own in self._members.items() if own == key]
            del self._pools[key], pool
            for item in left:
                del self._members[item]
                if item.is_wanted:
                    self._run([item])
            return
        if not len(pool):
            del self._pools[key]

    def _run(self, batch: list[Item]) -> None:
        failure: str | None = None
        try:
            works = [item.work for item in batch]
            for index, answer in self._compute(works, lambda: any(item.is_wanted for item in batch)):
                batch[index].answer.set_result(answer)
        except Unwanted:
            _logger.info("%d inputs were abandoned during their computation", len(batch))
        except Exception as error:
            _logger.exception("a batch of %d failed: %r", len(batch), works)
            failure = type(error).__name__  # not the error itself: its traceback holds tensors
        if failure is None:
            return
        left = [item for item in batch if not item.answer.done() and item.is_wanted]
        if len(batch) > 1:
            # one input, or the size of the batch, may be the cause, so each input is computed by itself
            for item in left:
                self._run([item])
        elif left:
            left[0].answer.set_exception(Failed(failure))
