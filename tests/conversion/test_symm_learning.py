"""symm-learning 0.8.1 itself, with random weights, and the Weft model made of them: the same numbers and gradients.

Its equivariant half needs the package `escnn`, its plain transformer does not: where `escnn` is not installed, empty
classes stand in for what is imported from it.
"""

import importlib.util
import sys
from itertools import product
from types import ModuleType, SimpleNamespace

import pytest
import torch
from torch import nn

from weftformer.conversion import SOURCES, convert, export
from weftformer.conversion.table import to_weft
from weftformer.conversion.torch_transformer import stack_part
from weftformer.modeling import WeftDecoder, WeftEncoder

BATCH, TARGET, SOURCE, WIDTH, HEADS, FFN, EPS = 2, 6, 7, 16, 4, 20, 1e-5
ROWS, MEMORY_ROWS, DISTANCE = 12, 15, 2
HEAD_FIELDS = ("encoder_attention_heads", "decoder_attention_heads")
SYMM = SOURCES["symm"]
KINDS = ["none", "rotary", "additive", "relative"]
PAIRS = list(product(KINDS, KINDS))  # of self- and cross-attention
NORMS = {"layernorm": nn.LayerNorm, "rmsnorm": nn.RMSNorm}
# A boolean padding mask beside an additive mask, which the relative bias is: torch warns, and takes both.
pytestmark = [
    pytest.mark.filterwarnings("ignore:Support for mismatched key_padding_mask"),
    pytest.mark.dtype(torch.float64),
]


@pytest.fixture(scope="session")
def symm():
    """The package's classes by name."""
    with pytest.MonkeyPatch.context() as patch:
        if importlib.util.find_spec("escnn") is None:
            group = ModuleType("escnn.group")
            for name in ("Group", "GroupElement", "HomSpace", "IrreducibleRepresentation", "Representation"):
                setattr(group, name, type(name, (), {}))
            patch.setitem(sys.modules, "escnn", ModuleType("escnn"))
            patch.setitem(sys.modules, "escnn.group", group)
        pytest.importorskip("symm_learning", minversion="0.8.1", reason="pip install --no-deps symm-learning==0.8.1")
        from symm_learning.nn import activation
        from symm_learning.nn.transformer import transformer

        yield SimpleNamespace(**vars(activation) | vars(transformer))


def attention(symm, kind, bias=True, rows=ROWS, distance=DISTANCE):
    if kind == "none":
        return nn.MultiheadAttention(WIDTH, HEADS, bias=bias, batch_first=True)
    if kind == "rotary":
        return symm.RoPEMultiheadAttention(WIDTH, HEADS, bias=bias)
    if kind == "additive":
        return symm.AdditivePosMultiheadAttention(WIDTH, HEADS, max_len=rows, bias=bias)
    return symm.AdditiveRelMultiheadAttention(WIDTH, HEADS, max_distance=distance, bias=bias)


def filled(module, seed=0):
    """Random weights everywhere: tables and biases start at zero and norms at one, where a mistake would not be seen."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            noise = torch.randn(parameter.shape, generator=generator) * 0.35
            parameter.copy_(noise + 1.0 if "norm" in name and name.endswith("weight") else noise)
    return module.eval()


def build(symm, own="none", cross=None, *, stack=0, final=False, norm="layernorm", norm_first=True, bias=True,
          attention_bias=None, activation=None, attentions=None, seed=0):  # fmt: skip
    """A decoder, or an encoder where `cross` is None; one layer, or a stack of `stack` layers."""
    kinds = [(own, ROWS)] + ([] if cross is None else [(cross, MEMORY_ROWS)])
    attention_bias = bias if attention_bias is None else attention_bias
    attentions = attentions or [attention(symm, kind, attention_bias, rows) for kind, rows in kinds]
    layer_class = symm.TransformerEncoderLayer if len(attentions) == 1 else symm.TransformerDecoderLayer
    module = layer_class(WIDTH, *attentions, FFN, activation=activation or nn.GELU(), layer_norm_eps=EPS,
                         norm_first=norm_first, norm_module=norm, bias=bias)  # fmt: skip
    if stack:
        last = None
        if final:
            last = nn.RMSNorm(WIDTH, EPS) if norm == "rmsnorm" else nn.LayerNorm(WIDTH, EPS, bias=bias)
        stack_class = symm.TransformerEncoder if len(attentions) == 1 else symm.TransformerDecoder
        module = stack_class(module, stack, norm=last)
    return filled(module, seed)


def converted(module, norm="layernorm", norm_first=True, **fields):
    fields = dict.fromkeys(HEAD_FIELDS, HEADS) | {"norm_type": norm, "norm_first": norm_first} | fields
    return convert(module.state_dict(), SYMM, overrides=fields).build()


def draw(call):
    """One call of a decoder: its inputs, and the rest as (symm-learning's keywords, Weft's keywords).

    The causal mask is spelled out and the causal hint is off: see `test_the_usual_causal_call` for what the hint does.
    """
    generator = torch.Generator().manual_seed(3)
    target, memory = (
        torch.randn(BATCH, length, WIDTH, generator=generator, requires_grad=True) for length in (TARGET, SOURCE)
    )
    causal = torch.ones(TARGET, TARGET, dtype=torch.bool).triu(1)
    there, here = {"tgt_mask": causal, "tgt_is_causal": False}, {}
    if call == "defaults":
        return (target, memory), there, here
    # the first target is no pad: a row that sees nothing gives NaN there and zeros here
    target_pads, memory_pads = torch.zeros(BATCH, TARGET).bool(), torch.zeros(BATCH, SOURCE).bool()
    target_pads[0, 4:] = target_pads[1, 2] = memory_pads[0, 5:] = memory_pads[1, :2] = True
    there |= {"tgt_key_padding_mask": target_pads, "memory_key_padding_mask": memory_pads}
    here |= {"attention_mask": ~target_pads, "encoder_attention_mask": ~memory_pads}
    shapes = [(TARGET,), (SOURCE,)] if call == "row" else [(BATCH, TARGET), (BATCH, SOURCE)]
    ids = [torch.randint(0, ROWS, shape, generator=generator) for shape in shapes]
    there |= {"tgt_positions": ids[0], "memory_positions": ids[1]}
    here |= {"position_ids": ids[0], "encoder_position_ids": ids[1]}
    if call == "both ways":
        return (target, memory), there | {"tgt_mask": None}, here | {"is_causal": False}
    placed = [torch.rand(shape, generator=generator) > 0.3 for shape in shapes]
    there |= {"tgt_position_mask": placed[0], "memory_position_mask": placed[1]}
    here |= {"position_mask": placed[0], "encoder_position_mask": placed[1]}
    if call == "rows":  # and 4-D masks, one of them additive and another one for every head
        bias = torch.randn(BATCH, HEADS, TARGET, SOURCE, generator=generator)
        there["memory_mask"] = bias.flatten(0, 1)
        here["encoder_attention_mask"] = bias.masked_fill(memory_pads[:, None, None], float("-inf"))
        here["attention_mask"] = ~(causal | target_pads[:, None, None])
    return (target, memory), there, here


def encoder_call(call, is_stack):
    """The decoder's target as a call of an encoder."""
    (states, _), there, here = draw(call)
    here = {name: value for name, value in here.items() if name in ("attention_mask", "position_ids", "position_mask")}
    own = {name.replace("tgt", "src"): value for name, value in there.items() if name.startswith("tgt")}
    mask = own.pop("src_mask")
    del own["src_is_causal"]
    if call == "rows":  # where Weft's mask is 4-D and has the causal one in it
        own["mask" if is_stack else "src_mask"] = mask
    return (states,), own, here


def assert_same(module, model, inputs, there, here):
    """The output, and the gradient of every parameter and input, these also relative to their largest entry."""
    # rotary angles are computed in 32 bits here, whatever the weights are
    kinds = {model.config.self_attention_position_type, model.config.cross_attention_position_type}
    tolerance = 1e-5 if "rotary" in kinds else 1e-12
    expected = module(*inputs, **there)
    names = ("inputs_embeds", "encoder_hidden_states")
    found = model(**dict(zip(names, inputs, strict=False)), **here).last_hidden_state
    torch.testing.assert_close(found, expected, atol=tolerance, rtol=0)
    assert expected.std() > 0.3
    # another weight for each output, so that no error can cancel; small ones, which make gradients of about one
    weight = 0.25 * torch.randn(expected.shape, generator=torch.Generator().manual_seed(4))
    place = "model.encoder." if isinstance(model, WeftEncoder) else "model.decoder."
    theirs = dict(module.named_parameters())
    ours = {place + name: p for name, p in model.named_parameters() if name != "embed_tokens.weight"}
    wanted = torch.autograd.grad((expected * weight).sum(), [*inputs, *theirs.values()])
    got = torch.autograd.grad((found * weight).sum(), [*inputs, *ours.values()])
    # a gradient goes the way of its weight: tensors are only cut and their rows permuted
    prefix, count = stack_part(theirs)[1], len(inputs)
    gradients = {prefix + name: gradient for name, gradient in zip(theirs, wanted[count:], strict=True)}
    shapes = {name: p.shape for name, p in ours.items()}
    moved = to_weft(gradients, SYMM.table(model.config, {}), model.config, shapes)
    assert moved.fits, moved.describe()
    for name, one, other in zip(
        [*names[:count], *ours], got, [*wanted[:count], *(moved.weights[name] for name in ours)], strict=True
    ):
        assert (one - other).abs().max() <= tolerance * max(1.0, other.abs().max()), name


def all_orders_and_norms(test):
    for mark in (
        pytest.mark.parametrize("norm_first", [True, False], ids=["pre", "post"]),
        pytest.mark.parametrize("norm", NORMS),
        pytest.mark.parametrize("bias", [True, False], ids=["bias", "bare"]),
    ):
        test = mark(test)
    return test


@pytest.mark.stays(norm=("layernorm",), norm_first=(True,), bias=(True,))
@pytest.mark.stays(own=("relative",), cross=("rotary",))
@all_orders_and_norms
@pytest.mark.parametrize(("own", "cross"), PAIRS)
def test_decoder_layer(symm, own, cross, bias, norm, norm_first):
    module = build(symm, own, cross, bias=bias, norm=norm, norm_first=norm_first)
    model = converted(module, norm=norm, norm_first=norm_first)
    assert type(model) is WeftDecoder
    assert_same(module, model, *draw("rows"))


@pytest.mark.stays(call=("both ways",))
@pytest.mark.stays(own=("relative",), cross=("rotary",))
@pytest.mark.parametrize("call", ["defaults", "row", "both ways"])
@pytest.mark.parametrize(("own", "cross"), PAIRS)
def test_every_call_of_a_decoder_layer(symm, own, cross, call):
    module = build(symm, own, cross)
    assert_same(module, converted(module), *draw(call))


@pytest.mark.stays(norm=("rmsnorm",), norm_first=(True,), bias=(False,))
@pytest.mark.stays(own=("relative",), final=(True,))
@all_orders_and_norms
@pytest.mark.parametrize("final", [True, False], ids=["final norm", "no final norm"])
@pytest.mark.parametrize(("own", "cross"), list(zip(KINDS, KINDS[1:] + KINDS[:1], strict=True)))
def test_decoder_stack(symm, own, cross, final, bias, norm, norm_first):
    module = build(symm, own, cross, stack=2, final=final, bias=bias, norm=norm, norm_first=norm_first)
    model = converted(module, norm=norm, norm_first=norm_first)
    model.set_attn_implementation("eager" if final else "sdpa")
    assert model.config.has_final_norm == final
    assert_same(module, model, *draw("rows"))


@pytest.mark.stays(norm_first=(True,), final=(True,))
@pytest.mark.stays(own=("relative",))
@pytest.mark.parametrize("norm_first", [True, False], ids=["pre", "post"])
@pytest.mark.parametrize(("norm", "bias"), [("layernorm", True), ("rmsnorm", False)])
@pytest.mark.parametrize(("stack", "final"), [(0, False), (2, False), (2, True)], ids=["layer", "stack", "final norm"])
@pytest.mark.parametrize("own", KINDS)
def test_encoder(symm, own, stack, final, bias, norm, norm_first):
    module = build(symm, own, stack=stack, final=final, bias=bias, norm=norm, norm_first=norm_first)
    model = converted(module, norm=norm, norm_first=norm_first)
    assert type(model) is WeftEncoder
    assert_same(module, model, *encoder_call("rows" if norm_first else "row", stack))


@pytest.mark.stays(stack=(2,))
@pytest.mark.parametrize(("own", "cross"), [*PAIRS, *((kind, None) for kind in KINDS)])
@pytest.mark.parametrize("stack", [0, 2], ids=["layer", "stack"])
def test_the_way_back_gives_every_bit(symm, own, cross, stack):
    for norm, bias in (("layernorm", True), ("rmsnorm", False)):
        module = build(symm, own, cross, stack=stack, final=True, norm=norm, bias=bias)
        weights = module.state_dict()
        back = export(converted(module, norm=norm), SYMM)
        prefix = stack_part(weights)[1]
        assert set(back) == {prefix + name for name in weights}
        other = build(symm, own, cross, stack=stack, final=True, norm=norm, bias=bias, seed=1)
        other.load_state_dict({name.removeprefix(prefix): tensor for name, tensor in back.items()}, strict=True)
        assert all(torch.equal(tensor, weights[name]) for name, tensor in other.state_dict().items())


@pytest.mark.parametrize("kind", KINDS[1:])
@pytest.mark.parametrize("side", ["position_ids", "position_mask", "encoder_position_ids", "encoder_position_mask"])
def test_positions_matter(symm, kind, side):
    """Else equal outputs would say nothing about them."""
    crosses = side.startswith("encoder")
    model = converted(build(symm, *(("none", kind) if crosses else (kind, "none"))))
    (target, memory), _, here = draw("rows")
    changed = here | {side: ~here[side] if side.endswith("mask") else here[side].roll(1, -1)}
    first, second = (model(inputs_embeds=target, encoder_hidden_states=memory, **call)[0] for call in (here, changed))
    assert (first - second).abs().max() > 1e-2


@pytest.mark.parametrize("kind", KINDS)
def test_the_usual_causal_call(symm, kind):
    """A stack takes this mask for a causal hint, and with the hint torch's attention drops the mask it was given.

    Where nothing is padded, the relative bias, which is part of that mask, goes with it: a bug there, not copied here.
    """
    module = build(symm, kind, kind, stack=2)
    inputs, _, _ = draw("defaults")
    expected = module(*inputs, tgt_mask=nn.Transformer.generate_square_subsequent_mask(TARGET))
    model = converted(module)
    if kind == "relative":
        found = model(inputs_embeds=inputs[0], encoder_hidden_states=inputs[1])[0]
        assert (found - expected).abs().max() > 0.1
        for layer in model.layers:
            nn.init.zeros_(layer.self_attn.relative_bias)
    found = model(inputs_embeds=inputs[0], encoder_hidden_states=inputs[1])[0]
    torch.testing.assert_close(found, expected, atol=1e-5 if kind == "rotary" else 1e-12, rtol=0)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("bias", "attention_bias"), [(True, False), (False, True)])
def test_attention_and_the_rest_may_differ_in_biases(symm, kind, bias, attention_bias):
    module = build(symm, kind, kind, bias=bias, attention_bias=attention_bias)
    assert_same(module, converted(module), *draw("rows"))


def test_what_the_keys_do_not_tell_is_given(symm):
    """Activation and base of the rotation."""
    own, cross = (symm.RoPEMultiheadAttention(WIDTH, HEADS, rope_base=50.0) for _ in range(2))
    module = build(symm, attentions=[own, cross], activation=nn.ReLU())
    model = converted(module, activation_function="relu", rope_parameters={"rope_type": "default", "rope_theta": 50.0})
    assert_same(module, model, *draw("rows"))


@pytest.mark.parametrize("norm", NORMS)
def test_the_kind_of_norm_is_seen_by_its_bias(symm, norm):
    module = build(symm, norm=norm, norm_first=False)
    heads = dict.fromkeys(HEAD_FIELDS, HEADS)
    assert convert(module.state_dict(), SYMM, overrides=heads).config.norm_type == norm


def test_heads_have_to_be_given(symm):
    with pytest.raises(ValueError, match="encoder_attention_heads and decoder_attention_heads"):
        convert(build(symm).state_dict(), SYMM)


def test_distances_of_one_decoder_have_to_agree(symm):
    own, cross = (attention(symm, "relative", distance=distance) for distance in (2, 3))
    with pytest.raises(ValueError, match=r"encoder_attn\.relative_bias would be \(7,\)"):
        converted(build(symm, attentions=[own, cross]))
