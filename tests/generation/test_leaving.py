"""Sources leave a search when they are done, without a change in the answers."""

import pytest
import torch
from transformers import LogitsProcessorList, StoppingCriteria, StoppingCriteriaList

from weftformer.modeling.decoding import search
from weftformer.modeling.decoding.cache import DecodingCache
from weftformer.modeling.decoding.step import DecodeStep

from .conftest import PAD, grid
from .conftest import PADDED as PREFIXES

PADDED = {name: value.repeat(3, 1) for name, value in PREFIXES.items()}
# Several tokens end a text, so that texts end at different lengths.
ENDS = {"eos_token_id": [2, 4, 7, 9, 12], "max_new_tokens": 24}
REQUESTS = {
    "greedy": {},
    "greedy, prefixes": PADDED,
    "beams": {"num_beams": 3, "num_return_sequences": 3},
    "beams, early": {"num_beams": 3, "num_return_sequences": 2, "early_stopping": True},
    "beams, never early": {"num_beams": 3, "early_stopping": "never", "length_penalty": 0.0},
    "beams, longer preferred": {"num_beams": 4, "length_penalty": 1.5},
    "beams, prefixes": {"num_beams": 3, "early_stopping": True, **PADDED},
    "processors": {"num_beams": 3, "min_length": 3, "no_repeat_ngram_size": 3, "repetition_penalty": 1.1},
}


@pytest.fixture
def rows(monkeypatch):
    """The number of rows of each step."""
    taken, original = [], DecodeStep.step

    def step(self, ids_W1, *rest):
        taken.append(len(ids_W1))
        return original(self, ids_W1, *rest)

    monkeypatch.setattr(DecodeStep, "step", step)
    return taken


@pytest.fixture
def many():
    """Twelve sources of different lengths."""
    ids = torch.randint(3, 23, (12, 9), generator=torch.Generator().manual_seed(5))
    for row in range(12):
        ids[row, 3 + row % 7 :] = PAD
    return ids


@grid(REQUESTS, everywhere=("greedy", "beams"))
def test_answers_are_those_of_all_to_the_end(model, many, rows, monkeypatch, request_):
    request = {"input_ids": many} | ENDS | REQUESTS[request_]
    if model.config.num_condition_features:
        request["condition_values"] = torch.arange(12.0)[:, None] - 4
    monkeypatch.setattr(DecodingCache, "SHARE_EVERY", 4)
    left = model.generate(**request)
    taken = rows[:]
    rows.clear()
    monkeypatch.setattr(search, "follows", lambda observer: False)
    expected = model.generate(**request)
    assert torch.equal(left, expected)
    assert len(taken) == len(rows) and set(rows) == {12 * request.get("num_beams", 1)}
    assert taken == sorted(taken, reverse=True)
    assert taken[-1] < rows[0] or request_ == "beams, longer preferred"  # searches that go on to the last token


def test_scores_of_sequences_are_those_of_all_to_the_end(build, many, rows):
    model = build("rotary")
    request = ENDS | {"num_beams": 5, "num_return_sequences": 2, "length_penalty": 0.0, "output_scores": True}
    given = {"input_ids": many, "return_dict_in_generate": True}
    output = model.generate(**given, **request, only_sequences=True)
    assert min(rows) < max(rows)
    assert output.scores is None and output.logits is None and output.cache is None
    rows.clear()
    whole = model.generate(**given, **request)
    assert min(rows) == max(rows)  # scores and cache of every row are returned: none left
    assert torch.equal(output.sequences, whole.sequences) and torch.equal(output.beam_indices, whole.beam_indices)
    torch.testing.assert_close(output.sequences_scores, whole.sequences_scores)


class ByNumber:
    """A processor that identifies rows by their numbers."""

    def __call__(self, input_ids, scores):
        assert len(scores) == 12 * 3
        scores = scores.clone()
        scores[torch.arange(36), torch.arange(36) % 5 + 3] -= 1.0
        return scores


class Follows(ByNumber):
    """The same processor, which follows the remaining sources."""

    def __init__(self):
        self.numbers = torch.arange(36)

    def select_sources(self, sources, beams):
        self.numbers = self.numbers.view(-1, beams)[sources].flatten()

    def __call__(self, input_ids, scores):
        scores = scores.clone()
        scores[torch.arange(len(scores)), self.numbers % 5 + 3] -= 1.0
        return scores


class Criterion(StoppingCriteria):
    def __call__(self, input_ids, scores, **kwargs):
        return torch.zeros(len(input_ids), dtype=torch.bool)


def test_processors_of_others_see_all_rows_unless_they_follow(build, many, rows):
    model, request = build("rotary"), ENDS | {"num_beams": 3, "early_stopping": True, "input_ids": many}
    expected = model.generate(**request, logits_processor=LogitsProcessorList([ByNumber()]))
    assert min(rows) == max(rows) == 36
    found = model.generate(**request, logits_processor=LogitsProcessorList([Follows()]))
    assert min(rows) < 36 and torch.equal(found, expected)
    rows.clear()
    model.generate(**request, stopping_criteria=StoppingCriteriaList([Criterion()]))
    assert min(rows) == 36
    model.generate(**request, do_sample=True)  # which draws for all rows
    assert min(rows) == 36


@pytest.mark.parametrize("beams", [1, 3])
def test_a_penalty_that_knows_the_pads_of_each_row_is_that_of_all_rows(build, many, beams):
    model = build("rotary")
    request = {"input_ids": many, "num_beams": beams, "repetition_penalty": 1.4} | ENDS | PADDED
    expected = model.generate(**request, cache_implementation="dynamic")
    assert torch.equal(model.generate(**request), expected)


def test_a_row_that_is_not_finite_has_the_number_of_its_beginning(build, many, monkeypatch):
    follower, original = Follows(), DecodeStep.forward
    follower.numbers = torch.arange(12)

    def forward(self, *args, **kwargs):
        logits, states = original(self, *args, **kwargs)
        if len(logits) < 12:
            logits = logits.clone()
            logits[1] = float("nan")
        return logits, states

    monkeypatch.setattr(DecodeStep, "forward", forward)
    with pytest.raises(ValueError, match="NaN or infinite") as raised:
        build("rotary").generate(many, logits_processor=LogitsProcessorList([follower]), **ENDS)
    assert len(follower.numbers) < 12 and follower.numbers[1] != 1
    assert f"in row {int(follower.numbers[1])}," in str(raised.value)
