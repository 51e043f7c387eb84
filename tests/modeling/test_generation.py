"""Additions of Weft to `generate`: refusals before the first step, finite scores, and the hooks that it relies on."""

from functools import partial

import pytest
import torch
from transformers import LogitsProcessor, LogitsProcessorList
from transformers.generation import GenerationMixin

from ..models import tiny_model
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


def test_row_without_any_allowed_token_is_refused():
    with pytest.raises(ValueError, match="every token is forbidden"):
        build().generate(SOURCE, prefix_allowed_tokens_fn=lambda row, ids: [5], suppress_tokens=[5], max_new_tokens=2)


@pytest.mark.parametrize("settings", [{}, {"cache_implementation": "static"}, {"num_beams": 2}], ids=str)
def test_head_scores_the_last_position_alone(settings):
    model, shapes = build(), []
    model.lm_head.register_forward_hook(lambda module, args, output: shapes.append(output.shape[1]))
    prefix = torch.tensor([[1, 5, 6]] * 2)
    model.generate(SOURCE, decoder_input_ids=prefix, min_new_tokens=3, max_new_tokens=3, **settings)
    assert shapes == [1, 1, 1]
