"""No pair of routing fields keeps a part of the model from learning, in any preset, unless a message says so. Labels
decide only losses.
"""

import itertools

import pytest
import torch

from weftformer import WeftConfig, WeftForConditionalGeneration
from weftformer.configuration import PRESETS

SIZES = {
    "vocab_size": 24, "decoder_vocab_size": None, "d_model": 16, "encoder_layers": 1, "decoder_layers": 1, "head_dim": 8,
    "encoder_attention_heads": 2, "decoder_attention_heads": 2, "num_key_value_heads": None, "encoder_ffn_dim": 16,
    "decoder_ffn_dim": 16, "max_source_positions": 12, "max_target_positions": 12, "pad_token_id": 0, "bos_token_id": 1,
    "eos_token_id": 2, "decoder_start_token_id": 1, "moe_intermediate_size": None, "encoder_mlp_layer_types": "sparse",
    "decoder_mlp_layer_types": "sparse", "num_experts": 3, "num_experts_per_tok": 2,
}  # fmt: skip
pytestmark = pytest.mark.dtype(torch.float64)

# The losses of routers would hide that the labels do not reach them.
NO_LOSSES = {"router_aux_loss_coef": 0.0, "router_z_loss_coef": 0.0}
VALUES = [
    {"num_experts_per_tok": 1}, {"num_experts_per_tok": 3}, {"norm_topk_prob": True}, {"norm_topk_prob": False},
    {"router_type": "noisy_top_k"}, {"router_bias": True}, {"router_noise": "always"}, {"expert_capacity_factor": 1.0},
    {"router_bias_update_rate": 0.1}, {"moe_intermediate_size": 8},
]  # fmt: skip
PAIRS = [{}, *(one | two for one, two in itertools.combinations(VALUES, 2) if one.keys() != two.keys())]
BATCH = torch.randint(3, 24, (8, 11), generator=torch.Generator().manual_seed(0))


def without_gradient(config: WeftConfig) -> set[str]:
    """Return the names of the parameters that a batch does not train."""
    torch.manual_seed(0)
    model = WeftForConditionalGeneration(config).train()
    condition = {"condition_values": torch.rand(8, 1)} if config.num_condition_features else {}
    model(input_ids=BATCH, labels=BATCH.flip(0), **condition).loss.backward()
    gradients = {name: parameter.grad for name, parameter in model.named_parameters()}
    largest = max(gradient.abs().max() for gradient in gradients.values() if gradient is not None)
    # a key's bias moves all logits of a query alike, so the softmax does not see it
    return {
        name
        for name, gradient in gradients.items()
        if not name.endswith("k_proj.bias") and (gradient is None or gradient.abs().max() < 1e-9 * largest)
    }


@pytest.mark.parametrize("preset", PRESETS)
def test_every_part_learns(preset):
    for pair in PAIRS:
        config = WeftConfig.from_preset(
            preset, **(SIZES | NO_LOSSES | {"dropout": 0.0, "attention_dropout": 0.0} | pair)
        )
        idle = without_gradient(config)
        if pair == {"num_experts_per_tok": 1, "norm_topk_prob": True}:  # which has a warning
            assert idle and all(".router." in name for name in idle)
        else:
            assert not idle, (pair, idle)


@pytest.mark.parametrize("is_training", [True, False])
@pytest.mark.parametrize("preset", PRESETS)
def test_labels_decide_only_losses(preset, is_training):
    labels = BATCH.flip(0).clone()
    labels[0, 5:], labels[1, 2:], labels[2] = -100, -100, -100
    for fields in ({}, {"encoder_mlp_layer_types": "sparse", "decoder_mlp_layer_types": ["dense", "sparse"]}):
        torch.manual_seed(0)
        config = WeftConfig.from_preset(preset, **(SIZES | {"encoder_layers": 2, "decoder_layers": 2} | fields))
        model = WeftForConditionalGeneration(config).train(is_training)
        condition = {"condition_values": torch.rand(8, 1)} if config.num_condition_features else {}
        embeds = {"decoder_inputs_embeds": torch.randn(8, 11, config.d_model)}
        shifted = {"decoder_input_ids": model.prepare_decoder_input_ids_from_labels(labels)}
        for target, labelled in (({"decoder_input_ids": BATCH},) * 2, (embeds,) * 2, (shifted, {})):
            outputs = []
            for inputs in (target, labelled | {"labels": labels}):
                torch.manual_seed(1)
                outputs.append(
                    model(
                        BATCH,
                        **inputs,
                        **condition,
                        output_hidden_states=True,
                        output_router_logits=True,
                        use_cache=False,
                    )
                )
            for name in set(outputs[0]) - {"aux_loss", "z_loss"}:
                torch.testing.assert_close(outputs[1][name], outputs[0][name], rtol=0, atol=0)
