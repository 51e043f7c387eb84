"""Pairs as ids: labels end with the eos and begin without a start token, and pairs that do not fit are reported."""

import logging

import pytest
from datasets import Dataset
from transformers import DataCollatorForSeq2Seq

from weftformer.tokenization import train_tokenizer
from weftformer.training.encoding import Columns, PairEncoder, _truncate, encode_target, longest

COLUMNS = Columns("source", "target")


@pytest.fixture(scope="module")
def bpe():
    return train_tokenizer(["a b c d"], vocab_size=259)


def _rows(*pairs, **columns):
    rows = {"source": [pair[0] for pair in pairs], "target": [pair[1] for pair in pairs]}
    return Dataset.from_dict(rows | columns)


def _encode(rows, tokenizer, columns=COLUMNS, source=20, target=20, **options):
    encoded = PairEncoder(columns, tokenizer, (source, target), **options).encode("train", rows)
    return encoded.remove_columns("source_key")


def test_labels_end_with_the_eos_and_begin_without_a_bos(bpe, tokenizer):
    (row,) = _encode(_rows(("ab", "cd")), bpe)
    a, b, c, d = bpe.convert_tokens_to_ids([*"abcd"])
    assert row == {"input_ids": [a, b, 2], "labels": [c, d, 2]}
    (row,) = _encode(_rows(("CC", "{'smiles':'CC'}")), tokenizer)
    assert row == {"input_ids": [0, 4, 4, 22], "labels": [1, 2, 3, 4, 4, 3, 21, 22]}


@pytest.mark.parametrize(
    ("ids", "labels"), [([5, 6], [5, 6, 22]), ([0, 5], [5, 22]), ([9, 5, 22], [5, 22]), ([], [22])]
)
def test_front_and_end_of_labels(tokenizer, ids, labels):
    assert encode_target(tokenizer, ids, start=9) == labels


def test_batches_have_masks_conditions_and_padded_labels(bpe):
    columns = Columns("source", "target", ("n", "m"))
    rows = _rows(("a", "abc"), ("abc", "a"), n=["1", "2.5"], m=[3, 4])
    batch = DataCollatorForSeq2Seq(bpe)(list(_encode(rows, bpe, columns)))
    assert batch["attention_mask"].tolist() == [[1, 1, 0, 0], [1, 1, 1, 1]]
    assert batch["labels"].tolist()[1][1:] == [2, -100, -100]
    assert batch["condition_values"].tolist() == [[1.0, 3.0], [2.5, 4.0]]
    assert batch["condition_values"].is_floating_point()


def test_too_long_and_empty_pairs_are_left_out_and_counted(bpe, caplog):
    pairs = [("abc", "abc"), ("abcd", "a"), ("a", "abcd"), ("", "a"), ("a", " "), ("a", "a")]
    named = "too long for max_source_length=4, max_target_length=4 (--truncate shortens them) (rows 2, 3)"
    with caplog.at_level(logging.WARNING, logger="weftformer"):
        dataset = _encode(_rows(*pairs), bpe, source=4, target=4)
    assert [len(ids) for ids in dataset["labels"]] == [4, 2]
    assert f"Skipped: 4 of 6 pairs of train, 2 with an empty text (rows 4, 5), 2 {named}." in caplog.text
    assert "Repeated" not in caplog.text
    assert longest(dataset) == 4
    caplog.clear()
    with caplog.at_level(logging.WARNING, logger="weftformer"):
        dataset = _encode(_rows(*pairs), bpe, source=4, target=4, truncate=True)
    assert "Skipped: 2 of 6 pairs of train" in caplog.text
    assert [len(ids) for ids in dataset["input_ids"]] == [4, 4, 2, 2]
    assert dataset["input_ids"][1] == dataset["input_ids"][0]  # cut before the last token, which closes it
    assert _truncate([5, 6, 7, 8], 3, {1, 2}) == [5, 6, 7]  # a tokenizer that closes no source
    assert _truncate([5, 6, 7, 8, 2, 1], 3, {1, 2}) == [5, 2, 1]  # mBART: the eos and the language
    assert _truncate([5, 6, 2], 3, {2}) == [5, 6, 2] and _truncate([2, 2, 2, 2], 3, {2}) == [2, 2, 2]
    _encode(_rows(("a", "b"), ("b", "b"), *[("a", "b")] * 6, ("a", "a")), bpe)
    assert "Repeated: 6 of 9 pairs of train (rows 3, 4, 5, 6, 7, ...)." in caplog.text
    with pytest.raises(ValueError, match="No pair of train can be used: 1 pair, each empty or too long"):
        _encode(_rows(("abcdefgh", "a")), bpe, source=4)


def test_sources_with_different_targets_are_named(bpe, caplog):
    """Not those that differ in a condition, or only by white space."""
    pairs = [("a", "b"), ("b", "c"), ("a", "c"), ("a", "b "), ("d", "a"), ("a ", "d"), ("b", "c")]
    encoder = PairEncoder(COLUMNS, bpe, (20, 20))
    encoder.first_numbers["train"] = 2
    encoder.encode("train", _rows(*pairs))
    expected = "1 source with different targets: 'a' has 'b' (row 2) and 'c' (row 4) and 'd' (row 7)."
    assert encoder.contradictions == {"train": expected} and f"In train, {expected}" in caplog.text
    for number in range(4):
        pairs += [(f"{number}", "a"), (f"{number}", "b")]
    encoder.encode("train", _rows(*pairs))
    text = encoder.contradictions["train"]
    assert text.startswith("5 sources") and text.endswith("'1' has 'a' (row 11) and 'b' (row 12); ...")
    columns = Columns("source", "target", ("n",))
    encoder = PairEncoder(columns, bpe, (20, 20))
    encoder.encode("train", _rows(("a", "b"), ("a", "c"), n=[1, 2]))
    assert encoder.contradictions == {}


@pytest.mark.parametrize(
    ("pair", "message"),
    [
        (("C%C", "{}"), "Row 2 of train, column 'source': unknown character '%' at index 1"),
        (("CC", "{'smiles':'X'}"), "Row 2 of train, column 'target': unknown character 'X'"),
        (("CC", "{'smiles': 'C'}"), "Row 2 of train contains the special token ' ' in column 'target'"),
        (("CC", "{}?{}"), "contains the special token '?'"),
        ((None, "{}"), "Row 2 of train has None in column 'source', which must be a text"),
    ],
)
def test_texts_that_cannot_be_learned(tokenizer, pair, message):
    with pytest.raises(ValueError) as raised:
        _encode(_rows(("C", "{}"), pair), tokenizer)
    assert message in str(raised.value)


@pytest.mark.parametrize("value", ["many", "", None, "nan", "inf"])
def test_conditions_that_are_no_numbers(bpe, value):
    columns = Columns("source", "target", ("n",))
    with pytest.raises(ValueError, match=r"Row 2 of train has .* in condition column 'n'"):
        _encode(_rows(("a", "a"), ("b", "b"), n=["1", value]), bpe, columns)
