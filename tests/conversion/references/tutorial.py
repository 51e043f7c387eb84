"""The English-to-Persian tutorial's transformer, written down from its formulas.

One thing is not as published: the text hands the decoder's own stream to the cross-attention as keys and values, so
that the source is never read. Its prose, figure and formulas take them from the encoder, and so does this reference.
"""

import math
from functools import partial

import torch
from torch import nn

from ...models import randomized
from . import Reference

LAYERS, WIDTH, HEADS, FFN, DROPOUT = 2, 32, 4, 48, 0.1
ENGLISH = {"<SOS>": 0, **{f"e{i}": i for i in range(1, 17)}, "<PAD>": 17, "<EOS>": 18}
PERSIAN = {"<SOS>": 0, **{f"f{i}": i for i in range(1, 27)}, "<PAD>": 27, "<EOS>": 28}


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
    def __init__(self):
        super().__init__()
        self.encoder, self.decoder = Stack(len(ENGLISH), EncoderLayer), Stack(len(PERSIAN), DecoderLayer)
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


def written(model):
    """Greedy text of the three sources. Some end, and are filled up with pads."""
    source, _ = draw()
    target, ended = torch.full((3, 1), PERSIAN["<SOS>"]), torch.zeros(3, dtype=torch.bool)
    for _ in range(12):
        scores = model(source, target, make_masks(source, target))[:, -1]
        new = scores.argmax(dim=-1).masked_fill(ended, PERSIAN["<PAD>"])
        target, ended = torch.cat([target, new[:, None]], dim=1), ended | (new == PERSIAN["<EOS>"])
    assert 0 < ended.sum() < 3
    return target


NAMES = ("attention_mask", "decoder_attention_mask", "encoder_attention_mask")


def reference(masks: str) -> Reference:
    """With the tutorial's own masks, which are added to the scores, or with the mask of pads that a tokenizer gives."""
    module, (source, target) = randomized(Tutorial(), seed=3, std=0.15), draw()
    with torch.no_grad():
        module.linear.bias[PERSIAN["<PAD>"]] = -9.0  # which is never written before the end
        module.linear.bias[PERSIAN["<EOS>"]] += 1.0
    added = make_masks(source, target, hide_pad_queries=masks == "rows of pads too")
    real = target != PERSIAN["<PAD>"]
    here = dict(zip(NAMES, added, strict=True))
    if masks == "of pads":
        here = {"attention_mask": (source != ENGLISH["<PAD>"]).long(), "decoder_attention_mask": real.long()}
    return Reference(
        "tutorial",
        module,
        lambda module: module(source, target, added),
        {"input_ids": source, "decoder_input_ids": target, **here},
        {
            "source_config": {"source_vocabulary": ENGLISH, "target_vocabulary": PERSIAN},
            "overrides": {"encoder_attention_heads": HEADS, "decoder_attention_heads": HEADS},
        },
        tolerance=1e-6,  # sines of positions are of 32 bits in Weft
        # where a pad sees nothing Weft gives it zeros, the text a mean, and no token sees it
        shown=None if masks == "added" else real,
        written=written,
        generation={"inputs": source, "max_new_tokens": 12, "do_sample": False},
    )


CASES = {masks: partial(reference, masks) for masks in ("added", "of pads", "rows of pads too")}
TEXTS = ("of pads",)
