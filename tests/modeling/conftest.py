"""Small models with unequal weights, and flex attention without its compiler."""

import warnings

import pytest
import torch
from torch import nn

from weftformer import WeftConfig, WeftForConditionalGeneration

from ..models import TINY_CONFIG, randomized, tiny_model

SMALL = TINY_CONFIG | {
    "vocab_size": 29,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 20,
    "max_source_positions": 16,
    "max_target_positions": 12,
    "num_experts": 4,
    "dropout": 0.0,
}


@pytest.fixture
def small():
    """Builds a configuration of a few thousand weights."""
    return lambda **fields: WeftConfig(**(SMALL | fields))


@pytest.fixture
def lopsided():
    """Refills the weights of a module so that no two are equal and no bias is zero. Returns it in eval mode."""

    def refill(module: nn.Module, seed: int = 0) -> nn.Module:
        biases = [buffer for name, buffer in module.named_buffers() if name.endswith("selection_bias")]
        randomized(module, seed)
        for bias in biases:  # routing begins without
            bias.zero_()
        return module.eval()

    return refill


@pytest.fixture
def build(small, lopsided):
    """Builds a model with unequal weights from single fields, or from a configuration."""

    def build_model(config=None, model_class=WeftForConditionalGeneration, attention="eager", seed=0, **fields):
        return lopsided(tiny_model(model_class, config or small(**fields), attention=attention), seed)

    return build_model


@pytest.fixture
def eager_flex():
    """Runs flex attention uncompiled: the same formulas, without minutes of C++ compilation. No gradients on CPU."""
    with torch.compiler.set_stance("force_eager"), torch.no_grad(), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="flex_attention called without torch.compile")
        warnings.filterwarnings("ignore", message="_compile flag on create_block_mask")
        yield
