"""transformers' T5 family."""

from functools import partial

import torch
import transformers
from torch import nn

from weftformer.modeling.transformers_names import CACHE

from . import Reference

# Heads that are not as wide together as the model; more layers in the decoder; a distance that the sequences exceed.
SMALL = {
    "vocab_size": 50, "d_model": 32, "d_kv": 10, "num_heads": 4, "d_ff": 40, "num_layers": 2, "num_decoder_layers": 3,
    "relative_attention_num_buckets": 8, "relative_attention_max_distance": 12, "decoder_start_token_id": 0,
}  # fmt: skip
V1_1 = {"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False}
# class, fields of its configuration, and whether the head is a table of its own
FAMILIES = {
    "t5": ("T5", {}, False),
    "t5, own head": ("T5", {}, True),
    "t5 1.1": ("T5", V1_1, False),
    "t5 1.1, own head": ("T5", V1_1, True),
    "mt5": ("MT5", {}, False),
}


def original(family, seed=0):
    """Random values everywhere: norms start at one, where a mistake would not be seen.

    Little noise: T5 does not scale its logits down, and where they are large a softmax is a choice, in which the last
    bits decide and a comparison would say nothing. The relative biases take more of it, and need it to count.
    """
    name, fields, has_own_head = FAMILIES[family]
    torch.manual_seed(seed)
    config = getattr(transformers, f"{name}Config")(**(SMALL | fields))
    model = getattr(transformers, f"{name}ForConditionalGeneration")(config)
    if has_own_head:
        model.lm_head.weight = nn.Parameter(torch.randn_like(model.shared.weight))
    with torch.no_grad():
        for key, parameter in model.named_parameters():
            parameter.add_(torch.randn_like(parameter) * (1.0 if "relative_attention_bias" in key else 0.05))
    return model.eval()


def draw():
    """Three sources, one padded on the left and one on the right, and targets that begin as in training."""
    generator = torch.Generator().manual_seed(1)
    source = torch.randint(2, 50, (3, 30), generator=generator)
    target = torch.randint(2, 50, (3, 25), generator=generator)
    source[1, :15] = source[2, -7:] = target[:, 0] = 0
    return {"input_ids": source, "attention_mask": source.ne(0).long(), "decoder_input_ids": target}


def reference(family) -> Reference:
    module, batch = original(family), draw()
    # no token twice, or random weights write one again and again
    settings = {
        "max_new_tokens": 20,
        "min_new_tokens": 20,
        "num_beams": 3,
        "do_sample": False,
        "no_repeat_ngram_size": 1,
    }
    source = {"inputs": batch["input_ids"], "attention_mask": batch["attention_mask"]}

    def written(module):
        # the cache that 5.23 makes itself has as many layers as the encoder, and the decoder may have more
        cache = transformers.EncoderDecoderCache(transformers.DynamicCache(), transformers.DynamicCache())
        return module.generate(**source, **{CACHE: cache}, **settings)

    return Reference(
        "t5",
        module,
        lambda module: module(**batch).logits,
        batch,
        {"source_config": module.config.to_dict()},
        tolerance=1e-5,  # relative positions are biases of 32 bits there
        written=written,
        generation=source | settings,
        # a head that is the embeddings times a factor goes back as the embeddings alone
        absent=("lm_head.weight",) if family == "t5" else (),
        is_exact=False,  # queries are scaled there and back
    )


CASES = {family: partial(reference, family) for family in FAMILIES}
TEXTS = tuple(FAMILIES)
