"""transformers' BART family.

transformers 5.23 sends the tokens of NLLB-MoE to the wrong experts; that family is compared with a repaired one.
"""

from functools import partial

import torch
import transformers
from packaging.version import Version
from transformers.models.nllb_moe.modeling_nllb_moe import NllbMoeExperts

from ...models import randomized
from . import Reference

# Wherever the two stacks can differ, they do.
SMALL = {
    "vocab_size": 50, "d_model": 32, "encoder_layers": 2, "decoder_layers": 3, "encoder_ffn_dim": 48,
    "decoder_ffn_dim": 40, "encoder_attention_heads": 4, "decoder_attention_heads": 2, "max_position_embeddings": 24,
}  # fmt: skip
MARIAN = {"pad_token_id": 45, "decoder_start_token_id": 45, "activation_function": "swish", "scale_embedding": True}
APART = {"share_encoder_decoder_embeddings": False, "decoder_vocab_size": 46}
SPARSE = {"encoder_sparse_step": 2, "decoder_sparse_step": 2, "num_experts": 4, "moe_token_dropout": 0.2}
FAMILIES = {
    "bart": ("BartForConditionalGeneration", "BartConfig", {}),
    "bart, all tables apart": ("BartForConditionalGeneration", "BartConfig", {"tie_word_embeddings": False}),
    "mbart": ("MBartForConditionalGeneration", "MBartConfig", {"decoder_start_token_id": 2, "scale_embedding": True}),
    "pegasus": ("PegasusForConditionalGeneration", "PegasusConfig", {"activation_function": "relu"}),
    "marian": ("MarianMTModel", "MarianConfig", MARIAN),
    "marian, vocabularies apart": ("MarianMTModel", "MarianConfig", MARIAN | APART),
    "marian, all tables apart": ("MarianMTModel", "MarianConfig", MARIAN | APART | {"tie_word_embeddings": False}),
    "m2m100": ("M2M100ForConditionalGeneration", "M2M100Config", {}),
    "nllb-moe": ("NllbMoeForConditionalGeneration", "NllbMoeConfig", SPARSE | {"router_bias": True}),
}
UNREAD = {"bart, all tables apart": ("model.shared.weight",)}
SKIP_PADS = ("m2m100", "nllb-moe")  # these count positions over real tokens, and the others count pads before them too


class RepairedExperts(NllbMoeExperts):
    def forward(self, hidden_states, router_mask, router_probs):
        """Every expert's output by its weight, which is 0 for all but two; `moe_token_dropout` as in evaluation."""
        outputs = [router_probs[:, e, None] * self[f"expert_{e}"](hidden_states) for e in range(self.num_experts)]
        return sum(outputs) * (1 - self.moe_token_dropout)


def original(family, **fields):
    model_class, config_class, own = FAMILIES[family]
    model = getattr(transformers, model_class)(getattr(transformers, config_class)(**(SMALL | own | fields)))
    for module in model.modules():
        if type(module) is NllbMoeExperts:
            module.__class__ = RepairedExperts
    if hasattr(model, "final_logits_bias"):
        model.final_logits_bias.normal_(generator=torch.Generator().manual_seed(7))
    return randomized(model, std=0.2, norms=("norm",))


def draw(config, side="right"):
    """Three sources, two of them padded, one of these perhaps on the left, and targets that begin as in training."""
    generator = torch.Generator().manual_seed(1)
    pad, target_size = config.pad_token_id, getattr(config, "decoder_vocab_size", config.vocab_size)
    source = torch.randint(4, config.vocab_size, (3, 17), generator=generator)
    target = torch.randint(4, target_size, (3, 11), generator=generator)
    source[source == pad] = target[target == pad] = 4
    source[1, slice(-8, None) if side == "right" else slice(8)] = source[2, -4:] = pad
    target[:, 0] = config.decoder_start_token_id
    return {"input_ids": source, "attention_mask": source.ne(pad).long(), "decoder_input_ids": target}


def reference(family, side="right", **fields) -> Reference:
    module = original(family, **fields)
    config, batch = module.config, draw(module.config, side)
    counted = {}
    if family not in SKIP_PADS and side == "left":
        counted = {"position_ids": torch.arange(batch["input_ids"].shape[1])}
    # no token twice, or random weights write one again and again; and no pad, whose position M2M100 would not count
    settings = {"max_new_tokens": 14, "num_beams": 3, "do_sample": False, "no_repeat_ngram_size": 1,
                "suppress_tokens": [config.pad_token_id]}  # fmt: skip
    source = {"inputs": batch["input_ids"], "attention_mask": batch["attention_mask"]}
    positions = [f"model.{stack}.embed_positions.weight" for stack in ("encoder", "decoder")]
    return Reference(
        "bart",
        module,
        lambda module: module(**batch).logits,
        batch | counted,
        {"source_config": config.to_dict()},
        # sines of positions and routers are of 32 bits in some (5e-8 were seen)
        tolerance=1e-10 if config.model_type in ("bart", "mbart", "m2m_100") else 1e-6,
        written=lambda module: module.generate(**source, **settings),
        # with the original's settings, which a folder has beside its weights
        generation=source | settings | {"generation_config": module.generation_config},
        buffers=("final_logits_bias",) if hasattr(module, "final_logits_bias") else (),
        pad=config.pad_token_id,
        # sines and cosines; a table that is not read
        absent=tuple(positions) if family.startswith(("marian", "pegasus")) else UNREAD.get(family, ()),
        unread=2,
        is_exact=family != "nllb-moe",
    )


CASES = {family: partial(reference, family) for family in FAMILIES} | {
    f"{family}, pads on both sides": partial(reference, family, "left") for family in ("bart", "marian", *SKIP_PADS)
}
# transformers 5.17 takes the size of the source's vocabulary for that of the target's in beam search
_MIXES_SIZES = Version(transformers.__version__) < Version("5.18")
TEXTS = tuple(family for family in FAMILIES if not (_MIXES_SIZES and "apart" in family))
