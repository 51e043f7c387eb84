"""Cross-field checks, unknown names, files and copies of a configuration."""

import copy
import json
import logging
import pickle

import pytest
import torch
from transformers import AutoConfig

from weftformer import WeftConfig, WeftModel

SMALL = {
    "vocab_size": 31,
    "d_model": 16,
    "encoder_layers": 2,
    "decoder_layers": 3,
    "encoder_attention_heads": 2,
    "decoder_attention_heads": 2,
}
# Far from every default, lists and nested values included.
UNUSUAL = SMALL | {
    "decoder_vocab_size": 29,
    "share_encoder_decoder_embeddings": False,
    "tie_word_embeddings": False,
    "norm_type": "stdnorm",
    "final_norm": True,
    "head_dim": 6,
    "decoder_mlp_layer_types": ["dense", "sparse", "dense"],
    "expert_capacity_factor": 1.25,
    "rope_parameters": {"rope_type": "linear", "factor": 2.0, "rope_theta": 5000.0},
    "eos_token_id": [2, 5],
    "bos_token_id": None,
    "init_std": 0.02,
    "infer_attention_mask": True,
}

CONFLICTS = {
    "heads do not divide the width": (
        {"encoder_attention_heads": 3},
        ["d_model=16 is not a multiple of encoder_attention_heads=3", "`head_dim`"],
    ),
    "key-value heads do not divide heads": (
        {"num_key_value_heads": 3},
        ["num_key_value_heads=3 does not divide encoder_attention_heads=2", "divisor"],
    ),
    "odd heads with rotary positions": ({"head_dim": 5}, ["encoder's heads have the odd width 5", "even"]),
    "heads of two widths with rotary positions": (
        {"decoder_attention_heads": 4},
        ["encoder_attention_heads=2 and decoder_attention_heads=4", "different width", "`head_dim`"],
    ),
    "odd width with sinusoidal positions": (
        {"d_model": 15, "head_dim": 4, "position_embedding_type": "sinusoidal"},
        ["d_model=15 is odd", "sinusoidal", "make it even"],
    ),
    "too few layer types": (
        {"decoder_mlp_layer_types": ["dense"]},
        ["decoder_mlp_layer_types has 1 entries, but decoder_layers is 3", "one word"],
    ),
    "more experts per token than experts": (
        {"num_experts": 2, "num_experts_per_tok": 3},
        ["num_experts_per_tok=3 is more than num_experts=2"],
    ),
    "one table for two vocabularies": (
        {"decoder_vocab_size": 29},
        ["vocab_size=31 and decoder_vocab_size=29", "share_encoder_decoder_embeddings=False"],
    ),
    "pad outside the smaller vocabulary": (
        {"pad_token_id": 29, "decoder_vocab_size": 29, "share_encoder_decoder_embeddings": False},
        ["pad_token_id=29", "29 tokens (0 to 28)"],
    ),
    "one of several ends outside the vocabulary": ({"eos_token_id": [2, 40]}, ["eos_token_id=[2, 40]", "31 tokens"]),
    "start outside the target vocabulary": (
        {"decoder_start_token_id": 30, "decoder_vocab_size": 29, "share_encoder_decoder_embeddings": False},
        ["decoder_start_token_id=30", "29 tokens (0 to 28)"],
    ),
    "a mask told by pads that are ends too": (
        {"infer_attention_mask": True, "eos_token_id": [2, 5], "pad_token_id": 5},
        ["infer_attention_mask=True", "pad_token_id=5", "eos_token_id=[2, 5]", "pass the mask"],
    ),
    "not an encoder-decoder": ({"is_encoder_decoder": False}, ["is_encoder_decoder", "leave it out"]),
    "unknown activation": ({"activation_function": "gelo"}, ["activation_function='gelo'", "silu", "mean `gelu`?"]),
    "rope_parameters that are no dictionary": ({"rope_parameters": 3}, ["rope_parameters=3", "dictionary or None"]),
    "unknown rope type": (
        {"rope_parameters": {"rope_type": "spiral"}},
        ["rope_parameters=", "'spiral'", "default, linear, dynamic, yarn"],
    ),
    "rope factor is not a number": (
        {"rope_parameters": {"rope_type": "linear", "factor": "2"}},
        ["rope_parameters['factor']='2'", "a finite number above 0.0"],
    ),
    "rope type without its factor": (
        {"rope_parameters": {"rope_type": "linear"}},
        ["rope_parameters=", "not complete", "factor"],
    ),
    "more than a head turned": (
        {"rope_parameters": {"partial_rotary_factor": 1.5}},
        ["rope_parameters=", "rotates 12 of the 8 numbers of a head", "at most 1"],
    ),
    "half a pair turned": (
        {"rope_parameters": {"rope_type": "yarn", "factor": 2.0, "partial_rotary_factor": 0.7}},
        ["rotates 5 of the 8 numbers of a head", "must be even"],
    ),
    "one pair with dynamic scaling": (
        {"rope_parameters": {"rope_type": "dynamic", "factor": 2.0, "partial_rotary_factor": 0.25}},
        ["rotates 2 of the 8 numbers of a head", "at least 4"],
    ),
    "odd number of buckets": (
        {"cross_attention_position_type": "bucketed", "relative_attention_num_buckets": 7},
        ["relative_attention_num_buckets=7", "do not fit together"],
    ),
    "buckets beyond the distance": (
        {"cross_attention_position_type": "bucketed", "relative_attention_max_distance": 16},
        ["relative_attention_max_distance=16", "do not fit together"],
    ),
}


@pytest.mark.parametrize("case", CONFLICTS)
def test_fields_at_odds_are_refused_with_both_values_and_a_remedy(case):
    fields, words = CONFLICTS[case]
    with pytest.raises(ValueError) as error:
        WeftConfig(**(SMALL | fields))
    for word in words:
        assert word in str(error.value)


@pytest.mark.parametrize("kind", ["proportional", "default"])
def test_heads_may_be_turned_in_part(kind):
    rope = {"rope_type": kind, "partial_rotary_factor": 0.5}
    model = WeftModel(WeftConfig(**SMALL | {"rope_parameters": rope})).eval()
    ids = torch.arange(3, 12)[None]
    assert torch.isfinite(model(input_ids=ids, decoder_input_ids=ids).last_hidden_state).all()


def test_rope_parameters_of_the_caller_stay_as_they_were():
    given = {"rope_type": "linear", "factor": 2.0}
    config = WeftConfig(rope_parameters=given)
    assert given == {"rope_type": "linear", "factor": 2.0}
    assert config.rope_parameters["rope_theta"] == 10000.0


REFUSED_NAMES = {
    "encoder_layerz": "no field `encoder_layerz`. Did you mean `encoder_layers`",
    "num_beams": "`num_beams` is a generation setting: set it in .*`generation_config`",
    "do_sample": "`do_sample` is a generation setting",
}


@pytest.mark.parametrize("name", REFUSED_NAMES)
def test_an_unknown_name_is_refused_with_what_was_meant(name, tmp_path):
    with pytest.raises(ValueError, match=REFUSED_NAMES[name]):
        WeftConfig(**{name: 2})
    config = WeftConfig(**SMALL)
    config.num_beams = 4
    with pytest.raises(ValueError, match="num_beams"):
        config.save_pretrained(tmp_path)


def test_an_alias_is_checked_like_its_field():
    with pytest.raises(ValueError, match="d_model='wide' is not allowed"):
        WeftConfig(hidden_size="wide")


@pytest.mark.parametrize("fields", [{}, SMALL, UNUSUAL], ids=["defaults", "small", "unusual"])
def test_a_configuration_survives_files_copies_and_its_own_dictionary(fields, tmp_path):
    config = WeftConfig(**fields)
    config.save_pretrained(tmp_path)
    expected = {name: value for name, value in config.to_dict().items() if name != "_name_or_path"}
    copies = {
        "file": WeftConfig.from_pretrained(tmp_path),
        "auto": AutoConfig.from_pretrained(tmp_path),
        "json": WeftConfig.from_json_file(tmp_path / "config.json"),
        "deepcopy": copy.deepcopy(config),
        "pickle": pickle.loads(pickle.dumps(config)),
        "dictionary": WeftConfig(**config.to_dict()),
        "from_dict": WeftConfig.from_dict(config.to_dict()),
    }
    for way, other in copies.items():
        assert type(other) is WeftConfig, way
        assert other.decoder_mlp_layer_types is not config.decoder_mlp_layer_types
        found = other.to_dict()
        assert {name: found.get(name) for name in expected} == expected, way
        other.validate()


def test_an_unknown_field_of_a_file_is_named_in_a_warning_and_ignored(tmp_path, caplog):
    WeftConfig(**UNUSUAL).save_pretrained(tmp_path)
    file = tmp_path / "config.json"
    saved = json.loads(file.read_text())
    file.write_text(json.dumps(saved | {"warp_factor": 9}))
    with caplog.at_level(logging.WARNING, logger="weftformer"):
        config = WeftConfig.from_pretrained(tmp_path)
    assert "`warp_factor`" in caplog.text
    assert not hasattr(config, "warp_factor") and config.head_dim == 6
    file.write_text(json.dumps(saved | {"dropout": 9}))
    with pytest.raises(ValueError, match="dropout=9 is not allowed"):
        WeftConfig.from_pretrained(tmp_path)


def test_fields_given_while_loading_replace_and_are_checked(tmp_path):
    WeftConfig(**SMALL).save_pretrained(tmp_path)
    config = WeftConfig.from_pretrained(tmp_path, dropout=0.25, hidden_size=32)
    assert (config.dropout, config.d_model) == (0.25, 32)
    with pytest.raises(ValueError, match="dropout=9 is not allowed"):
        WeftConfig.from_pretrained(tmp_path, dropout=9)
    with pytest.raises(ValueError, match="encoder_mlp_layer_types has 2 entries, but encoder_layers is 5"):
        WeftConfig.from_pretrained(tmp_path, encoder_layers=5)
    _, unused = WeftConfig.from_pretrained(tmp_path, dropout=0.25, foo=1, return_unused_kwargs=True)
    assert unused == {"foo": 1}


def test_a_field_set_later_is_checked_before_anything_is_saved(tmp_path):
    config = WeftConfig(**SMALL)
    config.encoder_layers = 4
    with pytest.raises(ValueError, match="encoder_mlp_layer_types has 2 entries, but encoder_layers is 4"):
        config.save_pretrained(tmp_path / "folder")
    config = WeftConfig(**SMALL)
    config.num_beams = 4
    with pytest.raises(ValueError, match="num_beams: set this in"):
        config.save_pretrained(tmp_path / "folder")
    assert not (tmp_path / "folder").exists()
