"""The lecture notebook's transformer, written down from its formulas: converted weights give the same.

Outputs with valid lengths of every kind, in full and one token after another from the state, dropout of the attention
weights, greedy text, and the weights back bit for bit.

One thing is not as published: the text normalises the output of the cross-attention alone. Its prose and its figure have
the residual around it, and so has this reference.
"""

import math

import pytest
import torch
from torch import nn

from weftformer.conversion import SOURCES, convert, export
from weftformer.conversion.notebook import valid_length_mask

pytestmark = pytest.mark.dtype(torch.float64)

SOURCE = SOURCES["notebook"]
LAYERS, WIDTH, HEADS, FFN, DROPOUT = 2, 32, 4, 48, 0.1
SOURCE_TOKENS, TARGET_TOKENS, BOS = 29, 23, 1
BATCH, SOURCE_LENGTH, TARGET_LENGTH = 3, 11, 8


def masked_softmax(scores, valid_lengths):
    """Over (B, H, L, M); lengths None, (B,) or (B, L): keys at and behind the length count as -1e6."""
    if valid_lengths is not None:
        if valid_lengths.ndim == 1:
            valid_lengths = valid_lengths[:, None].expand(-1, scores.shape[2])
        beyond = torch.arange(scores.shape[3]) >= valid_lengths[:, None, :, None]
        scores = scores.masked_fill(beyond, -1e6)
    return scores.softmax(dim=-1)


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.W_q, self.W_k, self.W_v, self.W_o = (nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(4))
        self.dropout = nn.Dropout(DROPOUT)

    def forward(self, x, keys, valid_lengths):
        def split(states):
            return states.unflatten(-1, (HEADS, -1)).transpose(1, 2)

        q, k, v = split(self.W_q(x)), split(self.W_k(keys)), split(self.W_v(keys))
        weights = masked_softmax(q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1]), valid_lengths)
        return self.W_o((self.dropout(weights) @ v).transpose(1, 2).flatten(2))


class AddNorm(nn.Module):
    def __init__(self):
        super().__init__()
        self.ln = nn.LayerNorm(WIDTH)

    def forward(self, x, y):
        return self.ln(x + y)


class FeedForward(nn.Module):
    def __init__(self):
        super().__init__()
        self.dense1, self.dense2 = nn.Linear(WIDTH, FFN, bias=False), nn.Linear(FFN, WIDTH, bias=False)

    def forward(self, x):
        return self.dense2(self.dense1(x).relu())


class EncoderBlock(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention, self.addnorm1, self.ffn, self.addnorm2 = Attention(), AddNorm(), FeedForward(), AddNorm()

    def forward(self, x, valid_lengths):
        x = self.addnorm1(x, self.attention(x, x, valid_lengths))
        return self.addnorm2(x, self.ffn(x))


class DecoderBlock(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention1, self.addnorm1 = Attention(), AddNorm()
        self.attention2, self.addnorm2 = Attention(), AddNorm()
        self.ffn, self.addnorm3 = FeedForward(), AddNorm()

    def forward(self, x, seen, valid_lengths, source, source_lengths):
        x = self.addnorm1(x, self.attention1(x, seen, valid_lengths))
        x = self.addnorm2(x, self.attention2(x, source, source_lengths))
        return self.addnorm3(x, self.ffn(x))


class Stack(nn.Module):
    """Embeddings times sqrt(d), sine and cosine of position / 10000^(2i / d) side by side, and the blocks."""

    def __init__(self, tokens, block):
        super().__init__()
        self.embedding = nn.Embedding(tokens, WIDTH)
        self.blks = nn.ModuleDict({f"block{index}": block() for index in range(LAYERS)})

    def embed(self, ids, start=0):
        places = torch.arange(start, start + ids.shape[1])[:, None]
        angles = places / 10000 ** (torch.arange(0, WIDTH, 2) / WIDTH)
        positions = torch.stack((angles.sin(), angles.cos()), dim=-1).flatten(1)
        return self.embedding(ids) * math.sqrt(WIDTH) + positions


class Notebook(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder, self.decoder = Stack(SOURCE_TOKENS, EncoderBlock), Stack(TARGET_TOKENS, DecoderBlock)
        self.decoder.dense = nn.Linear(WIDTH, TARGET_TOKENS)

    def encode(self, source, valid_lengths):
        x = self.encoder.embed(source)
        for block in self.encoder.blks.values():
            x = block(x, valid_lengths)
        return x

    def forward(self, source, source_lengths, target, target_lengths=None, cross_lengths=None):
        """A whole target; by default each token sees those up to itself, and of the source what the encoder sees."""
        states, x = self.encode(source, source_lengths), self.decoder.embed(target)
        if target_lengths is None:
            target_lengths = torch.arange(1, target.shape[1] + 1).expand(target.shape)
        cross_lengths = source_lengths if cross_lengths is None else cross_lengths
        for block in self.decoder.blks.values():
            x = block(x, x, target_lengths, states, cross_lengths)
        return self.decoder.dense(x)

    def step(self, token, state, states, cross_lengths):
        """The next token (B, 1); `state` has the inputs that each block has seen so far, and gets this step's."""
        x = self.decoder.embed(token, start=state[0].shape[1] if state else 0)
        for index, block in enumerate(self.decoder.blks.values()):
            state[index : index + 1] = [torch.cat([*state[index : index + 1], x], dim=1)]  # none at the first step
            x = block(x, state[index], None, states, cross_lengths)
        return self.decoder.dense(x)


def draw():
    """Three pairs, and lengths of each kind."""
    generator = torch.Generator().manual_seed(3)
    source = torch.randint(3, SOURCE_TOKENS, (BATCH, SOURCE_LENGTH), generator=generator)
    target = torch.randint(3, TARGET_TOKENS, (BATCH, TARGET_LENGTH), generator=generator)
    target[:, 0] = BOS

    def lengths(most, *shape):
        return torch.randint(1, most + 1, shape, generator=generator)

    return source, target, torch.tensor([6, 11, 9]), {
        "encoder": lengths(SOURCE_LENGTH, BATCH, SOURCE_LENGTH),
        "decoder": lengths(TARGET_LENGTH, BATCH, TARGET_LENGTH),
        "cross": lengths(SOURCE_LENGTH, BATCH, TARGET_LENGTH),
    }  # fmt: skip


def relative_error(found, expected):
    # 5e-8 are left of models of 64 bits: sines of positions are of 32 in Weft
    return ((found - expected).abs().max() / expected.abs().max()).item()


def weft_model(reference, **overrides):
    overrides = {"encoder_attention_heads": HEADS, "decoder_attention_heads": HEADS} | overrides
    return convert(reference.state_dict(), SOURCE, overrides=overrides).build()


@pytest.fixture
def reference():
    torch.manual_seed(0)
    model = Notebook().eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(torch.randn_like(parameter) * 0.15 + name.endswith("ln.weight"))
    return model


def test_valid_lengths_become_masks():
    assert valid_length_mask(torch.tensor([1, 3]), 3).tolist() == [[1, 0, 0], [1, 1, 1]]
    mask = valid_length_mask(torch.tensor([[1, 2], [3, 1]]), 3)
    assert mask.dtype == torch.bool
    assert mask.int().tolist() == [[[[1, 0, 0], [1, 1, 0]]], [[[1, 1, 1], [1, 0, 0]]]]


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
def test_outputs_equal_those_of_the_formulas(reference, attention):
    model = weft_model(reference)
    assert sum(p.numel() for p in model.parameters()) == sum(p.numel() for p in reference.parameters())
    assert model.config.norm_eps == reference.encoder.blks["block0"].addnorm1.ln.eps
    model.set_attn_implementation(attention)
    source, target, lengths, by_query = draw()
    ids = {"input_ids": source, "decoder_input_ids": target}
    source_mask = valid_length_mask(lengths, SOURCE_LENGTH)
    with torch.no_grad():
        expected = reference(source, lengths, target)
        assert relative_error(model(**ids, attention_mask=source_mask).logits, expected) < 1e-6
        # one length a row for the target too: no longer causal, and of no interest behind the length
        target_lengths = torch.tensor([8, 3, 5])
        asked = {"attention_mask": source_mask}
        mask = valid_length_mask(target_lengths, TARGET_LENGTH)
        found = model(**ids, **asked, decoder_attention_mask=mask, is_causal=False).logits[mask == 1]
        wanted = reference(source, lengths, target, target_lengths=target_lengths)[mask == 1]
        assert relative_error(found, wanted) < 1e-6
        assert relative_error(wanted, expected[mask == 1]) > 1e-2
        # a length a query, in one attention after the other, at last in all three
        there = {"source_lengths": lengths}
        for name, here, argument, keys in (
            ("cross", "encoder_attention_mask", "cross_lengths", SOURCE_LENGTH),
            ("decoder", "decoder_attention_mask", "target_lengths", TARGET_LENGTH),
            ("encoder", "attention_mask", "source_lengths", SOURCE_LENGTH),
        ):
            asked[here], there[argument] = valid_length_mask(by_query[name], keys), by_query[name]
            wanted = reference(source=source, target=target, **there)
            assert relative_error(model(**ids, **asked).logits, wanted) < 1e-6
            assert relative_error(wanted, expected) > 1e-2
        assert expected.std() > 0.5
        assert relative_error(reference(source.roll(1, 0), lengths, target), expected) > 0.1
        assert relative_error(reference(source, lengths, target.roll(1, 0)), expected) > 0.1


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
@pytest.mark.parametrize("per_query", [False, True], ids=["a length a row", "a length a query"])
def test_the_cache_is_the_state(reference, per_query, attention):
    model = weft_model(reference)
    model.set_attn_implementation(attention)
    source, target, lengths, by_query = draw()
    encoder_lengths = by_query["encoder"] if per_query else lengths
    with torch.no_grad():
        whole = reference(source, encoder_lengths, target, cross_lengths=by_query["cross"] if per_query else None)
        states = reference.encode(source, encoder_lengths)
        encoded = model.model.encoder(source, attention_mask=valid_length_mask(encoder_lengths, SOURCE_LENGTH))
        assert relative_error(encoded.last_hidden_state, states) < 1e-6
        state, cache = [], None
        for index in range(TARGET_LENGTH):
            token = target[:, index : index + 1]
            seen = by_query["cross"][:, index : index + 1] if per_query else lengths
            expected = reference.step(token, state, states, seen)
            out = model(
                encoder_outputs=encoded, encoder_attention_mask=valid_length_mask(seen, SOURCE_LENGTH),
                decoder_input_ids=token, past_key_values=cache, use_cache=True,
            )  # fmt: skip
            cache = out.past_key_values
            assert relative_error(out.logits, expected) < 1e-6
            assert relative_error(expected, whole[:, index : index + 1]) < 1e-6
            assert cache.get_seq_length() == state[0].shape[1] == index + 1


def test_training_drops_attention_weights(reference):
    """The same seed drops the same weights; nothing else is dropped here, so that the two stay in step."""
    model = weft_model(reference, dropout=0.0)
    model.set_attn_implementation("eager")
    assert model.config.attention_dropout == DROPOUT
    source, target, lengths, _ = draw()
    mask = valid_length_mask(lengths, SOURCE_LENGTH)
    outputs = [reference(source, lengths, target)]
    for seed in (1, 2):
        torch.manual_seed(seed)
        outputs.append(reference.train()(source, lengths, target))
        torch.manual_seed(seed)
        found = model.train()(input_ids=source, attention_mask=mask, decoder_input_ids=target).logits
        assert relative_error(found, outputs[-1]) < 1e-6
    assert min(relative_error(outputs[one], outputs[other]) for one, other in ((0, 1), (0, 2), (1, 2))) > 1e-2


def test_gradients_equal_those_of_the_formulas(reference):
    model = weft_model(reference)
    source, target, lengths, _ = draw()
    labels = target[:, 1:].contiguous()
    scores = reference(source, lengths, target[:, :-1])
    nn.functional.cross_entropy(scores.flatten(0, 1), labels.flatten()).backward()
    mask = valid_length_mask(lengths, SOURCE_LENGTH)
    model(input_ids=source, attention_mask=mask, decoder_input_ids=target[:, :-1], labels=labels).loss.backward()
    # the table renames and changes nothing, so that it takes gradients as it takes weights
    for parameter in model.parameters():
        parameter.data = parameter.grad
    found, wanted = export(model, SOURCE), {name: p.grad for name, p in reference.named_parameters()}
    largest = max(gradient.abs().max() for gradient in wanted.values())
    assert found.keys() == wanted.keys()
    assert all((found[name] - wanted[name]).abs().max() < 1e-6 * largest for name in wanted)


def test_the_way_back_is_exact(reference):
    back = export(weft_model(reference), SOURCE)
    assert all(torch.equal(back[name], weight) for name, weight in reference.state_dict().items())
    Notebook().load_state_dict(back, strict=True)


def test_cached_decoding_writes_what_the_state_writes(reference):
    source, _, lengths, _ = draw()
    written, state = torch.full((BATCH, 1), BOS), []
    with torch.no_grad():
        states = reference.encode(source, lengths)
        for _ in range(10):
            scores = reference.step(written[:, -1:], state, states, lengths)
            written = torch.cat([written, scores[:, -1].argmax(dim=-1, keepdim=True)], dim=1)
    found = weft_model(reference).generate(
        source, attention_mask=valid_length_mask(lengths, SOURCE_LENGTH), max_new_tokens=10, min_new_tokens=10,
        do_sample=False, eos_token_id=None, use_cache=True,
    )  # fmt: skip
    assert found.tolist() == written.tolist()
    assert len(written.unique()) > 5
