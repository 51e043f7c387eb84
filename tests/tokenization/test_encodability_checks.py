"""encode_checked on tokenizers that refuse, replace or drop unknown characters."""

import os
import re
from concurrent.futures import ThreadPoolExecutor

import pytest
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from weftformer.tokenization import build_route_tokenizer, encode_checked
from weftformer.tokenization.checks import decode_texts
from weftformer.training.encoding import text_ids


def wrap(model, **special) -> PreTrainedTokenizerFast:
    backend = Tokenizer(model)
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    return PreTrainedTokenizerFast(tokenizer_object=backend, **special)


def letters(*tokens: str) -> dict[str, int]:
    return {token: index for index, token in enumerate(tokens)}


@pytest.mark.parametrize(
    ("text", "character", "index"),
    [("<SOS", "<", 0), ("{'smiles':'CC?\né'}", "\n", 14), ("C? <SOS>{'children':T", "T", 20), ("😀C", "😀", 0)],
)
def test_index_behind_special_tokens_and_keys(text, character, index):
    assert text[index] == character
    with pytest.raises(ValueError, match=f"unknown character {re.escape(repr(character))} at index {index} of "):
        encode_checked(build_route_tokenizer(), text)


def test_length_counts_the_special_tokens_of_a_string():
    tokenizer = build_route_tokenizer()
    encode_checked(tokenizer, "CCO", max_length=5)
    with pytest.raises(ValueError, match="5 tokens with the special tokens around it, at most 4 are allowed: 'CCO'"):
        encode_checked(tokenizer, "CCO", max_length=4)
    with pytest.raises(ValueError, match="text has 100000 characters"):  # of which the first alone are encoded
        encode_checked(tokenizer, "C" * 100_000, max_length=20)
    for text in (None, 3, ["C"], float("nan")):
        with pytest.raises(TypeError, match=f"got {type(text).__name__}"):
            encode_checked(tokenizer, text)


@pytest.mark.parametrize(
    ("tokenizer", "text", "unknown", "character"),
    [
        (wrap(models.WordLevel(letters("[U]", "ab", "b"), "[U]"), unk_token="[U]"), "ab b [U] ab", "ab bbx", "x"),
        (wrap(models.BPE(vocab=letters("a", "b"), merges=[])), "a b ab", "a b%a%", "%"),  # which drops the character
    ],
)
def test_unknown_characters_that_become_a_token_or_nothing(tokenizer, text, unknown, character):
    encode_checked(tokenizer, text)
    index = unknown.index(character)
    with pytest.raises(ValueError, match=f"unknown character '{character}' at index {index} of '{unknown}'"):
        encode_checked(tokenizer, unknown)


ENDLESS, SLOW = Regex("(a+)+$"), "a" * 40 + "b"


@pytest.mark.parametrize("part", ["pre_tokenizer", "normalizer", "decoder"])
def test_a_pattern_that_backtracks_too_long_is_one_error(part, capfd):
    tokenizer = wrap(models.WordLevel(letters("<unk>", SLOW, "b"), "<unk>"), unk_token="<unk>")
    fault = {
        "pre_tokenizer": pre_tokenizers.Split(ENDLESS, "isolated"),
        "normalizer": normalizers.Replace(ENDLESS, "x"),
        "decoder": decoders.Replace(ENDLESS, "x"),
    }[part]
    setattr(tokenizer.backend_tokenizer, part, fault)
    calls = {"the tokenizer fails": lambda: decode_texts(tokenizer, [[1]])}
    if part != "decoder":
        calls = {
            "^the tokenizer fails on 'aaa": lambda: encode_checked(tokenizer, SLOW),
            "^row 2: the tokenizer fails on 'aaa": lambda: text_ids(
                tokenizer, "text", ["b", SLOW], ["row 1", "row 2"]
            ),
        }
    for message, call in calls.items():
        with pytest.raises(ValueError, match=f"{message}.*retry-limit"):
            call()
    assert capfd.readouterr().err == ""  # where Rust writes a trace
    os.write(2, b"later")
    assert capfd.readouterr().err == "later"


def test_an_error_of_another_thread_is_raised_there():
    tokenizer = wrap(models.WordLevel(letters("<unk>", "a"), "<unk>"), unk_token="<unk>")
    tokenizer.backend_tokenizer.pre_tokenizer = pre_tokenizers.Split(ENDLESS, "isolated")
    with ThreadPoolExecutor(1) as pool, pytest.raises(ValueError, match="the tokenizer fails on"):
        pool.submit(encode_checked, tokenizer, SLOW).result()
