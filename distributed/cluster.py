"""Workers on Ray: actors that each have a model, and a driver that distributes batches and collects rows.

Ray Data's pool of actors is not used. If an actor dies, it repeats the batch for ever or gives it up whole: the target
at fault cannot be identified, and the other targets are lost with it. It also cannot limit the time of a batch.
"""

from __future__ import annotations

import importlib.util
import os
import socket
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ..common.words import first_line

if TYPE_CHECKING:
    from .tasks import Items, Result, Task

# An item is left out after it has ended, or failed in, this many workers.
MAX_FAILURES = 2
# A run fails after this many workers in a row have died while they loaded the model.
_MAX_FAILED_LOADS = 3
# Seconds for a cluster to answer, and between two checks of the deadlines.
_ANSWER, _LOOK = 5.0, 1.0


@dataclass(frozen=True)
class WorkerSettings:
    """The number of workers, and where they run.

    Args:
        count: the number of workers.
        threads: the CPUs and threads of a worker.
        address: the address of a Ray cluster, or "auto" for the one that this machine belongs to (default:
            `RAY_ADDRESS`; without it, Ray is started on this machine).
        device: the device of the models (default: a GPU for each worker if the cluster has GPUs, else CPUs).
    """

    count: int
    threads: int = 1
    address: str | None = None
    device: str | None = None


def check_installed() -> None:
    """Raise a ValueError if Ray is not installed."""
    if importlib.util.find_spec("ray") is None:
        raise ValueError('Workers need Ray. Install it in your clone of Weft: pip install -e ".[ray]"')


@contextmanager
def _connected(workers: WorkerSettings) -> Iterator[tuple[Any, str]]:
    """Connect to Ray, or start it on this machine. An existing connection is used, and stays open.

    Args:
        workers: the workers that must fit into the cluster.

    Yields:
        The package `ray`, and the device of the workers.

    Raises:
        ValueError: Ray is not installed, no cluster answers at the address, or it is too small for the workers.
    """
    check_installed()
    import ray

    is_ours = not ray.is_initialized()
    if is_ours:
        _connect(ray, workers)
    try:
        nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
        device = workers.device or ("cuda" if any(node.get("GPU") for node in nodes) else "cpu")
        _check_size(workers, nodes, device)
        yield ray, device
    finally:
        if is_ours:
            ray.shutdown()


def _connect(ray: Any, workers: WorkerSettings) -> None:
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # otherwise, Ray sends usage reports to its makers
    address = workers.address or os.environ.get("RAY_ADDRESS") or "local"
    options: dict[str, Any] = {"address": address, "log_to_driver": False, "logging_level": "ERROR"}
    if address == "local":
        _check_size(workers, [{"CPU": os.cpu_count() or 1}], "cpu")
        options |= {"num_cpus": workers.count * workers.threads, "include_dashboard": False}
    else:
        _check_answers(address)
    try:
        ray.init(**options)
    except (ConnectionError, RuntimeError, ValueError) as error:
        raise _unreachable(address, error) from error


def _check_answers(address: str) -> None:
    """Check that a cluster answers. Ray itself waits long for a missing one, and then ends the process."""
    if address.startswith("ray://"):
        raise ValueError(f"--ray-address {address} is a Ray Client: use `ray job submit`, or auto in the cluster.")
    host, colon, port = address.rpartition(":")
    if colon:
        try:
            socket.create_connection((host.strip("[]"), int(port)), timeout=_ANSWER).close()
        except (OSError, ValueError) as error:
            raise _unreachable(address, error) from error


def _unreachable(address: str, error: Exception) -> ValueError:
    return ValueError(
        f"No Ray cluster responds at {address} ({first_line(error)}): start one with `ray start --head`, or leave out "
        "--ray-address and RAY_ADDRESS for workers on this machine."
    )


def run(
    task: Task, items: Items, workers: WorkerSettings, watch: Callable[[], None] | None = None
) -> Iterator[list[Result]]:
    """Process items on workers, and yield their results batch by batch, as they are done. Their values are lines.

    An item that ends its worker or raises an error is repeated alone. After the second failure, its result has the
    state `failed`. The loss of a node does not count as a failure.

    Args:
        task: what to do with the items.
        items: the items.
        workers: the number of workers, and where they run.
        watch: called about once a second.

    Raises:
        ValueError: no cluster answers, it is too small for so many workers, or the model cannot be loaded.
    """
    with _connected(workers) as (ray, device):
        pool = _WorkerPool(ray, task, workers, device)
        try:
            yield from pool.run(task.batches(items, workers.count), watch or (lambda: None))
        finally:
            pool.stop()


def _gpus_of(device: str | None) -> int:
    """Return the number of GPUs that a model takes on a device."""
    return int((device or "").startswith("cuda"))


def _check_size(workers: WorkerSettings, nodes: list[dict[str, float]], device: str) -> None:
    """Check that the workers fit. Ray would wait for ever for CPUs that no node has."""
    sizes = [int(node.get("CPU", 0) // workers.threads) for node in nodes]
    if gpus := _gpus_of(device):
        sizes = [min(size, int(node.get("GPU", 0))) for size, node in zip(sizes, nodes, strict=True)]
    if sum(sizes) < workers.count:
        each = f"{workers.threads} CPU{'s' if workers.threads > 1 else ''}{' and a GPU' if gpus else ''} each"
        raise ValueError(f"--workers {workers.count} with {each} do not fit: the cluster can take {sum(sizes)}.")


class _Worker:
    """The class of the actors."""

    def load(self, task: Task, threads: int, device: str) -> str:
        """Load the model, and return the id of this node."""
        import ray

        self.task, task.threads = task, threads
        task.loading |= {"device": device}
        task.load()
        return ray.get_runtime_context().get_node_id()

    def do(self, items: Items) -> list[Result]:
        return [_with_line(self.task, result) for results in self.task(items) for result in results]


def _with_line(task: Task, result: Result) -> Result:
    return replace(result, item=None, value=task.line(result))


@dataclass
class Assignment:
    """What a worker is doing: a batch, or loading the model if `batch` is None."""

    actor: Any
    batch: Items | None = None
    deadline: float = float("inf")


class _WorkerPool:
    def __init__(self, ray: Any, task: Task, workers: WorkerSettings, device: str):
        self.ray, self.task, self.workers, self.device = ray, task, workers, device
        # only actors reserve CPUs: whatever else Ray runs does not have to wait for a pool that takes all of them
        self._kind = ray.remote(num_cpus=workers.threads, num_gpus=_gpus_of(device), max_restarts=0)(_Worker)
        self._shared = ray.put(task)  # stored once, because the stock may be large
        self._assignments: dict[Any, Assignment] = {}  # by the references of their results
        self._idle: list[Any] = []
        self._nodes: dict[Any, str] = {}  # by the actor
        self._waiting: deque[Items] = deque()
        self._failures: Counter[int] = Counter()
        self._failed_loads = 0

    def run(self, batches: list[Items], watch: Callable[[], None]) -> Iterator[list[Result]]:
        self._waiting.extend(batches)
        for _ in range(min(self.workers.count, len(batches))):
            self._start_worker()
        while self._waiting or any(assignment.batch is not None for assignment in self._assignments.values()):
            self._assign()
            ready, _ = self.ray.wait(list(self._assignments), timeout=_LOOK)
            watch()
            for reference in ready:
                results = self._collect(reference, self._assignments.pop(reference))
                if results:
                    yield results
            now = time.monotonic()
            for assignment in self._assignments.values():
                if now > assignment.deadline:  # its death is handled in the next round
                    self.ray.kill(assignment.actor)

    def stop(self) -> None:
        """End all workers."""
        for actor in [*self._idle, *(assignment.actor for assignment in self._assignments.values())]:
            self.ray.kill(actor)

    def _start_worker(self) -> None:
        actor = self._kind.remote()
        self._assignments[actor.load.remote(self._shared, self.workers.threads, self.device)] = Assignment(actor)

    def _assign(self) -> None:
        while self._waiting and self._idle:
            actor, batch = self._idle.pop(), self._waiting.popleft()
            seconds = self.task.seconds(batch)
            deadline = float("inf") if seconds is None else time.monotonic() + seconds
            self._assignments[actor.do.remote(batch)] = Assignment(actor, batch, deadline)

    def _collect(self, reference: Any, assignment: Assignment) -> list[Result]:
        """Return the results of a worker, or those of its abandoned items if it failed."""
        try:
            result = self.ray.get(reference)
        except self.ray.exceptions.RayTaskError as error:
            if assignment.batch is None:  # each worker would fail in the same way
                raise (
                    error.cause if isinstance(error.cause, (ValueError, OSError)) else ValueError(str(error.cause))
                ) from error
            self._idle.append(assignment.actor)
            return self._repeat(
                assignment.batch, f"raised {type(error.cause).__name__}: {error.cause}", is_failure=True
            )
        except self.ray.exceptions.RayError as error:
            return self._died(assignment, error)
        self._idle.append(assignment.actor)
        if assignment.batch is None:
            self._nodes[assignment.actor], self._failed_loads = result, 0
            return []
        return result

    def _died(self, assignment: Assignment, error: Exception) -> list[Result]:
        self.ray.kill(assignment.actor)  # it may be alive but out of reach
        alive = {node["NodeID"] for node in self.ray.nodes() if node["Alive"]}
        if assignment.batch is None:
            self._failed_loads += 1
            if self._failed_loads >= _MAX_FAILED_LOADS:
                raise ValueError(
                    f"{_MAX_FAILED_LOADS} workers died while they loaded the model: memory is too small for "
                    f"{self.workers.count}, or a library is broken. {first_line(error)}"
                )
            self._start_worker()
            return []
        is_late = time.monotonic() > assignment.deadline
        reason = "took too long" if is_late else "ended its worker (out of memory, or a crash)"
        results = self._repeat(assignment.batch, reason, is_failure=self._nodes.pop(assignment.actor, "") in alive)
        if self._waiting:
            self._start_worker()
        return results

    def _repeat(self, batch: Items, cause: str, is_failure: bool) -> list[Result]:
        """Queue a batch again, and return the results of the items that have failed too often."""
        if not is_failure:
            self._waiting.appendleft(batch)
            return []
        results = []
        self._failures.update(index for index, _ in batch)
        for index, item in reversed(batch):
            if self._failures[index] >= MAX_FAILURES:
                reason = f"Left out after {MAX_FAILURES} failed attempts. The last attempt {cause}."
                results.append(_with_line(self.task, self.task.failed(index, item, reason)))
            else:
                self._waiting.appendleft([(index, item)])  # alone, so that the next failure identifies it
        return results
