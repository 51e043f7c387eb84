"""Translation with trained weights: peers of transformers have the same logits, and all contenders the same tokens."""

import gzip

import pytest
import torch

from weftformer import WeftConfig
from weftformer.benchmarks.translation import difference_of_logits, peer_of
from weftformer.tokenization import train_tokenizer

from ..conftest import save_both
from ..models import TINY_CONFIG, tiny_model

TEXTS = ["a man in a hat .", "two dogs are running on the grass .", "a girl breaks a stick .", "people in the snow ."]
# Wherever the two stacks can differ, they do.
PLAIN = TINY_CONFIG | {
    "vocab_size": 300, "encoder_layers": 1, "decoder_attention_heads": 4, "decoder_ffn_dim": 20, "norm_type": "layernorm",
    "is_gated_act": False, "mlp_bias": True, "attention_bias": True, "attention_out_bias": True,
    "self_attention_position_type": "none", "max_source_positions": 40, "max_target_positions": 30,
}  # fmt: skip
LEARNED, SINES = {"position_embedding_type": "learned"}, {"position_embedding_type": "sinusoidal"}
POST_NORM, PRE_NORM = {"norm_first": False, "norm_eps": 1e-3}, {"norm_first": True, "scale_embedding": True}
KINDS = {
    "mBART": PRE_NORM | LEARNED | {"normalize_embedding": True, "activation_function": "gelu"},
    "Marian": POST_NORM | SINES | {"sinusoidal_layout": "concatenated", "lm_head_bias": True},
    "Pegasus, learned positions": PRE_NORM | LEARNED | {"tie_word_embeddings": False},
}

MASK = (torch.arange(12) < torch.tensor([12, 9, 5])[:, None]).long()
IDS = torch.randint(3, 300, (3, 12), generator=torch.Generator().manual_seed(1))
BATCH = {"input_ids": IDS * MASK, "attention_mask": MASK}


def built(**fields):
    return tiny_model(config=WeftConfig(**(PLAIN | fields)), random=True)


@pytest.mark.dtype(torch.float64)
@pytest.mark.parametrize("kind", KINDS)
def test_the_peer_has_the_same_logits(kind):
    model = built(**KINDS[kind])
    title, peer = peer_of(model, BATCH)
    assert title == kind.split(",")[0] and peer.dtype == torch.float64
    assert difference_of_logits(peer, model, BATCH) < 1e-9
    with torch.no_grad():  # and it is no copy of the Weft model's own tensors
        peer.model.decoder.layers[0].fc1.weight.add_(1.0)
    assert difference_of_logits(peer, model, BATCH) > 1e-3


@pytest.fixture
def files(tmp_path):
    """The folder of a model with its vocabulary, and a file of texts."""
    tokenizer = train_tokenizer(TEXTS, vocab_size=269)
    model = built(vocab_size=len(tokenizer), lm_head_bias=True, **PRE_NORM, **SINES)
    model.lm_head.bias.data[tokenizer.eos_token_id] += 3.5  # so that some searches end
    file = tmp_path / "texts.gz"
    file.write_bytes(gzip.compress(("\n".join([TEXTS[0], "", *TEXTS[1:]]) + "\n").encode()))
    return save_both(tmp_path / "model", model, tokenizer), str(file)
