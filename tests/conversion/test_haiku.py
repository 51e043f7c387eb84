"""A transformer written with Haiku's own modules: converted parameters give its logits, gradients and greedy text.

And they go back bit for bit. The gradients go through the same table as the weights, which it moves and never changes.
"""

import math
from functools import lru_cache

import numpy as np
import pytest
import torch

from weftformer.conversion import SOURCES, convert, export
from weftformer.conversion.haiku import flatten

from .references import largest_error

jax = pytest.importorskip("jax", reason="jax is not installed: Haiku's transformer cannot run")
hk = pytest.importorskip("haiku", reason="dm-haiku is not installed: there is no Haiku transformer to compare with")
jnp = jax.numpy

SOURCE = SOURCES["haiku"]
LAYERS, WIDTH, HEADS, FFN, PAD, START = 2, 32, 4, 48, 0, 1
SOURCE_TOKENS, TARGET_TOKENS = 29, 23


def norm(name, x):
    return hk.LayerNorm(axis=-1, create_scale=True, create_offset=True, name=name)(x)


class FeedForward(hk.Module):
    def __call__(self, x):
        x = jax.nn.relu(hk.Linear(FFN)(x))  # `linear`, then `linear_1`: Haiku counts as they are made
        return hk.Linear(WIDTH)(x)


class Layer(hk.Module):
    """Post-norm; with a source it is a layer of the decoder."""

    def __call__(self, x, mask, source=None, source_mask=None):
        def attend(name, keys, mask):
            attention = hk.MultiHeadAttention(HEADS, WIDTH // HEADS, w_init=jnp.zeros, model_size=WIDTH, name=name)
            return attention(x, keys, keys, mask)

        x = norm("self_attention_norm", x + attend("self_attention", x, mask))
        if source is not None:
            x = norm("cross_attention_norm", x + attend("cross_attention", source, source_mask))
        return norm("feed_forward_norm", x + FeedForward(name="feed_forward")(x))


class Stack(hk.Module):
    def __call__(self, x, *others):
        for index in range(LAYERS):
            x = Layer(name=f"layer_{index}")(x, *others)
        return x


def positions(length):
    """sin and cos of position / 10000^(2i / d), side by side."""
    angles = np.arange(length)[:, None] / 10000.0 ** (np.arange(0, WIDTH, 2) / WIDTH)
    return jnp.asarray(np.stack((np.sin(angles), np.cos(angles)), axis=-1).reshape(length, WIDTH), jnp.float32)


class Root(hk.Module):
    """The modules with their documented names under a root, which Haiku writes into the paths."""

    def __init__(self, tied):
        super().__init__("transformer")
        if tied:
            self.source_table = self.target_table = hk.Embed(SOURCE_TOKENS, WIDTH, name="embedding")
        else:
            self.source_table = hk.Embed(SOURCE_TOKENS, WIDTH, name="source_embedding")
            self.target_table = hk.Embed(TARGET_TOKENS, WIDTH, name="target_embedding")
        self.encoder, self.decoder = Stack(name="encoder"), Stack(name="decoder")
        self.output = hk.Linear(SOURCE_TOKENS if tied else TARGET_TOKENS, name="output")

    def embed(self, table, ids):
        return table(ids) * math.sqrt(WIDTH) + positions(ids.shape[1])

    def __call__(self, source, target):
        source_mask = (source != PAD)[:, None, None, :]
        causal = jnp.tril(jnp.ones((target.shape[1],) * 2, bool))[None, None]
        states = self.encoder(self.embed(self.source_table, source), source_mask)
        return self.output(self.decoder(self.embed(self.target_table, target), causal, states, source_mask))


@lru_cache
def haiku_model(tied):
    """Random parameters, norms and biases too, and the function of (source, target) to logits."""
    network = hk.without_apply_rng(hk.transform(lambda *ids: Root(tied)(*ids)))
    ids = jax.ShapeDtypeStruct((3, 5), jnp.int32)
    shapes = jax.eval_shape(network.init, jax.ShapeDtypeStruct((2,), jnp.uint32), ids, ids)
    draw = np.random.default_rng(2)
    params = {
        module: {
            name: jnp.asarray(draw.normal(name == "scale", 0.15, leaf.shape), jnp.float32)
            for name, leaf in leaves.items()
        }
        for module, leaves in shapes.items()
    }

    apply = jax.jit(network.apply)  # compiled once, and not each operation

    def logits(source, target):
        return apply(params, jnp.asarray(source.numpy()), jnp.asarray(target.numpy()))

    return params, logits


def draw_ids():
    """Pads at the end of two sources, and one in the middle."""
    generator = torch.Generator().manual_seed(1)
    source = torch.randint(1, SOURCE_TOKENS, (3, 12), generator=generator)
    source[0, 7:] = source[1, 10:] = source[2, 4] = PAD
    target = torch.randint(1, TARGET_TOKENS, (3, 9), generator=generator)
    target[:, 0] = START
    return source, target


def tensor(array):
    return torch.from_numpy(np.array(array))


@pytest.mark.parametrize("root", ["", "transformer/", "transformer/~/", "transformer/~linear/"])
def test_paths_are_those_below_the_root(root):
    """A root is made in `__call__`, in `__init__` or in another method."""
    params = {f"{root}output": {"w": np.ones((2, 3))}, f"{root}encoder/layer_0/norm": {"scale": np.ones(2)}}
    assert set(flatten(params)) == {"output/w", "encoder/layer_0/norm/scale"}
    with pytest.raises(ValueError, match=r"Several paths of Haiku map to the same key: .*output/w"):
        flatten(params | {f"{root}~again/output": {"w": np.ones((2, 3))}})


@pytest.mark.parametrize("tied", [False, pytest.param(True, marks=pytest.mark.integration)])
@torch.no_grad()
def test_logits_equal_those_of_haiku_and_the_way_back_is_exact(tied):
    params, logits = haiku_model(tied)
    source, target = draw_ids()
    heads = {"encoder_attention_heads": HEADS, "decoder_attention_heads": HEADS}
    model = convert(flatten(params), SOURCE, overrides=heads).build()
    assert sum(p.numel() for p in model.parameters()) == sum(leaf.size for leaf in jax.tree.leaves(params))
    expected = tensor(logits(source, target))
    # JAX computes in 32 bits: 5e-7 were seen
    assert largest_error(model(input_ids=source, decoder_input_ids=target).logits, expected) < 1e-5
    assert expected.std() > 0.5
    # pads at the end of the target change no real position
    mask = (torch.arange(9) < torch.tensor([9, 4, 6])[:, None]).long()
    target = target.where(mask == 1, PAD)
    padded = model(input_ids=source, decoder_input_ids=target, decoder_attention_mask=mask).logits
    assert largest_error(padded[mask == 1], expected[mask == 1]) < 1e-5
    flat, back = flatten(params), export(model, SOURCE)
    assert back.keys() == flat.keys() and all(torch.equal(back[key], flat[key]) for key in flat)
