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

    def __init__(self, bias, name):
        super().__init__(name)
        self.bias = bias

    def __call__(self, x, mask, source=None, source_mask=None):
        def attend(name, keys, mask):
            attention = hk.MultiHeadAttention(
                HEADS, WIDTH // HEADS, w_init=jnp.zeros, model_size=WIDTH, with_bias=self.bias, name=name
            )
            return attention(x, keys, keys, mask)

        x = norm("self_attention_norm", x + attend("self_attention", x, mask))
        if source is not None:
            x = norm("cross_attention_norm", x + attend("cross_attention", source, source_mask))
        return norm("feed_forward_norm", x + FeedForward(name="feed_forward")(x))


class Stack(hk.Module):
    def __init__(self, bias, name):
        super().__init__(name)
        self.bias = bias

    def __call__(self, x, *others):
        for index in range(LAYERS):
            x = Layer(self.bias, name=f"layer_{index}")(x, *others)
        return x


def positions(length, layout):
    """sin and cos of position / 10000^(2i / d), side by side, or all sines first."""
    angles = np.arange(length)[:, None] / 10000.0 ** (np.arange(0, WIDTH, 2) / WIDTH)
    pair = (np.sin(angles), np.cos(angles))
    table = (
        np.stack(pair, axis=-1).reshape(length, WIDTH) if layout == "interleaved" else np.concatenate(pair, axis=-1)
    )
    return jnp.asarray(table, jnp.float32)


class Parts:
    """The modules under their documented names, and the way through them."""

    def __init__(self, tied, layout, bias, linear):
        self.layout = layout
        if tied:
            self.source_table = self.target_table = hk.Embed(SOURCE_TOKENS, WIDTH, name="embedding")
        else:
            self.source_table = hk.Embed(SOURCE_TOKENS, WIDTH, name="source_embedding")
            self.target_table = hk.Embed(TARGET_TOKENS, WIDTH, name="target_embedding")
        self.encoder, self.decoder = Stack(bias, name="encoder"), Stack(bias, name="decoder")
        self.output = linear(SOURCE_TOKENS if tied else TARGET_TOKENS, name="output")

    def embed(self, table, ids):
        return table(ids) * math.sqrt(WIDTH) + positions(ids.shape[1], self.layout)

    def logits(self, source, target):
        source_mask = (source != PAD)[:, None, None, :]
        causal = jnp.tril(jnp.ones((target.shape[1],) * 2, bool))[None, None]
        states = self.encoder(self.embed(self.source_table, source), source_mask)
        return self.output(self.decoder(self.embed(self.target_table, target), causal, states, source_mask))


class Root(hk.Module):
    """The same under a root, made where `form` says: Haiku writes that into the paths."""

    def __init__(self, form, *options):
        super().__init__("transformer")
        self.options = (*options, self.linear if form == "in a method" else hk.Linear)
        self.parts = Parts(*self.options) if form == "in __init__" else None

    def linear(self, *sizes, name):
        return hk.Linear(*sizes, name=name)

    def __call__(self, source, target):
        return (self.parts or Parts(*self.options)).logits(source, target)


@lru_cache
def haiku_model(form="without a root", tied=False, layout="interleaved", bias=True):
    """Random parameters, norms and biases too, and the function of (source, target, parameters) to logits."""

    def forward(source, target):
        if form == "without a root":
            return Parts(tied, layout, bias, hk.Linear).logits(source, target)
        return Root(form, tied, layout, bias)(source, target)

    network = hk.without_apply_rng(hk.transform(forward))
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

    def logits(source, target, params=params):
        return network.apply(params, jnp.asarray(source.numpy()), jnp.asarray(target.numpy()))

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


def weft_model(params, **overrides):
    overrides = {"encoder_attention_heads": HEADS, "decoder_attention_heads": HEADS} | overrides
    return convert(flatten(params), SOURCE, overrides=overrides).build()


FORMS = {
    "without a root": "output",
    "in __call__": "transformer/output",
    "in __init__": "transformer/~/output",
    "in a method": "transformer/~linear/output",
}


OPTIONS = [
    *({"form": form} for form in FORMS), {"tied": True, "form": "in __init__"}, {"layout": "concatenated", "bias": False}
]  # fmt: skip


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@torch.no_grad()
def test_logits_equal_those_of_haiku_and_the_way_back_is_exact(options):
    params, logits = haiku_model(**options)
    assert FORMS[options.get("form", "without a root")] in params
    source, target = draw_ids()
    model = weft_model(params, sinusoidal_layout=options.get("layout", "interleaved"))
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


@torch.no_grad()
def test_heads_and_the_epsilon_of_the_norms_must_be_right():
    params, logits = haiku_model()
    last = "decoder/layer_1/feed_forward_norm"
    small = {  # small states, in which the epsilon shows
        module: {
            name: leaf * (0.01 if leaf.ndim == 1 and module not in (last, "output") else 1.0)
            for name, leaf in leaves.items()
        }
        for module, leaves in params.items()
    }
    source, target = draw_ids()
    expected = tensor(logits(source, target, small))
    for error, fields in ((0, {}), (1e-2, {"norm_eps": 1e-6}), (1e-2, {"encoder_attention_heads": 2})):
        found = weft_model(small, **fields)(input_ids=source, decoder_input_ids=target).logits
        assert error <= largest_error(found, expected) and (error or largest_error(found, expected) < 1e-5)


@pytest.mark.slow
def test_gradients_equal_those_of_haiku():
    params, logits = haiku_model(tied=True)
    source, target = draw_ids()
    labels = target[:, 1:]

    def loss(params):
        scores = jax.nn.log_softmax(logits(source, target[:, :-1], params))
        return -jnp.take_along_axis(scores, jnp.asarray(labels.numpy())[..., None], axis=-1).mean()

    # almost all of the time goes to compiling
    gradient = jax.jit(jax.grad(loss), compiler_options={"xla_backend_optimization_level": 0})
    expected = flatten(gradient(params))
    model = weft_model(params)
    model(input_ids=source, decoder_input_ids=target[:, :-1], labels=labels.contiguous()).loss.backward()
    for parameter in model.parameters():
        parameter.data = parameter.grad
    found = export(model, SOURCE)
    largest = max(gradient.abs().max() for gradient in expected.values())
    assert found.keys() == expected.keys()
    assert all((found[key] - expected[key]).abs().max() < 1e-5 * largest for key in expected)


def test_parameters_in_bfloat16_keep_their_bits():
    params = jax.tree.map(lambda leaf: leaf.astype(jnp.bfloat16), haiku_model()[0])
    flat = flatten(params)
    assert {leaf.dtype for leaf in flat.values()} == {torch.bfloat16}
    name = "encoder/layer_0/self_attention/query"
    assert flat[f"{name}/w"].float().tolist() == params[name]["w"].astype(jnp.float32).tolist()
    back = export(weft_model(params), SOURCE)
    assert all(torch.equal(back[key], flat[key]) for key in flat)


def test_cached_decoding_writes_what_haiku_writes():
    params, logits = haiku_model()
    source, _ = draw_ids()
    # one shape for all steps, so that JAX compiles for one: what stands after a step it cannot see
    target = torch.full((3, 9), PAD)
    target[:, 0] = START
    for step in range(8):
        target[:, step + 1] = tensor(logits(source, target))[:, step].argmax(dim=-1)
    found = weft_model(params).generate(
        source, max_new_tokens=8, min_new_tokens=8, do_sample=False, eos_token_id=None, use_cache=True
    )
    assert found.tolist() == target.tolist()
    assert len(target[:, 1:].unique()) > 2
