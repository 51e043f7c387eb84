"""Options and code of commands that share work among processes."""

import argparse
import shutil
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from weftformer.common.atomic import is_stream
from weftformer.scripts.arguments import positive

# Options that need all plans in memory.
_OF_PLANS = ("json", "html", "picture", "export")
# Options that do not apply to a folder of parts.
_ALONE = ("overwrite", "format", *_OF_PLANS)


def add_sharing_options(add: Any) -> None:
    """Add the options; `add` is `add_argument` of a parser or a group."""
    add("--workers", type=positive, metavar="N", help="N Ray workers, which write parts to the folder --output-file")
    add("--threads", type=positive, default=1, metavar="N", help="CPUs and threads of a worker (default: %(default)s)")
    add("--ray-address", metavar="HOST:PORT", help="Ray cluster, or auto (default: RAY_ADDRESS, else this machine)")
    add("--shard", metavar="K/N", help="only the K-th of N shares, for job arrays; also writes parts")
    add("--join", metavar="FOLDER", help="join the parts in FOLDER to --output-file, or list missing rows")


def output_place(text: str) -> Path | str:
    """Convert `--output-file` to a path, but leave a URI as it is."""
    return text if "://" in text else Path(text)


def is_shared(args: argparse.Namespace) -> bool:
    """Return whether parts are to be written.

    Raises:
        ValueError: arguments do not fit together.
    """
    if args.join is not None and (args.workers is not None or args.shard is not None or args.output_file is None):
        raise ValueError("--join FOLDER requires --output-file FILE and cannot be used with --workers or --shard.")
    if args.join is not None:
        _refuse(args, _OF_PLANS, "--join: give the joined file to `weftformer routes draw`.")
    if args.workers is None and (args.ray_address is not None or args.threads != 1):
        raise ValueError("--ray-address and --threads require --workers N.")
    if args.workers is None and args.shard is None:
        if isinstance(args.output_file, str):
            raise ValueError(
                f"--output-file {args.output_file} is a folder for parts: give --workers N or --shard 1/1 too."
            )
        return False
    from weftformer.distributed.job import shard

    shard(args.shard)
    if args.output_file is None:
        raise ValueError("--workers and --shard write parts: give --output-file FOLDER, or s3://bucket/folder.")
    _refuse(args, _ALONE, "--workers and --shard: join the parts with --join FOLDER first.")
    return True


@contextmanager
def parts_folder(args: argparse.Namespace) -> Iterator[Path]:
    """Yield the folder for the finished targets, from which the outputs are made. It stays if the run is interrupted.

    Raises:
        ValueError: there is a folder of an interrupted run, but neither --resume nor --overwrite, or --resume is given
            without such a folder.
    """
    file = args.output_file
    if file is None or is_stream(file):
        with TemporaryDirectory() as folder:
            yield Path(folder)
        return
    parts = file.with_name(f"{file.name}.parts")
    if args.overwrite:
        shutil.rmtree(parts, ignore_errors=True)
    if parts.exists() and not args.resume:
        raise ValueError(f"{parts} is from an interrupted run: --resume continues it, and --overwrite starts again.")
    if args.resume and file.exists() and not parts.exists():
        raise ValueError(f"{file} is finished: there is nothing to resume. --overwrite starts again.")
    try:
        yield parts
    except BaseException:
        if not any(parts.glob("part-*")):
            shutil.rmtree(parts, ignore_errors=True)
        raise
    shutil.rmtree(parts)


def _refuse(args: argparse.Namespace, names: tuple[str, ...], why: str) -> None:
    for name in names:
        if getattr(args, name, None):
            raise ValueError(f"--{name} is not supported with {why}")


def run_shared(
    command: str,
    args: argparse.Namespace,
    work: Any,
    items: Iterable[Any],
    names: Iterator[str],
    unit: str,
    place: Path | None = None,
    describe: Callable[[Any], str] | None = None,
) -> Counter[str]:
    """Do the work of `args.shard` on `args.workers`, and print a summary, or do all of it in this process.

    Args:
        command: the name of the command.
        work: the work on the items, with its `options` as given by the user.
        items: the whole input.
        names: a text for each item that distinguishes it from others.
        unit: the name of the items, in the plural.
        place: the folder of the rows, if this process does all the work (default: `--output-file`).
        describe: as in `distributed.job.run`.

    Returns:
        The number of items in each state.

    Raises:
        ValueError, OSError: as in `distributed.job.run`, or the folder has other parts.
    """
    from weftformer.distributed import crew, job
    from weftformer.distributed.parts import Parts

    workers = None
    if args.workers is not None:
        workers = crew.Workers(args.workers, args.threads, args.ray_address, args.device)
    parts = Parts(str(place or args.output_file))
    parts.begin(
        command, work.options, names, "give another folder" if place is None else "start again with --overwrite"
    )
    mine = job.of_shard(list(enumerate(items)), args.shard, work.window)
    begun = time.monotonic()
    try:
        states = job.run(
            work, mine, parts, workers, what=command, unit=unit, is_shown=not args.no_progress, describe=describe
        )
    except (KeyboardInterrupt, BrokenPipeError):
        if place is None or args.output_file is not None:
            option = "" if place is None else " with --resume"
            print(f"Finished {unit} are in {parts.place}: run the same command{option} to continue.", file=sys.stderr)
        raise
    if place is not None:
        return states
    seconds = time.monotonic() - begun
    counts = ", ".join(f"{count:,} {state}" for state, count in states.most_common())
    share = states["done"] / max(1, states.total())
    print(f"{states.total():,} {unit} in {parts.place}, {seconds:.0f} s: {counts or 'none'} ({share:.1%} done).")
    return states
