"""Text from outside takes a time that grows no faster than its length."""

import importlib
import re
import time
from functools import partial
from pathlib import Path

import pytest

import weftformer

# What is repeated between a beginning and an end.
HOSTILE = [
    (begin, repeated, end)
    for begin in ("", "[", ">", "> ", '"', "US", "InChI=", "C |", "{", ":", "+", "`--no-limits`")
    for repeated in ("<a", "a", "1", "0", " ", "[", "[1", '\\"', "H12", ".1", "@", "|a ", " |", ">1", ":1", ",a", "\t", " `--no-limits`", "C ")
    for end in ("", "\n!")
]  # fmt: skip


MODULES = ("common.tables", "distributed.parts", "tokenization.route_tokenizer")


def expressions(modules):
    """Yield the compiled expressions that read what others wrote, as the sources use them."""
    root, packages = Path(weftformer.__file__).parent, {module.partition(".")[0] for module in modules}
    sources = "".join(path.read_text(encoding="utf-8") for name in packages for path in root.glob(f"{name}/**/*.py"))
    for module in modules:
        for name, value in vars(importlib.import_module(f"weftformer.{module}")).items():
            if isinstance(value, re.Pattern):
                for use in sorted(
                    set(re.findall(rf"\b{name}\.(match|fullmatch|search|findall|split|sub)\(", sources))
                ):
                    yield f"{module}.{name}.{use}", partial(apply, value, use)


def apply(expression, use, text):
    text = text.encode() if isinstance(expression.pattern, bytes) else text
    getattr(expression, use)(*([text[:0], text] if use == "sub" else [text]))


def seconds(function, text):
    begun = time.thread_time()
    function(text)
    return time.thread_time() - begun


def check_growth(function):
    """Check that eight times the text takes no forty times the time."""
    for begin, repeated, end in HOSTILE:
        short, long = (begin + repeated * (size // len(repeated)) + end for size in (1_000, 8_000))
        # the time of a linear one is too short to be compared, and a quadratic one takes seconds
        if seconds(function, long) > 0.05:
            assert seconds(function, long) < 40 * seconds(function, short) + 0.05, (begin, repeated, end)


@pytest.mark.parametrize("function", [pytest.param(read, id=name) for name, read in expressions(MODULES)])
def test_the_time_grows_no_faster_than_the_text(function):
    check_growth(function)
