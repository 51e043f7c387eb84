"""Every field of the configuration refuses invalid values, each with a helpful message."""

import dataclasses
import json
import math
import re

import pytest
from transformers import AutoConfig, PreTrainedConfig

from weftformer import WeftConfig
from weftformer.configuration.fields import rules

NAN, INFINITY = math.nan, math.inf
NO_NUMBER = ["4", True, [4], {}]
NO_INTEGER = [*NO_NUMBER, 4.0, NAN]
NO_BOOLEAN = ["True", 1, 0, [True], NAN]

# The expectations of a reader of the documentation for each field, written a second time on purpose: for each kind,
# the words that its message must contain and values that are not allowed.
KINDS = {
    "integer >= 0": ("an integer of at least 0", [*NO_INTEGER, None, -1]),
    "integer >= 0 or None": ("an integer of at least 0 or None", [*NO_INTEGER, -1]),
    "integer >= 1": ("an integer of at least 1", [*NO_INTEGER, None, 0, -1]),
    "number of layers": ("an integer from 1 to 10000", [*NO_INTEGER, None, 0, -1, 10_001, 10**8, 10**20]),
    "integer >= 1 or None": ("an integer of at least 1 or None", [*NO_INTEGER, 0, -1]),
    "integer >= 2": ("an integer of at least 2", [*NO_INTEGER, None, 1, 0]),
    "integer >= 4": ("an integer of at least 4", [*NO_INTEGER, None, 3, 0]),
    "boolean": ("True or False", [*NO_BOOLEAN, None]),
    "boolean or None": ("True or False or None", NO_BOOLEAN),
    "share": ("a finite number of at least 0.0 and below 1.0", [*NO_NUMBER, None, NAN, INFINITY, -0.1, 1.0, 2]),
    "number >= 0": ("a finite number of at least 0.0", [*NO_NUMBER, None, NAN, INFINITY, 10**400, -1e-3]),
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

# The fields of each kind, and the words that those with a choice allow.
FIELDS = {
    "integer >= 1": [
        "vocab_size", "d_model", "encoder_attention_heads",
        "decoder_attention_heads", "encoder_ffn_dim", "decoder_ffn_dim", "max_source_positions",
        "max_target_positions", "num_experts_per_tok",
    ],
    "number of layers": ["encoder_layers", "decoder_layers"],
    "integer >= 1 or None": ["decoder_vocab_size", "num_key_value_heads", "head_dim", "moe_intermediate_size"],
    "boolean": [
        "share_encoder_decoder_embeddings", "tie_word_embeddings", "scale_embedding", "normalize_embedding",
        "lm_head_bias", "is_gated_act", "mlp_bias", "attention_bias", "attention_out_bias", "use_qk_norm",
        "norm_bias", "norm_first", "norm_topk_prob", "router_bias", "output_router_logits", "infer_attention_mask",
        "use_cache",
    ],
    "number > 0": ["norm_eps"],
    "boolean or None": ["final_norm"],
    "integer >= 0": ["relative_attention_max_distance", "num_condition_features"],
    "integer >= 4": ["relative_attention_num_buckets"],
    "share": ["dropout", "attention_dropout", "activation_dropout"],
    "layer types": ["encoder_mlp_layer_types", "decoder_mlp_layer_types"],
    "integer >= 2": ["num_experts"],
    "number > 0 or None": ["expert_capacity_factor", "init_std"],
    "number >= 0": ["router_bias_update_rate", "router_aux_loss_coef", "router_z_loss_coef"],
    "integer >= 0 or None": ["pad_token_id", "bos_token_id", "decoder_start_token_id"],
    "token ids": ["eos_token_id"],
}  # fmt: skip
CHOICES = {
    "norm_type": ["layernorm", "rmsnorm", "stdnorm"],
    "position_embedding_type": ["learned", "sinusoidal", "none"],
    "sinusoidal_layout": ["interleaved", "concatenated", "fairseq"],
    "self_attention_position_type": ["none", "rotary", "additive", "relative", "bucketed"],
    "cross_attention_position_type": ["none", "rotary", "additive", "relative", "bucketed"],
    "router_type": ["linear", "noisy_top_k"],
    "router_noise": ["training", "always"],
}
EXPECTED: dict[str, str | list[str]] = {field: kind for kind, fields in FIELDS.items() for field in fields} | CHOICES


def test_every_field_has_a_rule():
    inherited = {field.name for field in dataclasses.fields(PreTrainedConfig)}
    own = {field.name for field in dataclasses.fields(WeftConfig)} - inherited
    assert own | {"is_encoder_decoder"} == set(rules(WeftConfig))
    assert own - set(EXPECTED) == {"activation_function", "rope_parameters"}


@pytest.mark.parametrize("field", EXPECTED)
def test_bad_values_are_refused(field):
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


def documented() -> dict[str, str | None]:
    """Return the fields in the docstring of the configuration, with their documented defaults."""
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


@pytest.mark.parametrize("name", ["encoder_layers", "decoder_layers", "num_hidden_layers"])
@pytest.mark.parametrize("types", ["sparse", ["dense"] * 6, None])
def test_a_file_with_too_many_layers_takes_no_memory(tmp_path, name, types):
    fields = {"model_type": "weft", name: 10**9, "encoder_mlp_layer_types": types, "decoder_mlp_layer_types": types}
    (tmp_path / "config.json").write_text(json.dumps(fields))
    for load in (WeftConfig.from_pretrained, AutoConfig.from_pretrained, lambda _: WeftConfig(**fields)):
        with pytest.raises(
            ValueError, match=r"r_layers=1000000000 is not allowed: set .* to an integer from 1 to 10000"
        ):
            load(tmp_path)
