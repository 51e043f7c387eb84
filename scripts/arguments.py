"""What several commands ask of their arguments."""

import argparse
import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

# As in `routes/planning/search.py`, which needs torch.
RANKINGS = ("log_probability", "sqrt_length")
# As in `routes/planning/constraints.py`.
RULES_TO_SWITCH_OFF = ("unreadable", "cycles", "missing-atoms", "oversized")
# As in `routes/planning/planner.py`.
SALTS = ("refuse", "strip")
# As in `routes/files/plan_files.py`.
PLAN_FORMS = ("json", "jsonl", "aizynthfinder", "retrocast", "reactions", "csv")
# As in `routes/plans.py`.
IMPOSSIBLE = ("behind", "keep", "drop")


class _Formatter(argparse.RawDescriptionHelpFormatter):
    """Leaves descriptions and examples as they are written, and has room for long names of options."""

    def __init__(self, prog: str, **kwargs: Any):
        super().__init__(prog, max_help_position=32, **kwargs)


class Parser(argparse.ArgumentParser):
    """`argparse.ArgumentParser` that takes underscores for hyphens in the names of options, as transformers' own does.

    Attributes:
        is_only_help (`bool`): whether it only answers `--help`, and returns the words as they are, as `words`.
    """

    is_only_help = False

    def __init__(self, **kwargs: Any):
        super().__init__(formatter_class=_Formatter, **kwargs)

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        words = list(sys.argv[1:] if args is None else args)
        if self.is_only_help:
            if {"-h", "--help"} & set(words):
                self.print_help()
                self.exit()
            return argparse.Namespace(words=words), []
        end = words.index("--") if "--" in words else len(words)
        return super().parse_known_args([*map(_hyphens, words[:end]), *words[end:]], namespace)


class CommonHelp(Parser):
    """The options of a command that are used most. It answers `--help`, and leaves all else to the command's own parser."""

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        words: Sequence[str] = sys.argv[1:] if args is None else args
        if {"-h", "--help"} & set(words):
            self.print_help()
            self.exit()
        return argparse.Namespace(), []


def _hyphens(word: str) -> str:
    if not word.startswith("--"):
        return word
    name, equals, value = word.partition("=")
    return name.replace("_", "-") + equals + value


def check_folders(arguments: argparse.Namespace, *names: str) -> None:
    """Refuse a file to write in a folder that is not there: else the mistake shows when the work is done.

    Args:
        names: arguments with a path, or None.

    Raises:
        ValueError: naming the argument.
    """
    for name in names:
        file = getattr(arguments, name)
        if file is not None and not file.parent.is_dir():
            raise ValueError(f"--{name.replace('_', '-')} {file}: there is no folder {file.parent}.")


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


def add_constraints(parser: Any) -> None:
    """The arguments that say what planned routes have to be."""
    parser.add_argument("--no-grammar", action="store_true",
                        help="let the model write what it likes, not only well-formed routes: no rule holds then")  # fmt: skip
    parser.add_argument("--allow", action="append", choices=RULES_TO_SWITCH_OFF, default=[],
                        help="switch off a rule: molecules that RDKit cannot read, or that are made from themselves; "
                        "reactants that lack atoms of the product (repeatable)")  # fmt: skip
    parser.add_argument("--impossible", choices=IMPOSSIBLE, default="behind",
                        help="routes that break a rule all the same: behind the others, in their place, or left out (default: "
                        "%(default)s)")  # fmt: skip
    parser.add_argument("--only-purchasable", action="store_true",
                        help="only routes that begin from molecules of --stock: what is not there has to be made")  # fmt: skip
    parser.add_argument(
        "--required-leaf", metavar="SMILES", help="only routes that begin from this molecule, among others"
    )
    parser.add_argument("--forbid", action="append", default=[], metavar="SMILES",
                        help="only routes without this molecule (repeatable)")  # fmt: skip
    parser.add_argument("--forbid-substructure", action="append", default=[], metavar="SMARTS",
                        help="only routes in which no molecule but the target has this substructure (repeatable)")  # fmt: skip


def constraints_of(arguments: argparse.Namespace) -> Any:
    """What planned routes have to be, by the arguments of [`add_constraints`].

    Raises:
        ValueError: arguments do not go together, or a molecule or a substructure cannot be read.
    """
    from weftformer.routes.planning.constraints import NO_CONSTRAINTS, rules_without

    if arguments.only_purchasable and arguments.stock is None:
        raise ValueError("--only-purchasable needs --stock FILE: what can be bought.")
    rules = rules_without(arguments.allow)
    wishes = replace(
        rules,
        only_purchasable=arguments.only_purchasable,
        required_leaf=arguments.required_leaf,
        forbidden=tuple(arguments.forbid),
        forbidden_substructures=tuple(arguments.forbid_substructure),
    )
    if not arguments.no_grammar:
        return wishes
    if wishes != rules:
        raise ValueError("--no-grammar lets everything through: leave it out, or what is asked of the routes.")
    return NO_CONSTRAINTS


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
