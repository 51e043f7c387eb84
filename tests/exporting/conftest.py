"""Small models of every exported kind, with weights that distinguish tokens."""

from collections.abc import Callable

import pytest
import torch

from weftformer import WeftConfig, WeftForConditionalGeneration

_SIZES = {
    "d_model": 32, "encoder_layers": 1, "decoder_layers": 2, "encoder_attention_heads": 4,
    "decoder_attention_heads": 4, "encoder_ffn_dim": 48, "decoder_ffn_dim": 48,
}  # fmt: skip


@pytest.fixture(scope="session")
def small() -> Callable[..., WeftForConditionalGeneration]:
    def build(preset: str, seed: int = 0, **fields) -> WeftForConditionalGeneration:
        vocabulary = {} if preset.startswith("dms") else {"vocab_size": 60}
        config = WeftConfig.from_preset(preset, **(_SIZES | vocabulary | fields))
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            model = WeftForConditionalGeneration(config).eval()
            for parameter in model.parameters():
                if parameter.ndim == 1:  # norms and biases, which start alike
                    parameter.data += 0.3 * torch.randn_like(parameter)
                else:
                    parameter.data.normal_(std=1.5 * parameter.shape[-1] ** -0.5)
        return model

    return build
