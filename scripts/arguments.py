"""What several commands ask of their arguments."""

import argparse
import os
import sys
from pathlib import Path
from typing import Any


def add_engine(parser: argparse.ArgumentParser) -> None:
    """Add `--engine`, which writes the texts."""
    parser.add_argument(
        "--engine", default="auto", choices=("auto", "weft", "ctranslate2", "ctranslate2-int8"),
        help="what writes the texts: auto takes CTranslate2 for more than 16 if it is installed and writes the same "
        "(default: %(default)s)",
    )  # fmt: skip


def check_folders(arguments: argparse.Namespace, *names: str) -> None:
    """Refuse a file that cannot be written, because the error would otherwise come when the work is done.

    Args:
        names: arguments with a path, or None.

    Raises:
        ValueError: naming the argument.
    """
    for name in names:
        file = getattr(arguments, name)
        if file is None:
            continue
        option = f"--{name.replace('_', '-')} {file}"
        if not file.parent.is_dir():
            raise ValueError(f"{option}: there is no folder {file.parent}.")
        if file.is_dir():
            raise ValueError(f"{option} is a folder: give the name of a file.")
        if not os.access(file.parent, os.W_OK):
            raise ValueError(f"{option}: the folder {file.parent} cannot be written to.")


def check_at_least_one(arguments: argparse.Namespace, *names: str) -> None:
    """Refuse numbers below 1.

    Args:
        names: arguments with a number, or None.

    Raises:
        ValueError: naming the argument.
    """
    for name in names:
        value = getattr(arguments, name)
        if value is not None and value < 1:
            raise ValueError(f"--{name.replace('_', '-')} must be at least 1: got {value}.")


def check_output(file: Path | None, resume: bool, overwrite: bool) -> None:
    """Refuse to write over a file that is there, unless it is to be finished or begun again.

    Raises:
        ValueError: naming the arguments.
    """
    if resume and file is None:
        raise ValueError("--resume goes on with a file: give --output-file.")
    if resume and overwrite:
        raise ValueError("--resume and --overwrite exclude each other: give one.")
    if file is not None and file.exists() and not (resume or overwrite):
        raise ValueError(f"{file} exists: --resume goes on behind its last whole line, --overwrite begins it again.")


def check_model(model: str, option: str = "--model") -> None:
    """Refuse what is written like a folder and is none: transformers would look for it on the Hub.

    Args:
        model: the folder or Hub id.
        option: the argument that it was given as.

    Raises:
        ValueError: naming the argument.
    """
    path = Path(model)
    if path.is_dir():
        if not (path / "config.json").is_file():
            raise ValueError(f"{option} {model}: this folder has no config.json, so it is not the folder of a model.")
    elif path.exists():
        raise ValueError(f"{option} {model} is a file: give the folder of a model.")
    elif model.startswith((".", "/", "~")) or "\\" in model or model.count("/") > 1:
        raise ValueError(f"{option} {model}: there is no such folder.")


def take_shipped_model(arguments: argparse.Namespace) -> None:
    """Take the model that comes with Weft where none is given, with its stock, and say on stderr which model answers.

    Args:
        arguments: with `model`, and with `stock` where the command has one.
    """
    if arguments.model is not None:
        return
    from weftformer.routes.shipped import MODEL, STOCK, describe_model

    arguments.model = str(MODEL)
    print(describe_model(), file=sys.stderr)
    if getattr(arguments, "stock", STOCK) is None:
        arguments.stock = STOCK
        print(
            "Stock: the starting materials of recorded routes, which come with Weft. --stock takes another.",
            file=sys.stderr,
        )


def read_stock(file: Path, is_shown: bool = True) -> Any:
    """Read a stock with all cores. Beside the stock that comes with Weft no cache is written.

    Raises:
        ValueError, OSError: as in `Stock.from_file`.
    """
    from weftformer.routes.shipped import STOCK
    from weftformer.routes.stock import Stock

    if file == STOCK:
        return Stock.from_file(file, progress=False, cache=False)
    return Stock.from_file(file, workers=os.cpu_count() or 1, progress=is_shown)


def read_forward_model(arguments: argparse.Namespace) -> Any:
    """The model of `--forward-model` on its device, None where none is given.

    Raises:
        ValueError, OSError: there is no such model or device.
    """
    if arguments.forward_model is None:
        return None
    from weftformer.routes.scoring.round_trip import ForwardModel

    check_model(arguments.forward_model, "--forward-model")
    forward = ForwardModel.from_pretrained(arguments.forward_model)
    move_to(forward, arguments.device)
    return forward


def load_model(arguments: argparse.Namespace, wanted: str) -> Any:
    """The task of `--model` on its device, with compiled steps where `--compile` is given.

    Args:
        arguments: with `model`, `device` and `compile`.
        wanted: what it has to write, "routes" or "texts".

    Raises:
        ValueError: there is no such model or device, or the model writes the other.
    """
    from weftformer.inference.tasks import RouteTask, load_task

    name = arguments.model
    check_model(name)
    try:
        task = load_task(name)
    except OSError as error:
        first = str(error).strip().partition("\n")[0]
        raise ValueError(
            f"--model {name}: there is no such folder here, and the Hub did not send it. {first}"
        ) from error
    written = "routes" if isinstance(task, RouteTask) else "texts"
    if written != wanted:
        command = f"plan TARGET --model {name}" if written == "routes" else f"generate --model {name}"
        raise ValueError(f"--model {name} writes {written}, not {wanted}: `weftformer {command}` asks it.")
    move_to(task, arguments.device, arguments.compile)
    return task


def move_to(planner: Any, device: str | None, is_compiled: bool = False) -> None:
    """Move a planner's model to a device, by default a GPU where there is one, and let it take compiled steps if asked to.

    Raises:
        ValueError: there is no such device, or the model cannot be compiled.
    """
    import torch  # here: help waits for nothing

    try:
        planner.model.to(device or ("cuda" if torch.cuda.is_available() else "cpu"))
    except (RuntimeError, AssertionError) as error:  # what torch says of a device that is not there
        raise ValueError(f"--device {device}: {error}") from error
    if is_compiled:
        from weftformer import fast_decoding

        fast_decoding(planner.model.eval())
