"""One dataclass of options at every door: Python, the command line and HTTP."""

import argparse
from dataclasses import dataclass
from typing import Literal

import pytest

from weftformer.common.options import add_options, check_options, option, request_fields
from weftformer.common.rules import NotAllowed


@dataclass
class Options:
    beams: int = option(10, "width. And more", is_common=True, least=1)
    limit: float | None = option(None, "seconds, e.g. five", metavar="S")
    ranking: str = option("by_score", "order", choices=("by_score", "by_length"))
    mode: Literal["a", "b"] = option("a", "mode")
    grammar: bool = option(True, "grammar", off="without the grammar")
    direct: bool = option(False, "direct")
    forbidden: tuple[str, ...] = option((), "molecules", flag="--forbid", metavar="SMILES")
    hidden: int = 0


def test_options_of_a_command():
    parser = argparse.ArgumentParser()
    add_options(parser, Options)
    words = [
        "--beams", "3", "--limit", "2", "--ranking", "by-length", "--mode", "b", "--no-grammar", "--direct",
        "--forbid", "C", "--forbid", "N",
    ]  # fmt: skip
    expected = {"beams": 3, "limit": 2.0, "ranking": "by_length", "mode": "b", "grammar": False, "direct": True}
    assert vars(parser.parse_args(words)) == expected | {"forbidden": ["C", "N"]}
    defaults = {name: value for name, value in vars(Options()).items() if name != "hidden"}
    assert vars(parser.parse_args([])) == defaults | {"forbidden": []}
    shown = parser.format_help()
    assert "width (default: 10)" in shown and "seconds, e.g. five\n" in shown and "without the grammar" in shown
    common = argparse.ArgumentParser()
    add_options(common, Options, common_only=True)
    assert vars(common.parse_args([])) == {"beams": 10}


def test_fields_of_a_request():
    pydantic = pytest.importorskip("pydantic")
    request = pydantic.create_model("Request", **request_fields(Options, {"beams": 5}, most_items=2))
    assert request().beams == 5 and "hidden" not in request.model_fields  # no default above the largest number
    for wrong in ({"beams": 6}, {"beams": 0}, {"ranking": "best"}, {"mode": "c"}, {"forbidden": ["C"] * 3}):
        with pytest.raises(pydantic.ValidationError):
            request(**wrong)


@pytest.mark.parametrize("wrong", [{"beams": 0}, {"beams": float("nan")}, {"ranking": "best"}])
def test_values_that_are_not_allowed(wrong):
    (name,) = wrong
    with pytest.raises(NotAllowed) as error:
        check_options(Options(**wrong))
    assert error.value.name == name
    check_options(Options())
