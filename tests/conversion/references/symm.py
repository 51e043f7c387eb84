"""symm-learning 0.8.1's own transformer layers and stacks.

Its equivariant half needs the package `escnn`, its plain transformer does not: where `escnn` is not installed, empty
classes stand in for what is imported from it.
"""

import importlib.util
import sys
from functools import cache, partial
from itertools import product
from types import ModuleType, SimpleNamespace

import pytest
import torch
from torch import nn

from ...models import randomized
from . import Reference

BATCH, TARGET, SOURCE, WIDTH, HEADS, FFN, EPS = 2, 6, 7, 16, 4, 20, 1e-5
ROWS, MEMORY_ROWS, DISTANCE = 12, 15, 2
KINDS = ("none", "rotary", "additive", "relative")
CALLS = ("defaults", "row", "both ways", "rows")
HEAD_FIELDS = dict.fromkeys(("encoder_attention_heads", "decoder_attention_heads"), HEADS)


@cache
def symm_learning() -> SimpleNamespace:
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

    return SimpleNamespace(**vars(activation) | vars(transformer))


def attention(kind, bias=True, rows=ROWS, distance=DISTANCE, **options):
    symm = symm_learning()
    if kind == "none":
        return nn.MultiheadAttention(WIDTH, HEADS, bias=bias, batch_first=True)
    if kind == "rotary":
        return symm.RoPEMultiheadAttention(WIDTH, HEADS, bias=bias, **options)
    if kind == "additive":
        return symm.AdditivePosMultiheadAttention(WIDTH, HEADS, max_len=rows, bias=bias)
    return symm.AdditiveRelMultiheadAttention(WIDTH, HEADS, max_distance=distance, bias=bias)


def build(own="none", cross=None, *, stack=0, final=False, norm="layernorm", norm_first=True, bias=True,
          attention_bias=None, activation=None, attentions=None):  # fmt: skip
    """A decoder, or an encoder where `cross` is None; one layer, or a stack of `stack` layers."""
    symm = symm_learning()
    kinds = [(own, ROWS)] + ([] if cross is None else [(cross, MEMORY_ROWS)])
    attention_bias = bias if attention_bias is None else attention_bias
    attentions = attentions or [attention(kind, attention_bias, rows) for kind, rows in kinds]
    name = "Encoder" if len(attentions) == 1 else "Decoder"
    module = getattr(symm, f"Transformer{name}Layer")(
        WIDTH, *attentions, FFN, activation=activation or nn.GELU(), layer_norm_eps=EPS, norm_first=norm_first,
        norm_module=norm, bias=bias,
    )  # fmt: skip
    if stack:
        last = None
        if final:
            last = nn.RMSNorm(WIDTH, EPS) if norm == "rmsnorm" else nn.LayerNorm(WIDTH, EPS, bias=bias)
        module = getattr(symm, f"Transformer{name}")(module, stack, norm=last)
    return randomized(module)


def draw(call, heads=HEADS):
    """One call of a decoder: its inputs, and the rest as (symm-learning's keywords, Weft's keywords).

    The causal mask is spelled out and the causal hint is off.
    """
    generator = torch.Generator().manual_seed(3)
    target, memory = (torch.randn(BATCH, length, WIDTH, generator=generator) for length in (TARGET, SOURCE))
    causal = torch.ones(TARGET, TARGET, dtype=torch.bool).triu(1)
    there, here = {"tgt_mask": causal, "tgt_is_causal": False}, {}
    if call == "defaults":
        return (target, memory), there, here
    # the first target is no pad: a row that sees nothing gives NaN there and zeros here
    target_pads, memory_pads = torch.zeros(BATCH, TARGET).bool(), torch.zeros(BATCH, SOURCE).bool()
    target_pads[0, 4:] = target_pads[1, 2] = memory_pads[0, 5:] = memory_pads[1, :2] = True
    there |= {"tgt_key_padding_mask": target_pads, "memory_key_padding_mask": memory_pads}
    here |= {"attention_mask": ~target_pads, "encoder_attention_mask": ~memory_pads}
    if call in ("masks", "rows"):  # an additive mask for every head, and the memory's two masks are one here
        bias = torch.randn(BATCH, heads, TARGET, SOURCE, generator=generator)
        there["memory_mask"] = bias.flatten(0, 1)
        here["encoder_attention_mask"] = bias.masked_fill(memory_pads[:, None, None], float("-inf"))
    if call == "masks":
        return (target, memory), there, here
    shapes = [(TARGET,), (SOURCE,)] if call == "row" else [(BATCH, TARGET), (BATCH, SOURCE)]
    ids = [torch.randint(0, ROWS, shape, generator=generator) for shape in shapes]
    there |= {"tgt_positions": ids[0], "memory_positions": ids[1]}
    here |= {"position_ids": ids[0], "encoder_position_ids": ids[1]}
    if call == "both ways":
        return (target, memory), there | {"tgt_mask": None}, here | {"is_causal": False}
    placed = [torch.rand(shape, generator=generator) > 0.3 for shape in shapes]
    there |= {"tgt_position_mask": placed[0], "memory_position_mask": placed[1]}
    here |= {"position_ids": (ids[0], placed[0]), "encoder_position_ids": (ids[1], placed[1])}
    if call == "rows":  # and a 4-D mask
        here["attention_mask"] = ~(causal | target_pads[:, None, None])
    return (target, memory), there, here


def encoder_call(call, is_stack):
    """The decoder's target as a call of an encoder."""
    (states, _), there, here = draw(call)
    here = {name: value for name, value in here.items() if name in ("attention_mask", "position_ids")}
    own = {name.replace("tgt", "src"): value for name, value in there.items() if name.startswith("tgt")}
    mask = own.pop("src_mask")
    del own["src_is_causal"]
    if call == "rows":  # where Weft's mask is 4-D and has the causal one in it
        own["mask" if is_stack else "src_mask"] = mask
    return (states,), own, here


def reference(
    own, cross, call="rows", *, norm="layernorm", norm_first=True, stack=0, overrides=None, **options
) -> Reference:
    module = build(own, cross, norm=norm, norm_first=norm_first, stack=stack, **options)
    inputs, there, here = draw(call) if cross else encoder_call(call, stack)
    here |= dict(zip(("inputs_embeds", "encoder_hidden_states"), inputs, strict=False))
    fields = HEAD_FIELDS | {"norm_type": norm, "norm_first": norm_first} | (overrides or {})
    # rotary angles are computed in 32 bits here, whatever the weights are
    tolerance = 1e-5 if "rotary" in (own, cross) else 1e-12
    return Reference("symm", module, lambda module: module(*inputs, **there), here, {"overrides": fields}, tolerance)


def rope_of_50(own="rotary", cross="rotary") -> Reference:
    """What the keys do not tell is given: activation and base of the rotation."""
    attentions = [attention("rotary", rope_base=50.0) for _ in range(2)]
    rope = {"rope_type": "default", "rope_theta": 50.0}
    fields = {"activation_function": "relu", "rope_parameters": rope}
    return reference(own, cross, attentions=attentions, activation=nn.ReLU(), overrides=fields)


# Every pair of positions, and with them in turn every way to call and to build: orders and kinds of norms, biases,
# stacks.
CASES = {}
for number, (own, cross) in enumerate(product(KINDS, (*KINDS, None))):
    options = {
        "norm_first": number % 2 == 0,
        "norm": ("layernorm", "rmsnorm")[number // 2 % 2],
        "bias": number % 3 > 0,
        "stack": (0, 2, 2)[number % 3],
        "final": number % 3 == 1,
        "attention_bias": number % 5 != 2,
    }
    call = "rows" if cross is None and number % 2 else CALLS[(number + number // 5) % 4]
    shown = ", ".join(f"{name} {value}" for name, value in options.items())
    CASES[f"{own} and {cross}, {call}, {shown}"] = partial(reference, own, cross, call, **options)
CASES["another base"] = rope_of_50
TEXTS = ()
