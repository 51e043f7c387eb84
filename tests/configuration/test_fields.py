"""Every field of the configuration refuses invalid values, each with a helpful message."""

import dataclasses
import inspect
import json
import math
import re
from typing import Literal, get_origin

import pytest
from transformers import AutoConfig, PreTrainedConfig

from weftformer import WeftConfig
from weftformer.common.rules import NotAllowed
from weftformer.configuration.fields import rules

NAN, INFINITY = math.nan, math.inf
NO_NUMBER = ["4", True, [4], {}]
NO_INTEGER = [*NO_NUMBER, 4.0, NAN]
NO_BOOLEAN = ["True", 1, 0, [True], NAN]
NO_CHOICE = ["other", "", 1, True, NAN, ["rotary"]]
# The values that a reader of the documentation expects to be refused, written a second time on purpose. Those of
# fields that are a `bool` or a `Literal` follow from their types.
REFUSED = [
    (["vocab_size", "d_model", "encoder_attention_heads", "decoder_attention_heads", "encoder_ffn_dim",
      "decoder_ffn_dim", "max_source_positions", "max_target_positions", "num_experts_per_tok"], [*NO_INTEGER, None, 0, -1]),
    (["encoder_layers", "decoder_layers"], [*NO_INTEGER, None, 0, -1, 10_001, 10**8, 10**20]),
    (["decoder_vocab_size", "num_key_value_heads", "head_dim", "moe_intermediate_size"], [*NO_INTEGER, 0, -1]),
    (["relative_attention_max_distance", "num_condition_features"], [*NO_INTEGER, None, -1]),
    (["relative_attention_num_buckets"], [*NO_INTEGER, None, 3, 0]),
    (["num_experts"], [*NO_INTEGER, None, 1, 0]),
    (["pad_token_id", "bos_token_id", "decoder_start_token_id"], [*NO_INTEGER, -1]),
    (["eos_token_id"], ["2", True, 2.0, NAN, -1, [], [1, -1], [1, True], [1.0], (1, 2)]),
    (["dropout", "attention_dropout", "activation_dropout"], [*NO_NUMBER, None, NAN, INFINITY, -0.1, 1.0, 2]),
    (["norm_eps"], [*NO_NUMBER, None, NAN, INFINITY, 0.0, -1]),
    (["expert_capacity_factor", "init_std"], [*NO_NUMBER, NAN, INFINITY, 0, -1.0]),
    (["router_aux_loss_coef", "router_z_loss_coef"], [*NO_NUMBER, None, NAN, INFINITY, 10**400, -1e-3]),
    (["router_bias_update_rate"], [*NO_NUMBER, NAN, INFINITY, 10**400, -1e-3]),
    (["encoder_mlp_layer_types", "decoder_mlp_layer_types"],
     ["spars", 1, True, NAN, ["dense"] * 5 + ["Sparse"], [True] * 6, [None] * 6]),
]  # fmt: skip


def refused_values() -> dict[str, list]:
    found = {field: values for fields, values in REFUSED for field in fields}
    for field in dataclasses.fields(WeftConfig):
        if field.name in WeftConfig.__annotations__ and field.type in (bool, bool | None):
            found.setdefault(field.name, [*NO_BOOLEAN, *([None] if field.type is bool else [])])
        elif field.name in WeftConfig.__annotations__ and get_origin(field.type) is Literal:
            found[field.name] = [*NO_CHOICE, None]
    return found


def test_every_field_has_a_rule():
    inherited = {field.name for field in dataclasses.fields(PreTrainedConfig)}
    own = {field.name for field in dataclasses.fields(WeftConfig)} - inherited
    assert own | {"is_encoder_decoder"} == set(rules(WeftConfig))
    assert own - set(refused_values()) == {"activation_function", "rope_parameters"}


@pytest.mark.parametrize(("field", "values"), refused_values().items())
def test_bad_values_are_refused(field, values):
    for value in values:
        with pytest.raises(NotAllowed) as error:
            WeftConfig(**{field: value})
        # one word stands for all layers, and it is the list that is refused
        refused = [value] * 6 if field.endswith("layer_types") and isinstance(value, str) else value
        assert error.value.name == field and repr(error.value.value) == repr(refused) and error.value.remedy


def test_every_field_is_documented_with_its_default():
    arguments = WeftConfig.__doc__.partition("Args:\n")[2].partition("Raises:")[0]
    entries = re.findall(r"^        (\w+): (.+\n(?:            .+\n)*)", arguments, re.MULTILINE)
    documented = {name: " ".join(text.split()) for name, text in entries}
    own = set(WeftConfig.__annotations__) - {"config_class"}
    fields = {field.name: field.default for field in dataclasses.fields(WeftConfig) if field.name in own}
    assert len(entries) == len(documented) and set(documented) == set(fields)
    signature = inspect.signature(WeftConfig).parameters
    for name, default in fields.items():  # the signature has the default, and the text says what None stands for
        assert signature[name].default == default
        assert (default is None) == ("Defaults to" in documented[name]), name


@pytest.mark.parametrize("name", ["encoder_layers", "decoder_layers", "num_hidden_layers"])
@pytest.mark.parametrize("types", ["sparse", ["dense"] * 6, None])
def test_a_file_with_too_many_layers_takes_no_memory(tmp_path, name, types):
    fields = {"model_type": "weft", name: 10**9, "encoder_mlp_layer_types": types, "decoder_mlp_layer_types": types}
    (tmp_path / "config.json").write_text(json.dumps(fields))
    for load in (WeftConfig.from_pretrained, AutoConfig.from_pretrained, lambda _: WeftConfig(**fields)):
        with pytest.raises(ValueError, match=r"r_layers=1000000000 .*from 1 to 10000"):
            load(tmp_path)
