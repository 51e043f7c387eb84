"""PyTorch's own transformer and its parts."""

from functools import partial

import torch
from torch import nn

from ...models import randomized
from . import Reference
from .symm import FFN, HEADS, WIDTH
from .symm import draw as draw_masked

PARTS = ("encoder layer", "decoder layer", "encoder", "decoder", "transformer")


def build(part, final=True, **options):
    if part == "transformer":
        return randomized(nn.Transformer(WIDTH, HEADS, 2, 1, FFN, batch_first=True, **options))
    kind = part.split()[0].capitalize()
    module = getattr(nn, f"Transformer{kind}Layer")(WIDTH, HEADS, FFN, batch_first=True, **options)
    if not part.endswith("layer"):
        norm = nn.LayerNorm(WIDTH, bias=options.get("bias", True)) if final else None
        module = getattr(nn, f"Transformer{kind}")(module, 2, norm=norm)
    return randomized(module)


def different_stacks():
    """Heads and feed-forward of its own for each stack."""
    encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(WIDTH, 2, 12, batch_first=True), 1, nn.LayerNorm(WIDTH))
    decoder = nn.TransformerDecoder(nn.TransformerDecoderLayer(WIDTH, 8, 28, batch_first=True), 2, nn.LayerNorm(WIDTH))
    return randomized(nn.Transformer(WIDTH, custom_encoder=encoder, custom_decoder=decoder, batch_first=True))


def draw(part, is_causal=True, heads=HEADS):
    """One call: the inputs by Weft's names, in torch's order, and the masks as (torch's keywords, Weft's keywords)."""
    (target, source), there, here = draw_masked("masks", heads)
    source_pads = torch.zeros(source.shape[:2]).bool()
    source_pads[0, 6:] = True  # zeros in torch's own kernels, so the mask of the memory hides them too
    if part.startswith("encoder"):
        return {"inputs_embeds": source}, {"src_key_padding_mask": source_pads}, {"attention_mask": ~source_pads}
    if not is_causal:
        there["tgt_mask"], here["is_causal"] = None, False
    if part.startswith("decoder"):
        return {"inputs_embeds": target, "encoder_hidden_states": source}, there, here
    here |= {"attention_mask": ~source_pads, "decoder_attention_mask": here["attention_mask"]}
    return (
        {"inputs_embeds": source, "decoder_inputs_embeds": target},
        there | {"src_key_padding_mask": source_pads},
        here,
    )


def reference(part, final=True, is_causal=True, norm_first=False, activation="relu", **options) -> Reference:
    heads = {"encoder_attention_heads": HEADS, "decoder_attention_heads": HEADS}
    if part == "different stacks":
        module, heads = different_stacks(), {"encoder_attention_heads": 2, "decoder_attention_heads": 8}
    else:
        module = build(part, final, norm_first=norm_first, activation=activation, **options)
    inputs, there, here = draw(part, is_causal, heads["decoder_attention_heads"])
    # in torch's own kernels, which run without gradients, pads are zeros: with the masks above they do not run
    shown = here["attention_mask"] if part == "encoder" else None
    return Reference(
        "torch",
        module,
        lambda module: module(*inputs.values(), **there),
        inputs | here,
        {"overrides": heads | {"norm_first": norm_first, "activation_function": activation}},
        tolerance=1e-12,
        shown=shown,
    )


CASES = {
    **{part: partial(reference, part) for part in (*PARTS, "different stacks")},
    **{
        f"{part}, pre-norm, gelu, no biases": partial(reference, part, norm_first=True, activation="gelu", bias=False)
        for part in PARTS
    },
    **{f"{part}, not causal": partial(reference, part, is_causal=False) for part in ("decoder", "transformer")},
    **{
        f"{part}, no last norm, {order}": partial(reference, part, final=False, norm_first=order == "pre-norm")
        for part in ("encoder", "decoder")
        for order in ("pre-norm", "post-norm")
    },
}
TEXTS = ()
