"""Options and checks of arguments that several commands share."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from weftformer.common.atomic import is_stream
from weftformer.common.options import add_options

if TYPE_CHECKING:
    from weftformer.routes.plans import Plan


def add_common_options(parser: Any, *kinds: type) -> None:
    """Let a parser only answer `--help`, with the most used options of some dataclasses. `main` parses the words."""
    parser.is_only_help = True
    for kind in kinds:
        add_options(
            parser.add_argument_group(vars(kind).get("_argument_group_name", "training")), kind, common_only=True
        )
    parser.add_argument_group("the rest").add_argument("--help-all", action="store_true", help="show every option")


def add_model_options(add: Any, what: str = "model") -> None:
    """Add `--device` and `--dtype`.

    Args:
        add: `add_argument` of a parser.
        what: what is on the device.
    """
    add("--device", help=f"device of the {what}, e.g. cuda:0 (default: cuda if available)")
    add("--dtype", metavar="DTYPE", default="auto", choices=("auto", "float32", "bfloat16", "float16"),
        help="precision: float32, bfloat16, float16 or auto, as saved (default: %(default)s)")  # fmt: skip


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
    return {"device": args.device, "dtype": args.dtype}


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


def add_export(parser: Any) -> None:
    """Add `--export`, the option for the files that [`export`] writes."""
    parser.add_argument("--export", type=_exported, action="append", default=[], metavar="FILE",
        help="also write .sdf (molecules), .rdf (reactions), .summary.csv, ... (repeatable)")  # fmt: skip


def _exported(name: str) -> Path:
    from weftformer.routes.files.streams import ENDINGS, plan_form

    if plan_form(Path(name)) is None:
        raise argparse.ArgumentTypeError(f"{name}: give a name that ends in one of {', '.join(ENDINGS)}")
    return new_file(name)


def export(file: Path, plans: Iterable[Plan], form: str | None = None) -> None:
    """Write plans to a file, and report skipped routes on stderr.

    Args:
        form: one of `PLAN_FORMS` (default: that of the name).

    Raises:
        OSError: the file cannot be written.
    """
    from weftformer.routes.files.streams import plan_form, write_plans

    left_out = write_plans(file, plans, form or plan_form(file) or "")
    if left_out:
        print(f"{file}: {len(left_out)} entries were left out. The first: {left_out[0]}", file=sys.stderr)


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


def check_model(model: str, option: str = "--model") -> None:
    """Refuse a model that is neither a folder nor on the Hub.

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
    else:
        _check_hub(model, option)


def _check_hub(model: str, option: str) -> None:
    """Ask the Hub once. transformers would repeat it for half a minute, and not say that there is no folder."""
    from huggingface_hub import get_hf_file_metadata, hf_hub_url, try_to_load_from_cache
    from huggingface_hub.errors import HfHubHTTPError

    try:
        if not isinstance(try_to_load_from_cache(model, "config.json"), str):
            get_hf_file_metadata(hf_hub_url(model, "config.json"))
    except Exception as error:  # the HTTP library raises its own errors
        if isinstance(error, HfHubHTTPError) and error.response.status_code not in (401, 404):
            return  # such as a gated model: transformers explains it
        first = str(error).strip().partition("\n")[0]
        raise ValueError(
            f"{option} {model}: there is no such folder here, and it cannot be downloaded from the Hub ({first})."
        ) from error


def check_models(arguments: argparse.Namespace) -> None:
    """Apply [`check_model`] to `--model` and `--forward-model`."""
    check_model(arguments.model)
    if arguments.forward_model not in (None, "none"):
        check_model(arguments.forward_model, "--forward-model")


def take_shipped_model(arguments: argparse.Namespace) -> None:
    """Use the included model and stock by default, and name the model on stderr.

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
            "Stock: molecules in ZINC20 or used by recorded reactions (included in Weft). Use --stock for another.",
            file=sys.stderr,
        )


def add_stock_options(add: Any, text: str) -> None:
    """Add the options of a stock.

    Args:
        add: `add_argument` of a parser.
        text: the help of `--stock`.
    """
    add("--stock", type=Path, metavar="FILE", help=text)
    add("--stock-column", metavar="NAME", help="column with the molecules (default: smiles, structure, inchikey, ...)")
    add("--stock-strict", action="store_true",
        help="match exact molecules only, not other salts, charges or tautomers")  # fmt: skip


def read_stock(file: Path | None, is_shown: bool = True, *, column: str | None = None, is_strict: bool = False) -> Any:
    """Read a stock with all cores, and describe it on stderr, but not the included one.

    Args:
        file: the file, or None for no stock.
        is_shown: whether progress is shown.
        column, is_strict: as in `Stock.from_file`.

    Raises:
        ValueError, OSError: as in `Stock.from_file`.
    """
    from weftformer.routes.shipped import STOCK
    from weftformer.routes.stock.stock import Stock

    if file is None:
        return None
    if file == STOCK:
        return Stock.from_file(file, progress=False, is_strict=is_strict, column=column)
    stock = Stock.from_file(file, workers=os.cpu_count() or 1, progress=is_shown, column=column, is_strict=is_strict)
    print(f"Stock: {stock}.", file=sys.stderr)
    return stock
