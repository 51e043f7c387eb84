"""PyTorch's own transformer and its parts."""

from functools import partial

import torch
from torch import nn

from . import Reference, randomized

BATCH, TARGET, SOURCE, WIDTH, HEADS, FFN = 2, 6, 7, 16, 4, 20
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
    generator = torch.Generator().manual_seed(3)
    source, target = (torch.randn(BATCH, length, WIDTH, generator=generator) for length in (SOURCE, TARGET))
    source_pads, memory_pads = torch.zeros(BATCH, SOURCE).bool(), torch.zeros(BATCH, SOURCE).bool()
    target_pads = torch.zeros(BATCH, TARGET).bool()
    # the first target is no pad: a row that sees nothing gives NaN in torch and zeros here
    source_pads[0, 5:] = memory_pads[0, 4:] = memory_pads[1, 1:3] = target_pads[0, 4:] = target_pads[1, 2] = True
    if part.startswith("encoder"):
        return {"inputs_embeds": source}, {"src_key_padding_mask": source_pads}, {"attention_mask": ~source_pads}
    bias = torch.randn(BATCH, heads, TARGET, SOURCE, generator=generator)
    there = {
        "tgt_mask": torch.ones(TARGET, TARGET).triu(1).bool() if is_causal else None,
        "tgt_key_padding_mask": target_pads,
        "memory_mask": bias.flatten(0, 1),
        "memory_key_padding_mask": memory_pads,
    }
    # the memory's two masks are one here
    cross = bias.masked_fill(memory_pads[:, None, None], float("-inf"))
    causal = {} if is_causal else {"is_causal": False}
    if part.startswith("decoder"):
        inputs = {"inputs_embeds": target, "encoder_hidden_states": source}
        return inputs, there, {"attention_mask": ~target_pads, "encoder_attention_mask": cross} | causal
    inputs = {"inputs_embeds": source, "decoder_inputs_embeds": target}
    here = {"attention_mask": ~source_pads, "decoder_attention_mask": ~target_pads, "encoder_attention_mask": cross}
    return inputs, there | {"src_key_padding_mask": source_pads}, here | causal


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
