"""Weights that change between two requests without a new version counter, such as averages of weights."""

import copy
from itertools import pairwise

import pytest
import torch

import weftformer
from weftformer.modeling.decoding import weights
from weftformer.modeling.decoding.compiled import CompiledStep
from weftformer.modeling.decoding.dispatch import decode_step


def one_bit(weight):
    weight.data.view(torch.int32).view(-1)[-1].bitwise_xor_(1)


@pytest.mark.parametrize(("kind", "beams"), [("rotary", 1), ("sparse", 3)])
def test_an_average_of_weights_is_heard(build, source, steps, monkeypatch, kind, beams):
    monkeypatch.setattr(weights, "_SMALLEST", 0)  # small weights are laid out anew too
    model, trained = build(kind), build(kind)
    request = {"num_beams": beams, "min_new_tokens": 26, "max_new_tokens": 26}
    generator, seen = torch.Generator().manual_seed(0), []
    for _ in range(3):
        with torch.no_grad():
            for parameter in trained.parameters():
                parameter.add_(torch.randn(parameter.shape, generator=generator) * 0.3)
        for parameter, new in zip(model.parameters(), trained.parameters(), strict=True):
            parameter.data.mul_(0.3).add_(new.data, alpha=0.7)  # as callbacks for an average of weights write it
        steps.clear()
        seen.append(model.generate(source, **request))
        assert steps
        assert torch.equal(seen[-1], model.generate(source, **request, use_cache=False))
    assert not any(torch.equal(one, other) for one, other in pairwise(seen))


@pytest.mark.parametrize("compile", [False, True])
def test_another_shared_table_is_heard(build, source, steps, monkeypatch, compile):
    """With a head of its own, the shared table is a weight of the stacks alone."""
    monkeypatch.setattr(weights, "_SMALLEST", 0)
    monkeypatch.setattr(CompiledStep, "_package", lambda self, shape, arguments: self.step.forward)
    model = build("rotary", tie_word_embeddings=False)
    weftformer.fast_decoding(model, compile=compile)
    request = {"min_new_tokens": 26, "max_new_tokens": 26}
    for new in (False, True):
        model.generate(source, **request)
        before = decode_step(model)
        other = torch.randn(model.model.shared.weight.shape, generator=torch.Generator().manual_seed(int(new)))
        if new:
            model.set_input_embeddings(torch.nn.Embedding(*other.shape, dtype=model.dtype).eval())
        model.model.shared.weight.data.copy_(other)
        assert decode_step(model) is not before
        steps.clear()
        found = model.generate(source, **request)
        assert steps and torch.equal(found, model.generate(source, **request, use_cache=False))


def test_layouts_are_kept_between_requests_until_something_changes(build, source, monkeypatch):
    model, made, original = build("rotary"), [], weights.packed
    monkeypatch.setattr(weights, "packed", lambda module: made.append(module) or original(module))
    decoder = model.model.decoder

    def layouts(tokens=30, **request):
        made.clear()
        found = model.generate(source[:1], min_new_tokens=tokens, max_new_tokens=tokens, **request)
        assert torch.equal(
            found, model.generate(source[:1], min_new_tokens=tokens, max_new_tokens=tokens, **request, use_cache=False)
        )
        return decoder in made and model.lm_head in made

    assert not layouts(tokens=3)  # too few tokens to gain from it
    assert layouts() and not layouts() and not layouts(num_beams=3)
    one_bit(decoder.layers[1].self_attn.q_proj.weight)
    assert layouts()
    one_bit(model.lm_head.weight)
    assert layouts()
    decoder.layers[1].encoder_attn.scaling *= 2.0
    assert layouts()
    decoder.layers[0].mlp = copy.deepcopy(decoder.layers[1].mlp)
    assert layouts() and not layouts()
    model.model.encoder.layers[0].mlp.up_proj.weight.data.mul_(2.0)
    decoder.rotary_embedding.inv_freq.mul_(1.1)  # shared with the model, as are all buffers
    assert not layouts()
