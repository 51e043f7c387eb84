"""Sources that join and leave a running search get the same answers as alone."""

import random

import pytest
import torch

from weftformer.modeling.decoding.cache import DecodingCache
from weftformer.modeling.decoding.continuous import ContinuousSearch, reason_against
from weftformer.modeling.decoding.step import DecodeStep

from .conftest import CLOSE, END, KINDS, PAD, START

ENDS = [END, 4, 7, 9]
SETTINGS = {
    "greedy": {},
    "beams": {"num_beams": 3, "num_return_sequences": 3},
    "early": {"num_beams": 3, "num_return_sequences": 3, "early_stopping": True, "length_penalty": 0.0},
    "never early": {"num_beams": 4, "num_return_sequences": 4, "early_stopping": "never", "length_penalty": 1.5},
}
ABSOLUTE = [kind for kind in KINDS if kind not in ("relative", "bucketed")]


def sources(model, count, generator):
    """Return sources and prompts of different lengths, each with a largest number of tokens."""
    found = []
    for _ in range(count):
        length, more, most = (
            int(torch.randint(*bounds, (1,), generator=generator)) for bounds in ((3, 10), (0, 5), (1, 24))
        )
        ids = torch.randint(3, 23, (1, length + more), generator=generator)
        prompt = torch.cat([torch.full((1, 1), START), ids[:, length:]], dim=1)
        given = {"input_ids": ids[:, :length], "decoder_input_ids": prompt}
        if model.config.num_condition_features:
            given["condition_values"] = torch.randn(1, 1, generator=generator)
        found.append((given, most))
    return found


def together(group):
    """Pad several sources to a batch."""
    inputs = {}
    for name in group[0][0]:
        rows = [given[name][0] for given, _ in group]
        if name == "condition_values":
            inputs[name] = torch.stack(rows)
            continue
        side = "left" if name.startswith("decoder") else "right"
        inputs[name] = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=PAD, padding_side=side)
        mask = [torch.ones_like(row) for row in rows]
        mask = torch.nn.utils.rnn.pad_sequence(mask, batch_first=True, padding_side=side)
        inputs["decoder_attention_mask" if side == "left" else "attention_mask"] = mask
    return inputs


def assert_alone(model, given, most, settings, found):
    alone = model.generate(
        **given, **settings, max_new_tokens=most, eos_token_id=ENDS, return_dict_in_generate=True, output_scores=True,
        output_logits=True,
    )  # fmt: skip
    prompt = given["decoder_input_ids"].shape[1]
    expected = [_until_end(row[prompt:]) for row in alone.sequences.tolist()]
    assert [_until_end(row) for row in found.sequences[: len(expected)]] == expected
    if alone.get("sequences_scores") is not None:
        torch.testing.assert_close(torch.tensor(found.scores), alone.sequences_scores, **CLOSE)
    else:
        scores = model.compute_transition_scores(alone.sequences, alone.logits, normalize_logits=True)
        torch.testing.assert_close(torch.tensor(found.scores), scores.sum(dim=1), **CLOSE)


def _until_end(ids):
    ends = [place for place, one in enumerate(ids) if one in ENDS]
    return ids[: ends[0] + 1] if ends else ids


@pytest.mark.parametrize(
    ("kind", "settings"),
    [(kind, name) for kind in ABSOLUTE for name in SETTINGS if kind == "rotary" or name in ("greedy", "beams")],
)
def test_each_source_gets_what_it_gets_alone(build, monkeypatch, kind, settings):
    monkeypatch.setattr(DecodingCache, "SHARE_EVERY", 4)
    model, settings, chance = build(kind), SETTINGS[settings], random.Random(1)
    waiting = sources(model, 8, torch.Generator().manual_seed(2))
    search = ContinuousSearch(model, eos_token_id=ENDS, **settings)
    asked, answers, sizes = {}, {}, set()
    while waiting or len(search):
        if waiting and chance.random() < 0.4:
            group, waiting = waiting[: (size := chance.randint(1, 3))], waiting[size:]
            asked |= dict(zip(search.add(together(group), [most for _, most in group]), group, strict=True))
        answers |= {found.ticket: found for found in search.step()}
        sizes.add(len(search))
    assert max(sizes) > 2 and answers.keys() == asked.keys()
    for ticket, (given, most) in asked.items():
        assert_alone(model, given, most, settings, answers[ticket])


def test_a_prompt_may_be_padded_on_the_left(build):
    search, found = ContinuousSearch(build("rotary"), num_beams=2), []
    for prompt in ([PAD, START, 7], [START, 7]):
        ids = torch.tensor([prompt])
        search.add({"input_ids": ids, "decoder_input_ids": ids, "decoder_attention_mask": (ids != PAD).long()}, [5])
    while len(search):
        found += search.step()
    assert [one.prompt for one in found] == [[START, 7]] * 2 and found[0].sequences == found[1].sequences


@pytest.mark.parametrize("beams", [1, 3])
def test_those_that_are_removed_change_nothing_for_the_others(build, beams):
    model = build("rotary")
    settings = {"num_beams": beams, "num_return_sequences": beams}
    group = [(given, 20) for given, _ in sources(model, 6, torch.Generator().manual_seed(4))]
    search = ContinuousSearch(model, eos_token_id=ENDS, **settings)
    tickets = search.add(together(group), [most for _, most in group])
    search.remove(tickets[:1])
    answers = {}
    for step in range(30):
        if step == 2:
            search.remove([tickets[1], tickets[4], 99])
        if step == 3:
            search.add(together(group[:1]), [3])
        answers |= {found.ticket: found for found in search.step()}
    assert not len(search) and search.step() == []
    for index in (2, 3, 5):
        assert_alone(model, *group[index], settings, answers[tickets[index]])
    assert not {tickets[0], tickets[1], tickets[4]} & answers.keys() and len(answers) <= 4
    search.add(together(group[:1]), [3])
    search.remove(search.texts.numbers)
    assert not len(search)


def test_memory_is_that_of_the_longest_text_however_long_it_runs(build):
    model = build("rotary")
    search = ContinuousSearch(model, num_beams=2, eos_token_id=ENDS)
    others = sources(model, 40, torch.Generator().manual_seed(5))
    for given, _ in others:
        search.add(given, [6])
        search.step()
    cache = search.stepper.cache
    assert cache.suffixes.shape[2] <= 2 * 16 and cache.suffixes.shape[4] == 64
    assert cache.source.states.shape[4] < 10 and search.texts.running.shape[2] == 64


def test_a_watch_ends_one_source(build):
    class Ends:
        has_passed = False

        def __call__(self, input_ids, scores):
            only = torch.full_like(scores, float("-inf"))
            only[:, END] = -1.0
            return only

    model, watch = build("rotary"), Ends()
    settings = {"num_beams": 2, "num_return_sequences": 2, "early_stopping": True}
    group = [(given, 20) for given, _ in sources(model, 2, torch.Generator().manual_seed(6))]
    search = ContinuousSearch(model, eos_token_id=ENDS, **settings)
    one, other = search.add(together(group), [20, 20], [watch, None])
    assert search.step() == []
    watch.has_passed = True
    answers = {found.ticket: found for _ in range(25) for found in search.step()}
    assert len(answers[one].sequences[0]) == 2 and answers[one].sequences[0][-1] == END
    assert_alone(model, *group[1], settings, answers[other])


class Follows:
    """Rules out a token after each token, and checks what it is passed about the rows."""

    def __init__(self):
        self.texts, self.sources = [], []

    def follow(self, parents, tokens, prompts, scores):
        texts = [
            [*prompts[row]] if parent < 0 else [*self.texts[parent], token]
            for row, (parent, token) in enumerate(zip(parents, tokens, strict=True))
        ]
        self.texts = texts
        return self.without(texts, scores)

    def select_sources(self, sources, beams):
        self.sources.append(sources)

    def __call__(self, input_ids, scores):
        return self.without(input_ids.tolist(), scores)

    def without(self, texts, scores):
        scores = scores.clone()
        for row, text in enumerate(texts):
            scores[row, sum(text) % 20 + 3] = float("-inf")
        return scores


@pytest.mark.parametrize("beams", [1, 3])
def test_followers_know_the_text_of_each_row(build, beams):
    model, follower, settings = build("rotary"), Follows(), {"num_beams": beams, "num_return_sequences": beams}
    group = sources(model, 5, torch.Generator().manual_seed(7))
    search = ContinuousSearch(model, followers=[follower], eos_token_id=ENDS, **settings)
    answers, tickets = {}, []
    for step in range(40):
        if step < 5:
            tickets += search.add(together(group[step : step + 1]), [group[step][1]])
        answers |= {found.ticket: found for found in search.step()}
    assert follower.sources[-1] == []
    for ticket, (given, most) in zip(tickets, group, strict=True):
        assert_alone(model, given, most, settings | {"logits_processor": [follower]}, answers[ticket])


def test_damaged_weights_are_an_error(build, monkeypatch):
    model, original = build("rotary"), DecodeStep.forward
    search = ContinuousSearch(model, eos_token_id=ENDS)
    search.add({"input_ids": torch.tensor([[5, 6]])}, [5])
    search.step()

    def forward(self, *args, **kwargs):
        logits, states = original(self, *args, **kwargs)
        return logits * float("nan"), states

    monkeypatch.setattr(DecodeStep, "forward", forward)
    search.add({"input_ids": torch.tensor([[5, 8]])}, [5])
    search.step()
    with pytest.raises(ValueError, match="NaN or infinite"):
        search.step()


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
def test_what_cannot_run_says_why(build, kind, settings, reason):
    found = reason_against(build(kind), **settings)
    assert found is None if reason is None else reason in found
    model = build(kind).train()
    assert "training mode" in reason_against(model, **settings)
