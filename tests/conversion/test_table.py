"""Patterns, and the keys that a table finds: matched, left out, new, missing, unexpected and wrong ones."""

import pytest
import torch

from weftformer import WeftConfig
from weftformer.conversion.operations import Split, Stack
from weftformer.conversion.table import Ignored, rename, to_weft

CONFIG = WeftConfig(d_model=8, encoder_attention_heads=2, decoder_attention_heads=2)


def run(weights, table, shapes, new=()):
    return to_weft(
        {key: torch.full(shape, float(index)) for index, (key, shape) in enumerate(weights.items())},
        table, CONFIG, {key: torch.Size(shape) for key, shape in shapes.items()}, new,
    )  # fmt: skip


def test_a_complete_table():
    table = [
        rename("in.<layer>.<part>", "q.<layer>.<part>", "k.<layer>.<part>", operation=Split(2)),
        rename("expert<expert>.<layer>", "experts.<layer>", operation=Stack()),
        rename("bias", "layers.<layer>.bias"),
        Ignored("counter", "counts steps"),
    ]
    weights = {
        "expert10.0": (3,),
        "expert9.0": (3,),
        "in.0.weight": (4, 2),
        "in.0.bias": (4,),
        "bias": (5,),
        "counter": (),
    }
    shapes = {
        "q.0.weight": (2, 2), "k.0.weight": (2, 2), "q.0.bias": (2,), "k.0.bias": (2,), "experts.0": (2, 3),
        "layers.0.bias": (5,), "layers.1.bias": (5,), "router": (2,),
    }  # fmt: skip
    found = run(weights, table, shapes, new=["router"])
    assert found.fits and set(found.weights) == set(shapes) - {"router"}
    # numbers are numbers: 9 comes before 10
    assert found.weights["experts.0"][:, 0].tolist() == [1.0, 0.0]
    assert found.new == ["router"] and found.left == [("counter", "counts steps")]
    text = found.describe()
    assert "matched          5" in text and "counter: counts steps" in text and "missing          0" in text


def test_what_does_not_fit_is_named():
    table = [rename("a.<layer>", "b.<layer>"), rename("c", "d"), rename("fused", "q", "k", operation=Split(2))]
    found = run(
        {"a.0": (2,), "a.7": (2,), "x": (1,), "fused": (6,)},
        table,
        {"b.0": (3,), "b.1": (2,), "d": (1,), "q": (3,), "k": (3,)},
    )
    assert not found.fits
    assert found.missing == ["a.1 (for b.1)", "c (for d)"]
    assert found.unexpected == ["a.7", "x"]
    assert found.wrong == ["b.0 would have shape (2,) from a.0 (2,), but the configuration requires (3,)"]


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_values_that_are_not_finite_are_named(value):
    weights = {"a": torch.ones(2), "b": torch.tensor([1.0, value])}
    found = to_weft(weights, [rename("a", "c"), rename("b", "d")], CONFIG, {"c": (2,), "d": (2,)})
    assert found.wrong == ["b has values that are NaN or infinite"]
