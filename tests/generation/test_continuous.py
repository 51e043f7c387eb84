"""Sources that are removed, watched and processed in a running search. `test_decoding.py` compares their texts."""

import pytest
import torch

from weftformer.modeling.decoding.continuous import ContinuousSearch, reason_against

from .conftest import END
from .test_decoding import BEAMS, ENDS, until_end


def assert_alone(found, model, ids, **settings):
    """Compare the ids written for a source with those for the source without others, until their end."""
    settings = {"max_new_tokens": 20, "eos_token_id": ENDS} | settings
    expected = model.generate(ids[None], **settings).tolist()
    assert [until_end(row) for row in found.sequences] == [until_end(row[1:]) for row in expected]


def drain(search):
    found = {}
    while len(search):
        found |= {source.ticket: source for source in search.step()}
    return found


@pytest.mark.parametrize("settings", [{}, BEAMS], ids=["greedy", "beams"])
def test_removing_sources_leaves_the_others_unchanged(build, source, settings):
    model, settings = build("rotary"), settings | {"eos_token_id": None}
    search = ContinuousSearch(model, **settings)
    tickets = search.add({"input_ids": source}, [20] * 4)
    search.remove(tickets[:1])
    search.step()
    search.remove([tickets[2], 99])
    (late,) = search.add({"input_ids": source[:1]}, [3])
    found = drain(search)
    assert found.keys() == {tickets[1], tickets[3], late} and search.step() == []
    assert_alone(found[tickets[1]], model, source[1], **settings)
    assert_alone(found[tickets[3]], model, source[3], **settings)
    assert_alone(found[late], model, source[0], **settings, max_new_tokens=3)
    search.remove(search.add({"input_ids": source}, [20] * 4))
    assert not len(search)


class Watch:
    has_passed = False

    def __call__(self, input_ids, scores):
        only = torch.full_like(scores, float("-inf"))
        only[:, END] = -1.0
        return only


def test_watch_that_has_passed_ends_its_source_alone(build, source):
    model, watch = build("rotary"), Watch()
    settings = BEAMS | {"early_stopping": True}
    search = ContinuousSearch(model, eos_token_id=ENDS, **settings)
    watched, other = search.add({"input_ids": source[:2]}, [20, 20], [watch, None])
    assert search.step() == []
    watch.has_passed = True
    found = drain(search)
    assert len(found[watched].sequences[0]) == 2 and found[watched].sequences[0][-1] == END
    assert_alone(found[other], model, source[1], **settings)


class Texts:
    """An incremental processor that rules out a token by the text before it."""

    def __init__(self):
        self.texts, self.sources = [], []

    def step(self, parents, tokens, prompts, scores):
        self.texts = [
            [*prompts[row]] if parent < 0 else [*self.texts[parent], token]
            for row, (parent, token) in enumerate(zip(parents, tokens, strict=True))
        ]
        return self.without(self.texts, scores)

    def select_sources(self, sources, beams):
        self.sources.append(sources)

    def __call__(self, input_ids, scores):
        return self.without(input_ids.tolist(), scores)

    def without(self, texts, scores):
        scores = scores.clone()
        for row, text in enumerate(texts):
            scores[row, sum(text) % 20 + 3] = float("-inf")
        return scores


@pytest.mark.parametrize("settings", [{}, BEAMS], ids=["greedy", "beams"])
def test_incremental_processors_get_the_text_of_each_row(build, source, settings):
    model, processor = build("rotary"), Texts()
    search = ContinuousSearch(model, processors=[processor], eos_token_id=ENDS, **settings)
    tickets, found = [], {}
    for row in range(4):
        tickets += search.add({"input_ids": source[row : row + 1]}, [20])
        found |= {source.ticket: source for source in search.step()}
    found |= drain(search)
    assert processor.sources[-1] == []
    for row, ticket in enumerate(tickets):
        assert_alone(found[ticket], model, source[row], **settings, logits_processor=[processor])


@pytest.mark.parametrize(
    ("kind", "settings", "reason"),
    [
        ("relative", {}, "positions depend on the whole batch"),
        ("rotary", {"no_repeat_ngram_size": 2}, "processors"),
        ("rotary", {"max_time": 3.0}, "stopping criteria"),
        ("rotary", {"num_beams": 2}, None),
        ("learned", {}, None),
    ],
)
def test_reason_against_a_model_or_settings(build, kind, settings, reason):
    found = reason_against(build(kind), **settings)
    assert found is None if reason is None else reason in found
    assert "training mode" in reason_against(build(kind).train(), **settings)
