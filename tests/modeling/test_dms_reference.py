"""DirectMultiStep's dense encoder-decoder, written down from its formulas, with Weft's weights: the same logits.

Post-norm layers; queries, keys and values without bias, the output projection with one; learned positions; tokens times
sqrt(d); a learned vector times the number of steps at every source position; a head of its own with bias; no last norm.
"""

import math

import pytest
import torch
from torch import nn

from weftformer import WeftConfig, WeftForConditionalGeneration

pytestmark = pytest.mark.dtype(torch.float64)

PAD = 52


class Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.query, self.key, self.value = (nn.Linear(width, width, bias=False) for _ in range(3))
        self.projection = nn.Linear(width, width)

    def forward(self, x, source, mask):
        def split(states):
            return states.view(states.shape[0], states.shape[1], self.heads, -1).permute(0, 2, 1, 3)

        query, key, value = split(self.query(x)), split(self.key(source)), split(self.value(source))
        scores = torch.einsum("bhlk,bhmk->bhlm", query, key) / math.sqrt(query.shape[-1])
        weights = scores.masked_fill(mask == 0, -1e10).softmax(dim=-1)
        mixed = torch.einsum("bhlm,bhmk->blhk", weights, value)
        return self.projection(mixed.reshape(x.shape))


class Layer(nn.Module):
    def __init__(self, width, heads, ffn, crosses):
        super().__init__()
        self.attention = Attention(width, heads)
        self.cross = Attention(width, heads) if crosses else None
        self.norms = nn.ModuleList([nn.LayerNorm(width, eps=1e-5) for _ in range(3 if crosses else 2)])
        self.feed_forward = nn.Sequential(nn.Linear(width, ffn), nn.GELU(), nn.Linear(ffn, width))

    def forward(self, x, mask, source=None, source_mask=None):
        x = self.norms[0](x + self.attention(x, x, mask))
        if self.cross is not None:
            x = self.norms[1](x + self.cross(x, source, source_mask))
        return self.norms[-1](x + self.feed_forward(x))


class DirectMultiStep(nn.Module):
    def __init__(self, vocabulary, width, heads, ffn, layers, source_length, target_length):
        super().__init__()
        self.scale = math.sqrt(width)
        self.source_tokens, self.target_tokens = nn.Embedding(vocabulary, width), nn.Embedding(vocabulary, width)
        self.source_places, self.target_places = nn.Embedding(source_length, width), nn.Embedding(target_length, width)
        self.steps = nn.Linear(1, width, bias=False)
        self.encoder = nn.ModuleList([Layer(width, heads, ffn, crosses=False) for _ in range(layers)])
        self.decoder = nn.ModuleList([Layer(width, heads, ffn, crosses=True) for _ in range(layers)])
        self.head = nn.Linear(width, vocabulary)

    def forward(self, source, target, steps):
        source_mask = (source != PAD)[:, None, None, :]
        x = self.source_tokens(source) * self.scale + self.source_places(torch.arange(source.shape[1]))
        x = x + self.steps(steps.view(-1, 1, 1).to(x.dtype))
        for layer in self.encoder:
            x = layer(x, source_mask)
        length = target.shape[1]
        causal = torch.tril(torch.ones(length, length))[None, None]
        y = self.target_tokens(target) * self.scale + self.target_places(torch.arange(length))
        for layer in self.decoder:
            y = layer(y, causal, x, source_mask)
        return self.head(y)


def pairs(reference, model):
    """(parameter there, parameter here) for every parameter."""

    def attention(there, here):
        yield from zip((there.query.weight, there.key.weight, there.value.weight, *there.projection.parameters()),
                       (here.q_proj.weight, here.k_proj.weight, here.v_proj.weight, *here.out_proj.parameters()),
                       strict=True)  # fmt: skip

    def layer(there, here):
        yield from attention(there.attention, here.self_attn)
        norms = [here.self_attn_layer_norm, here.final_layer_norm]
        if there.cross is not None:
            yield from attention(there.cross, here.encoder_attn)
            norms.insert(1, here.encoder_attn_layer_norm)
        for one, other in zip((*there.norms, there.feed_forward[0], there.feed_forward[2]),
                              (*norms, here.mlp.up_proj, here.mlp.down_proj), strict=True):  # fmt: skip
            yield from ((one.weight, other.weight), (one.bias, other.bias))

    encoder, decoder = model.model.encoder, model.model.decoder
    yield reference.source_tokens.weight, encoder.embed_tokens.weight
    yield reference.target_tokens.weight, decoder.embed_tokens.weight
    yield reference.source_places.weight, encoder.embed_positions.weight
    yield reference.target_places.weight, decoder.embed_positions.weight
    yield reference.steps.weight, encoder.condition_proj.weight
    yield reference.head.weight, model.lm_head.weight
    yield reference.head.bias, model.lm_head.bias
    for there, here in ((reference.encoder, encoder.layers), (reference.decoder, decoder.layers)):
        for one, other in zip(there, here, strict=True):
            yield from layer(one, other)


@pytest.fixture(scope="module")
def both():
    config = WeftConfig.from_preset(
        "dms-flash-10m", d_model=32, encoder_layers=2, decoder_layers=2, encoder_ffn_dim=96, decoder_ffn_dim=96
    )
    model = WeftForConditionalGeneration(config).double().eval()
    reference = DirectMultiStep(53, 32, 8, 96, 2, 280, 1075).double()
    torch.manual_seed(0)
    copied, scales = 0, {id(norm.weight) for norm in reference.modules() if isinstance(norm, nn.LayerNorm)}
    with torch.no_grad():
        for there, here in pairs(reference, model):
            assert there.shape == here.shape
            there.copy_(torch.randn_like(there) * 0.2 + (id(there) in scales))
            here.copy_(there)
            copied += there.numel()
    # nothing on either side is left out
    assert copied == sum(p.numel() for p in reference.parameters()) == sum(p.numel() for p in model.parameters())
    return reference.eval(), model


def draw():
    """Product, pads, starting material, pads; two rows of different make."""
    generator = torch.Generator().manual_seed(2)
    source = torch.randint(1, 52, (2, 40), generator=generator)
    source[0, 12:20] = source[0, 33:] = PAD
    source[1, 25:30] = PAD
    target = torch.randint(1, 52, (2, 30), generator=generator)
    target[:, 0] = 0
    return source, target, torch.tensor([3, 7])


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
def test_logits_equal_those_of_the_formulas(both, attention):
    reference, model = both
    source, target, steps = draw()
    model.set_attn_implementation(attention)
    with torch.no_grad():
        expected = reference(source, target, steps)
        found = model(input_ids=source, decoder_input_ids=target, condition_values=steps[:, None]).logits
        torch.testing.assert_close(found, expected, atol=1e-10, rtol=1e-10)
        assert expected.std() > 0.5
        # and they depend on all three inputs
        for changed in (
            (source.roll(1, 0), target, steps),
            (source, target.roll(1, 0), steps),
            (source, target, steps + 1),
        ):
            assert (reference(*changed) - expected).abs().max() > 1e-2


def test_gradients_equal_those_of_the_formulas(both):
    reference, model = both
    source, target, steps = draw()
    reference.zero_grad()
    model.zero_grad()
    expected = nn.functional.cross_entropy(
        reference(source, target[:, :-1], steps).flatten(0, 1), target[:, 1:].flatten()
    )
    loss = model(
        input_ids=source, decoder_input_ids=target[:, :-1], labels=target[:, 1:].contiguous(),
        condition_values=steps[:, None].double(),
    ).loss  # fmt: skip
    torch.testing.assert_close(loss, expected)
    expected.backward()
    loss.backward()
    for there, here in pairs(reference, model):
        torch.testing.assert_close(here.grad, there.grad, atol=1e-10, rtol=1e-10)


def test_cached_decoding_writes_what_the_formulas_write(both):
    reference, model = both
    source, _, steps = draw()
    target = torch.zeros(2, 1, dtype=torch.long)
    with torch.no_grad():
        for _ in range(12):
            scores = reference(source, target, steps)[:, -1]
            target = torch.cat([target, scores.argmax(dim=-1, keepdim=True)], dim=1)
    found = model.generate(
        source, condition_values=steps[:, None], max_new_tokens=12, min_new_tokens=12, do_sample=False,
        eos_token_id=None,
    )  # fmt: skip
    assert found.tolist() == target.tolist()
