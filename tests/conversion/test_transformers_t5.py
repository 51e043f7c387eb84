"""Peculiarities of transformers' T5 family. `test_parity.py` compares outputs, gradients, weights and texts."""

import json

import pytest
import torch

from weftformer.conversion import SOURCES, convert, export, read_source_config

from .references import largest_error
from .references.t5 import FAMILIES, SMALL, V1_1, reference

pytestmark = pytest.mark.dtype(torch.float64)

T5 = SOURCES["t5"]
every_family = pytest.mark.parametrize("family", FAMILIES)


@torch.no_grad()
def assert_same(one, conversion):
    assert largest_error(one.found(conversion.build()), one.expected()) <= one.tolerance


@pytest.mark.parametrize("filled", [True, False], ids=["defaults filled in", "as it is"])
def test_a_configuration_as_published(tmp_path, filled):
    """T5 1.1 and Flan-T5 say `tie_word_embeddings: false`, which transformers reads as: the output is not scaled."""
    one = reference("t5 1.1, own head")
    published = {"model_type": "t5"} | SMALL | V1_1
    published |= {"dense_act_fn": "gelu_new", "is_gated_act": True, "layer_norm_epsilon": 1e-6, "dropout_rate": 0.1,
                  "pad_token_id": 0, "eos_token_id": 1}  # fmt: skip
    (tmp_path / "config.json").write_text(json.dumps(published), encoding="utf-8")
    source_config = read_source_config(tmp_path) if filled else published
    assert_same(one, convert(one.module.state_dict(), T5, source_config=source_config))


@pytest.mark.parametrize("stack", ["encoder", "decoder"])
def test_tensors_that_went_apart_are_refused_on_the_way_there_and_back(stack):
    one = reference("t5")
    weights, here = one.module.state_dict(), one.converted().build()
    copy = f"{stack}.embed_tokens.weight"
    with pytest.raises(ValueError, match=f"{copy} differs from shared.weight"):
        one.converted(weights | {copy: weights[copy] + 1e-3})
    with torch.no_grad():
        getattr(here.model, stack).layers[1].self_attn.relative_bias.add_(1.0)
    told = f"{stack}.block.0.layer.0.SelfAttention.relative_attention_bias.weight is one tensor for all"
    with pytest.raises(ValueError, match=told):
        export(here, T5, one.module.config.to_dict())
