"""Commands that a person can paste into a shell."""

import itertools
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

# The endings of a file with arguments, which is the first of a training.
FILES_OF_ARGUMENTS = (".yaml", ".yml", ".json")


def command_line(words: Sequence[str], options: Mapping[str, Any] | None = None, texts: Sequence[str] = ()) -> str:
    """Return a command of `weftformer`.

    Args:
        words: the words after `weftformer`, as they were typed.
        options: options with their values, which replace those in `words`. None removes an option, and False a switch,
            also if a file of arguments among `words` may have it.
        texts: arguments that are no options, even if they begin with a hyphen.
    """
    options = options or {}
    typed: list[str] = []
    is_typed = True
    for word in words:
        if word.startswith("--"):
            is_typed = word.partition("=")[0].replace("_", "-") not in options
        typed += [word] * is_typed
    has_file = bool(words[1:]) and Path(words[1]).suffix in FILES_OF_ARGUMENTS
    values = [
        (name, "false" if value is False else str(value))
        for name, value in options.items()
        if value is not None and (value is not False or has_file)
    ]
    marks = ["--"] * any(text.startswith("-") for text in texts)
    return shlex.join(["weftformer", *typed, *itertools.chain(*values), *marks, *texts])
