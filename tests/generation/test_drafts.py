"""Drafts change nothing but the speed: the same tokens and scores as step by step, whatever is drafted and how far."""

import itertools
import logging

import pytest
import torch
from transformers import LogitsProcessorList, PrefixConstrainedLogitsProcessor

import weftformer
from weftformer.modeling import decoding_ahead
from weftformer.modeling.decoding_cache import BeamCache
from weftformer.modeling.decoding_compiled import CompiledStep
from weftformer.modeling.decoding_drafts import DraftSource, Forced, InTurn, Lookup, as_text, forced_by
from weftformer.modeling.decoding_pace import Pace
from weftformer.modeling.decoding_wide import WideStep

from .conftest import FEW
from .test_decoding import PADDED, REQUESTS

# The logits of a step are rounded to 32 bits; what they are rounded from agrees to the last bits of 64.
CLOSE = {"atol": 1e-6, "rtol": 1e-6}
OF_ALL_KINDS = ("greedy", "many beams, all returned", "ends, greedy", "processors")
OF_ONE_KIND = [name for name in REQUESTS if name not in (*OF_ALL_KINDS, "several samples")]


@pytest.fixture
def paces(monkeypatch):
    """Drafts of changing lengths, with steps without drafts between them."""

    def set_to(*shares):
        turns = itertools.cycle(shares)
        monkeypatch.setattr(Pace, "choose", lambda self: round(self.most * next(turns)))

    set_to(1, 0.6, 0, 1, 0.6, 0, 0)
    return set_to


@pytest.fixture
def calls(monkeypatch):
    """The number of new tokens of each call of the model with drafts."""
    made, original = [], WideStep.run
    monkeypatch.setattr(
        WideStep, "run", lambda self, new, *rest: made.append(len(new.ids)) or original(self, new, *rest)
    )
    return made


def with_and_without(model, inputs, request):
    settings = {"max_new_tokens": 12, "return_dict_in_generate": True, "output_scores": True, "output_logits": True}
    if "max_length" in request:
        settings.pop("max_new_tokens")
    outputs = []
    for drafts in ({"draft_tokens": 5}, {}):
        torch.manual_seed(3)
        outputs.append(model.generate(**inputs, **(settings | request | drafts)))
    return outputs


def assert_same(drafted, plain):
    assert torch.equal(drafted.sequences, plain.sequences)
    assert set(drafted.keys()) == set(plain.keys())
    for name in ("scores", "logits"):
        for one, other in zip(getattr(drafted, name, None) or (), getattr(plain, name, None) or (), strict=True):
            torch.testing.assert_close(one, other, **CLOSE)
    if getattr(plain, "beam_indices", None) is not None:
        assert torch.equal(drafted.beam_indices, plain.beam_indices)
        torch.testing.assert_close(drafted.sequences_scores, plain.sequences_scores, **CLOSE)
    halves = [output.past_key_values.self_attention_cache.layers for output in (drafted, plain)]
    for one, other in zip(*halves, strict=True):
        torch.testing.assert_close(one.keys, other.keys, atol=1e-9, rtol=1e-9)
        torch.testing.assert_close(one.values, other.values, atol=1e-9, rtol=1e-9)


@pytest.mark.stays(model=FEW)
@pytest.mark.stays(request_=("greedy", "many beams, all returned"))
@pytest.mark.parametrize("request_", OF_ALL_KINDS)
def test_drafts_change_no_kind_of_model(model, inputs, paces, calls, request_):
    assert_same(*with_and_without(model, inputs, REQUESTS[request_]))
    assert calls


@pytest.mark.parametrize("request_", OF_ONE_KIND)
def test_drafts_change_no_request(build, source, paces, calls, request_):
    assert_same(*with_and_without(build("rotary across"), {"input_ids": source}, REQUESTS[request_]))
    assert calls


@pytest.mark.parametrize("beams", [1, 3, 50])
def test_drafts_of_prefixes_of_different_length(build, source, paces, calls, beams):
    model = build("learned", num_condition_features=0)
    assert_same(*with_and_without(model, {"input_ids": source}, PADDED | {"num_beams": beams}))
    assert calls


def test_drafts_of_one_source_with_long_texts(build, source, paces, calls, monkeypatch):
    monkeypatch.setattr(BeamCache, "SHARE_EVERY", 3)
    request = {"num_beams": 6, "num_return_sequences": 6, "max_new_tokens": 70, "min_new_tokens": 70}
    assert_same(*with_and_without(build("rotary"), {"input_ids": source[:1]}, request))
    assert calls


def test_the_plain_path_gives_the_same_too(build, source, paces, calls):
    request = {"num_beams": 4, "max_new_tokens": 20}
    drafted = build("rotary").generate(source, **request, prompt_lookup_num_tokens=4)
    assert calls
    assert torch.equal(drafted, build("rotary").generate(source, **request, cache_implementation="dynamic"))


class Known(DraftSource):
    """Guesses the continuation in a text that is known."""

    def __init__(self, answers):
        self.answers = answers

    def draft(self, source, text, most):
        return next((one[len(text) : len(text) + most] for one in self.answers if one.startswith(text)), "")


def test_right_drafts_save_calls(build, source, paces, calls, monkeypatch):
    model, settings = build("rotary"), {"max_new_tokens": 24, "min_new_tokens": 24}
    paces(1)
    for beams in (1, 3):
        expected = model.generate(source[:1], **settings, num_beams=beams)
        known = Known([as_text(row) for row in expected.tolist()])
        monkeypatch.setattr(decoding_ahead, "Lookup", lambda *given, known=known: known)
        calls.clear()
        drafted = model.generate(source[:1], **settings, num_beams=beams, draft_tokens=8)
        assert torch.equal(drafted, expected)
        # three calls verify 24 tokens; beams leave the known text
        assert len(calls) <= (3 if beams == 1 else 23)


def test_beams_with_drafts_warn_of_nothing(build, source, paces, calls, caplog):
    logger = logging.getLogger("transformers")
    logger.addHandler(caplog.handler)
    try:
        build("rotary").generate(source, num_beams=2, max_new_tokens=4, prompt_lookup_num_tokens=3)
    finally:
        logger.removeHandler(caplog.handler)
    assert calls and not [record for record in caplog.records if "assist" in record.getMessage()]


def test_the_setting_of_a_model_counts(build, source, paces, calls):
    model = build("rotary")
    model.generation_config.prompt_lookup_num_tokens = 4
    model.generate(source, num_beams=2, max_new_tokens=6)
    assert calls and model.generation_config.prompt_lookup_num_tokens == 4


@pytest.mark.parametrize("kind", ["rotary", "larger target"])
def test_the_source_is_read_where_it_has_the_same_vocabulary(build, source, paces, calls, monkeypatch, kind):
    seen = []
    monkeypatch.setattr(
        decoding_ahead, "Lookup", lambda sources, longest: seen.append((sources, longest)) or Lookup(sources, longest)
    )
    build(kind).generate(source, max_new_tokens=4, prompt_lookup_num_tokens=3, max_matching_ngram_size=2)
    expected = None if kind == "larger target" else [as_text(row) for row in source.tolist()]
    assert seen == [(expected, 2)]


def test_a_compiled_step_has_no_drafts(build, source, paces, calls, monkeypatch):
    model = weftformer.fast_decoding(build("rotary"))
    monkeypatch.setattr(CompiledStep, "__call__", lambda self, arguments: self.step.forward(*arguments))
    model.generate(source, max_new_tokens=4, prompt_lookup_num_tokens=3)
    assert not calls


def test_lookup_continues_the_longest_run_nearest_to_the_end():
    lookup = Lookup(["abcXY", "zabcQ"], 4)
    assert lookup.draft(0, "abcdefabc", 3) == "def"
    assert lookup.draft(0, "abc1..bc2..bc", 2) == "2."  # the later of two runs of the same length
    assert lookup.draft(0, "..1..abc", 9) == "XY" and lookup.draft(1, "..1..abc", 9) == "Q"  # from the source
    assert lookup.draft(0, "zabc1..abc", 2) == "1."  # the text counts before the source
    assert lookup.draft(0, "123", 2) == "" and Lookup(None, 4).draft(0, "abc", 2) == ""
    assert Lookup(None, 1).draft(0, "ab1cb", 2) == "1c"


def test_sources_of_drafts_take_turns():
    class Says(DraftSource):
        def __init__(self, after, guess):
            self.after, self.guess = after, guess

        def draft(self, source, text, most):
            return self.guess[:most] if text.endswith(self.after) else ""

    both = InTurn([Says("a", "bc"), Says("c", "da")])
    assert both.draft(0, "a", 7) == "bcdabcd" and both.draft(0, "x", 3) == ""


def test_a_single_allowed_token_is_drafted():
    only = {5: [6], 6: [7], 7: [8, 9]}
    forced = Forced(lambda source, ids: only[ids[-1]])
    assert forced.draft(0, as_text([1, 5]), 9) == as_text([6, 7])
    assert forced.draft(0, as_text([1, 5]), 1) == as_text([6])
    seen = []
    function = PrefixConstrainedLogitsProcessor(lambda row, ids: seen.append((row, ids.tolist())) or [4], 3)
    (source,) = forced_by(LogitsProcessorList([function]))
    assert source.draft(2, as_text([1]), 2) == as_text([4, 4]) and seen == [(2, [1]), (2, [1, 4])]


def played(pace, steps, tokens, right, calls):
    """Let calls with drafts serve some steps and compute some tokens, and guesses come true; return what was chosen."""
    chosen = []
    for _ in range(calls):
        if pace.is_watching:
            pace.count_guess(right)
        chosen.append(pace.choose())
        if chosen[-1]:
            pace.count_call(tokens)
            for _ in range(steps - 1):
                pace.count_step()
    return chosen


def test_nothing_is_drafted_until_guesses_come_true():
    assert not any(played(Pace(8, 1), steps=1, tokens=9, right=0, calls=3000))
    assert played(Pace(8, 1), steps=4, tokens=9, right=3, calls=100) == [0] * 2 + [8] * 98


def test_drafts_that_do_not_pay_end_and_are_tried_again_ever_more_rarely():
    chosen = played(Pace(8, 1), steps=1, tokens=9, right=4, calls=3000)
    tried = [index for index, number in enumerate(chosen) if number]
    assert len(tried) < 0.01 * len(chosen) and tried[-1] > 2000
    rests = [after - before for before, after in itertools.pairwise(tried) if after > before + 1]
    assert rests == sorted(rests)


def test_drafts_begin_again_when_they_come_to_pay():
    pace = Pace(8, 1)
    played(pace, steps=1, tokens=9, right=4, calls=200)
    assert played(pace, steps=4, tokens=9, right=4, calls=600)[-100:] == [8] * 100


def test_many_rows_have_no_drafts():
    assert not any(played(Pace(8, 50), steps=8, tokens=50, right=8, calls=500))
    # some rows need more guesses that come true than one
    assert any(played(Pace(8, 1), steps=2, tokens=9, right=1, calls=500))
    assert not any(played(Pace(8, 8), steps=2, tokens=9, right=1, calls=500))


def test_a_request_with_drafts_gives_the_same_bits_whatever_was_asked_before(build, source, calls, monkeypatch):
    model, settings = build("rotary").float(), {"max_new_tokens": 40, "min_new_tokens": 40, "draft_tokens": 8}
    asked = model.generate(source[:1], **settings)
    known = Known([as_text(row) for row in asked.tolist()])
    monkeypatch.setattr(decoding_ahead, "Lookup", lambda *given: known)
    request = settings | {"return_dict_in_generate": True, "output_logits": True}
    one = model.generate(source[:1], **request)
    assert calls
    model.generate(source, **settings)
    other = model.generate(source[:1], **request)
    for logits, others in zip(one.logits, other.logits, strict=True):
        assert torch.equal(logits, others)
