"""Trained byte-level BPE: exact round trips, determinism, and messages about bad input."""

import pytest

from weftformer.tokenization import encode_checked, iter_columns, train_tokenizer, trained

TEXTS = [
    "A small boat crosses a small lake.",
    "Two small boats cross the lake in the rain.",
    "Zwei kleine Boote überqueren den See im Regen.",
    "Ein kleines Boot überquert einen kleinen See.",
] * 5
# None of these texts was trained on.
STRANGE = [
    "  leading, doubled  and trailing spaces  ",
    "tabs\tand\nline\r\nbreaks\n\n",
    "naïve Ångström, e\u0301 and é, 漢字, עברית, \u200b\ufeff",
    "😀👩\u200d🔬🇨🇭",
    "\x00\x7f\U0010ffff",
    "it 's don't , . ! a . b",
    "<s>struck out</s> <pad> <unk> </s>",
    "",
]


@pytest.fixture(scope="module")
def tokenizer():
    return train_tokenizer(TEXTS, vocab_size=320)


def test_template_appends_eos_only(tokenizer):
    bare = tokenizer("a small lake", add_special_tokens=False)["input_ids"]
    assert tokenizer.tokenize("a small lake") == ["a", "Ġsmall", "Ġlake"] and len(tokenizer.tokenize("zqxj")) == 4
    assert min(bare) > 2
    assert tokenizer("a small lake").data == {"input_ids": [*bare, 2], "attention_mask": [1, 1, 1, 1]}
    assert tokenizer(text_target="a small lake")["input_ids"] == [*bare, 2]
    assert tokenizer("a small lake", "a small lake")["input_ids"] == [*bare, 2, *bare, 2]


@pytest.mark.parametrize("text", STRANGE + TEXTS[:4])
def test_round_trip_is_exact(tokenizer, text):
    encode_checked(tokenizer, text)
    assert tokenizer.decode(tokenizer(text)["input_ids"], skip_special_tokens=True) == text


def test_without_a_size_each_merged_token_has_a_hundred_examples(caplog, monkeypatch):
    texts = ["ab"] * 99 + ["cd"] * 100
    tokens = train_tokenizer(texts).get_vocab().keys() - train_tokenizer(texts, vocab_size=259).get_vocab().keys()
    assert tokens == {"cd"} and not caplog.records
    assert "ab" in train_tokenizer(texts, min_frequency=99).get_vocab()
    monkeypatch.setattr(trained, "_MOST_TOKENS", 261)
    assert len(train_tokenizer(["abcdefgh"] * 100)) == 261


def test_same_texts_give_the_same_vocabulary(tokenizer):
    expected = tokenizer.backend_tokenizer.to_str()
    assert train_tokenizer(iter(TEXTS[::-1]), vocab_size=320).backend_tokenizer.to_str() == expected


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        (iter(["", ""]), "no text to train on"),
        ("a text", "one string"),
        (iter_columns([{"en": "a"}, {"en": None}], "en"), "row 1 has no text in column 'en': None"),
        (iter_columns([{"en": "a", "de": "b"}], ["en", "fr"]), r"no column 'fr', its columns are \['de', 'en'\]"),
    ],
)
def test_what_cannot_be_trained_on(texts, message):
    with pytest.raises((TypeError, ValueError), match=message):
        train_tokenizer(texts)
    with pytest.raises(ValueError, match="vocab_size=258 is too small"):
        train_tokenizer(TEXTS, vocab_size=258)
