"""`weftformer completion`: print a script with which a shell completes commands and options."""

import argparse
import importlib
import sys
from collections.abc import Sequence
from pathlib import Path

from weftformer.scripts.cli import COMMANDS, run_script
from weftformer.scripts.parsers.completion import build_parser


def whole_parser() -> argparse.ArgumentParser:
    """Return one parser of `weftformer` with all commands and their options. It only describes: the command has its own."""
    parser = argparse.ArgumentParser(prog="weftformer", description="One encoder-decoder family for transformers.")
    parser.add_argument("--version", action="store_true", help="show the version")
    commands = parser.add_subparsers(dest="command")
    for name, (_, text) in COMMANDS.items():
        own = importlib.import_module(f"weftformer.scripts.parsers.{name.replace('-', '_')}").build_parser()
        commands.add_parser(
            name, help=text, description=text, parents=[own], add_help=False, conflict_handler="resolve"
        )
    return parser


def main(argv: Sequence[str] | None = None) -> None:
    """Print the script.

    Raises:
        ValueError: shtab is not installed.
    """
    arguments = build_parser().parse_args(argv)
    try:
        import shtab
    except ModuleNotFoundError as error:
        raise ValueError("`weftformer completion` needs shtab: pip install shtab.") from error
    parser = whole_parser()
    (commands,) = (action for action in parser._actions if isinstance(action, argparse._SubParsersAction))
    for command in commands.choices.values():
        for action in command._actions:
            if action.type is Path or action.metavar in ("FILE", "FOLDER", "MODEL"):
                action.complete = shtab.DIRECTORY if action.metavar == "FOLDER" else shtab.FILE
    print(shtab.complete(parser, arguments.shell))


if __name__ == "__main__":
    sys.exit(run_script("completion", main))
