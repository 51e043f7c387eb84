"""Fields derived from others: they are numbers wherever they are read, and never out of date."""

import copy
import json
import pickle

import pytest
from transformers import AutoConfig

from weftformer import WeftConfig
from weftformer.configuration.derived import DERIVED

SIZES = {"vocab_size": 31, "d_model": 48, "encoder_layers": 2, "decoder_layers": 3}
SAME = SIZES | {"encoder_attention_heads": 4, "decoder_attention_heads": 4}
# heads of two widths, which rotary positions do not allow
DIFFERENT = SIZES | {
    "encoder_attention_heads": 4, "decoder_attention_heads": 8, "self_attention_position_type": "none",
}  # fmt: skip
TWO_TABLES = SAME | {"share_encoder_decoder_embeddings": False}
TWO_VOCABULARIES = TWO_TABLES | {"decoder_vocab_size": 23}
EXPLICIT = SAME | {"head_dim": 6, "num_key_value_heads": 2}
KINDS = {
    "same": SAME, "different": DIFFERENT, "two tables": TWO_TABLES, "two vocabularies": TWO_VOCABULARIES,
    "explicit": EXPLICIT,
}  # fmt: skip

# vocabulary, layers, heads, key-value heads, width of a head: of the encoder, and of the decoder
EXPECTED = {
    "same": ((31, 2, 4, 4, 12), (31, 3, 4, 4, 12)),
    "different": ((31, 2, 4, 4, 12), (31, 3, 8, 8, 6)),
    "two tables": ((31, 2, 4, 4, 12), (31, 3, 4, 4, 12)),
    "two vocabularies": ((31, 2, 4, 4, 12), (23, 3, 4, 4, 12)),
    "explicit": ((31, 2, 4, 2, 6), (31, 3, 4, 2, 6)),
}


def numbers(config):
    assert config.hidden_size == config.d_model == 48
    return (
        config.vocab_size,
        config.num_hidden_layers,
        config.num_attention_heads,
        config.num_key_value_heads,
        config.head_dim,
    )


@pytest.fixture
def rewrite(tmp_path):
    """Saves a configuration, changes its file and returns the folder."""

    def rewritten(config, lacks=(), **fields):
        config.save_pretrained(tmp_path)
        file = tmp_path / "config.json"
        found = json.loads(file.read_text()) | fields
        file.write_text(json.dumps({name: value for name, value in found.items() if name not in lacks}))
        return tmp_path

    return rewritten


@pytest.mark.parametrize("kind", KINDS)
def test_configurations_of_both_stacks(kind, tmp_path):
    config = WeftConfig(**KINDS[kind])
    config.save_pretrained(tmp_path)
    copies = [WeftConfig.from_pretrained(tmp_path), copy.deepcopy(config), pickle.loads(pickle.dumps(config))]
    copies += [AutoConfig.from_pretrained(tmp_path), WeftConfig(**config.to_dict())]
    for one in (config, *copies):
        encoder, decoder = one.get_text_config(encoder=True), one.get_text_config(decoder=True)
        assert (numbers(encoder), numbers(decoder)) == EXPECTED[kind]
        assert numbers(one) == EXPECTED[kind][0]
        assert one.decoder_vocab_size == decoder.vocab_size
        # caches ask the view for its view
        assert numbers(decoder.get_text_config(decoder=True)) == EXPECTED[kind][1]
        assert numbers(encoder.get_text_config(encoder=True)) == EXPECTED[kind][0]


def test_derived_fields_follow_other_fields():
    config = WeftConfig(**SAME)
    config.d_model, config.vocab_size, config.decoder_attention_heads = 96, 40, 8
    assert (config.head_dim, config.decoder_vocab_size, config.num_key_value_heads) == (24, 40, 4)
    assert config.stack_heads(is_decoder=True) == (8, 8, 12)
    config.encoder_attention_heads = 8
    assert (config.head_dim, config.num_key_value_heads) == (12, 8)
    config.head_dim = 10
    assert config.head_dim == 10 and config.get_text_config(decoder=True).head_dim == 10
    config.head_dim = None
    assert config.head_dim == 12


@pytest.mark.parametrize(
    ("fields", "unclear"),
    [(SAME, set()), (DIFFERENT, {"num_key_value_heads", "head_dim"}), (TWO_TABLES, {"decoder_vocab_size"})],
    ids=["same", "heads", "tables"],
)
def test_files_hold_derived_numbers_only_where_one_is_right(fields, unclear, tmp_path):
    """Four key-value heads would be shared by the decoder's eight; two tables with two sizes have two vocabularies."""
    config = WeftConfig(**fields)
    config.save_pretrained(tmp_path)
    found = json.loads((tmp_path / "config.json").read_text())
    assert {name for name in DERIVED if found[name] is None} == unclear
    assert WeftConfig.from_pretrained(tmp_path).stack_heads(is_decoder=True) == config.stack_heads(is_decoder=True)


def test_fields_given_while_loading_change_derived_fields(tmp_path):
    config = WeftConfig(**SAME)
    config.save_pretrained(tmp_path)
    wide = WeftConfig.from_pretrained(tmp_path, d_model=96)
    assert wide.head_dim == wide.get_text_config(decoder=True).head_dim == 24
    assert WeftConfig.from_pretrained(tmp_path, hidden_size=96).head_dim == 24
    heads = {"encoder_attention_heads": 8, "decoder_attention_heads": 8}
    assert WeftConfig.from_pretrained(tmp_path, **heads).stack_heads(is_decoder=False) == (8, 8, 6)
    assert WeftConfig.from_dict(config.to_dict(), **heads).stack_heads(is_decoder=True) == (8, 8, 6)
    assert AutoConfig.from_pretrained(tmp_path, vocab_size=40).decoder_vocab_size == 40
    one = {"decoder_attention_heads": 2, "self_attention_position_type": "none"}
    assert WeftConfig.from_pretrained(tmp_path, **one).stack_heads(is_decoder=False) == (4, 4, 12)
    assert WeftConfig.from_pretrained(tmp_path, **one).stack_heads(is_decoder=True) == (2, 2, 24)
    bigger = WeftConfig.from_preset("modern-tiny", encoder_attention_heads=12, decoder_attention_heads=12)
    assert (bigger.head_dim, bigger.num_key_value_heads) == (16, 12)


def test_given_numbers_stay_when_other_fields_change(tmp_path):
    WeftConfig(**EXPLICIT).save_pretrained(tmp_path)
    config = WeftConfig.from_pretrained(tmp_path, d_model=96)
    assert (config.head_dim, config.num_key_value_heads) == (6, 2)
    with pytest.raises(ValueError, match="num_key_value_heads=2 does not divide encoder_attention_heads=3"):
        WeftConfig.from_pretrained(tmp_path, encoder_attention_heads=3)
    assert WeftConfig.from_pretrained(tmp_path, num_key_value_heads=None, head_dim=None).head_dim == 12


def test_given_number_equal_to_the_default_is_derived():
    named = WeftConfig(**SAME, head_dim=12, num_key_value_heads=4, decoder_vocab_size=31)
    assert named == WeftConfig(**SAME)
    assert [named.given(name) for name in DERIVED] == [None] * 3
    # not where it divides nothing, nor where it is right for one stack only
    assert WeftConfig(**SAME | {"d_model": 50}, head_dim=12).head_dim == 12
    grouped = WeftConfig(**DIFFERENT, num_key_value_heads=4)
    assert grouped.stack_heads(is_decoder=True) == (8, 4, 6)
    assert grouped.get_text_config(decoder=True).num_key_value_heads == 4


def test_files_with_bad_numbers_are_refused(rewrite):
    folder = rewrite(WeftConfig(**SAME), d_model="wide")
    with pytest.raises(ValueError, match="d_model='wide' is not allowed"):
        WeftConfig.from_pretrained(folder)
    with pytest.raises(ValueError, match="encoder_attention_heads=0 is not allowed"):
        WeftConfig.from_pretrained(rewrite(WeftConfig(**SAME), encoder_attention_heads=0))
