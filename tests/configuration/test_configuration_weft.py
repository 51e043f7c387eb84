"""Cross-field checks, unknown names, files and copies of a configuration."""

import copy
import json
import logging
import pickle

import pytest
from transformers import AutoConfig

from weftformer import WeftConfig

from ..models import TINY_CONFIG

SMALL = TINY_CONFIG | {"decoder_layers": 3}
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

ROPE = "rope_parameters"
TWO_VOCABULARIES = {"decoder_vocab_size": 29, "share_encoder_decoder_embeddings": False}
# fields that do not fit together, and words of the message
CONFLICTS = [
    ({"encoder_attention_heads": 3}, "encoder_attention_heads=3 does not divide d_model=16"),
    ({"num_key_value_heads": 3}, "num_key_value_heads=3 does not divide encoder_attention_heads=2"),
    ({"head_dim": 5}, "not 5 in the encoder"),
    ({"decoder_attention_heads": 4}, "heads of one width"),
    ({"d_model": 15, "head_dim": 4, "position_embedding_type": "sinusoidal"}, "d_model=15"),
    ({"decoder_mlp_layer_types": ["dense"]}, "decoder_mlp_layer_types has 1 entries for 3 layers"),
    ({"num_experts": 2, "num_experts_per_tok": 3}, "num_experts_per_tok=3 is more than num_experts=2"),
    ({"decoder_vocab_size": 29}, "vocab_size=31 and decoder_vocab_size=29"),
    ({"pad_token_id": 29} | TWO_VOCABULARIES, "pad_token_id=29"),
    ({"eos_token_id": [2, 40]}, "eos_token_id=[2, 40]"),
    ({"decoder_start_token_id": 30} | TWO_VOCABULARIES, "decoder_start_token_id=30"),
    (
        {"infer_attention_mask": True, "eos_token_id": [2, 5], "pad_token_id": 5},
        "pad_token_id=5, eos_token_id=[2, 5]",
    ),
    ({"is_encoder_decoder": False}, "is_encoder_decoder"),
    ({"activation_function": "gelo"}, "Did you mean `gelu`?"),
    ({"activation_function": ["gelu"]}, "activation_function=['gelu'] is not allowed"),
    ({"norm_type": "layer_norm"}, "Did you mean `layernorm`?"),
    ({ROPE: 3}, "rope_parameters=3"),
    ({ROPE: {"rope_type": "spiral"}}, "'spiral'"),
    ({ROPE: {"rope_type": "linear", "factor": "2"}}, "rope_parameters['factor']='2'"),
    ({ROPE: {"rope_type": "linear"}}, "not complete"),
    ({ROPE: {"partial_rotary_factor": 1.5}}, "rotates 12 of 8"),
    ({ROPE: {"rope_type": "yarn", "factor": 2.0, "partial_rotary_factor": 0.7}}, "rotates 5 of 8"),
    ({ROPE: {"rope_type": "dynamic", "factor": 2.0, "partial_rotary_factor": 0.25}}, "from 4 on"),
    ({"cross_attention_position_type": "bucketed", "relative_attention_num_buckets": 7}, "num_buckets=7"),
    ({"cross_attention_position_type": "bucketed", "relative_attention_max_distance": 16}, "max_distance=16"),
    ({"encoder_layerz": 2}, "no field `encoder_layerz`. Did you mean `encoder_layers`"),
    ({"num_beams": 2}, "`num_beams` is a generation setting"),
    ({"hidden_size": "wide"}, "d_model='wide' is not allowed"),
]


@pytest.mark.parametrize(("fields", "words"), CONFLICTS, ids=[words for _, words in CONFLICTS])
def test_fields_that_do_not_fit_together_are_refused(fields, words):
    with pytest.raises(ValueError) as error:
        WeftConfig(**(SMALL | fields))
    assert words in str(error.value)


@pytest.mark.parametrize("fields", [{}, UNUSUAL], ids=["defaults", "unusual"])
def test_files_and_copies_equal_the_configuration(fields, tmp_path):
    config = WeftConfig(**fields)
    config.save_pretrained(tmp_path)
    expected = {name: value for name, value in config.to_dict().items() if name != "_name_or_path"}
    copies = [AutoConfig.from_pretrained(tmp_path), WeftConfig.from_json_file(tmp_path / "config.json")]
    copies += [copy.deepcopy(config), pickle.loads(pickle.dumps(config)), WeftConfig(**config.to_dict())]
    for other in copies:
        assert type(other) is WeftConfig
        assert other.decoder_mlp_layer_types is not config.decoder_mlp_layer_types
        found = other.to_dict()
        assert {name: found.get(name) for name in expected} == expected
        other.validate()
    assert config.rope_parameters is not fields.get(ROPE)


def test_unknown_field_of_a_file_is_ignored_and_a_bad_value_refused(tmp_path, caplog):
    WeftConfig(**UNUSUAL).save_pretrained(tmp_path)
    file = tmp_path / "config.json"
    saved = json.loads(file.read_text())
    file.write_text(json.dumps(saved | {"warp_factor": 9}))
    with caplog.at_level(logging.WARNING, logger="weftformer"):
        config = WeftConfig.from_pretrained(tmp_path)
    assert "`warp_factor`" in caplog.text
    assert not hasattr(config, "warp_factor") and config.head_dim == 6
    for bad in ({"dropout": 9}, {"d_model": "wide"}, {"encoder_attention_heads": 0}):
        file.write_text(json.dumps(saved | bad))
        with pytest.raises(ValueError, match=rf"{next(iter(bad))}=.* is not allowed"):
            WeftConfig.from_pretrained(tmp_path)


def test_fields_given_while_loading(tmp_path):
    WeftConfig(**SMALL).save_pretrained(tmp_path)
    config = WeftConfig.from_pretrained(tmp_path, dropout=0.25, hidden_size=32)
    assert (config.dropout, config.d_model) == (0.25, 32)
    _, unused = WeftConfig.from_pretrained(tmp_path, dropout=0.25, foo=1, return_unused_kwargs=True)
    assert unused == {"foo": 1}


@pytest.mark.parametrize("kind", [None, "sparse", ["dense"] * 3, ["sparse"] * 3], ids=str)
def test_kinds_of_equal_layers_follow_their_number(tmp_path, kind):
    config = WeftConfig(**SMALL, decoder_mlp_layer_types=kind)
    config.save_pretrained(tmp_path)
    word = "sparse" if kind and "sparse" in kind else "dense"
    copies = [WeftConfig.from_pretrained(tmp_path, decoder_layers=1), copy.deepcopy(config)]
    copies += [WeftConfig(**(config.to_dict() | {"decoder_layers": 1}))]
    copies[1].decoder_layers = 1
    copies[1].save_pretrained(tmp_path)
    assert [other.decoder_mlp_layer_types for other in [*copies, WeftConfig.from_pretrained(tmp_path)]] == [[word]] * 4
    assert config.decoder_mlp_layer_types == [word] * 3


@pytest.mark.parametrize(("field", "words"), [("encoder_layers", "for 4 layers"), ("num_beams", "num_beams: set")])
def test_fields_set_later_are_checked_before_saving(tmp_path, field, words):
    config = WeftConfig(**SMALL, encoder_mlp_layer_types=["dense", "sparse"])
    setattr(config, field, 4)
    with pytest.raises(ValueError, match=words):
        config.save_pretrained(tmp_path / "folder")
    assert not (tmp_path / "folder").exists()
