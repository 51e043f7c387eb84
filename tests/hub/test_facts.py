"""The facts about a model, derived from the model."""

import torch

from weftformer import WeftConfig, WeftForConditionalGeneration
from weftformer.hub.facts import count_parameters

SMALL = {"d_model": 16, "encoder_layers": 1, "decoder_layers": 1, "encoder_ffn_dim": 24, "decoder_ffn_dim": 24}


def test_parameters_are_counted_as_they_are_without_drawing_random_numbers():
    sparse = {"decoder_mlp_layer_types": "sparse", "num_experts": 4, "num_experts_per_tok": 1}
    config = WeftConfig(**SMALL, vocab_size=31, **sparse)
    before = torch.get_rng_state()
    total, active = count_parameters(config)
    assert torch.equal(torch.get_rng_state(), before)
    model = WeftForConditionalGeneration(config)
    experts = sum(p.numel() for name, p in model.named_parameters() if ".experts." in name)
    assert total == sum(p.numel() for p in model.parameters()) and active == total - experts * 3 // 4
    assert experts == 4 * 3 * 16 * 24
