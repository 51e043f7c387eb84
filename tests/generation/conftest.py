"""Small models of every kind of position, vocabulary and layer, and sources with pads in every place."""

import pytest
import torch

from weftformer import WeftConfig, WeftForConditionalGeneration
from weftformer.modeling.decoding.step import DecodeStep

from ..models import TINY_CONFIG

PAD, START, END = 0, 1, 2
# scores of 32 bits, of a model of 64: only their own rounding is left
CLOSE = {"rtol": 1e-5, "atol": 1e-5}
# Left-padded: rows of 1, 4, 2 and 3 real tokens, each beginning with the start.
PREFIX = torch.tensor([[PAD, PAD, PAD, START], [START, 9, 5, 14], [PAD, PAD, START, 20], [PAD, START, 4, 4]])
PADDED = {"decoder_input_ids": PREFIX, "decoder_attention_mask": (PREFIX != PAD).long()}
TINY = TINY_CONFIG | {
    "tie_word_embeddings": False,
    "dropout": 0.0,
    # so that `generate` without a mask can be compared with a forward pass without one
    "infer_attention_mask": True,
    # large enough for the answers to depend on every token
    "init_std": 0.4,
}
KINDS = {
    "rotary": {},
    "rotary across": {"cross_attention_position_type": "rotary", "num_key_value_heads": 1, "use_qk_norm": True},
    "learned": {
        "norm_type": "layernorm",
        "norm_first": False,
        "is_gated_act": False,
        "mlp_bias": True,
        "attention_out_bias": True,
        "lm_head_bias": True,
        "activation_function": "gelu",
        "scale_embedding": True,
        "share_encoder_decoder_embeddings": False,
        "self_attention_position_type": "none",
        "position_embedding_type": "learned",
        "max_source_positions": 24,
        "max_target_positions": 32,
        "num_condition_features": 1,
        "init_std": 0.2,
    },
    "sinusoidal": {"self_attention_position_type": "none", "position_embedding_type": "sinusoidal"},
    "additive": {
        "self_attention_position_type": "additive",
        "cross_attention_position_type": "additive",
        "max_source_positions": 24,
        "max_target_positions": 32,
    },
    "relative": {
        "self_attention_position_type": "relative",
        "cross_attention_position_type": "relative",
        "relative_attention_max_distance": 5,
    },
    "bucketed": {
        "self_attention_position_type": "bucketed",
        "cross_attention_position_type": "bucketed",
        "relative_attention_num_buckets": 6,
        "relative_attention_max_distance": 8,
    },
    "sparse": {
        "encoder_mlp_layer_types": ["dense", "sparse"],
        "decoder_mlp_layer_types": ["sparse", "dense"],
        "num_experts": 4,
        "router_type": "noisy_top_k",
    },
    "larger target": {"share_encoder_decoder_embeddings": False, "decoder_vocab_size": 43},
    "smaller target": {
        "share_encoder_decoder_embeddings": False,
        "decoder_vocab_size": 23,
        "tie_word_embeddings": True,
    },
}

# The two that differ most, in norms, positions, heads, biases, tables and conditions. `make test` tries with these two
# what `generate` does around the model, because it does not depend on the kind, and with all what each kind computes.
FEW = ("rotary across", "learned")
few_kinds = pytest.mark.parametrize("model", FEW, indirect=True)


def make(kind: str, dtype: torch.dtype = torch.float64, **fields) -> WeftForConditionalGeneration:
    """Build a model in 64 bits, so that tokens do not nearly tie. `generate` gives scores and logits in 32 bits."""
    torch.manual_seed(0)
    # torch has no grouped_mm of 64 bits
    experts = {"experts_implementation": "eager"} if dtype == torch.float64 else {}
    model = WeftForConditionalGeneration._from_config(WeftConfig(**(TINY | KINDS[kind] | fields)), **experts).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith("relative_bias"):  # zero at first, where a missing bias would not be seen
                parameter.normal_()
            elif name.endswith("bias"):
                parameter.normal_(std=0.1)
    return model.to(dtype)


@pytest.fixture(scope="session", params=KINDS)
def model(request) -> WeftForConditionalGeneration:
    return make(request.param)


@pytest.fixture(scope="session")
def build():
    """A fresh model of a kind: `build("learned", dropout=0.1)`."""
    return make


@pytest.fixture
def source() -> torch.Tensor:
    """Four rows of nine: without pads, pads on the right, on the left, in the middle."""
    ids = torch.randint(3, 23, (4, 9), generator=torch.Generator().manual_seed(1))
    ids[1, 6:] = ids[2, :3] = ids[3, 4:6] = PAD
    return ids


@pytest.fixture
def inputs(source, model) -> dict[str, torch.Tensor]:
    """The source, and the other inputs of this kind of model."""
    given = {"input_ids": source}
    if model.config.num_condition_features:
        given["condition_values"] = torch.tensor([[2.0], [0.5], [-1.0], [3.0]])
    return given


@pytest.fixture
def run():
    """Generate exactly `steps` tokens and return (sequences, raw logits of each step (rows, steps, vocabulary))."""

    def run(model, steps, **kwargs):
        settings = {"min_new_tokens": steps, "max_new_tokens": steps, "output_logits": True}
        output = model.generate(**(settings | kwargs), return_dict_in_generate=True)
        return output.sequences, torch.stack(output.logits, dim=1)

    return run


@pytest.fixture
def steps(monkeypatch):
    """A list with an entry for each decoding step on the fast path."""
    taken = []
    original = DecodeStep.step
    monkeypatch.setattr(DecodeStep, "step", lambda self, *args: taken.append(1) or original(self, *args))
    return taken


def rows_of(given: dict[str, torch.Tensor], index: int) -> dict[str, torch.Tensor]:
    return {name: value[index : index + 1] for name, value in given.items()}


@pytest.fixture
def alone():
    """One row of a dictionary of tensors: `alone(inputs, 2)`."""
    return rows_of
