"""Text from outside takes a time that grows no faster than its length."""

import importlib
import re
import time
from functools import partial
from pathlib import Path

import pytest

import weftformer

pytest.importorskip("rdkit")

# What is repeated between a beginning and an end.
HOSTILE = [
    (begin, repeated, end)
    for begin in ("", "[", ">", "> ", '"', "US", "InChI=", "C |", "{", ":", "+", "`--no-limits`")
    for repeated in ("<a", "a", "1", "0", " ", "[", "[1", '\\"', "H12", ".1", "@", "|a ", " |", ">1", ":1", ",a", "\t", " `--no-limits`", "C ")
    for end in ("", "\n!")
]  # fmt: skip


MODULES = (
    "common.tables", "distributed.parts", "routes.training.extraction", "routes.pages.page", "routes.chemistry.faults",
    "routes.files.entries", "routes.files.formats", "routes.files.reaction_lines", "routes.files.streams",
    "routes.chemistry.forms", "routes.chemistry.molecules", "routes.chemistry.normal_form", "routes.planning.constraints",
    "routes.judging.judgement", "routes.judging.library", "routes.judging.templates", "routes.chemistry.skeleton", "routes.stock.stock",
    "routes.tree", "tokenization.route_tokenizer",
)  # fmt: skip
SOURCES = "".join(
    path.read_text(encoding="utf-8")
    for package in {module.partition(".")[0] for module in MODULES}
    for path in Path(weftformer.__file__).parent.glob(f"{package}/**/*.py")
)


def expressions():
    """Yield the compiled expressions that read what others wrote, as the sources use them."""
    for module in MODULES:
        for name, value in vars(importlib.import_module(f"weftformer.{module}")).items():
            if isinstance(value, re.Pattern):
                for use in sorted(
                    set(re.findall(rf"\b{name}\.(match|fullmatch|search|findall|split|sub)\(", SOURCES))
                ):
                    yield f"{module}.{name}.{use}", partial(apply, value, use)


def apply(expression, use, text):
    text = text.encode() if isinstance(expression.pattern, bytes) else text
    getattr(expression, use)(*([text[:0], text] if use == "sub" else [text]))


def readers():
    """Yield functions with expressions of their own."""
    from weftformer.routes.chemistry.molecules import plain_smiles
    from weftformer.routes.chemistry.sd_files import _fields
    from weftformer.routes.tree import joined_tokens, smiles_and_name
    from weftformer.serving.endpoint import _of_fields

    yield "smiles_and_name", smiles_and_name
    yield "joined_tokens", lambda text: joined_tokens(f"C {text}")
    yield "fields", lambda text: _fields(f">{text}\nvalue".split("\n"))
    yield "reasons", _of_fields
    yield "plain_smiles", plain_smiles


def seconds(function, text):
    begun = time.thread_time()
    function(text)
    return time.thread_time() - begun


@pytest.mark.parametrize("function", [pytest.param(read, id=name) for name, read in (*expressions(), *readers())])
def test_eight_times_the_text_takes_no_forty_times_the_time(function):
    for begin, repeated, end in HOSTILE:
        short, long = (begin + repeated * (size // len(repeated)) + end for size in (1_000, 8_000))
        # the time of a linear one is too short to be compared, and a quadratic one takes seconds
        if seconds(function, long) > 0.05:
            assert seconds(function, long) < 40 * seconds(function, short) + 0.05, (begin, repeated, end)
