"""The console command `weftformer`: finds the script of a sub-command, and turns errors people can act on into one line.

The arguments of a sub-command are read by its module in `parsers`, which imports nothing heavy. Only when they are right is
the script imported, which reads them again: help and mistakes wait for nothing.
"""

import difflib
import importlib
import importlib.util
import os
import sys
from collections.abc import Callable, Sequence
from importlib.metadata import PackageNotFoundError, version
from types import ModuleType
from typing import Any

# name: (module with a `main(argv)`, what it does)
COMMANDS = {
    "tour": ("weftformer.scripts.tour", "see what Weft does in two minutes"),
    "train": ("weftformer.scripts.train", "train a model on pairs of texts"),
    "pretrain": ("weftformer.scripts.pretrain", "train a model to mend corrupted texts, before it sees pairs"),
    "estimate": ("weftformer.scripts.estimate", "say what a model costs to train and to decode with"),
    "generate": ("weftformer.scripts.generate", "write a text for each line of a file with a trained model"),
    "train-routes": ("weftformer.scripts.train_routes", "train a model that writes synthesis routes"),
    "prepare-routes": ("weftformer.scripts.prepare_routes", "make a data set to train on out of route files"),
    "prepare-reactions": (
        "weftformer.scripts.prepare_reactions",
        "write the reactions of route files as pairs to train on",
    ),
    "plan": ("weftformer.scripts.plan", "plan synthesis routes for a molecule"),
    "draw": ("weftformer.scripts.draw", "draw the routes of a file"),
    "evaluate": ("weftformer.scripts.evaluate", "score planned routes against recorded ones"),
    "convert": ("weftformer.scripts.convert", "turn another family's weights into a Weft model"),
    "adapt": ("weftformer.scripts.adapt", "make an encoder-decoder from a decoder-only checkpoint"),
    "export": ("weftformer.scripts.export", "write a model for torch.export, ONNX or CTranslate2"),
    "benchmark": ("weftformer.benchmarks.decoding", "measure decoding beside other libraries, on the same weights"),
    "compile": ("weftformer.scripts.compile", "compile the decoding step of a model for this machine, and keep it"),
    "serve": ("weftformer.scripts.serve", "answer requests for routes or translations over HTTP"),
    "demo": ("weftformer.scripts.demo", "show models on a page in the browser"),
    "space": ("weftformer.scripts.space", "write the folder of a Space on the Hub that shows models"),
    "upcycle": (
        "weftformer.scripts.upcycle",
        "turn a dense Weft model into a mixture of experts that starts equal to it",
    ),
    "completion": ("weftformer.scripts.completion", "print a script that completes commands and options in a shell"),
}

USAGE_ERROR = 2
INTERRUPTED = 130  # as shells have it: 128 and the number of the signal


def main(argv: Sequence[str] | None = None) -> int:
    """Run `weftformer COMMAND [arguments]`.

    Args:
        argv: the words after `weftformer` (default: those of this process).

    Returns:
        The exit code: 0, 1 for an error the user can act on, 2 for an unknown command.
    """
    name, *rest = list(sys.argv[1:] if argv is None else argv) or ["--help"]
    if name in ("-h", "--help"):
        print(_help())
        return 0
    if name == "--version":
        print(f"weftformer {_version()}")
        return 0
    if name not in COMMANDS:
        matches = difflib.get_close_matches(name, COMMANDS, n=1)
        hint = f" Did you mean `{matches[0]}`?" if matches else ""
        print(f"weftformer: there is no command {name!r}.{hint}\nCommands: {', '.join(COMMANDS)}", file=sys.stderr)
        return USAGE_ERROR
    arguments = _read_arguments(name, rest)
    try:
        importlib.import_module("weftformer.family")  # the Auto classes know the family from here on
        module = importlib.import_module(COMMANDS[name][0])
    except ModuleNotFoundError as error:
        if error.name != "weftformer.benchmarks":
            raise
        print(
            f"weftformer {name}: error: benchmarks come with the repository: run this in a clone of it",
            file=sys.stderr,
        )
        return 1
    return run_script(name, module.main, arguments)


def run_script(name: str, script: Callable[[Any], int | None], argv: Any = None) -> int:
    """Call a script's `main`; a ValueError or OSError becomes one line on stderr (with WEFT_DEBUG=1 it is raised).

    Returns:
        The exit code: the script's own (None is 0), 1 after an error, 130 after Ctrl-C.
    """
    try:
        return script(argv) or 0
    except (ValueError, OSError) as error:
        if os.environ.get("WEFT_DEBUG", "0") not in ("", "0"):
            raise
        print(f"weftformer {name}: error: {' '.join(str(error).split())}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print(f"weftformer {name}: interrupted", file=sys.stderr)
        return INTERRUPTED


def _read_arguments(name: str, argv: Sequence[str]) -> Any:
    """Answer `--help`, and leave with argparse's exit code where the arguments are wrong.

    Returns:
        What the command's `main` takes: the arguments that were read, or the words.
    """
    old = f"weftformer.scripts.parsers.{name.replace('-', '_')}"
    if importlib.util.find_spec(old) is not None:
        importlib.import_module(old).build_parser().parse_args(argv)
        return argv
    module = importlib.import_module(COMMANDS[name][0])
    if not hasattr(module, "add_arguments"):
        return argv
    return build_parser(name, module).parse_args(argv)


def build_parser(name: str, module: ModuleType) -> Any:
    """The parser of a command: its file has the arguments, the description as its docstring, and examples as `EPILOG`."""
    from weftformer.scripts.arguments import Parser

    parser = Parser(prog=f"weftformer {name}", description=module.__doc__, epilog=getattr(module, "EPILOG", None))
    module.add_arguments(parser)
    return parser


def _help() -> str:
    width = max(map(len, COMMANDS)) + 2
    commands = "\n".join(f"  {name:<{width}}{text}" for name, (_, text) in COMMANDS.items())
    return (
        "usage: weftformer [-h] [--version] COMMAND [arguments]\n\n"
        "Weft: one encoder-decoder family for Hugging Face transformers.\n\n"
        f"commands:\n{commands}\n\n"
        "`weftformer COMMAND --help` explains the arguments of a command. WEFT_DEBUG=1 shows where an error came from."
    )


def _version() -> str:
    try:
        return version("weftformer")
    except PackageNotFoundError:  # a checkout that was never installed
        return "unknown"


if __name__ == "__main__":
    sys.exit(main())
