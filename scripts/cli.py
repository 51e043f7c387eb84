"""The console command `weftformer`: finds the file of a sub-command, reads its arguments once, and turns errors that
people can act on into one line.

A command is one file, `scripts/NAME.py`, or `commands/NAME.py` of an extension, of this form:

    \"\"\"The description of the command in its help.\"\"\"

    EPILOG = "examples:\\n  weftformer NAME ..."  # shown below the options (optional)

    def add_arguments(parser: argparse.ArgumentParser) -> None:
        \"\"\"Add the arguments; set `parser.usage` where argparse's own is too long to read.\"\"\"

    def check(args: argparse.Namespace) -> None:
        \"\"\"Raise a ValueError or OSError for mistakes that show without torch, before `main` (optional).\"\"\"

    def main(args: argparse.Namespace) -> int | None:
        \"\"\"Do the work, and return the exit code (None is 0).\"\"\"

The file is imported for `--help` too, which must not take half a second: what needs torch, transformers or RDKit is
imported in `main`. Choices and defaults are imported from the package that defines them, where that package needs none
of these.

A command whose arguments are the fields of dataclasses that need torch sets `parser.is_only_help = True`. Its parser
then describes the options that are used most and answers `--help`. `main` gets all words as `args.words`, for a parser
of its own.
"""

import argparse
import contextlib
import difflib
import importlib
import importlib.util
import os
import re
import sys
from collections.abc import Callable, Collection, Sequence
from functools import partial
from types import ModuleType
from typing import Any

from weftformer.common.extensions import EXTENSIONS, extension, parts_of_extensions
from weftformer.common.panics import is_panic
from weftformer.configuration.version import __version__
from weftformer.scripts.parsing import Parser

# The commands with their short help, in the order of the help. Those of extensions come after them.
COMMANDS = {
    "train": "train a model on pairs of texts",
    "generate": "write a text for each line of a file",
    "compile": "compile the search of a model",
    "evaluate": "score a model on pairs of texts",
    "convert": "turn another family's weights into a Weft model",
    "upcycle": "turn a dense model into a mixture of experts",
    "export": "write a model for C++ or CTranslate2",
    "serve": "answer requests for routes or texts over HTTP",
}
# The optional packages that commands import without a message of their own, by the extra that installs them. The first
# of an extra is what a whole command needs, the others may be needed by some options only.
_EXTRAS = {
    "chem": ("rdkit", "rdchiral", "PIL", "resvg_py", "pebble"),
    "aizynthfinder": ("onnx",),
    "serve": ("fastapi", "starlette", "uvicorn", "pydantic", "prometheus_client"),
}

# README and the pages begin with it.
_ABOUT = (
    "Weft is a family of encoder-decoders for Hugging Face Transformers: train one on your pairs of texts, convert\n"
    "your own checkpoint, or plan the synthesis of molecules."
)
USAGE_ERROR = 2
INTERRUPTED, CLOSED_PIPE = 130, 141  # as in shells: 128 and the number of the signal


def commands() -> dict[str, str]:
    """Return all commands with their short help. Those of an extension begin with its kind."""
    groups = parts_of_extensions("commands")
    return COMMANDS | {
        f"{kind} {word}": text for kind, group in groups.items() for word, text in group.COMMANDS.items()
    }


def build_parser(filled: Collection[str] | None = None) -> tuple[Parser, dict[str, Parser]]:
    """Return the parser of `weftformer`, and those of its commands by name.

    Args:
        filled: the commands whose arguments are added (default: all). The others have none, and their files are not
            imported.
    """
    parser = Parser(
        prog="weftformer",
        description=_ABOUT,
        epilog="`weftformer COMMAND --help` explains the arguments of a command. WEFT_DEBUG=1 shows tracebacks.",
    )
    parser.add_argument("--version", action="version", version=f"%(prog)s {__version__}")
    groups = {"": parser.add_subparsers(title="commands for texts", metavar="COMMAND", prog="weftformer")}
    parsers: dict[str, Parser] = {}
    for name, text in commands().items():
        group, _, word = name.rpartition(" ")
        if group not in groups:
            about = parts_of_extensions("commands")[group]
            parent = groups[""].add_parser(group, help=f"{about.HELP}: {', '.join(about.COMMANDS)}")
            groups[group] = parent.add_subparsers(title=about.TITLE, metavar="COMMAND")
        parsers[name] = groups[group].add_parser(word, help=text)
        if filled is None or name in filled:
            module = _module(name)
            parsers[name].description, parsers[name].epilog = (
                (module.__doc__ or text).strip(),
                getattr(module, "EPILOG", None),
            )
            module.add_arguments(parsers[name])
    return parser, parsers


def _module(name: str) -> ModuleType:
    group, _, word = name.rpartition(" ")
    return importlib.import_module(f"{EXTENSIONS[group]}.commands.{word}" if group else f"weftformer.scripts.{word}")


def main(argv: Sequence[str] | None = None, import_package: Callable[[], object] = lambda: None) -> int:
    """Run `weftformer COMMAND [arguments]`.

    Args:
        argv: the words after `weftformer` (default: those of this process).
        import_package: imports the package, of which only parts were imported so far.

    Returns:
        The exit code: 0, 1 for an error the user can act on, 2 for an unknown command.

    Raises:
        SystemExit: after `--help`, and with 2 for wrong arguments, as in argparse.
    """
    if not sys.stderr.isatty():
        _leave_bars_out()
    words = list(sys.argv[1:] if argv is None else argv) or ["--help"]
    if len(words) == 1 and words[0] in EXTENSIONS:
        words.append("--help")
    depth = 2 if words[0] in EXTENSIONS else 1
    name, rest = " ".join(words[:depth]), words[depth:]
    if words[depth - 1].startswith("-"):
        build_parser(())[0].parse_args(words)
    if name not in (names := commands()):
        longer = [command for command in names if command.endswith(f" {name}")]
        near = longer or difflib.get_close_matches(name, names, n=1)
        hint = f"Did you mean `{near[0]}`?" if near else ""
        message = f"weftformer: there is no command {name!r}. {hint}".rstrip()
        print(f"{message}\nCommands: {', '.join(names)}", file=sys.stderr)
        return USAGE_ERROR
    args = build_parser([name])[1][name].parse_args(rest)
    return run_script(name, partial(_check_and_run, name, import_package), args)


def _leave_bars_out() -> None:
    """Turn off the bars of other packages, which in a file are lines between those that matter."""
    for package in ("HF_HUB", "HF_DATASETS"):
        os.environ.setdefault(f"{package}_DISABLE_PROGRESS_BARS", "1")
    if "transformers" in sys.modules:  # `python -m weftformer` imports it first
        from transformers.utils.logging import disable_progress_bar

        disable_progress_bar()


def _check_and_run(name: str, import_package: Callable[[], object], args: argparse.Namespace) -> int | None:
    _check_installed(name)
    module = _module(name)
    if hasattr(module, "check"):
        module.check(args)
    import_package()
    return module.main(args)


def _check_installed(name: str) -> None:
    """Raise a ModuleNotFoundError, before the long imports, if a command lacks the package that it always needs."""
    group = extension(name.partition(" ")[0], "commands")
    extra = name if group is None else group.EXTRA
    package = _EXTRAS[extra][0] if extra in _EXTRAS else None
    if package is not None and importlib.util.find_spec(package) is None:
        raise ModuleNotFoundError(name=package)


def _missing(error: ImportError) -> str | None:
    """Return a message that names the extra to install, or None for another error."""
    if "pip install" in str(error):
        return str(error)
    extra = next((extra for extra, packages in _EXTRAS.items() if error.name in packages), None)
    if extra is None or not isinstance(error, ModuleNotFoundError):  # such as a broken installation
        return None
    return f'This needs {error.name}. Install it in your clone of Weft: pip install -e ".[{extra}]"'


def _message(error: BaseException) -> str | None:
    """Return the message of an error that a user can do something about, or None for another error."""
    if isinstance(error, ImportError):
        return _missing(error)
    # torch has a class of its own for the memory of GPUs alone; an OSError is not of torch, and has its own remedy
    is_of_torch = not isinstance(error, OSError) and re.search("can't allocate memory|out of memory", str(error))
    if isinstance(error, MemoryError) or is_of_torch:
        return "There is not enough memory: use fewer beams, smaller batches or a smaller model."
    return str(error) if isinstance(error, ValueError | OSError) or is_panic(error) else None


def run_script(name: str, script: Callable[[Any], int | None], arguments: Any = None) -> int:
    """Call a script's `main`. A ValueError, an OSError, a missing extra or a lack of memory becomes one line on
    stderr, or is raised if WEFT_DEBUG=1.

    Returns:
        The exit code: the script's own (None is 0), 1 after an error, 130 after Ctrl-C, 141 when the reader of stdout
        has gone.
    """
    try:
        return script(arguments) or 0
    except BrokenPipeError:  # such as behind `| head`
        with contextlib.suppress(OSError, ValueError), open(os.devnull, "w") as nothing:
            os.dup2(nothing.fileno(), sys.stdout.fileno())  # Python flushes stdout when it exits
        return CLOSED_PIPE
    except KeyboardInterrupt as interrupt:
        print(f"weftformer {name}: interrupted. {interrupt}".removesuffix(". "), file=sys.stderr)
        return INTERRUPTED
    except BaseException as error:
        message = _message(error)
        if message is None or os.environ.get("WEFT_DEBUG", "0") not in ("", "0"):
            raise
        print(f"weftformer {name}: error: {' '.join(message.split())}", file=sys.stderr)
        return 1
