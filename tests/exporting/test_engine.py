"""CTranslate2 instead of `generate`: the same ids, or those of Weft and the reason."""

import pytest
import torch

from weftformer.common.watching import Watch
from weftformer.exporting import Engine, engine

from ..models import randomized

pytest.importorskip("ctranslate2")


@pytest.fixture
def told(monkeypatch):
    lines: list[str] = []
    monkeypatch.setattr(engine.logger, "warning_once", lines.append)
    return lines


def sources(rows: int, seed: int = 0) -> dict[str, torch.Tensor]:
    """Rows of different lengths, padded on the right."""
    generator = torch.Generator().manual_seed(seed)
    lengths = torch.randint(1, 9, (rows, 1), generator=generator)
    ids = torch.randint(5, 60, (rows, 8), generator=generator)
    mask = (torch.arange(8) < lengths).long()
    return {"input_ids": ids * mask, "attention_mask": mask}


EARLY = {"num_beams": 3, "early_stopping": True}


@pytest.mark.parametrize(
    "settings", [{}, EARLY | {"num_return_sequences": 2}, EARLY | {"length_penalty": 0.3}], ids=str
)
def test_ids_are_those_of_generate(small, told, settings):
    model = small("modern-tiny")
    settings |= {"max_new_tokens": 7}
    model.lm_head.weight.data[2] *= 3.0  # texts end at different lengths
    expected = model.generate(**sources(40), **settings)
    ends = (expected == 2).any(dim=1)
    assert ends.any() and not ends.all()
    one = Engine(model, "auto")
    first = one.generate(**sources(16), **settings)
    assert torch.equal(first, model.generate(**sources(16), **settings)) and one._translator is None and not told
    for _ in range(2):  # compared, and alone
        found = one.generate(**sources(40), **settings)
        assert one._without_pads(found) == one._without_pads(expected)
    assert told == ["Generating with CTranslate2: 16 of the first 16 texts are the same as Weft's."]


@pytest.mark.parametrize(
    "fields, settings, reason",
    [
        ({"decoder_mlp_layer_types": "sparse"}, {}, "does not support decoder_mlp_layer_types"),
        ({"dtype": torch.bfloat16}, {}, "in fp32"),
        ({}, {"num_beams": 3}, "supports only beam search with"),
        ({}, EARLY | {"length_penalty": 0.0}, "supports only beam search with"),
        ({}, {"no_repeat_ngram_size": 2}, "processors"),
        ({}, {"do_sample": True, "top_k": 1}, "sampled"),
        ({}, {"eos_token_id": [2, 7]}, "the start or end token is not that of the configuration"),
        ({}, {"decoder_input_ids": torch.ones(20, 1, dtype=torch.long)}, "other than tokens"),
    ],
)
def test_what_differs_is_left_to_weft(small, told, fields, settings, reason):
    dtype = fields.pop("dtype", torch.float32)
    model = small("modern-tiny", **fields).to(dtype)
    settings = settings | {"max_new_tokens": 4}
    found = Engine(model, "auto").generate(**sources(20), **settings)
    assert torch.equal(found, model.generate(**sources(20), **settings))
    (line,) = told
    assert line.startswith("Generating with Weft, not CTranslate2: ") and reason in line and ".." not in line
    if not settings.keys() & EARLY.keys():  # by name the rule of its ending is taken too
        with pytest.raises(ValueError, match=reason):
            Engine(model, "ctranslate2").generate(**sources(20), **settings)


def test_texts_that_differ_are_not_taken(small, told, monkeypatch):
    model = small("tiny")
    load = engine.load_translator
    monkeypatch.setattr(engine, "load_translator", lambda _, **given: load(randomized(small("tiny"), 3), **given))
    one, calls = Engine(model, "auto"), []
    for _ in range(2):
        # the watch is called in both engines
        found = one.generate(**sources(20), max_new_tokens=6, logits_processor=[Watch(lambda: calls.append(1))])
        assert torch.equal(found, model.generate(**sources(20), max_new_tokens=6))
        assert len(calls) > 2
        calls.clear()
    assert len(told) == 1 and "of the first 16 texts of CTranslate2 differ" in told[0]
