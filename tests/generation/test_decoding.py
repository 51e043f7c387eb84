"""Every way of decoding against transformers' own search: the same tokens, scores and caches over a grid of requests."""

import copy
import time

import pytest
import torch
from transformers import (
    DynamicCache,
    EncoderDecoderCache,
    LogitsProcessor,
    LogitsProcessorList,
    StoppingCriteria,
    StoppingCriteriaList,
)
from transformers.generation import EosTokenCriteria, MaxLengthCriteria, MaxTimeCriteria

from weftformer.modeling.decoding import ContinuousSearch
from weftformer.modeling.decoding.cache import DecodingCache

from ..models import IDS, tiny_model
from .conftest import CLOSE, FEW, KINDS, PAD, PADDED, START, few_kinds

# Several tokens end a text, so that texts end at different lengths.
ENDS = [2, 4, 7, 9, 12]


class Writes(StoppingCriteria):
    """Ends the rows that have just written one of these tokens."""

    def __init__(self, *tokens):
        self.tokens = torch.tensor(tokens)

    def __call__(self, input_ids, scores, **kwargs):
        return torch.isin(input_ids[:, -1], self.tokens)


class Sure(StoppingCriteria):
    """Ends all rows once the last scores of some row are far apart; reads the scores of all steps."""

    def __call__(self, input_ids, scores, **kwargs):
        assert len(scores) == input_ids.shape[1] - 1
        return (scores[-1].softmax(dim=-1).amax() > 0.6).expand(len(input_ids))


class OwnEnds(EosTokenCriteria):
    """A subclass of transformers' criterion, with an exception added by the user."""

    def __call__(self, input_ids, scores, **kwargs):
        return super().__call__(input_ids, scores, **kwargs) & (input_ids.shape[1] > 4)


class HalvesInPlace(LogitsProcessor):
    def __call__(self, input_ids, scores):
        return scores.mul_(0.5)


def criteria(*rules):
    return {"stopping_criteria": StoppingCriteriaList(rules)}


BEAMS = {"num_beams": 3, "num_return_sequences": 3}
REQUESTS = {
    "greedy": {},
    "beams": BEAMS,
    # longer than the first capacity of the cache
    "many beams": {"num_beams": 7, "num_return_sequences": 7, "max_new_tokens": 29, "min_new_tokens": 29},
    "early stopping": BEAMS | {"early_stopping": True, "length_penalty": 2.0},
    "never early": BEAMS | {"early_stopping": "never", "length_penalty": 1.5},
    "short answers": BEAMS | {"length_penalty": -1.0},
    "no end": BEAMS | {"eos_token_id": None},
    "sampling": {"do_sample": True, "temperature": 1.3, "top_k": 9, "num_return_sequences": 3},
    "sampling beams": {"do_sample": True, "num_beams": 4, "top_k": 12},
    "one token": {"max_new_tokens": 1, "num_beams": 2},
    "processors": BEAMS | {"no_repeat_ngram_size": 2, "repetition_penalty": 1.4, "min_new_tokens": 6},
    "greedy with processors": {"suppress_tokens": [5, 6], "forced_eos_token_id": 2, "renormalize_logits": True},
    "processor in place": {"logits_processor": LogitsProcessorList([HalvesInPlace()])},
    "prefix": BEAMS | {"decoder_input_ids": torch.tensor([[START, 5, 6, 8]] * 4)},
    "padded prefixes": PADDED,
    "beams with padded prefixes": BEAMS | PADDED,
    "sqrt_length": {"num_beams": 4, "num_return_sequences": 4, "custom_generate": "sqrt_length"},
    "greedy sqrt_length": {"custom_generate": "sqrt_length"},
    "criterion": criteria(Writes(5, 8, 11)),
    "beams with criterion": BEAMS | criteria(Writes(5, 8, 11)),
    "criterion that ends all": BEAMS | criteria(Writes(*range(31))),
    "criterion of scores": BEAMS | criteria(Sure()),
    "criterion of time": BEAMS | criteria(MaxTimeCriteria(0.0, initial_timestamp=time.time() - 1)),
    "criteria of length": criteria(Writes(5, 8), MaxLengthCriteria(max_length=7)),
    "criterion of other ends": BEAMS | criteria(EosTokenCriteria(eos_token_id=[5, 6, 8])),
    "subclass of a criterion": BEAMS | criteria(OwnEnds(eos_token_id=[5, 6, 8])),
    "sqrt_length with criterion": BEAMS | criteria(Writes(5, 8)) | {"custom_generate": "sqrt_length"},
}
EVERYWHERE = ("greedy", "beams", "padded prefixes")
JOINED = ("greedy", "beams", "early stopping", "never early")


def cases():
    """Yield each kind of model with its requests. The two that differ most share out the others between them."""
    for kind in KINDS:
        names = list(REQUESTS)[FEW.index(kind) :: 2] if kind in FEW else []
        yield from ((kind, name) for name in dict.fromkeys((*EVERYWHERE, *names)))


def generate(model, inputs, request, **settings):
    torch.manual_seed(3)
    return model.generate(**inputs, **({"max_new_tokens": 9, "eos_token_id": ENDS} | request | settings))


def with_scores(model, inputs, request, **settings):
    settings |= {"return_dict_in_generate": True, "output_scores": True, "output_logits": True}
    return generate(model, inputs, request, **settings)


PLAIN = {"cache_implementation": "dynamic"}


@pytest.mark.parametrize(("model", "name"), list(cases()), indirect=["model"])
def test_every_way_equals_plain_search(model, inputs, steps, writes, monkeypatch, name):
    request = REQUESTS[name]
    writes.watched.append(model.config)
    monkeypatch.setattr(DecodingCache, "SHARE_EVERY", 4)
    plain = with_scores(model, inputs, request, **PLAIN)
    if name == "greedy":
        static = {"cache_implementation": "static"}  # as long as the longest request so far
        for cache in ({"use_cache": False}, static, static | {"max_new_tokens": 5}):
            found = with_scores(model, inputs, request, **cache)
            assert torch.equal(found.sequences, plain.sequences[:, : 1 + len(found.logits)])
            torch.testing.assert_close(found.logits, plain.logits[: len(found.logits)], **CLOSE)
    assert not steps, "the plain path was not taken"
    assert_same(with_scores(model, inputs, request), plain)
    is_relative = model.config.has_relative_self_attention and "padded" in name  # offsets differ between rows
    # the first token is from a forward pass over the prefix
    is_short = name in ("one token", "criterion that ends all", "criterion of time")
    assert bool(steps) == (not is_relative and not is_short)
    if "criteri" not in name:  # without scores of rows, sources leave; criteria that read scores need them
        assert torch.equal(generate(model, inputs, request), plain.sequences)
    if name in JOINED and not model.config.has_relative_self_attention:  # offsets depend on the whole batch
        assert_joined(model, inputs, request, plain)
    assert not writes.names


@pytest.mark.parametrize("name", EVERYWHERE)
def test_pads_before_a_source_change_no_text(model, inputs, name):
    left, right = inputs["input_ids"].clone(), inputs["input_ids"].clone()
    left[1], right[2] = left[1].roll(3), right[2].roll(-3)
    expected = with_scores(model, inputs | {"input_ids": right}, REQUESTS[name], **PLAIN)
    for way in ({}, PLAIN, {"use_cache": False}, {"cache_implementation": "static"}):
        found = with_scores(model, inputs | {"input_ids": left}, REQUESTS[name], **way)
        assert torch.equal(found.sequences, expected.sequences)
        torch.testing.assert_close(found.logits, expected.logits, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("name", ["greedy", "beams"])
def test_a_mask_of_the_decoder_alone_moves_no_source_token(model, inputs, name):
    mask = (inputs["input_ids"] != PAD).long()
    mask[:2, 0] = 0
    found, plain = (
        with_scores(model, inputs, REQUESTS[name] | {"encoder_attention_mask": mask}, **way) for way in ({}, PLAIN)
    )
    assert_same(found, plain)


def assert_same(found, plain):
    assert torch.equal(found.sequences, plain.sequences)
    assert set(found.keys()) == set(plain.keys())
    for name in ("scores", "logits", "sequences_scores", "beam_indices"):
        if getattr(plain, name, None) is not None:
            torch.testing.assert_close(getattr(found, name), getattr(plain, name), **CLOSE)
    assert_same_caches(found.cache, plain.cache)


def assert_same_caches(found, expected, **close):
    assert type(found) is type(expected) is EncoderDecoderCache and found.is_updated == expected.is_updated
    for half in ("self_attention_cache", "cross_attention_cache"):
        own, other = getattr(found, half), getattr(expected, half)
        assert type(own) is type(other) is DynamicCache and len(own.layers) == len(other.layers) > 0
        for layer, plain in zip(own.layers, other.layers, strict=True):
            assert type(layer) is type(plain) and layer.keys.dtype == plain.keys.dtype
            torch.testing.assert_close(layer.keys, plain.keys, **(CLOSE | close))
            torch.testing.assert_close(layer.values, plain.values, **(CLOSE | close))


def assert_joined(model, inputs, request, plain):
    """Check that sources which join a running search one by one get what they get in a batch."""
    search, tickets, found = ContinuousSearch(model, eos_token_id=ENDS, **request), [], {}
    for row in range(4):
        tickets += search.add({name: value[row : row + 1] for name, value in inputs.items()}, [9])
        found |= {source.ticket: source for source in search.step() + search.step()}
    while len(search):
        found |= {source.ticket: source for source in search.step()}
    count = request.get("num_return_sequences", 1)
    for row, ticket in enumerate(tickets):
        rows = slice(row * count, (row + 1) * count)
        expected = [until_end(ids[1:]) for ids in plain.sequences[rows].tolist()]
        assert [until_end(ids) for ids in found[ticket].sequences] == expected
        assert found[ticket].prompt == [START]
        if "num_beams" in request:
            torch.testing.assert_close(torch.tensor(found[ticket].scores), plain.sequences_scores[rows], **CLOSE)
        else:
            scores = model.compute_transition_scores(plain.sequences, plain.logits, normalize_logits=True)
            total = scores[row, : len(expected[0])].sum()
            torch.testing.assert_close(torch.tensor(found[ticket].scores[0]), total, **CLOSE)


def until_end(ids):
    ends = [place for place, token in enumerate(ids) if token in ENDS]
    return ids[: ends[0] + 1] if ends else ids


# Sources that leave


class ByNumber(LogitsProcessor):
    """A processor that identifies rows by their numbers."""

    def __init__(self):
        self.numbers = torch.arange(12)

    def __call__(self, input_ids, scores):
        scores = scores.clone()
        scores[torch.arange(len(scores)), self.numbers % 5 + 13] += 1.0
        return scores


class ByRemainingNumber(ByNumber):
    """The same processor, which also works after sources have left."""

    def select_sources(self, sources, beams):
        self.numbers = self.numbers.view(-1, beams)[sources].flatten()


def test_sources_leave_only_if_processors_and_outputs_allow(build, source, steps):
    model, inputs, request = build("rotary"), {"input_ids": source}, BEAMS | {"max_new_tokens": 24}
    output = with_scores(model, inputs, request, only_sequences=True)
    assert min(steps) < max(steps) == 12 and output.scores is None and output.logits is None and output.cache is None
    whole = with_scores(model, inputs, request)
    assert torch.equal(output.sequences, whole.sequences) and torch.equal(output.beam_indices, whole.beam_indices)
    torch.testing.assert_close(output.sequences_scores, whole.sequences_scores)
    expected = generate(model, inputs, request, logits_processor=LogitsProcessorList([ByNumber()]))
    steps.clear()
    found = generate(model, inputs, request, logits_processor=LogitsProcessorList([ByRemainingNumber()]))
    assert min(steps) < 12 and torch.equal(found, expected)
    for settings in (
        {"return_dict_in_generate": True, "output_scores": True},
        {"logits_processor": LogitsProcessorList([ByNumber()])},
        criteria(Writes(30)),
        {"do_sample": True},
    ):
        steps.clear()
        generate(model, inputs, request, **settings)
        assert set(steps) == {12}
    # later releases of transformers store the pads of each row in this penalty
    penalty = PADDED | {"repetition_penalty": 1.4}
    assert torch.equal(
        generate(model, inputs, request, **penalty), generate(model, inputs, request, **penalty, **PLAIN)
    )


# Cache and step


@pytest.mark.parametrize("beams", [1, 3])
def test_returned_cache_has_masked_source_positions(build, source, steps, beams):
    """The fast path leaves them out, but a longer mask may show them later."""
    hidden = (source != PAD).long()
    hidden[:, 7:] = 0
    inputs, model = {"input_ids": source, "attention_mask": hidden}, build("rotary")
    fast = with_scores(model, inputs, {"num_beams": beams})
    assert steps
    assert_same(fast, with_scores(model, inputs, {"num_beams": beams}, **PLAIN))
    assert fast.cache.cross_attention_cache.layers[0].keys.shape == (4 * beams, 2, 9, 8)


@few_kinds
@pytest.mark.parametrize(("request_", "prefix"), [({}, PADDED), ({"do_sample": True, "temperature": 1.5}, {})])
def test_continuing_from_a_cache_equals_one_generation(model, inputs, request_, prefix):
    settings, lengths = {"return_dict_in_generate": True, "output_scores": True} | request_, []
    torch.manual_seed(7)
    whole = model.generate(**inputs, **settings, **prefix, min_new_tokens=12, max_new_tokens=12)
    torch.manual_seed(7)
    first = model.generate(**inputs, **settings, **prefix, min_new_tokens=5, max_new_tokens=5)
    longer = {"decoder_input_ids": first.sequences, "cache": first.cache}
    if prefix:
        mask = prefix["decoder_attention_mask"]
        longer["decoder_attention_mask"] = torch.nn.functional.pad(mask, (0, 5), value=1)
    handle = model.model.decoder.layers[0].register_forward_hook(lambda m, args, out: lengths.append(args[0].shape[1]))
    rest = model.generate(**inputs, **settings, **longer, min_new_tokens=7, max_new_tokens=7)
    handle.remove()
    assert lengths == [1] * 7  # nothing was computed a second time
    assert torch.equal(rest.sequences, whole.sequences)
    torch.testing.assert_close((*first.scores, *rest.scores), whole.scores, atol=1e-4, rtol=1e-4)
    assert_same_caches(rest.cache, whole.cache, atol=1e-4, rtol=1e-4)


ROTARY = {
    "dynamic": {"rope_type": "dynamic", "factor": 2.0},
    "longrope": {
        "rope_type": "longrope", "factor": 4.0, "short_factor": [1.0] * 4, "long_factor": [2.0] * 4,
        "original_max_position_embeddings": 8,
    },
}  # fmt: skip


@pytest.mark.parametrize("scaling", ROTARY)
def test_scaled_rotary_positions_beyond_the_first_length(build, source, steps, scaling):
    limits = {"max_target_positions": 8, "max_source_positions": 12}
    model = build("rotary", rope_parameters=ROTARY[scaling] | {"rope_theta": 100.0}, **limits)
    request, inputs = BEAMS | {"max_new_tokens": 28}, {"input_ids": source}
    for _ in range(2):  # frequencies of some kinds are those of the longest text so far
        assert_same(with_scores(model, inputs, request), with_scores(model, inputs, request, **PLAIN))
    assert steps
    # training in several processes writes to the buffers in place, which inference mode would forbid
    assert not any(tensor.is_inference() for tensor in (*model.parameters(), *model.buffers()))


@pytest.mark.parametrize("name", ["greedy", "beams"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_the_default_dtype_changes_no_text(build, source, dtype, name):
    model = build("rotary", torch.float32)
    request = {"max_new_tokens": 6, "num_beams": 1 if name == "greedy" else 3}
    expected = model.generate(source, **request)
    torch.set_default_dtype(dtype)
    assert torch.equal(model.generate(source, **request), expected)


def _other_layers(model, change):
    layers = model.model.decoder.layers
    if change == "moved":
        layers[0], layers[1] = layers[1], layers[0]
    elif change == "copied in place":
        layers[1] = copy.deepcopy(layers[0])
    elif change == "used twice":
        layers[1] = layers[0]
    else:
        layers.append(copy.deepcopy(layers[0]) if "copy" in change else layers[0])
    if change != "a copy more, not configured":
        model.config.decoder_layers = len(layers)


@pytest.mark.parametrize("way", [{}, {"num_beams": 3}, {"cache_implementation": "static"}], ids=str)
@pytest.mark.parametrize(
    ("change", "ways"),
    [("moved", 3), ("copied in place", 3), ("a copy more", 3), ("a copy more, not configured", 2), ("used twice", 0),
     ("used once more", 0)],
)  # fmt: skip
def test_each_use_of_a_layer_has_its_own_place_in_the_cache(change, ways, way):
    model = tiny_model(random=True)
    _other_layers(model, change)
    request = {"max_new_tokens": 8, "min_new_tokens": 8, **way}
    expected = model.generate(IDS, **request | {"use_cache": False, "cache_implementation": None})
    if ways == 3 or (ways == 2 and "cache_implementation" not in way):
        assert torch.equal(model.generate(IDS, **request), expected)
    else:
        with pytest.raises(ValueError, match="layer"):
            model.generate(IDS, **request)
