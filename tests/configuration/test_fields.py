"""Every field of the configuration against values it must refuse, each with a message to act on."""

import dataclasses
import doctest
import math
import re

import pytest
from transformers import PreTrainedConfig

from weftformer import WeftConfig
from weftformer.configuration.derived import DERIVED
from weftformer.configuration.fields import RULES, closest

NAN, INFINITY = math.nan, math.inf
NO_NUMBER = ["4", True, [4], {}]
NO_INTEGER = [*NO_NUMBER, 4.0, NAN]
NO_BOOLEAN = ["True", 1, 0, [True], NAN]

# What a reader of the documentation would expect of each field, written a second time on purpose: for each kind the
# words its message must hold and values that are not allowed.
KINDS = {
    "integer >= 0": ("an integer of at least 0", [*NO_INTEGER, None, -1]),
    "integer >= 0 or None": ("an integer of at least 0 or None", [*NO_INTEGER, -1]),
    "integer >= 1": ("an integer of at least 1", [*NO_INTEGER, None, 0, -1]),
    "integer >= 1 or None": ("an integer of at least 1 or None", [*NO_INTEGER, 0, -1]),
    "integer >= 2": ("an integer of at least 2", [*NO_INTEGER, None, 1, 0]),
    "integer >= 4": ("an integer of at least 4", [*NO_INTEGER, None, 3, 0]),
    "boolean": ("True or False", [*NO_BOOLEAN, None]),
    "boolean or None": ("True or False or None", NO_BOOLEAN),
    "share": ("a finite number of at least 0.0 and below 1.0", [*NO_NUMBER, None, NAN, INFINITY, -0.1, 1.0, 2]),
    "number >= 0": ("a finite number of at least 0.0", [*NO_NUMBER, None, NAN, INFINITY, -1e-3]),
    "number > 0": ("a finite number above 0.0", [*NO_NUMBER, None, NAN, INFINITY, 0.0, -1]),
    "number > 0 or None": ("a finite number above 0.0 or None", [*NO_NUMBER, NAN, INFINITY, 0, -1.0]),
    "token ids": (
        "a token id (0 or more) or a list of them or None",
        ["2", True, 2.0, NAN, -1, [], [1, -1], [1, True], [1.0], (1, 2)],
    ),
    "layer types": (
        'a list with "dense" or "sparse" for each layer (or one of the two words for all layers)',
        ["spars", 1, True, NAN, ["dense"] * 5 + ["Sparse"], [True] * 6, [None] * 6],
    ),
}
NO_CHOICE = ["other", "", None, 1, True, NAN, ["rotary"]]

EXPECTED = {
    "vocab_size": "integer >= 1",
    "decoder_vocab_size": "integer >= 1 or None",
    "share_encoder_decoder_embeddings": "boolean",
    "tie_word_embeddings": "boolean",
    "scale_embedding": "boolean",
    "normalize_embedding": "boolean",
    "lm_head_bias": "boolean",
    "d_model": "integer >= 1",
    "encoder_layers": "integer >= 1",
    "decoder_layers": "integer >= 1",
    "encoder_attention_heads": "integer >= 1",
    "decoder_attention_heads": "integer >= 1",
    "num_key_value_heads": "integer >= 1 or None",
    "head_dim": "integer >= 1 or None",
    "cross_attention_hidden_size": "integer >= 1 or None",
    "encoder_ffn_dim": "integer >= 1",
    "decoder_ffn_dim": "integer >= 1",
    "is_gated_act": "boolean",
    "mlp_bias": "boolean",
    "attention_bias": "boolean",
    "attention_out_bias": "boolean",
    "use_qk_norm": "boolean",
    "norm_type": ["layernorm", "rmsnorm", "stdnorm"],
    "norm_eps": "number > 0",
    "norm_bias": "boolean",
    "norm_first": "boolean",
    "final_norm": "boolean or None",
    "position_embedding_type": ["learned", "sinusoidal", "none"],
    "sinusoidal_layout": ["interleaved", "concatenated", "fairseq"],
    "max_source_positions": "integer >= 1",
    "max_target_positions": "integer >= 1",
    "self_attention_position_type": ["none", "rotary", "additive", "relative", "bucketed"],
    "cross_attention_position_type": ["none", "rotary", "additive", "relative", "bucketed"],
    "relative_attention_max_distance": "integer >= 0",
    "relative_attention_num_buckets": "integer >= 4",
    "dropout": "share",
    "attention_dropout": "share",
    "activation_dropout": "share",
    "encoder_mlp_layer_types": "layer types",
    "decoder_mlp_layer_types": "layer types",
    "num_experts": "integer >= 2",
    "num_experts_per_tok": "integer >= 1",
    "moe_intermediate_size": "integer >= 1 or None",
    "n_shared_experts": "integer >= 0",
    "norm_topk_prob": "boolean",
    "scoring_func": ["softmax", "sigmoid"],
    "routed_scaling_factor": "number > 0",
    "router_type": ["linear", "noisy_top_k"],
    "router_bias": "boolean",
    "router_noise": ["training", "always"],
    "expert_capacity_factor": "number > 0 or None",
    "expert_capacity_mode": ["training", "always"],
    "router_bias_update_rate": "number >= 0",
    "router_aux_loss_coef": "number >= 0",
    "router_sequence_aux_loss_coef": "number >= 0",
    "router_z_loss_coef": "number >= 0",
    "output_router_logits": "boolean",
    "infer_attention_mask": "boolean",
    "num_condition_features": "integer >= 0",
    "init_std": "number > 0 or None",
    "use_cache": "boolean",
    "pad_token_id": "integer >= 0 or None",
    "bos_token_id": "integer >= 0 or None",
    "eos_token_id": "token ids",
    "decoder_start_token_id": "integer >= 0 or None",
}


def test_the_table_names_every_field_with_a_rule():
    assert set(EXPECTED) == set(RULES)


def test_every_field_of_the_configuration_has_a_rule_or_a_check_of_its_own():
    inherited = {field.name for field in dataclasses.fields(PreTrainedConfig)}
    own = {field.name for field in dataclasses.fields(WeftConfig)} - inherited
    assert own - set(RULES) == {"activation_function", "rope_parameters"}


@pytest.mark.parametrize("field", EXPECTED)
def test_a_field_refuses_what_it_cannot_hold(field):
    expected = EXPECTED[field]
    if isinstance(expected, list):
        allowed, values = "one of " + ", ".join(f'"{option}"' for option in expected), NO_CHOICE
    else:
        allowed, values = KINDS[expected]
    for value in values:
        with pytest.raises(ValueError) as error:
            WeftConfig(**{field: value})
        # one word stands for all layers, and it is the list that is refused
        shown = repr([value] * 6 if expected == "layer types" and isinstance(value, str) else value)
        assert str(error.value) == f"{field}={shown} is not allowed: set `{field}` to {allowed}."


@pytest.mark.parametrize("field", [name for name, kind in EXPECTED.items() if isinstance(kind, list)])
def test_every_choice_is_accepted(field):
    for option in EXPECTED[field]:
        assert getattr(WeftConfig(**{field: option}), field) == option


@pytest.mark.parametrize("field", [name for name, kind in EXPECTED.items() if str(kind).endswith("None")])
def test_an_optional_field_accepts_none(field):
    config = WeftConfig(**{field: None})
    assert config.given(field) is None
    assert isinstance(getattr(config, field), int) if field in DERIVED else getattr(config, field) is None


def test_limits_are_where_the_messages_say():
    config = WeftConfig(
        dropout=0,
        norm_eps=1e-300,
        num_experts=2,
        num_experts_per_tok=1,
        relative_attention_max_distance=0,
        eos_token_id=[2, 0],
        router_aux_loss_coef=0,
    )
    assert (config.dropout, config.eos_token_id) == (0, [2, 0])


@pytest.mark.parametrize(
    ("name", "hint"),
    [("encoder_layerz", " Did you mean `encoder_layers`?"), ("d_modell", " Did you mean `d_model`?"), ("qqqq", "")],
)
def test_the_closest_name_is_offered_only_when_it_is_close(name, hint):
    assert closest(name, WeftConfig.field_names()) == hint


def documented() -> dict[str, str | None]:
    """The fields that the docstring of the configuration lists, with the default that it names."""
    entries = re.findall(r"^        (\w+) \(([^)]*)\):$", WeftConfig.__doc__, re.MULTILINE)
    assert len(entries) == len(dict(entries))
    found = {}
    for name, kind in entries:
        default = re.search(r"defaults to `?(.*?)`?$", kind)
        found[name] = default and default.group(1)
    return found


def test_every_field_is_documented_with_its_default():
    own = set(WeftConfig.__annotations__) - {"config_class"}
    fields = {field.name: field.default for field in dataclasses.fields(WeftConfig) if field.name in own}
    assert set(documented()) == set(fields)
    for name, default in documented().items():
        value = fields[name]
        assert default == (None if value is None else f'"{value}"' if isinstance(value, str) else str(value)), name


def test_the_example_of_the_configuration_prints_what_it_says():
    example = doctest.DocTestParser().get_doctest(WeftConfig.__doc__.replace("```", ""), {}, "WeftConfig", None, 0)
    assert example.examples
    assert doctest.DocTestRunner().run(example).failed == 0
