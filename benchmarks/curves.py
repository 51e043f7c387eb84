"""The validation losses of several training runs, as a table and in one picture.

    python -m weftformer.benchmarks.curves Weft=runs/multi30k-de Marian=runs/multi30k-de-marian --picture curves.svg

A run may still be going on.
"""

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from transformers import TrainerState
from transformers.trainer import TRAINER_STATE_NAME

from weftformer.common.figures import check_figure, new_figure, save_figure
from weftformer.scripts.cli import run_script
from weftformer.training.checkpoints import checkpoints

Curve = dict[int, float]


def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m weftformer.benchmarks.curves",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "runs", nargs="+", metavar="NAME=FOLDER", help="a name and the output folder of its training run"
    )
    parser.add_argument("--every", type=int, default=1, metavar="N",
                        help="a row of the table for every N-th evaluation, counted from the last (default: %(default)s)")  # fmt: skip
    parser.add_argument("--picture", type=Path, metavar="FILE", help=".svg, .png or .pdf (needs matplotlib)")
    return parser


def read_curve(folder: Path) -> Curve:
    """Return the validation loss by step, from a run's folder or its last checkpoint.

    Raises:
        ValueError: there is no run in the folder, or it has not evaluated yet.
    """
    found = [*checkpoints(folder)[:1], folder]  # a checkpoint may be newer than what an earlier run left
    files = [file for place in found if (file := place / TRAINER_STATE_NAME).is_file()]
    if not files:
        raise ValueError(f"{folder} has no {TRAINER_STATE_NAME}: give the output folder of a training run.")
    states = [TrainerState.load_from_json(str(file)) for file in files]
    history = max(states, key=lambda state: state.global_step).log_history
    curve = {entry["step"]: entry["eval_loss"] for entry in history if "eval_loss" in entry}
    if not curve:
        raise ValueError(f"The run in {folder} has no evaluation yet.")
    return curve


def as_table(curves: Mapping[str, Curve], every: int = 1) -> str:
    """Return a table with a row for each step at which a run was evaluated, or for each `every`-th, counted from the last."""
    steps = sorted({step for curve in curves.values() for step in curve})[::-1][::every][::-1]
    lines = [f"| step | {' | '.join(curves)} |", f"|{' --- |' * (len(curves) + 1)}"]
    for step in steps:
        cells = (f"{curve[step]:.3f}" if step in curve else "" for curve in curves.values())
        lines.append(f"| {step:,} | {' | '.join(cells)} |")
    return "\n".join(lines)


def draw_curves(curves: Mapping[str, Curve], picture: Path) -> None:
    """Draw validation losses over steps.

    Args:
        curves: the losses by step of each run, by its name.
        picture: the file to write: .svg, .png or .pdf.
    """
    figure = new_figure(7, 3.5)
    axes = figure.subplots()
    for (name, curve), marker in zip(curves.items(), "os^Dv<>*" * len(curves), strict=False):
        axes.plot(list(curve), list(curve.values()), marker=marker, markersize=3, linewidth=1.2, label=name)
    axes.set_xlabel("step")
    axes.set_ylabel("validation loss")
    axes.grid(alpha=0.3)
    axes.legend()
    save_figure(figure, picture)


def main(argv: Sequence[str] | None = None) -> None:
    """Print the table, and draw the picture.

    Raises:
        ValueError: an argument is not valid, or a folder has no losses.
    """
    args = build_parser().parse_args(argv)
    pairs = [run.partition("=") for run in args.runs]
    if wrong := [run for run, (name, _, folder) in zip(args.runs, pairs, strict=True) if not name or not folder]:
        raise ValueError(f"{wrong[0]!r} is not allowed: give NAME=FOLDER.")
    names = [name for name, _, _ in pairs]
    if twice := [name for name in names if names.count(name) > 1]:
        raise ValueError(f"Two runs have the name {twice[0]!r}: give each its own.")
    if args.every < 1:
        raise ValueError(f"--every must be at least 1: got {args.every}.")
    if args.picture is not None:
        check_figure(args.picture, "--picture")
    curves = {name: read_curve(Path(folder)) for name, _, folder in pairs}
    print(as_table(curves, args.every))
    if args.picture is not None:
        draw_curves(curves, args.picture)


if __name__ == "__main__":
    sys.exit(run_script("benchmark curves", main))
