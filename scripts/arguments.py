"""Options and checks of arguments that several commands share."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import Any

from weftformer.common.atomic import is_stream
from weftformer.common.options import add_options
from weftformer.common.words import first_line


def add_common_options(parser: Any, *kinds: type) -> None:
    """Let a parser only answer `--help`, with the most used options of some dataclasses. `main` parses the words."""
    parser.is_only_help = True
    for kind in kinds:
        add_options(
            parser.add_argument_group(vars(kind).get("_argument_group_name", "training")), kind, common_only=True
        )
    parser.add_argument_group("the rest").add_argument("--help-all", action="store_true", help="show every option")


def add_model_options(add: Any) -> None:
    """Add `--device`, `--dtype` and `--trust-remote-code`. `add` is `add_argument` of a parser."""
    add("--device", help="device of the model, e.g. cuda:0 (default: cuda if available)")
    add("--dtype", metavar="DTYPE", default="auto", choices=("auto", "float32", "bfloat16", "float16"),
        help="precision: float32, bfloat16, float16 or auto, as saved (default: %(default)s)")  # fmt: skip
    add_trust_option(add)


def add_trust_option(add: Any) -> None:
    """Add `--trust-remote-code`, without which no command runs code that comes with a model."""
    add("--trust-remote-code", action="store_true", help="run the code beside the weights")


def add_threads_option(add: Any, also: str = "") -> None:
    """Add `--threads`, which [`load_model`] and `use_threads` read. `also` follows in its help."""
    add("--threads", type=positive, metavar="N",
        help=f"threads of torch (default: by the size of the model){also}")  # fmt: skip


def load_model(args: argparse.Namespace, kind: str) -> tuple[Any, Any]:
    """Load the model and the tokenizer of `--model`, and set the number of threads.

    Args:
        args: the arguments, with those of [`add_model_options`] and [`add_threads_option`].
        kind: the kind of output, as in `load_generator`, whose errors are raised.
    """
    from weftformer.hub.loading import load_generator, use_threads

    model, tokenizer = load_generator(args.model, kind, **loading_options(args))
    use_threads(model, args.threads)
    return model, tokenizer


def loading_options(args: argparse.Namespace) -> dict[str, Any]:
    """Return the arguments of `load_generator` from the options that [`add_model_options`] added."""
    return {name: getattr(args, name) for name in ("device", "dtype", "trust_remote_code")}


def positive(text: str) -> int:
    """Convert an argument to a number of at least 1."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of at least 1")
    return int(text)


def new_file(text: str) -> Path:
    """Convert an argument to the path of a file that can be written, to refuse others before hours of computing."""
    file = Path(text)
    folder = Path(os.path.realpath(file)).parent if file.is_symlink() else file.parent
    if is_stream(file):
        return file
    if not folder.is_dir():
        raise argparse.ArgumentTypeError(f"{text}: there is no folder {folder}")
    if file.is_dir():
        raise argparse.ArgumentTypeError(f"{text} is a folder: give the name of a file")
    if not os.access(folder, os.W_OK):
        raise argparse.ArgumentTypeError(f"{text}: the folder {folder} cannot be written to")
    return file


def plain_file(text: str) -> Path:
    """Convert an argument to the path of a file as [`new_file`], which is written without compression."""
    if text.endswith((".gz", ".zst")):
        raise argparse.ArgumentTypeError(f"{text} would not be compressed: choose a name without this ending")
    return new_file(text)


def check_output(file: Path | None, resume: bool, overwrite: bool) -> None:
    """Refuse a file that cannot be written, or an existing one, unless it is to be continued or replaced.

    Raises:
        ValueError: naming the arguments.
    """
    if resume and file is None:
        raise ValueError("--resume continues a file: give --output-file.")
    if resume and overwrite:
        raise ValueError("--resume and --overwrite are mutually exclusive: give one.")
    if file is None:
        return
    try:
        new_file(str(file))
    except argparse.ArgumentTypeError as error:
        raise ValueError(f"--output-file {error}.") from error
    if file.exists() and not (resume or overwrite):
        raise ValueError(f"{file} exists: --resume continues an interrupted run, and --overwrite starts again.")


def check_model(model: str) -> None:
    """Refuse a model of `--model` that is neither a folder nor on the Hub.

    Raises:
        ValueError: naming the argument.
    """
    path = Path(model)
    if path.is_dir():
        if not (path / "config.json").is_file():
            raise ValueError(f"--model {model}: this folder has no config.json, so it is not the folder of a model.")
    elif path.exists():
        raise ValueError(f"--model {model} is a file: give the folder of a model.")
    elif model.startswith((".", "/", "~")) or "\\" in model or model.count("/") > 1:
        raise ValueError(f"--model {model}: there is no such folder.")
    else:
        _check_hub(model)


def _check_hub(model: str) -> None:
    """Ask the Hub once. transformers would repeat it for half a minute, and not say that there is no folder."""
    from huggingface_hub import get_hf_file_metadata, hf_hub_url, try_to_load_from_cache
    from huggingface_hub.errors import HfHubHTTPError

    try:
        if not isinstance(try_to_load_from_cache(model, "config.json"), str):
            get_hf_file_metadata(hf_hub_url(model, "config.json"))
    except Exception as error:  # the HTTP library raises its own errors
        if isinstance(error, HfHubHTTPError) and error.response.status_code not in (401, 404):
            return  # such as a gated model: transformers explains it
        raise ValueError(
            f"--model {model}: there is no such folder here, and it cannot be downloaded from the Hub "
            f"({first_line(error)})."
        ) from error
