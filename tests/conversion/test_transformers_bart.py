"""Peculiarities of transformers' BART family. `test_parity.py` compares outputs, gradients, weights and texts."""

import pytest
import torch

from weftformer.conversion import SOURCES

from .references import largest_error
from .references.bart import FAMILIES, reference

pytestmark = pytest.mark.dtype(torch.float64)

BART = SOURCES["bart"]
every_family = pytest.mark.parametrize("family", FAMILIES)


@torch.no_grad()
def error(one, **inputs):
    return largest_error(one.found(one.converted().build(), **inputs), one.expected()) / one.tolerance


@pytest.mark.parametrize("prefix", ["model.", ""], ids=["prefix", "as `BartModel` saves it"])
@torch.no_grad()
def test_a_file_without_the_bias_of_the_head(prefix):
    """transformers reads such files: the bias is zero."""
    one = reference("bart")
    one.module.final_logits_bias.zero_()
    weights = {prefix + key: tensor for key, tensor in one.module.model.state_dict().items()}
    assert largest_error(one.found(one.converted(weights).build()), one.expected()) <= one.tolerance


NLLB_MOE = [
    {"router_bias": False},
    {"normalize_router_prob_before_dropping": True, "moe_token_dropout": 0.0},
    {"encoder_sparse_step": 0, "decoder_sparse_step": 3},
    {"num_experts": 5, "router_bias": False, "normalize_router_prob_before_dropping": True},
    {"batch_prioritized_routing": True},
    {"router_ignore_padding_tokens": True},
]


@pytest.mark.parametrize("fields", NLLB_MOE, ids=str)
def test_settings_of_nllb_moe(fields):
    assert error(reference("nllb-moe", **fields)) <= 1


@pytest.mark.parametrize(
    ("family", "field", "value"),
    [("nllb-moe", "second_expert_policy", "random"), ("nllb-moe", "moe_eval_capacity_token_fraction", 0.25),
     ("nllb-moe", "moe_eval_capacity_token_fraction", -1.0), ("m2m100", "pad_token_id", 0)],
)  # fmt: skip
def test_what_weft_has_no_form_for_is_refused(family, field, value):
    """Experts drawn at random; tokens dropped in evaluation; positions that do not begin at 2, which is the pad's + 1."""
    with pytest.raises(ValueError, match=f"{field}={value!r}"):
        reference(family, **{field: value}).converted()
