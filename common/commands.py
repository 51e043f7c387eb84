"""Commands that a person can paste into a shell."""

import itertools
import shlex
from collections.abc import Mapping, Sequence
from typing import Any


def command_line(words: Sequence[str], options: Mapping[str, Any] | None = None, texts: Sequence[str] = ()) -> str:
    """Return a command of `weftformer`.

    Args:
        words: the words after `weftformer`, as they were typed.
        options: options with their values, which replace those in `words`. None removes an option.
        texts: arguments that are no options, even if they begin with a hyphen.
    """
    options = options or {}
    typed: list[str] = []
    is_typed = True
    for word in words:
        if word.startswith("--"):
            is_typed = word.partition("=")[0].replace("_", "-") not in options
        typed += [word] * is_typed
    values = ((name, str(value)) for name, value in options.items() if value is not None)
    marks = ["--"] * any(text.startswith("-") for text in texts)
    return shlex.join(["weftformer", *typed, *itertools.chain(*values), *marks, *texts])
