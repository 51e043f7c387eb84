"""The English-to-Persian tutorial's transformer, written down from its formulas: converted weights give the same.

Outputs with every kind of mask, dropout where the text has it, gradients, greedy text, and the weights back bit for bit.

One thing is not as published: the text hands the decoder's own stream to the cross-attention as keys and values, so that
the source is never read. Its prose, figure and formulas take them from the encoder, and so does this reference.
"""

import math
from dataclasses import replace

import pytest
import torch
from torch import nn

from weftformer.conversion import SOURCES, convert, export
from weftformer.conversion.operations import Split, SplitByHead
from weftformer.conversion.tutorial import special_tokens
from weftformer.modeling import layers, modeling_weft

SOURCE = SOURCES["tutorial"]
LAYERS, WIDTH, HEADS, FFN, DROPOUT = 2, 32, 4, 48, 0.1
ENGLISH = {"<SOS>": 0, **{f"e{i}": i for i in range(1, 17)}, "<PAD>": 17, "<EOS>": 18}
PERSIAN = {"<SOS>": 0, **{f"f{i}": i for i in range(1, 27)}, "<PAD>": 27, "<EOS>": 28}
VOCABULARIES = {"source_vocabulary": ENGLISH, "target_vocabulary": PERSIAN}


def attend(q, k, v, mask):
    """Over (B, H, T, K), the mask added to the scores."""
    weights = (q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1]) + mask).softmax(dim=-1)
    return (weights @ v).transpose(1, 2).flatten(2)


def by_head(states, parts):
    """(B, T, H, parts * K), cut along the last axis: each head has its own q, k and v side by side."""
    batch, length, width = states.shape
    return states.reshape(batch, length, HEADS, width // HEADS).permute(0, 2, 1, 3).chunk(parts, dim=-1)


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv_layer, self.linear_layer = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x, mask):
        return self.linear_layer(attend(*by_head(self.qkv_layer(x), 3), mask))


class CrossAttention(nn.Module):
    def __init__(self):
        super().__init__()
        self.q_layer, self.kv_layer, self.linear_layer = (nn.Linear(WIDTH, parts * WIDTH) for parts in (1, 2, 1))

    def forward(self, x, source, mask):
        (q,), (k, v) = by_head(self.q_layer(x), 1), by_head(self.kv_layer(source), 2)
        return self.linear_layer(attend(q, k, v, mask))


class Norm(nn.Module):
    def __init__(self):
        super().__init__()
        self.gamma, self.beta = nn.Parameter(torch.ones(WIDTH)), nn.Parameter(torch.zeros(WIDTH))

    def forward(self, x):
        return self.gamma * (x - x.mean(-1, keepdim=True)) / (x.std(-1, keepdim=True) + 1e-6) + self.beta


class FeedForward(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear1, self.linear2, self.dropout = nn.Linear(WIDTH, FFN), nn.Linear(FFN, WIDTH), nn.Dropout(DROPOUT)

    def forward(self, x):
        return self.linear2(self.dropout(self.linear1(x).relu()))


class EncoderLayer(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention, self.ffn, self.dropout = Attention(), FeedForward(), nn.Dropout(DROPOUT)
        self.norm1, self.norm2 = Norm(), Norm()

    def forward(self, x, mask):
        x = self.norm1(x + self.dropout(self.attention(x, mask)))
        return self.norm2(x + self.dropout(self.ffn(x)))


class DecoderLayer(nn.Module):
    def __init__(self):
        super().__init__()
        self.self_attention, self.encoder_decoder_attention = Attention(), CrossAttention()
        self.ffn, self.dropout = FeedForward(), nn.Dropout(DROPOUT)
        self.layer_norm1, self.layer_norm2, self.layer_norm3 = Norm(), Norm(), Norm()

    def forward(self, x, source, mask, cross_mask):
        x = self.layer_norm1(x + self.dropout(self.self_attention(x, mask)))
        x = self.layer_norm2(x + self.dropout(self.encoder_decoder_attention(x, source, cross_mask)))
        return self.layer_norm3(x + self.dropout(self.ffn(x)))


class SentenceEmbedding(nn.Module):
    """Token embeddings, not scaled, and sine and cosine of position / 10000^(2i / d) side by side."""

    def __init__(self, tokens):
        super().__init__()
        self.embedding, self.dropout = nn.Embedding(tokens, WIDTH), nn.Dropout(DROPOUT)

    def forward(self, ids):
        angles = torch.arange(ids.shape[1])[:, None] / 10000 ** (torch.arange(0, WIDTH, 2) / WIDTH)
        return self.dropout(self.embedding(ids) + torch.stack((angles.sin(), angles.cos()), dim=-1).flatten(1))


class Stack(nn.Module):
    def __init__(self, tokens, layer):
        super().__init__()
        self.sentence_embedding, self.layers = SentenceEmbedding(tokens), nn.ModuleList(layer() for _ in range(LAYERS))

    def forward(self, ids, *others):
        x = self.sentence_embedding(ids)
        for layer in self.layers:
            x = layer(x, *others)
        return x


class Tutorial(nn.Module):
    def __init__(self, english=ENGLISH):
        super().__init__()
        self.encoder, self.decoder = Stack(len(english), EncoderLayer), Stack(len(PERSIAN), DecoderLayer)
        self.linear = nn.Linear(WIDTH, len(PERSIAN))

    def forward(self, source, target, masks):
        encoder_mask, decoder_mask, cross_mask = masks
        return self.linear(self.decoder(target, self.encoder(source, encoder_mask), decoder_mask, cross_mask))


def make_masks(source, target, hide_pad_queries=False):
    """-1e9 where a key is a pad or comes later; the text does the same to the rows of the pads themselves."""
    source_real, target_real = source != ENGLISH["<PAD>"], target != PERSIAN["<PAD>"]
    later = torch.ones(target.shape[1], target.shape[1]).triu(1).bool()

    def mask(queries, keys, hidden=False):
        hidden = hidden | ~keys[:, None, :] | (~queries[:, :, None] & hide_pad_queries)
        return hidden[:, None] * -1e9

    return mask(source_real, source_real), mask(target_real, target_real, later), mask(target_real, source_real)


def draw():
    """Three pairs of different length, padded."""
    generator = torch.Generator().manual_seed(3)
    source = torch.randint(1, 17, (3, 11), generator=generator)
    target = torch.randint(1, 27, (3, 8), generator=generator)
    target[:, 0] = PERSIAN["<SOS>"]
    source[0, 6:] = source[2, 9:] = ENGLISH["<PAD>"]
    target[1, 5:] = target[2, 7:] = PERSIAN["<PAD>"]
    return source, target


def relative_error(found, expected):
    # 5e-8 are left of models of 64 bits: sines of positions are of 32 in Weft
    return ((found - expected).abs().max() / expected.abs().max()).item()


def weft_model(reference, source=SOURCE, source_config=VOCABULARIES, **overrides):
    overrides = {"encoder_attention_heads": HEADS, "decoder_attention_heads": HEADS} | overrides
    return convert(reference.state_dict(), source, source_config=source_config, overrides=overrides).build()


def weft_logits(model, source, target, masks):
    names = ("attention_mask", "decoder_attention_mask", "encoder_attention_mask")
    return model(input_ids=source, decoder_input_ids=target, **dict(zip(names, masks, strict=True))).logits


@pytest.fixture
def reference():
    torch.manual_seed(3)
    model = Tutorial().eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(torch.randn_like(parameter) * 0.15 + name.endswith("gamma"))
    return model.double()


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
def test_outputs_equal_those_of_the_formulas(reference, attention):
    model = weft_model(reference)
    assert sum(p.numel() for p in model.parameters()) == sum(p.numel() for p in reference.parameters())
    model.set_attn_implementation(attention)
    source, target = draw()
    masks = make_masks(source, target)
    real = target != PERSIAN["<PAD>"]
    with torch.no_grad():
        expected = reference(source, target, masks)
        given = {"attention_mask": (source != ENGLISH["<PAD>"]).long(), "decoder_attention_mask": real.long()}
        found = model(input_ids=source, decoder_input_ids=target, **given).logits
        assert relative_error(found[real], expected[real]) < 1e-6
        # the reference's own masks, added to the scores: then also at the target's pads
        assert relative_error(weft_logits(model, source, target, masks), expected) < 1e-6
        # as the text makes them, where a pad sees nothing: Weft gives it zeros, the text a mean, and no token sees it
        masks = make_masks(source, target, hide_pad_queries=True)
        found = weft_logits(model, source, target, masks)
        assert relative_error(found[real], reference(source, target, masks)[real]) < 1e-6
        for changed in (source.roll(1, 0), target), (source, target.roll(1, 0)):
            assert relative_error(reference(*changed, make_masks(*changed)), expected) > 0.1


def test_training_drops_what_the_text_drops(reference, monkeypatch):
    """Numbers are dropped in the same places: after embeddings and sub-layers, and behind the ReLU."""
    for module in (layers, modeling_weft):  # torch's, whose masks the text has
        monkeypatch.setattr(module, "dropout", nn.functional.dropout)
    model = weft_model(reference).train()
    assert (model.config.dropout, model.config.activation_dropout, model.config.attention_dropout) == (0.1, 0.1, 0.0)
    source, target = draw()
    masks = make_masks(source, target)
    torch.manual_seed(1)
    expected = reference.train()(source, target, masks)
    torch.manual_seed(1)
    assert relative_error(weft_logits(model, source, target, masks), expected) < 1e-6
    assert relative_error(expected, reference.eval()(source, target, masks)) > 0.1


def test_gradients_equal_those_of_the_formulas(reference):
    model = weft_model(reference)
    source, target = draw()
    labels = target[:, 1:].masked_fill(target[:, 1:] == PERSIAN["<PAD>"], -100).contiguous()
    scores = reference(source, target[:, :-1], make_masks(source, target[:, :-1]))
    nn.functional.cross_entropy(scores.flatten(0, 1), labels.flatten()).backward()
    mask = source != ENGLISH["<PAD>"]
    model(input_ids=source, attention_mask=mask, decoder_input_ids=target[:, :-1], labels=labels).loss.backward()
    # the table moves numbers and changes none, so that it takes gradients as it takes weights
    for parameter in model.parameters():
        parameter.data = parameter.grad
    found, wanted = export(model, SOURCE), {name: p.grad for name, p in reference.named_parameters()}
    largest = max(gradient.abs().max() for gradient in wanted.values())
    assert found.keys() == wanted.keys()
    assert all((found[name] - wanted[name]).abs().max() < 1e-6 * largest for name in wanted)


def test_the_way_back_is_exact(reference):
    back = export(weft_model(reference), SOURCE)
    assert all(torch.equal(back[name], weight) for name, weight in reference.state_dict().items())
    Tutorial().load_state_dict(back, strict=True)


def test_a_plain_split_of_the_fused_projections_would_not_pass(reference):
    def plain(rule):
        by_head = isinstance(getattr(rule, "operation", None), SplitByHead)
        return replace(rule, operation=Split(rule.operation.parts)) if by_head else rule

    model = weft_model(reference, replace(SOURCE, table=lambda *given: [plain(rule) for rule in SOURCE.table(*given)]))
    source, target = draw()
    with torch.no_grad():
        found = model(input_ids=source, decoder_input_ids=target).logits[0]  # the row without pads in its target
        assert relative_error(found, reference(source, target, make_masks(source, target))[0]) > 0.1


def test_the_epsilon_is_added_to_the_deviation(reference):
    with torch.no_grad():
        for name, parameter in reference.named_parameters():  # small states, in which it shows
            if parameter.ndim == 1 and not name.startswith(("linear", "decoder.layers.1.layer_norm3")):
                parameter *= 0.01
        source, target = draw()
        masks = make_masks(source, target)
        expected = reference(source, target, masks)
        assert relative_error(weft_logits(weft_model(reference), source, target, masks), expected) < 1e-6
        for wrong in ({"norm_eps": 1e-5}, {"norm_type": "layernorm"}):
            assert relative_error(weft_logits(weft_model(reference, **wrong), source, target, masks), expected) > 1e-4


def test_special_tokens_come_from_the_vocabularies(reference):
    ids = {"pad_token_id": 17, "bos_token_id": 0, "decoder_start_token_id": 0, "eos_token_id": 28}
    assert special_tokens(ENGLISH, PERSIAN) == ids
    model = weft_model(reference)
    assert {name: getattr(model.config, name) for name in ids} == ids
    assert model.generation_config.pad_token_id == 27
    for name in ("<SOS>", "<PAD>", "<EOS>"):
        with pytest.raises(ValueError, match=f"target vocabulary has no {name}"):
            special_tokens(ENGLISH, {token: i for token, i in PERSIAN.items() if token != name})


def test_cached_decoding_writes_what_the_formulas_write(reference):
    source, _ = draw()
    target, ended = torch.full((3, 1), PERSIAN["<SOS>"]), torch.zeros(3, dtype=torch.bool)
    with torch.no_grad():
        reference.linear.bias[PERSIAN["<PAD>"]] = -9.0  # which is never written before the end
        reference.linear.bias[PERSIAN["<EOS>"]] += 1.0
        for _ in range(12):
            scores = reference(source, target, make_masks(source, target))[:, -1]
            new = scores.argmax(dim=-1).masked_fill(ended, PERSIAN["<PAD>"])
            target, ended = torch.cat([target, new[:, None]], dim=1), ended | (new == PERSIAN["<EOS>"])
    found = weft_model(reference).generate(source, max_new_tokens=12, do_sample=False, use_cache=True)
    assert found.tolist() == target.tolist()
    # some rows ended and were filled up with the target's pad, not all
    assert 0 < ended.sum() < 3 and len(target.unique()) > 5
