"""Plans of tensor, expert and fully sharded parallelism for each weight. `tests/distributed/` tests their effects."""

import re

import pytest
from transformers.distributed import DistributedConfig

from weftformer import WeftConfig, WeftForConditionalGeneration
from weftformer.modeling.parallel import check_sizes

from ..models import SPARSE

pytestmark = pytest.mark.skipif(
    not hasattr(DistributedConfig, "dp_replicate_size"), reason="transformers splits no model in this way before 5.23"
)

BIASES = {"mlp_bias": True, "attention_bias": True, "attention_out_bias": True, "lm_head_bias": True}
KINDS = {
    "default": {},
    "biases": BIASES,
    "sparse": {**SPARSE, "router_type": "noisy_top_k", "router_bias": True},
    "sparse, biases": {**SPARSE, **BIASES},
    "sparse, plain, biases": {**SPARSE, **BIASES, "is_gated_act": False},
    "relative": {"self_attention_position_type": "relative", "cross_attention_position_type": "bucketed"},
    "additive": {"self_attention_position_type": "additive", "use_qk_norm": True, "num_condition_features": 2},
    "learned": {"position_embedding_type": "learned", "norm_type": "layernorm", "normalize_embedding": True},
    "two tables": {"share_encoder_decoder_embeddings": False, "tie_word_embeddings": False, "decoder_vocab_size": 23},
}
# Weights that every process has as a whole, which is right before a split or after a sum.
WHOLE = r"norm|router|position_table|embed_positions|condition_proj|(out_proj|down_proj)[._]bias"


def kept(model, plan):
    """Return the plan of a model by the names of weights, with `*` for layers."""
    rules = {}
    for name, _ in model.named_parameters():
        generic = re.sub(r"\.\d+\.", ".*.", name)
        rules[generic] = plan.get(generic) or plan.get(generic.rsplit(".", 1)[0])
    return rules


@pytest.mark.parametrize("kind", KINDS)
def test_plans_split_every_weight_that_is_not_whole(kind, small):
    model = WeftForConditionalGeneration(small(**KINDS[kind]))
    for name, style in kept(model, model.tp_plan).items():
        if style == "weft_heads":
            assert re.search(r"[qk]_norm|relative_bias", name), name
        elif style in (None, "weft_experts"):
            assert re.search(WHOLE, name), name
        elif re.search(r"(out_proj|down_proj)\.bias", name):
            assert style == "rowwise"  # which leaves a bias whole and adds it after the sum
        else:
            assert not re.search(WHOLE, name), name
    for name, style in kept(model, model.ep_plan).items():
        assert (style == "grouped_gemm") == (".experts." in name), name
    names = {re.sub(r"\.\d+(?=\.|$)", ".*", name) for name, _ in [*model.named_modules(), *model.named_parameters()]}
    assert set(model.tp_plan) | set(model.ep_plan) <= names
    assert model.fsdp_plan == dict.fromkeys(("model.encoder.layers.*", "model.decoder.layers.*"), "free_full_weight")
    assert model.tp_plan["lm_head"] == "colwise_gather_output"


SIZES = {"vocab_size": 31, "d_model": 16, "encoder_attention_heads": 4, "decoder_attention_heads": 2, "head_dim": 4}
REFUSED = [
    ({}, {"tp_size": 4}, "tp_size=4 does not divide decoder_attention_heads=2"),
    ({"num_key_value_heads": 1}, {"tp_size": 2}, "num_key_value_heads=1"),
    ({"decoder_ffn_dim": 33}, {"tp_size": 2}, "decoder_ffn_dim=33"),
    ({**SPARSE, "moe_intermediate_size": 9}, {"tp_size": 2}, "moe_intermediate_size=9"),
    ({**SPARSE, "num_experts": 3}, {"fsdp_size": 2, "ep_size": 2}, "num_experts=3"),
    ({}, {"fsdp_size": 2, "tp_size": 2}, "tie_word_embeddings=True"),
    ({"tie_word_embeddings": False}, {"fsdp_size": 2, "tp_size": 2}, "share_encoder_decoder_embeddings=True"),
]


@pytest.mark.parametrize(
    ("fields", "sizes", "message"), REFUSED, ids=lambda value: value if isinstance(value, str) else ""
)
def test_sizes_that_do_not_divide_a_model_are_refused(fields, sizes, message):
    with pytest.raises(ValueError, match=message):
        check_sizes(WeftConfig(**(SIZES | fields)), DistributedConfig(**sizes))


def test_ddp_ignores_expert_loads(small):
    model = WeftForConditionalGeneration(small(**SPARSE, router_bias_update_rate=0.1))
    ignored = model._ddp_params_and_buffers_to_ignore
    assert len(ignored) == 4 and all(name.endswith("router.expert_load") for name in ignored)
    assert not set(ignored) & set(model.state_dict())
