"""Fields derived from others: they are numbers wherever they are read, and never out of date."""

import copy
import pickle

import pytest
from transformers import AutoConfig

from weftformer import WeftConfig
from weftformer.configuration import consistency
from weftformer.configuration.derived import NUMBERS

SIZES = {"vocab_size": 31, "d_model": 48, "encoder_layers": 2, "decoder_layers": 3}
SAME = SIZES | {"encoder_attention_heads": 4, "decoder_attention_heads": 4}
# heads of two widths, which rotary positions do not allow
DIFFERENT = SAME | {"decoder_attention_heads": 8, "self_attention_position_type": "none"}
TWO_TABLES = SAME | {"share_encoder_decoder_embeddings": False}
# fields; vocabulary, layers, heads, key-value heads, width of a head: of the encoder, and of the decoder
KINDS = {
    "different": (DIFFERENT, (31, 2, 4, 4, 12), (31, 3, 8, 8, 6)),
    "two vocabularies": (TWO_TABLES | {"decoder_vocab_size": 23}, (31, 2, 4, 4, 12), (23, 3, 4, 4, 12)),
    "explicit": (SAME | {"head_dim": 6, "num_key_value_heads": 2}, (31, 2, 4, 2, 6), (31, 3, 4, 2, 6)),
}


def numbers(config):
    assert config.hidden_size == config.d_model == 48
    names = ("vocab_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads", "head_dim")
    return tuple(getattr(config, name) for name in names)


@pytest.mark.parametrize("kind", KINDS)
def test_configurations_of_both_stacks(kind, tmp_path):
    fields, *expected = KINDS[kind]
    config = WeftConfig(**fields)
    config.save_pretrained(tmp_path)
    copies = [copy.deepcopy(config), pickle.loads(pickle.dumps(config)), WeftConfig(**config.to_dict())]
    for one in (config, AutoConfig.from_pretrained(tmp_path), *copies):
        views = one.get_text_config(encoder=True), one.get_text_config(decoder=True)
        assert [numbers(view) for view in views] == expected and numbers(one) == expected[0]
        assert one.decoder_vocab_size == views[1].vocab_size
        # caches ask the view for its view
        again = views[0].get_text_config(encoder=True), views[1].get_text_config(decoder=True)
        assert [numbers(view) for view in again] == expected


def test_derived_fields_follow_other_fields():
    config = WeftConfig(**SAME)
    config.d_model, config.vocab_size, config.decoder_attention_heads = 96, 40, 8
    assert (config.head_dim, config.decoder_vocab_size, config.num_key_value_heads) == (24, 40, 4)
    assert config.stack_heads(is_decoder=True) == (8, 8, 12)
    for given, expected in ((10, 10), (None, 24)):
        config.head_dim = given
        assert config.head_dim == config.get_text_config(encoder=True).head_dim == expected


# fields; field, numbers of the encoder and of the decoder: heads, key-value heads, width
LOADED = [
    (SAME, {"hidden_size": 96}, (4, 4, 24), (4, 4, 24)),
    (SAME, {"encoder_attention_heads": 8, "decoder_attention_heads": 8}, (8, 8, 6), (8, 8, 6)),
    (DIFFERENT, {"decoder_attention_heads": 2}, (4, 4, 12), (2, 2, 24)),
    (KINDS["explicit"][0], {"d_model": 96}, (4, 2, 6), (4, 2, 6)),
    (KINDS["explicit"][0], {"num_key_value_heads": None, "head_dim": None}, (4, 4, 12), (4, 4, 12)),
]


@pytest.mark.parametrize(("fields", "given", "encoder", "decoder"), LOADED)
def test_fields_given_while_loading_change_derived_fields(fields, given, encoder, decoder, tmp_path):
    config = WeftConfig(**fields)
    config.save_pretrained(tmp_path)
    for loaded in (AutoConfig.from_pretrained(tmp_path, **given), WeftConfig.from_dict(config.to_dict(), **given)):
        assert (loaded.stack_heads(is_decoder=False), loaded.stack_heads(is_decoder=True)) == (encoder, decoder)
        assert loaded.get_text_config(decoder=True).head_dim == decoder[2]


def test_given_number_equal_to_the_default_is_derived():
    named = WeftConfig(**SAME, head_dim=12, num_key_value_heads=4, decoder_vocab_size=31)
    assert named == WeftConfig(**SAME)
    assert [named.given(name) for name in NUMBERS] == [None] * 4
    # not where it divides nothing, nor where it is right for one stack only
    assert WeftConfig(**SAME | {"d_model": 50}, head_dim=12).head_dim == 12
    grouped = WeftConfig(**DIFFERENT, num_key_value_heads=4)
    assert grouped.stack_heads(is_decoder=True) == (8, 4, 6)
    assert grouped.get_text_config(decoder=True).num_key_value_heads == 4


def test_single_expert_is_not_normalised(caplog):
    consistency.logger.warning_once.cache_clear()
    assert [WeftConfig(num_experts_per_tok=count).norm_topk_prob for count in (1, 2)] == [False, True]
    sparse = WeftConfig(num_experts_per_tok=2, decoder_mlp_layer_types="sparse")
    saved = sparse.to_dict()
    assert WeftConfig.from_dict(saved, num_experts_per_tok=1).norm_topk_prob is False
    assert "norm_topk_prob" not in caplog.text
    # as it was trained
    assert WeftConfig.from_dict(saved | {"num_experts_per_tok": 1, "norm_topk_prob": True}).norm_topk_prob is True
    assert "leave `norm_topk_prob` out" in caplog.text
