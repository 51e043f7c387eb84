"""Peculiarities of PyTorch's own transformer. `test_parity.py` compares outputs, gradients and weights."""

import pytest
import torch

from weftformer.conversion import SOURCES, clean_keys, convert

from .references.torch_transformer import HEADS, WIDTH, build

TORCH = SOURCES["torch"]
FIELDS = {"encoder_attention_heads": HEADS, "decoder_attention_heads": HEADS}


def test_only_the_embeddings_are_new():
    conversion = convert(build("transformer").state_dict(), TORCH, overrides=FIELDS | {"vocab_size": 11})
    assert conversion.found.new == ["model.shared.weight"]
    first, second, third = (conversion.build(seed).shared.weight for seed in (0, 0, 1))
    assert first.shape == (11, WIDTH) and torch.equal(first, second) and not torch.equal(first, third)


def around(weights, **others):
    return {f"core.{key}": tensor for key, tensor in weights.items()} | others


@pytest.mark.parametrize("shared", [False, True])
def test_embeddings_positions_and_head_around_it(shared):
    table, other, positions, head = (torch.randn(rows, WIDTH) for rows in (11, 12, 30, 12))
    names = {"emb.weight": table} if shared else {"src.weight": table, "tgt.weight": other}
    renames = [("^core\\.", ""), ("^emb", "shared"), ("^src", "encoder.embed_tokens"), ("^tgt", "decoder.embed_tokens"),
               ("^pe$", "embed_positions.weight"), ("^out", "lm_head")]  # fmt: skip
    head = head[:11] if shared else head
    weights = around(build("transformer").state_dict(), **names, pe=positions[:, None], **{"out.weight": head})
    conversion = convert(clean_keys(weights, renames), TORCH, overrides=FIELDS)
    config, model = conversion.config, conversion.build()
    assert type(model).__name__ == "WeftForConditionalGeneration" and conversion.found.new == []
    assert (config.vocab_size, config.target_vocab_size) == (11, 11 if shared else 12)
    assert (config.max_source_positions, config.max_target_positions, config.lm_head_bias) == (30, 30, False)
    for stack in (model.model.encoder, model.model.decoder):
        assert torch.equal(stack.embed_positions.weight, positions)
    assert torch.equal(model.lm_head.weight, head) and torch.equal(model.model.encoder.embed_tokens.weight, table)
    assert torch.equal(model.model.decoder.embed_tokens.weight, table if shared else other)
