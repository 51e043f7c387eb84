"""A queue of inputs, and a worker thread that computes them.

An input joins a pool: a running computation that inputs join and leave between steps. Inputs of one key share a pool, and
pools take their steps in turn.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from threading import Condition, Thread
from typing import Any, Protocol

_logger = logging.getLogger(__name__)


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
    """Makes pools."""

    def pool_key(self, work: Any) -> Hashable:
        """Return what inputs of one pool have in common."""

    def open_pool(self, key: Any, watch: Callable[[], None]) -> Pool:
        """Return an empty pool for inputs of this key. It calls `watch` now and then, and lets [`Unwanted`] through."""


class Unwanted(Exception):
    """Nobody wants what is computed any more."""


class QueueFull(Exception):
    """The queue has no room for the inputs of a request."""


class Stopping(Exception):
    """The worker is stopping and accepts no new inputs."""


class Failed(Exception):
    """The model failed on an input. The log has the cause."""


@dataclass(eq=False)
class Item:
    """An input in the queue or in a pool. `answer` will have its result, unless the input is abandoned."""

    work: Any
    answer: Future[Any] = field(default_factory=Future)
    is_wanted: bool = True


class Batcher:
    """A queue with a worker thread. Inputs are begun in the order in which they came.

    Args:
        pools: makes pools. Only the worker's thread calls it.
        max_batch_size: the largest number of inputs in all pools together.
        max_queue: the largest number of waiting inputs.
    """

    def __init__(self, pools: Pools, *, max_batch_size: int, max_queue: int):
        self._make, self._max_batch_size, self._max_queue = pools, max_batch_size, max_queue
        self._waiting: deque[Item] = deque()
        self._changed = Condition()
        self._is_stopping = False
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

    def submit(self, works: Sequence[Any]) -> list[Item]:
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
        """Remove inputs from the queue. Those in a pool leave it before its next step."""
        with self._changed:
            for item in items:
                item.is_wanted = False
                if item in self._waiting:
                    self._waiting.remove(item)

    def stop(self) -> None:
        """Stop when the pools are empty. Waiting inputs fail with [`Stopping`]."""
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
        while (joining := self._next()) is not None:
            while joining:  # a variable of a loop would keep the last answer in memory until the next turn
                self._join(joining.pop(0))
            for key in list(self._pools):
                self._step(key)
            self.computing = len(self._members)

    def _next(self) -> list[Item] | None:
        """Return the inputs that join pools now. Wait as long as there is nothing to do.

        Return None after [`stop`], once the pools are empty.
        """
        with self._changed:
            while not self._waiting and not self._members:
                if self._is_stopping:
                    return None
                self._changed.wait()
            joining: list[Item] = []
            while self._waiting and len(self._members) + len(joining) < self._max_batch_size:
                item = self._waiting.popleft()
                # after this call a future cannot be cancelled, so setting its result cannot fail
                if item.answer.set_running_or_notify_cancel():
                    joining.append(item)
            self.computing = len(self._members) + len(joining)
            return joining

    def _open(self, key: Hashable, members: Callable[[], Iterable[Item]]) -> Pool:
        def watch() -> None:
            if not any(item.is_wanted for item in members()):
                raise Unwanted

        return self._make.open_pool(key, watch)

    def _of(self, key: Hashable) -> list[Item]:
        return [item for item, own in self._members.items() if own == key]

    def _join(self, item: Item) -> None:
        try:
            key = self._make.pool_key(item.work)
            if key not in self._pools:
                self._pools[key] = self._open(key, lambda: self._of(key))
            self._pools[key].add(item, item.work)
            self._members[item] = key
        except Exception:
            _logger.exception("an input could not join: %r", item.work)
            self._alone(item)

    def _step(self, key: Hashable) -> None:
        """Take a step of a pool. If it fails, each of its inputs is computed by itself, as one may be the cause."""
        pool = self._pools[key]
        try:
            for item in self._of(key):
                if not item.is_wanted:
                    del self._members[item]
                    pool.remove(item)
            for item, answer in pool.step():
                del self._members[item]
                item.answer.set_result(answer)
        except Exception as error:
            if not isinstance(error, Unwanted):
                _logger.exception("a step of %d inputs failed", len(pool))
            left = self._of(key)
            del self._pools[key], pool, error
            for item in left:
                del self._members[item]
                self._alone(item)
            return
        if not len(pool):
            del self._pools[key]

    def _alone(self, item: Item) -> None:
        """Compute an input in a pool of its own."""
        failure: str | None = None
        try:
            pool = self._open(self._make.pool_key(item.work), lambda: [item])
            pool.add(item, item.work)
            while item.is_wanted and not item.answer.done():
                for _, answer in pool.step():
                    item.answer.set_result(answer)
        except Unwanted:
            return
        except Exception as error:
            _logger.exception("an input failed: %r", item.work)
            failure = type(error).__name__  # not the error itself: its traceback holds tensors
        if failure is not None:
            item.answer.set_exception(Failed(failure))
