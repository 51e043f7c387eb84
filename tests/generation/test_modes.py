"""Every mode of `generate`, for every kind of model, against a reference or against another road to the same answer."""

import pytest
import torch
from transformers import LogitsProcessor, LogitsProcessorList, StoppingCriteria, StoppingCriteriaList
from transformers.generation import BaseStreamer

from .conftest import FEW

PAD, START, END = 0, 1, 2
# scores of 32 bits, of a model of 64: only their own rounding is left
CLOSE = {"rtol": 1e-5, "atol": 1e-5}
EXACT = {"rtol": 1e-10, "atol": 1e-10}


def next_scores(model, given, prefix):
    """Log-probabilities of the next token, from a whole forward without cache; no end allowed."""
    logits = model(**given, decoder_input_ids=prefix, use_cache=False).logits[:, -1]
    scores = logits.log_softmax(dim=-1)
    scores[:, END] = -torch.inf
    return scores


def reference_greedy(model, given, steps):
    prefix = torch.full((given["input_ids"].shape[0], 1), START)
    for _ in range(steps):
        prefix = torch.cat([prefix, next_scores(model, given, prefix).argmax(dim=-1, keepdim=True)], dim=-1)
    return prefix


def reference_beams(model, given, steps, beams):
    """Beam search over one row, without cache and without end: (sequences (beams, 1 + steps), summed scores)."""
    prefixes, totals = torch.full((1, 1), START), torch.zeros(1)
    for _ in range(steps):
        rows = {name: value.expand(len(prefixes), -1) for name, value in given.items()}
        scores = next_scores(model, rows, prefixes) + totals[:, None]
        totals, chosen = scores.flatten().topk(beams)
        parents, tokens = chosen // scores.shape[1], chosen % scores.shape[1]
        prefixes = torch.cat([prefixes[parents], tokens[:, None]], dim=-1)
    return prefixes, totals


@torch.no_grad()
def test_greedy_equals_a_loop_without_cache(model, inputs, run):
    expected = reference_greedy(model, inputs, 8)
    sequences, _ = run(model, 8, **inputs)
    assert torch.equal(sequences, expected)
    # or the comparison would not mean much
    assert len(set(sequences[:, 1:].flatten().tolist())) > 5


@torch.no_grad()
def test_beam_search_equals_a_loop_without_cache(model, inputs, alone):
    output = model.generate(
        **inputs,
        num_beams=3,
        num_return_sequences=3,
        min_new_tokens=6,
        max_new_tokens=6,
        length_penalty=0.5,
        return_dict_in_generate=True,
        output_scores=True,
    )
    for row in range(4):
        sequences, totals = reference_beams(model, alone(inputs, row), 6, 3)
        assert torch.equal(output.sequences[3 * row : 3 * row + 3], sequences)
        torch.testing.assert_close(output.sequences_scores[3 * row : 3 * row + 3], (totals / 6**0.5).float(), **CLOSE)


@pytest.mark.stays(model=FEW)
@torch.no_grad()
def test_a_row_that_ends_is_padded_and_its_neighbours_go_on(model, inputs, alone):
    first = reference_greedy(model, inputs, 6)
    end = int(first[0, 3])
    output = model.generate(**inputs, max_new_tokens=6, eos_token_id=end)
    for row in range(4):
        ids = model.generate(**alone(inputs, row), max_new_tokens=6, eos_token_id=end)[0]
        assert torch.equal(output[row, : len(ids)], ids)
        assert (output[row, len(ids) :] == PAD).all()
        ended = [index for index, token in enumerate(ids.tolist()) if token == end and index > 0]
        assert ended in ([], [len(ids) - 1])
    assert (output[0] == end).any()


def sampled(model, given, seed, **kwargs):
    torch.manual_seed(seed)
    return model.generate(**given, do_sample=True, min_new_tokens=10, max_new_tokens=10, **kwargs)


@pytest.mark.stays(model=FEW)
def test_a_seed_reproduces_a_sample(model, inputs):
    first = sampled(model, inputs, 3)
    assert torch.equal(sampled(model, inputs, 3), first)
    assert not torch.equal(sampled(model, inputs, 4), first)


@pytest.mark.stays(model=FEW)
def test_sampling_from_one_candidate_is_greedy(model, inputs, run):
    assert torch.equal(sampled(model, inputs, 0, top_k=1), run(model, 10, **inputs)[0])


@pytest.mark.stays(model=FEW)
def test_several_samples_of_a_row_stand_together(model, inputs):
    found = sampled(model, inputs, 0, num_return_sequences=3, temperature=3.0).view(4, 3, -1)
    assert (found[:, 0] != found[:, 1]).any(dim=-1).all()
    # A mode of one candidate shows which source a row belongs to.
    greedy = sampled(model, inputs, 0, num_return_sequences=3, top_k=1).view(4, 3, -1)
    assert torch.equal(greedy, sampled(model, inputs, 0, top_k=1)[:, None].expand(-1, 3, -1))


@pytest.mark.stays(model=FEW)
def test_beam_sampling_is_reproducible_and_scores_what_it_returns(model, inputs):
    settings = {"num_beams": 3, "num_return_sequences": 2, "return_dict_in_generate": True, "output_scores": True}
    first = sampled(model, inputs, 5, temperature=2.0, **settings)
    again = sampled(model, inputs, 5, temperature=2.0, **settings)
    assert first.sequences.shape == (8, 11)
    assert torch.equal(first.sequences, again.sequences)
    other = sampled(model, inputs, 6, temperature=2.0, **settings)
    assert not torch.equal(first.sequences, other.sequences)
    steps = model.compute_transition_scores(first.sequences, first.scores, first.beam_indices)
    torch.testing.assert_close(steps.sum(dim=1) / 10, first.sequences_scores, **CLOSE)


@pytest.mark.stays(model=(*FEW, "relative", "sparse"))
@torch.no_grad()
def test_an_assistant_changes_nothing_but_the_speed(model, inputs, build, alone, request):
    kind = request.node.callspec.params["model"]
    assistant = build(kind, decoder_layers=1, decoder_mlp_layer_types=["dense"])
    assistant.lm_head.weight.copy_(model.lm_head.weight)
    for row in (0, 1, 3):
        given = alone(inputs, row)
        expected = model.generate(**given, min_new_tokens=9, max_new_tokens=9)
        found = model.generate(**given, min_new_tokens=9, max_new_tokens=9, assistant_model=assistant)
        assert torch.equal(found, expected)


@pytest.mark.stays(model=FEW)
@torch.no_grad()
def test_a_perfect_assistant_saves_steps(model, inputs, build, alone, request):
    assistant = build(request.node.callspec.params["model"])
    assistant.generation_config.assistant_confidence_threshold = 0.0
    given, calls = alone(inputs, 0), []
    expected = model.generate(**given, min_new_tokens=9, max_new_tokens=9)
    handle = model.lm_head.register_forward_hook(lambda module, args, output: calls.append(output.shape[1]))
    try:
        found = model.generate(**given, min_new_tokens=9, max_new_tokens=9, assistant_model=assistant)
    finally:
        handle.remove()
    assert torch.equal(found, expected)
    assert len(calls) < 5  # several candidates were checked, and kept, in one forward


@pytest.mark.stays(model=FEW)
@torch.no_grad()
def test_prompt_lookup_changes_nothing_but_the_speed(model, inputs, alone):
    for row in range(4):
        given = alone(inputs, row)
        # a prefix that repeats itself, so that there is something to look up
        prefix = torch.tensor([[START, 7, 8, 9, 22, 7, 8]])
        settings = {"decoder_input_ids": prefix, "min_new_tokens": 8, "max_new_tokens": 8}
        expected = model.generate(**given, **settings)
        assert torch.equal(model.generate(**given, **settings, prompt_lookup_num_tokens=3), expected)


class Recorder(LogitsProcessor):
    def __init__(self):
        self.shapes = []

    def __call__(self, input_ids, scores):
        assert torch.isfinite(scores).any(dim=-1).all()
        self.shapes.append((tuple(input_ids.shape), tuple(scores.shape)))
        return scores


@pytest.mark.stays(model=FEW)
@pytest.mark.parametrize("beams", [1, 3])
def test_a_logits_processor_sees_every_step(model, inputs, beams):
    recorder = Recorder()
    model.generate(
        **inputs,
        num_beams=beams,
        min_new_tokens=4,
        max_new_tokens=4,
        logits_processor=LogitsProcessorList([recorder]),
    )
    rows, width = 4 * beams, model.config.target_vocab_size
    assert recorder.shapes == [((rows, 1 + step), (rows, width)) for step in range(4)]


class Only(LogitsProcessor):
    """Nothing but one token."""

    def __init__(self, token):
        self.token = token

    def __call__(self, input_ids, scores):
        forbidden = torch.full_like(scores, -torch.inf)
        forbidden[:, self.token] = scores[:, self.token]
        return forbidden


@pytest.mark.stays(model=FEW)
@pytest.mark.parametrize("beams", [1, 2])
def test_a_logits_processor_decides(model, inputs, beams):
    found = model.generate(
        **inputs, num_beams=beams, max_new_tokens=3, logits_processor=LogitsProcessorList([Only(11)])
    )
    assert (found[:, 1:] == 11).all()


@pytest.mark.stays(model=FEW)
@torch.no_grad()
def test_built_in_processors(model, inputs, run):
    free, _ = run(model, 6, **inputs)
    banned = int(free[0, 2])
    assert not (run(model, 6, **inputs, bad_words_ids=[[banned]])[0][:, 1:] == banned).any()
    assert not (run(model, 6, **inputs, suppress_tokens=[banned])[0][:, 1:] == banned).any()
    forced = run(model, 6, **inputs, forced_bos_token_id=9, forced_eos_token_id=END)[0]
    assert (forced[:, 1] == 9).all() and (forced[:, -1] == END).all()
    assert (model.generate(**inputs, min_length=5, max_new_tokens=6, suppress_tokens=[9])[:, 1:5] != END).all()
    single = run(model, 10, **inputs, no_repeat_ngram_size=1)[0]
    assert all(len(set(row)) == len(row) for row in single.tolist())


@pytest.mark.stays(model=FEW)
@pytest.mark.parametrize("beams", [1, 3])
def test_allowed_tokens_of_each_row(model, inputs, beams):
    seen = []

    def allowed(row, ids):
        seen.append((row, len(ids)))
        return [5 + row, 12 + row]

    found = model.generate(**inputs, num_beams=beams, max_new_tokens=4, prefix_allowed_tokens_fn=allowed)
    for row in range(4):
        assert set(found[row, 1:].tolist()) <= {5 + row, 12 + row}
    assert set(seen) == {(row, 1 + step) for row in range(4) for step in range(4)}


class Collector(BaseStreamer):
    def __init__(self):
        self.pieces, self.ended = [], False

    def put(self, value):
        self.pieces.append(value.reshape(-1))

    def end(self):
        self.ended = True


@pytest.mark.stays(model=FEW)
def test_a_streamer_gets_every_token_once(model, inputs, alone):
    streamer = Collector()
    found = model.generate(**alone(inputs, 1), min_new_tokens=6, max_new_tokens=6, streamer=streamer)
    assert torch.equal(torch.cat(streamer.pieces), found[0])
    assert len(streamer.pieces) == 7 and streamer.ended


class StopAt(StoppingCriteria):
    def __init__(self, token):
        self.token = token

    def __call__(self, input_ids, scores, **kwargs):
        return input_ids[:, -1] == self.token


@pytest.mark.stays(model=FEW)
def test_a_stopping_criterion_stops(model, inputs, alone):
    free = model.generate(**alone(inputs, 0), min_new_tokens=8, max_new_tokens=8)[0]
    token = int(free[3])
    first = free[1:].tolist().index(token) + 1
    stopped = model.generate(
        **alone(inputs, 0), min_new_tokens=8, max_new_tokens=8, stopping_criteria=StoppingCriteriaList([StopAt(token)])
    )[0]
    assert torch.equal(stopped, free[: first + 1])


@pytest.mark.stays(model=FEW)
@torch.no_grad()
@pytest.mark.parametrize("normalize", [False, True])
def test_transition_scores_of_greedy_are_those_of_a_forward(model, inputs, normalize):
    output = model.generate(
        **inputs, min_new_tokens=5, max_new_tokens=5, return_dict_in_generate=True, output_scores=True
    )
    found = model.compute_transition_scores(output.sequences, output.scores, normalize_logits=normalize)
    logits = model(**inputs, decoder_input_ids=output.sequences[:, :-1]).logits
    logits[:, :, END] = -torch.inf  # what `min_new_tokens` forbids
    expected = logits.log_softmax(dim=-1) if normalize else logits
    expected = expected.gather(-1, output.sequences[:, 1:, None])[..., 0]
    torch.testing.assert_close(found, expected.float(), **CLOSE)


@pytest.mark.stays(model=FEW)
@torch.no_grad()
@pytest.mark.parametrize("normalize", [False, True])
def test_transition_scores_of_beams_add_up_to_their_scores(model, inputs, normalize):
    output = model.generate(
        **inputs,
        num_beams=4,
        num_return_sequences=2,
        max_new_tokens=7,
        length_penalty=0.7,
        return_dict_in_generate=True,
        output_scores=True,
    )
    found = model.compute_transition_scores(output.sequences, output.scores, output.beam_indices, normalize)
    lengths = (output.beam_indices >= 0).sum(dim=1)
    assert found.shape == output.beam_indices.shape
    assert (found[output.beam_indices < 0] == 0).all()
    torch.testing.assert_close(found.sum(dim=1) / lengths**0.7, output.sequences_scores, **CLOSE)


@pytest.mark.stays(model=(*FEW, "relative", "sparse"))
@torch.no_grad()
@pytest.mark.parametrize("beams", [1, 2])
def test_attentions_and_hidden_states_of_every_step(model, inputs, beams):
    model.set_attn_implementation("eager")
    try:
        output = model.generate(
            **inputs,
            num_beams=beams,
            min_new_tokens=3,
            max_new_tokens=3,
            return_dict_in_generate=True,
            output_attentions=True,
            output_hidden_states=True,
        )
        if beams == 1:
            whole = model(
                **inputs,
                decoder_input_ids=output.sequences[:, :-1],
                output_attentions=True,
                output_hidden_states=True,
            )
    finally:
        model.set_attn_implementation("sdpa")
    rows, layers = 4 * beams, 2
    assert [tuple(weights.shape) for weights in output.encoder_attentions] == [(4, 2, 9, 9)] * layers
    assert [tuple(states.shape) for states in output.encoder_hidden_states] == [(4, 9, 16)] * (layers + 1)
    for step in range(3):
        assert [tuple(w.shape) for w in output.decoder_attentions[step]] == [(rows, 2, 1, 1 + step)] * layers
        assert [tuple(w.shape) for w in output.cross_attentions[step]] == [(rows, 2, 1, 9)] * layers
        assert [tuple(s.shape) for s in output.decoder_hidden_states[step]] == [(rows, 1, 16)] * (layers + 1)
        for weights in output.cross_attentions[step]:
            pads = (inputs["input_ids"] == PAD).repeat_interleave(beams, dim=0)
            assert (weights.amax(dim=1)[:, 0][pads] == 0).all()
            torch.testing.assert_close(weights.sum(dim=-1), torch.ones(rows, 2, 1, dtype=weights.dtype), **EXACT)
        if beams == 1:
            for layer in range(layers):
                torch.testing.assert_close(
                    output.cross_attentions[step][layer], whole.cross_attentions[layer][:, :, step : step + 1], **EXACT
                )
                torch.testing.assert_close(
                    output.decoder_attentions[step][layer],
                    whole.decoder_attentions[layer][:, :, step : step + 1, : step + 1],
                    **EXACT,
                )
                torch.testing.assert_close(
                    output.decoder_hidden_states[step][layer],
                    whole.decoder_hidden_states[layer][:, step : step + 1],
                    **EXACT,
                )
