"""The tables of encoder-decoder families are true: each cell is found by running a tiny random model."""

from functools import partial
from pathlib import Path

import pytest
import torch
import transformers

from weftformer import WeftConfig, WeftForConditionalGeneration
from weftformer.configuration.presets import COPYING, PRESETS, preset_fields
from weftformer.conversion import SOURCES, convert

ROOT = Path(__file__).resolve().parent.parent
NOT_RUN = "pretrained checkpoints on the Hub"
PAD, BOS, EOS = 0, 1, 2
TOKENS = {"pad_token_id": PAD, "bos_token_id": BOS, "eos_token_id": EOS}
SIZES = {"layers": 2, "ffn_dim": 64, "attention_heads": 4}
# large random weights, so that differences show
SMALL = {"vocab_size": 60, "d_model": 32, "init_std": 0.2, "dropout": 0.0, "attention_dropout": 0.0}
SMALL |= TOKENS | {"decoder_start_token_id": BOS}
SMALL |= {f"{stack}_{name}": size for stack in ("encoder", "decoder") for name, size in SIZES.items()}


def t5gemma2():
    size = {"hidden_size": 32, "num_hidden_layers": 6, "intermediate_size": 64, "num_attention_heads": 4}
    text = {"vocab_size": 60, "head_dim": 8, "num_key_value_heads": 2, "dropout_rate": 0.0, "initializer_range": 0.2}
    text |= size | TOKENS
    vision = size | {"num_hidden_layers": 1, "image_size": 28}
    stacks = {"encoder": {"text_config": dict(text), "vision_config": vision}, "decoder": dict(text)}
    config = transformers.T5Gemma2Config(**stacks, initializer_range=0.2, decoder_start_token_id=BOS)
    return transformers.T5Gemma2ForConditionalGeneration(config)


def nllb_moe():
    experts = {"num_experts": 4, "expert_capacity": 4, "encoder_sparse_step": 2, "decoder_sparse_step": 2}
    config = transformers.NllbMoeConfig(**SMALL, **experts, moe_token_dropout=0.0)
    return transformers.NllbMoeForConditionalGeneration(config)


def switch():
    size = {"vocab_size": 60, "d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": 2, "num_decoder_layers": 2}
    experts = {"num_experts": 4, "expert_capacity": 4, "num_sparse_encoder_layers": 1, "num_sparse_decoder_layers": 1}
    settings = {"num_heads": 4, "dropout_rate": 0.0, "initializer_factor": 3.0, "decoder_start_token_id": BOS} | TOKENS
    config = transformers.SwitchTransformersConfig(**size, **experts, **settings)
    return transformers.SwitchTransformersForConditionalGeneration(config)


def weft():
    experts = {"num_experts": 4, "encoder_mlp_layer_types": "sparse", "decoder_mlp_layer_types": "sparse"}
    return WeftForConditionalGeneration(WeftConfig(**SMALL, **experts, router_aux_loss_coef=0.01))


FAMILIES = {
    "BART": lambda: transformers.BartForConditionalGeneration(
        transformers.BartConfig(**SMALL, forced_eos_token_id=None)
    ),
    "T5Gemma2": t5gemma2,
    "NLLB-MoE": nllb_moe,
    "Switch": switch,
    "Weft": weft,
}


def batch(left: bool = False, more: int = 0):
    """Return six texts of different lengths with their labels, padded by `more` columns beyond need."""
    generator = torch.Generator().manual_seed(0)
    ids, labels = torch.full((6, 9 + more), PAD), torch.full((6, 7 + more), -100)
    labels[:, :7] = torch.randint(3, 60, (6, 7), generator=generator)
    for row, length in zip(ids, (9, 8, 7, 6, 9, 8), strict=True):
        start = len(row) - length if left else 0
        row[start : start + length] = torch.randint(3, 60, (length,), generator=generator)
    return {"input_ids": ids, "attention_mask": (ids != PAD).long(), "labels": labels}


def close(value, other) -> bool:
    return value.shape == other.shape and bool(torch.allclose(value, other, atol=2e-5))


def same_logits_alone_as_in_a_batch(model):
    rows = batch()
    lengths = rows["attention_mask"].sum(1)
    alone = [
        model(**{k: v[i : i + 1, : n if k != "labels" else None] for k, v in rows.items()}).logits
        for i, n in enumerate(lengths)
    ]
    return close(torch.cat(alone), model(**rows).logits)


def same_logits_padded_on_the_left(model):
    return close(model(**batch(left=True)).logits, model(**batch()).logits)


def same_loss_with_more_padding(model):
    extra = {"output_router_logits": True} if hasattr(model.config, "num_experts") else {}
    return close(model(**batch(more=5), **extra).loss, model(**batch(), **extra).loss)


def same_text(model, **settings):
    inputs = {name: value for name, value in batch().items() if name != "labels"} | {"max_new_tokens": 10}
    plain = model.generate(**inputs, do_sample=False)
    return torch.equal(plain, model.generate(**inputs, do_sample=False, disable_compile=True, **settings))


def same_gradients_with_checkpointing(model):
    def gradients():
        model.train().zero_grad()
        model(**batch()).loss.backward()
        return torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])

    with torch.enable_grad():
        expected = gradients()
        model.gradient_checkpointing_enable()
        return close(gradients(), expected)


ROWS = {
    "the same logits for a source alone and in a batch": same_logits_alone_as_in_a_batch,
    "the same logits with padding on the left": same_logits_padded_on_the_left,
    "the same loss with more padding, balancing loss included": same_loss_with_more_padding,
    "the same output without a cache": lambda model: same_text(model, use_cache=False),
    "the same output with a static cache": lambda model: same_text(model, cache_implementation="static"),
    "the same gradients with gradient checkpointing": same_gradients_with_checkpointing,
    "flash attention and flex attention": lambda model: model._supports_flash_attn and model._supports_flex_attn,
    "experts": lambda model: bool(getattr(model.config, "num_experts", 0)),
    "grouped matrix products for experts": lambda model: bool(model._can_set_experts_implementation()),
    "a tensor-parallel plan (Weft's ran on two CPU processes)": lambda model: bool(model._tp_plan),
}


def cells(page: str = "docs/families.md") -> dict[tuple[str, str], str]:
    text = (ROOT / page).read_text(encoding="utf-8")
    table = next(block for block in text.split("\n\n") if "| BART | T5Gemma2 | NLLB-MoE |" in block).splitlines()
    header, _, *lines = [[cell.strip() for cell in line.strip("|").split("|")] for line in table]
    return {(line[0], name): cell for line in lines for name, cell in zip(header[1:], line[1:], strict=True)}


def test_the_tables_have_these_rows():
    assert set(cells()) == {(row, name) for row in (NOT_RUN, *ROWS) for name in FAMILIES}
    assert cells("README.md").items() <= cells().items()


def converted_bart():
    bart = FAMILIES["BART"]()
    return convert(bart.state_dict(), SOURCES["bart"], source_config=bart.config.to_dict()).build()


def small(fields):
    kinds = {name: value[:2] for name, value in fields.items() if isinstance(value, list)}  # of two layers
    return WeftForConditionalGeneration(WeftConfig(**(fields | kinds | SMALL)))


# the starter is what `train` makes, with rotary positions in cross-attention
MODELS = {name: preset_fields(name) for name in PRESETS} | {"starter": preset_fields("modern-tiny") | COPYING}
WEFTS = {name: partial(small, fields) for name, fields in MODELS.items()} | {"converted BART": converted_bart}


@pytest.mark.parametrize("name", WEFTS)
@torch.no_grad()
def test_every_kind_of_model_does_what_the_rows_on_padding_say(name):
    for row in ("the same logits for a source alone and in a batch", "the same logits with padding on the left"):
        torch.manual_seed(0)
        assert cells()[row, "Weft"] == "yes" and ROWS[row](WEFTS[name]().eval()), row


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name == "Weft" else pytest.mark.integration) for name in FAMILIES]
)
@torch.no_grad()
def test_a_family_does_what_its_column_says(name):
    for row, behaves in ROWS.items():
        torch.manual_seed(0)
        assert cells()[row, name] == ("yes" if behaves(FAMILIES[name]().eval()) else "no"), row
