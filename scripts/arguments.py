"""What several commands ask of their arguments."""

import argparse
import sys
from collections.abc import Sequence
from typing import Any

# As in `routes/planning/search.py`, which needs torch.
RANKINGS = ("log_probability", "sqrt_length")


class Parser(argparse.ArgumentParser):
    """`argparse.ArgumentParser` that takes underscores for hyphens in the names of options, as transformers' own does."""

    def __init__(self, *args: Any, formatter_class: type = argparse.RawDescriptionHelpFormatter, **kwargs: Any):
        def formatter(prog: str) -> argparse.HelpFormatter:
            return formatter_class(prog, max_help_position=32)

        super().__init__(*args, formatter_class=formatter, **kwargs)  # type: ignore[arg-type]

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        words = list(sys.argv[1:] if args is None else args)
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


def move_to(planner: Any, device: str | None) -> None:
    """Move a planner's model to a device, by default a GPU where there is one.

    Raises:
        ValueError: there is no such device.
    """
    import torch  # here: help waits for nothing

    try:
        planner.model.to(device or ("cuda" if torch.cuda.is_available() else "cpu"))
    except (RuntimeError, AssertionError) as error:  # what torch says of a device that is not there
        raise ValueError(f"--device {device}: {error}") from error
