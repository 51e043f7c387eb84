"""Simulate a job on many workers: batches are cut as for real ones, and workers die, lag and wait for the driver.

The times of a target, of loading a model and of the driver for a batch were measured on two cores.
"""

import argparse
import heapq
import random
import sys
from collections import deque
from typing import Any

from weftformer.distributed.crew import STRIKES
from weftformer.distributed.works import PlanWork
from weftformer.routes.files.targets import Target
from weftformer.scripts.cli import Parser, run_script

ROW = "| workers | targets | targets a second | of the ideal | done twice | last 1 % of the targets | driver busy |"


def simulate(workers: int, targets: int, given: argparse.Namespace) -> dict[str, float]:
    """Let workers do targets.

    Args:
        workers, targets: their numbers.
        given: the measured times and the failure rates, as the options of this command.

    Returns:
        Targets a second, its share of the ideal of so many workers, the share of the work that was done twice, the seconds in which
        the last hundredth of the targets was done, and the share of the time in which the driver worked.
    """
    draw = random.Random(given.seed)
    lengths = [draw.randint(15, 80) for _ in range(targets)]
    middle = given.seconds / 1.2776 / 47.5  # of a lognormal of width 0.7, for each character of 47.5
    seconds = [length * middle * draw.lognormvariate(0, 0.7) for length in lengths]
    speeds = [given.lag if draw.random() < given.laggards else 1.0 for _ in range(workers)]
    items = [(index, Target(str(index), "C" * length)) for index, length in enumerate(lengths)]
    waiting = deque(PlanWork("").batches(items, workers))
    strikes = [0] * targets
    # what ends when: the time, the worker, its batch (none while it loads), and what it had worked for if it dies
    ends: list[tuple[float, int, Any, float]] = [(given.load, worker, [], 0.0) for worker in range(workers)]
    idle: list[int] = []
    free = busy = twice = 0.0
    done: list[float] = []
    while len(done) < targets:
        now, worker, batch, lost = heapq.heappop(ends)
        free = max(free, now) + given.driver  # one driver: it takes one batch after the other
        busy += given.driver
        if lost:
            twice += lost
            for index, item in batch:
                strikes[index] += 1
                if strikes[index] < STRIKES:
                    waiting.appendleft([(index, item)])
                else:
                    done.append(free)
            heapq.heappush(ends, (free + given.load, worker, [], 0.0))
            for other in idle[: len(waiting)]:
                heapq.heappush(ends, (free, other, [], 0.0))
            del idle[: len(waiting)]
            continue
        done += [free] * len(batch)
        if waiting:
            batch = waiting.popleft()
            needed = sum(seconds[index] for index, _ in batch) / speeds[worker]
            death = draw.expovariate(given.deaths / 3600) if given.deaths else needed + 1
            heapq.heappush(ends, (free + min(needed, death), worker, batch, death if death < needed else 0.0))
        else:
            idle.append(worker)
    done.sort()
    total = done[-1]
    return {
        "rate": targets / total,
        "share": sum(seconds) / sum(speeds) / total,
        "twice": twice / sum(seconds),
        "tail": total - done[int(0.99 * targets)],
        "driver": busy / total,
    }


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--workers", type=int, nargs="+", default=[10, 100, 1000, 4000], metavar="N", help="numbers of workers")
    add("--targets", type=int, default=100_000, metavar="N", help="targets (default: %(default)s)")
    add("--seconds", type=float, default=1.8, metavar="S", help="of a target on one core (default: %(default)s)")
    add("--load", type=float, default=15.0, metavar="S", help="to start a worker (default: %(default)s)")
    add("--driver", type=float, default=0.004, metavar="S", help="of the driver for a batch (default: %(default)s)")
    add("--deaths", type=float, default=0.1, metavar="N", help="of a worker in an hour of work (default: %(default)s)")
    add("--laggards", type=float, default=0.02, metavar="SHARE", help="of slow workers (default: %(default)s)")
    add("--lag", type=float, default=0.3, metavar="SPEED", help="of a slow worker (default: %(default)s)")
    add("--seed", type=int, default=0, metavar="N")


def main(args: argparse.Namespace) -> None:
    print(f"{ROW}\n|{' --- |' * (ROW.count('|') - 1)}")
    for workers in args.workers:
        found = simulate(workers, args.targets, args)
        print(
            f"| {workers:,} | {args.targets:,} | {found['rate']:,.1f} | {found['share']:.1%} | {found['twice']:.2%} "
            f"| {found['tail']:.0f} s | {found['driver']:.1%} |"
        )


if __name__ == "__main__":
    parser = Parser(prog="python -m weftformer.benchmarks.sharing", description=__doc__)
    add_arguments(parser)
    sys.exit(run_script("benchmarks.sharing", main, parser.parse_args()))
