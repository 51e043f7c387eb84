"""Options and code of commands whose rows are shared among processes, or collected until a run is finished."""

from __future__ import annotations

import argparse
import shutil
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from weftformer.common.atomic import is_stream
from weftformer.scripts.arguments import add_threads_option, positive

if TYPE_CHECKING:
    from weftformer.distributed.parts import Parts
    from weftformer.distributed.tasks import Task

# Options that need all plans in memory.
_OF_PLANS = ("json", "html", "picture", "export")
# Options that do not apply to a folder of parts.
_ALONE = ("overwrite", "format", *_OF_PLANS)


def add_sharing_options(add: Any) -> None:
    """Add the options; `add` is `add_argument` of a parser or a group."""
    add("--workers", type=positive, metavar="N", help="N Ray workers, which write parts to the folder --output-file")
    add_threads_option(add, "; of a worker: 1")
    add("--ray-address", metavar="HOST:PORT", help="Ray cluster, or auto (default: RAY_ADDRESS, else this machine)")
    add("--shard", metavar="K/N", help="only the K-th of N shares, for job arrays; also writes parts")
    add("--join", metavar="FOLDER", help="join the parts in FOLDER to --output-file, or list missing rows")


def output_place(text: str) -> Path | str:
    """Convert `--output-file` to a path, but leave a URI as it is."""
    return text if "://" in text else Path(text)


def is_shared(args: argparse.Namespace) -> bool:
    """Return whether parts are to be written.

    Raises:
        ValueError: arguments do not fit together, or Ray is not installed.
    """
    if args.join is not None and (args.workers is not None or args.shard is not None or args.output_file is None):
        raise ValueError("--join FOLDER requires --output-file FILE and cannot be used with --workers or --shard.")
    if args.join is not None:
        _refuse(args, _OF_PLANS, "--join: give the joined file to `weftformer routes draw`.")
    if args.workers is None and args.ray_address is not None:
        raise ValueError("--ray-address requires --workers N.")
    if args.workers is None and args.shard is None:
        if isinstance(args.output_file, str):
            raise ValueError(
                f"--output-file {args.output_file} is a folder for parts: give --workers N or --shard 1/1 too."
            )
        return False
    from weftformer.distributed import cluster, job

    job.shard(args.shard)
    if args.output_file is None:
        raise ValueError("--workers and --shard write parts: give --output-file FOLDER, or s3://bucket/folder.")
    _refuse(args, _ALONE, "--workers and --shard: join the parts with --join FOLDER first.")
    if args.workers is not None:
        cluster.check_installed()
    return True


@contextmanager
def unfinished_rows(args: argparse.Namespace, task: Task, items: Sequence[Any]) -> Iterator[Parts | None]:
    """Yield the folder beside `--output-file` for the rows that are finished, None without a file.

    The folder stays if the run is interrupted, for `--resume`.

    Args:
        args: the arguments, with `output_file`, `resume` and `overwrite`.
        task: what is done with the items.
        items: the whole input.

    Raises:
        ValueError: there is a folder of an interrupted run, but neither --resume nor --overwrite, or --resume is given
            without such a folder, or with other settings or another input.
    """
    file = args.output_file
    if file is None or is_stream(file):
        yield None
        return
    from weftformer.distributed.parts import Parts

    folder = file.with_name(f"{file.name}.parts")
    if args.overwrite:
        shutil.rmtree(folder, ignore_errors=True)
    if folder.exists() and not args.resume:
        raise ValueError(f"{folder} is from an interrupted run: --resume continues it, and --overwrite starts again.")
    if args.resume and file.exists() and not folder.exists():
        raise ValueError(f"{file} is finished: there is nothing to resume. --overwrite starts again.")
    parts = Parts(str(folder))
    try:
        parts.begin(task.command, task.options, map(task.name, items), "start again with --overwrite")
        yield parts
    except BaseException as error:
        parts.flush()
        if not any(folder.glob("part-*")):
            shutil.rmtree(folder, ignore_errors=True)
        elif isinstance(error, KeyboardInterrupt | BrokenPipeError):
            message = f"Finished {task.unit} are in {folder}: run the same command with --resume to continue."
            print(message, file=sys.stderr)
        raise
    shutil.rmtree(folder)


def _refuse(args: argparse.Namespace, names: tuple[str, ...], why: str) -> None:
    for name in names:
        if getattr(args, name, None):
            raise ValueError(f"--{name} is not supported with {why}")


def run_shared(args: argparse.Namespace, task: Task, items: Sequence[Any]) -> Counter[str]:
    """Process the items of `args.shard` on `args.workers`, or in this process, and print a summary.

    Args:
        args: the arguments.
        task: what to do with the items.
        items: the whole input.

    Returns:
        The number of items in each state.

    Raises:
        ValueError, OSError: as in `distributed.job.run`, or the folder has other parts.
    """
    from weftformer.distributed import cluster, job
    from weftformer.distributed.parts import Parts

    workers = None
    if args.workers is not None:
        workers = cluster.WorkerSettings(args.workers, args.threads or 1, args.ray_address, args.device)
    parts = Parts(str(args.output_file))
    parts.begin(task.command, task.options, map(task.name, items))
    shard = job.of_shard(list(enumerate(items)), args.shard, task.window)
    start = time.monotonic()
    try:
        states = job.run(task, shard, parts, workers, is_shown=not args.no_progress)
    except (KeyboardInterrupt, BrokenPipeError):
        print(f"Finished {task.unit} are in {parts.place}: run the same command to continue.", file=sys.stderr)
        raise
    seconds = time.monotonic() - start
    counts = ", ".join(f"{count:,} {state}" for state, count in states.most_common())
    share = states["done"] / max(1, states.total())
    print(f"{states.total():,} {task.unit} in {parts.place}, {seconds:.0f} s: {counts or 'none'} ({share:.1%} done).")
    return states
