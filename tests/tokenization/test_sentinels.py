"""The tokens of pretraining: added once, special, kept by a saved tokenizer."""

import pytest
from transformers import AutoTokenizer

from weftformer.tokenization import MODES, add_denoising_tokens, build_route_tokenizer, sentinel_ids, train_tokenizer


def build():
    return train_tokenizer(["a b c."], vocab_size=300)


@pytest.mark.parametrize(
    ("kind", "objective", "number"),
    [(build, "span", 100), (build, "infilling", 1), (build, "ul2", 103), (build_route_tokenizer, "ul2", 103)],
)
def test_tokens_are_added_once_at_the_end_and_saved(kind, objective, number, tmp_path):
    tokenizer = kind()
    before = len(tokenizer)
    assert add_denoising_tokens(tokenizer, objective) == number
    assert len(tokenizer) == before + number
    tokenizer.save_pretrained(tmp_path)
    loaded = AutoTokenizer.from_pretrained(tmp_path)
    assert add_denoising_tokens(tokenizer, objective) == add_denoising_tokens(loaded, objective) == 0
    assert len(loaded) == before + number
    if objective == "infilling":
        assert loaded.mask_token == "<mask>" and loaded.mask_token_id == before
    else:
        assert sentinel_ids(loaded) == list(range(before, before + 100))
        assert loaded.convert_ids_to_tokens(before + 7) == "<extra_id_7>"
        assert loaded.decode([before, before + 99], skip_special_tokens=True) == ""
    if objective == "ul2":
        assert set(MODES.values()) <= set(loaded.get_vocab())


def test_a_sentinel_written_in_a_text_is_text():
    tokenizer = build()
    text = "<extra_id_0>"
    add_denoising_tokens(tokenizer, "span")
    assert not set(tokenizer(text)["input_ids"]) & set(sentinel_ids(tokenizer))


def test_an_unknown_objective_is_refused():
    with pytest.raises(ValueError, match="objective='mlm' is not allowed: choose one of 'span'"):
        add_denoising_tokens(build(), "mlm")
