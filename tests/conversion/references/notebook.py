"""The lecture notebook's transformer, written down from its formulas.

One thing is not as published: the text normalises the output of the cross-attention alone. Its prose and its figure
have the residual around it, and so has this reference.
"""

import math
from functools import partial

import torch
from torch import nn

from ...models import randomized
from . import Reference

LAYERS, WIDTH, HEADS, FFN, DROPOUT = 2, 32, 4, 48, 0.1
SOURCE_TOKENS, TARGET_TOKENS, BOS = 29, 23, 1
BATCH, SOURCE_LENGTH, TARGET_LENGTH = 3, 11, 8


def valid_length_mask(valid_lengths, keys):
    """Lengths as a mask: (B,) as 0 and 1 of shape (B, keys), or one for each query, (B, L), as booleans (B, 1, L,
    keys).
    """
    mask = torch.arange(keys) < valid_lengths[..., None]
    return mask.long() if valid_lengths.ndim == 1 else mask[:, None]


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

    def embed(self, ids):
        angles = torch.arange(ids.shape[1])[:, None] / 10000 ** (torch.arange(0, WIDTH, 2) / WIDTH)
        positions = torch.stack((angles.sin(), angles.cos()), dim=-1).flatten(1)
        return self.embedding(ids) * math.sqrt(WIDTH) + positions


class Notebook(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder, self.decoder = Stack(SOURCE_TOKENS, EncoderBlock), Stack(TARGET_TOKENS, DecoderBlock)
        self.decoder.dense = nn.Linear(WIDTH, TARGET_TOKENS)

    def forward(self, source, source_lengths, target, target_lengths=None, cross_lengths=None):
        """A whole target; by default each token sees those up to itself, and of the source what the encoder sees."""
        states, x = self.encoder.embed(source), self.decoder.embed(target)
        for block in self.encoder.blks.values():
            states = block(states, source_lengths)
        if target_lengths is None:
            target_lengths = torch.arange(1, target.shape[1] + 1).expand(target.shape)
        cross_lengths = source_lengths if cross_lengths is None else cross_lengths
        for block in self.decoder.blks.values():
            x = block(x, x, target_lengths, states, cross_lengths)
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


def reference(kind: str) -> Reference:
    """With one valid length a row, or with one a query in all attentions."""
    source, target, lengths, by_query = draw()
    there = {"source_lengths": lengths}
    here = {"attention_mask": valid_length_mask(lengths, SOURCE_LENGTH)}
    shown = None
    if kind == "no causal target":  # one length a row for the target too; of no interest behind it
        there["target_lengths"] = torch.tensor([8, 3, 5])
        mask = valid_length_mask(there["target_lengths"], TARGET_LENGTH)
        here |= {"decoder_attention_mask": mask, "is_causal": False}
        shown = mask == 1
    if kind == "a length a query":
        there |= {f"{name}_lengths": by_query[part] for name, part in
                  (("source", "encoder"), ("target", "decoder"), ("cross", "cross"))}  # fmt: skip
        here["encoder_attention_mask"] = valid_length_mask(by_query["cross"], SOURCE_LENGTH)
        here["decoder_attention_mask"] = valid_length_mask(by_query["decoder"], TARGET_LENGTH)
        here["attention_mask"] = valid_length_mask(by_query["encoder"], SOURCE_LENGTH)
    return Reference(
        "notebook",
        randomized(Notebook(), std=0.15),
        lambda module: module(source=source, target=target, **there),
        {"input_ids": source, "decoder_input_ids": target, **here},
        {"overrides": {"encoder_attention_heads": HEADS, "decoder_attention_heads": HEADS}},
        tolerance=1e-6,  # sines of positions are of 32 bits in Weft
        shown=shown,
    )


CASES = {kind: partial(reference, kind) for kind in ("a length a row", "no causal target", "a length a query")}
TEXTS = ()
