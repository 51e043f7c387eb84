"""The encoder alone, from the folder of any model: the same states."""

import pytest
import torch
from transformers import AutoModelForSeq2SeqLM, AutoModelForTextEncoding, logging

from weftformer import WeftConfig, WeftEncoderModel, WeftForConditionalGeneration, WeftModel

from ..models import TINY_CONFIG

TINY = TINY_CONFIG | {"init_std": 0.3, "pad_token_id": 0, "dropout": 0.0}
SPARSE = {"encoder_mlp_layer_types": "sparse", "decoder_mlp_layer_types": "sparse", "num_experts": 4}
KINDS = {
    "shared": {},
    "untied": {"share_encoder_decoder_embeddings": False, "tie_word_embeddings": False, "decoder_vocab_size": 23},
    "sparse": SPARSE,
    "planner": {"position_embedding_type": "learned", "self_attention_position_type": "none",
                "num_condition_features": 1, "norm_first": False, "norm_type": "layernorm"},
}  # fmt: skip
IDS = torch.tensor([[5, 6, 7, 8, 9], [9, 4, 3, 0, 0]])
MASK = (IDS != 0).long()


@pytest.mark.parametrize("fields", KINDS.values(), ids=KINDS)
@pytest.mark.parametrize("whole", [WeftForConditionalGeneration, WeftModel])
def test_states_are_those_of_the_whole_model(fields, whole, tmp_path, caplog):
    model = whole(WeftConfig(**(TINY | fields))).eval()
    model.save_pretrained(tmp_path / "whole")
    expected = model.base_model.encoder(IDS, MASK).last_hidden_state
    logging.enable_propagation()
    alone = AutoModelForTextEncoding.from_pretrained(tmp_path / "whole")
    assert type(alone) is WeftEncoderModel and not caplog.text  # nothing is said of the decoder that is left out
    torch.testing.assert_close(alone(IDS, MASK).last_hidden_state, expected)
    torch.testing.assert_close(alone(input_ids=IDS, attention_mask=MASK, return_dict=False)[0], expected)
    assert len(alone(IDS, MASK, output_hidden_states=True).hidden_states) >= 2
    alone.save_pretrained(tmp_path / "alone")
    again, info = WeftEncoderModel.from_pretrained(tmp_path / "alone", output_loading_info=True)
    assert not info["missing_keys"] and not info["unexpected_keys"]
    torch.testing.assert_close(again(IDS, MASK).last_hidden_state, expected)
    with pytest.raises(ValueError, match="lacks"):
        AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "alone")


def test_the_vocabulary_is_resized(tmp_path):
    model = WeftEncoderModel(WeftConfig(**TINY, decoder_vocab_size=TINY["vocab_size"]))
    model.resize_token_embeddings(40)
    assert model.shared is model.get_input_embeddings() and model.get_input_embeddings().num_embeddings == 40
    model.save_pretrained(tmp_path)
    assert WeftEncoderModel.from_pretrained(tmp_path).config.vocab_size == 40
