"""The sentinels of pretraining: added once, special, kept by a saved tokenizer."""

import pytest
from transformers import AutoTokenizer

from weftformer.tokenization import add_sentinels, build_route_tokenizer, sentinel_ids, train_tokenizer


def build():
    return train_tokenizer(["a b c."], vocab_size=300)


@pytest.mark.parametrize("kind", [build, build_route_tokenizer])
def test_sentinels_are_added_once_at_the_end_and_saved(kind, tmp_path):
    tokenizer = kind()
    before = len(tokenizer)
    assert add_sentinels(tokenizer) == 100
    tokenizer.save_pretrained(tmp_path)
    loaded = AutoTokenizer.from_pretrained(tmp_path)
    assert add_sentinels(tokenizer) == add_sentinels(loaded) == 0
    assert sentinel_ids(loaded) == list(range(before, before + 100)) and len(loaded) == before + 100
    assert loaded.convert_ids_to_tokens(before + 7) == "<extra_id_7>"
    assert loaded.decode([before, before + 99], skip_special_tokens=True) == ""


def test_a_sentinel_written_in_a_text_is_text():
    tokenizer = build()
    add_sentinels(tokenizer)
    assert not set(tokenizer("<extra_id_0>")["input_ids"]) & set(sentinel_ids(tokenizer))


def test_a_tokenizer_that_has_sentinels_keeps_its_number():
    tokenizer = build()
    tokenizer.add_tokens(["<extra_id_0>", "<extra_id_1>"], special_tokens=True)
    assert add_sentinels(tokenizer) == 0 and len(sentinel_ids(tokenizer)) == 2
