"""Additions of Weft to `generate`: refusals before the first step, finite scores, and the hooks that it relies on."""

import pickle
from contextlib import nullcontext
from functools import partial

import pytest
import torch
from transformers import DynamicCache, EncoderDecoderCache, LogitsProcessor, LogitsProcessorList, StaticCache
from transformers.generation import GenerationMixin

from weftformer.modeling.transformers_names import CACHE

from ..models import IDS, TARGET, tiny_model
from .test_checks import TABLES

LIMITS = {"max_source_positions": 12, "max_target_positions": 10}
SOURCE = torch.tensor([[5, 6, 7, 8], [9, 4, 0, 0]])


build = partial(tiny_model, encoder_layers=1, decoder_layers=1, tie_word_embeddings=False)


@pytest.mark.parametrize("kind", TABLES)
def test_longest_text_that_fits_a_table(kind):
    model = build(**TABLES[kind], **LIMITS)
    prefix = {"decoder_input_ids": torch.tensor([[1, 5, 5, 5]] * 2)}
    for settings in ({"use_cache": False}, {"num_beams": 2}):
        for given, length in (({}, 10), (prefix, 7)):
            settings |= {"min_new_tokens": length, "max_new_tokens": length}
            assert model.generate(SOURCE, **settings, **given).shape == (2, 11)
    model.model.decoder.layers[0].register_forward_hook(lambda *_: pytest.fail("a layer has run"))
    for given, limit in ((prefix | {"max_new_tokens": 8}, 7), ({"max_length": 12}, 10)):
        with pytest.raises(ValueError, match=f"at most max_new_tokens={limit}"):
            model.generate(SOURCE, **given)


class Writes(LogitsProcessor):
    """Certain rows of the batch write a certain token third."""

    def __init__(self, token: int, rows: slice):
        self.token, self.rows = token, rows

    def __call__(self, input_ids, scores):
        scores = scores.clone()
        if input_ids.shape[1] == 3:
            scores[self.rows] = -torch.inf
            scores[self.rows, self.token] = 0.0
        return scores


def plain_greedy(model, *args, **kwargs):
    return GenerationMixin._sample(model, *args, **kwargs)


@pytest.mark.parametrize(
    ("settings", "row"),
    [
        ({}, 1),
        ({"cache_implementation": "static"}, 1),
        ({"use_cache": False}, 1),
        ({"num_beams": 2}, 2),
        ({"num_beams": 2, "cache_implementation": "dynamic"}, 2),
        ({"do_sample": True, "cache_implementation": "dynamic"}, 1),
        ({"do_sample": True, "num_beams": 2}, 2),
        ({"num_beams": 2, "custom_generate": "sqrt_length"}, 2),
        ({"custom_generate": plain_greedy}, 1),
        ({"prompt_lookup_num_tokens": 2}, 0),
        ({"assistant_model": "itself"}, 0),
    ],
)
def test_nan_in_a_later_step_is_refused_by_every_mode(settings, row):
    model = build(share_encoder_decoder_embeddings=False, init_std=0.4)
    if settings.get("assistant_model"):
        settings = {"assistant_model": build(share_encoder_decoder_embeddings=False, init_std=0.4)}
    with torch.no_grad():
        model.model.decoder.embed_tokens.weight[9] = torch.nan
    source, beams = SOURCE[1:] if row == 0 else SOURCE, settings.get("num_beams", 1)
    request = {"min_new_tokens": 8, "max_new_tokens": 8, "suppress_tokens": [9], **settings}
    assert torch.isfinite(model.generate(source, **request)).all()
    processors = LogitsProcessorList([Writes(9, slice(row, row + beams))])
    with pytest.raises(ValueError, match="NaN or infinite"):
        model.generate(source, **(request | {"suppress_tokens": None}), logits_processor=processors)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"prefix_allowed_tokens_fn": lambda row, ids: [5], "suppress_tokens": [5]}, "forbidden"),
        ({"assistant_early_exit": 1}, "assistant_early_exit=1"),
    ],
)
def test_settings_that_no_row_can_follow_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        build().generate(SOURCE[:1], max_new_tokens=2, **settings)


@pytest.mark.parametrize(
    "settings", [{"encoder_repetition_penalty": 5.0}, {"encoder_no_repeat_ngram_size": 1}], ids=str
)
@pytest.mark.parametrize("search", [{}, {"num_beams": 2}, {"prompt_lookup_num_tokens": 2}], ids=str)
@pytest.mark.parametrize("size", [31, 8, 50])
def test_source_ids_are_not_compared_with_those_of_another_vocabulary(size, search, settings):
    request = {"max_new_tokens": 4, **search}
    model = build(share_encoder_decoder_embeddings=False, decoder_vocab_size=size)
    expected = model.generate(SOURCE[:1], **request)
    with pytest.raises(ValueError, match=f"{next(iter(settings))}=.* two vocabularies"):
        model.generate(SOURCE[:1], **request, **settings)
    off = {"encoder_repetition_penalty": 1.0, "encoder_no_repeat_ngram_size": 0}
    assert torch.equal(model.generate(SOURCE[:1], **request, **off), expected)
    model.generation_config.update(**settings)  # saved with a model
    with pytest.raises(ValueError, match="two vocabularies"):
        model.generate(SOURCE[:1], **request)
    # two tables of one vocabulary
    own = build(share_encoder_decoder_embeddings=False, init_std=0.3)
    assert not torch.equal(own.generate(SOURCE[:1], **request, **settings), own.generate(SOURCE[:1], **request))


@pytest.mark.parametrize("settings", [{}, {"cache_implementation": "static"}, {"num_beams": 2}], ids=str)
def test_head_scores_the_last_position_alone(settings):
    model, shapes = build(), []
    model.lm_head.register_forward_hook(lambda module, args, output: shapes.append(output.shape[1]))
    prefix = torch.tensor([[1, 5, 6]] * 2)
    model.generate(SOURCE, decoder_input_ids=prefix, min_new_tokens=3, max_new_tokens=3, **settings)
    assert shapes == [1, 1, 1]


# --- the cache is `cache` and `past_key_values` in every release of transformers

NAMES = ("cache", "past_key_values")


def warns_of(name: str):
    """Expect the warning of transformers' own models, in a release where the cache has another name."""
    is_old = name == "past_key_values" != CACHE
    return pytest.warns(FutureWarning, match="`past_key_values` is deprecated") if is_old else nullcontext()


@pytest.mark.parametrize("name", NAMES)
@torch.no_grad()
def test_forward_takes_and_returns_both_names(name):
    model = tiny_model(random=True)
    states = model.model.encoder(IDS, attention_mask=IDS != 0).last_hidden_state
    whole = {"input_ids": IDS, "attention_mask": IDS != 0}
    for part, call, ids in (
        (model, whole, "decoder_input_ids"),
        (model.model, whole, "decoder_input_ids"),
        (model.model.decoder, {"encoder_hidden_states": states, "encoder_attention_mask": IDS != 0}, "input_ids"),
    ):
        first = part(**call, **{ids: TARGET[:, :2]})
        assert first.cache is first.past_key_values is first[name] is first.get(name)
        assert name in first and "caches" not in first and [key for key in first if key in NAMES] == [CACHE]
        with warns_of(name):
            rest = part(**call, **{ids: TARGET[:, 2:], name: first[name]})
        torch.testing.assert_close(rest[0], part(**call, **{ids: TARGET})[0][:, 2:], rtol=1e-4, atol=1e-4)
        assert rest.cache is first.cache and rest.cache.get_seq_length() == 5


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("request_", [{}, {"num_beams": 3}, {"cache_implementation": "dynamic"}], ids=str)
def test_generate_takes_and_returns_both_names(request_, name):
    model = tiny_model(random=True)
    request = {"min_new_tokens": 6, "max_new_tokens": 6, **request_, "return_dict_in_generate": True}
    output = model.generate(IDS, **request)
    assert output.cache is output.past_key_values is output[name] is not None
    assert type(pickle.loads(pickle.dumps(output))) is type(output)
    if "cache_implementation" not in request:
        own = EncoderDecoderCache(DynamicCache(), DynamicCache())
        with warns_of(name):
            again = model.generate(IDS, **request, **{name: own})
        assert torch.equal(again.sequences, output.sequences)
        assert own.get_seq_length() == output.cache.get_seq_length() == 6


# --- a search that continues from the cache of a user

PREFIX = torch.tensor([[1, 5, 6, 7], [1, 8, 9, 4]])


def static(model):
    config = model.config
    return EncoderDecoderCache(
        StaticCache(config=config, max_cache_len=12), StaticCache(config=config, max_cache_len=4)
    )


def filled(model, rows: slice, count: int, cache=None, columns: int = 3):
    """Return the cache of the first columns of the prefixes, each `count` times."""
    source, prefix = (ids[rows].repeat_interleave(count, dim=0) for ids in (SOURCE, PREFIX[:, :columns]))
    return model(source, source != 0, prefix, cache=cache, use_cache=True).cache


CACHES = {
    "a row for each source": lambda model, rows, count: filled(model, rows, 1),
    "a row for each sequence": filled,
    "of self-attention alone": lambda model, rows, count: filled(model, rows, 1).self_attention_cache,
    "static": lambda model, rows, count: filled(model, rows, 1, static(model)),
    "one token": lambda model, rows, count: filled(model, rows, 1, columns=1),
    "empty": lambda model, rows, count: EncoderDecoderCache(DynamicCache(), DynamicCache()),
}
SEARCHES = [
    {},
    {"num_beams": 3},
    {"do_sample": True, "num_return_sequences": 3},
    {"do_sample": True, "num_beams": 3, "num_return_sequences": 2},
    {"num_beams": 3, "custom_generate": "sqrt_length"},
    {"prompt_lookup_num_tokens": 2},
]


@pytest.mark.parametrize("kind", CACHES)
@pytest.mark.parametrize("settings", SEARCHES, ids=str)
@torch.no_grad()
def test_a_search_continues_from_a_cache(settings, kind):
    model = build(init_std=0.3)
    is_assisted = "prompt_lookup_num_tokens" in settings
    rows, count = (
        slice(1 if is_assisted else 2),
        max(settings.get("num_beams", 1), settings.get("num_return_sequences", 1)),
    )

    def texts(**given):
        torch.manual_seed(0)
        return model.generate(SOURCE[rows], decoder_input_ids=PREFIX[rows], max_new_tokens=5, **settings, **given)

    cache = CACHES[kind](model, rows, count)
    if is_assisted and kind == "static":
        with pytest.raises(ValueError, match="`cache` that can be cropped"):
            texts(cache=cache)
        return
    expected, length = texts(), int(cache.get_seq_length())
    assert torch.equal(texts(cache=cache), expected)
    if count > 1 and kind not in ("a row for each sequence", "empty"):  # the search has a copy of its own
        assert cache.get_seq_length() == length
        assert torch.equal(texts(cache=cache), expected)


@pytest.mark.parametrize("settings", SEARCHES[:3], ids=str)
def test_a_cache_of_another_batch_is_refused(settings):
    model = build()
    with pytest.raises(ValueError, match=r"`cache` .* has 5 rows, but must have 2"):
        model.generate(
            SOURCE, decoder_input_ids=PREFIX, cache=filled(model, slice(1), 5), max_new_tokens=3, **settings
        )
