"""CTranslate2: the same log-probabilities and texts, or a refusal that names the field."""

import pytest
import torch

from weftformer import WeftConfig
from weftformer.exporting import check_expressible, compare_ctranslate2, ctranslate2, write_ctranslate2
from weftformer.tokenization import build_route_tokenizer

OWN_VOCABULARY = {
    "share_encoder_decoder_embeddings": False, "tie_word_embeddings": False, "lm_head_bias": True,
    "decoder_vocab_size": 40, "encoder_attention_heads": 2,
}  # fmt: skip
NO_BIASES = dict.fromkeys(("norm_bias", "attention_bias", "attention_out_bias", "mlp_bias"), False)
EXPRESSIBLE = {
    "post-norm": ("tiny", {"norm_eps": 1e-2, "head_dim": 16}),
    "norm of the embeddings": ("tiny", {"normalize_embedding": True, "scale_embedding": False}),
    "learned": ("tiny", {"position_embedding_type": "learned", "activation_function": "gelu"}),
    "fairseq, no biases": ("tiny", NO_BIASES | {"sinusoidal_layout": "fairseq", "norm_first": True, "final_norm": False}),
    "two vocabularies": ("tiny", OWN_VOCABULARY),
    "modern": ("modern-tiny", {"norm_eps": 1e-2, "num_key_value_heads": 2}),
    "other frequencies": ("modern-tiny", {"rope_parameters": {"rope_theta": 50.0, "partial_rotary_factor": 0.5}}),
    "tanh gate": ("modern-tiny", {"activation_function": "gelu_pytorch_tanh", "norm_first": False}),
}  # fmt: skip


@pytest.mark.parametrize("name", EXPRESSIBLE)
def test_scores_are_the_same(small, tmp_path, name):
    pytest.importorskip("ctranslate2")
    preset, fields = EXPRESSIBLE[name]
    model = small(preset, **fields)
    write_ctranslate2(model, tmp_path)
    # 1e-5 was seen, and 5e-5 where no last norm keeps the logits small
    assert compare_ctranslate2(model, tmp_path) < (1e-4 if fields.get("final_norm", True) else 1e-3)


def test_a_missing_folder_is_named(small, tmp_path):
    pytest.importorskip("ctranslate2")
    with pytest.raises(FileNotFoundError, match=r"missing is not a folder"):
        write_ctranslate2(small("tiny"), tmp_path / "missing")


def test_a_difference_is_found(small, tmp_path):
    pytest.importorskip("ctranslate2")
    model = small("tiny")
    write_ctranslate2(model, tmp_path)
    model.model.decoder.layers[1].mlp.up_proj.weight.data[3] *= -1.0
    assert compare_ctranslate2(model, tmp_path) > 1e-2


def test_tokens_have_the_tokenizers_names(small, tmp_path):
    runtime = pytest.importorskip("ctranslate2")
    tokenizer = build_route_tokenizer()
    model = small("dms-flash-10m", num_condition_features=0, vocab_size=55)  # two rows more than the tokenizer knows
    write_ctranslate2(model, tmp_path, tokenizer)
    assert compare_ctranslate2(model, tmp_path, tokenizer) < 1e-4
    source = torch.tensor([[4, 5, 6, 7]])
    words = tokenizer.convert_ids_to_tokens(source[0].tolist())
    (result,) = runtime.Translator(str(tmp_path), compute_type="float32").translate_batch(
        [words], beam_size=1, max_decoding_length=5, min_decoding_length=5
    )
    expected = model.generate(source, max_new_tokens=5, min_new_tokens=5, do_sample=False)[0, 1:].tolist()
    names = ctranslate2.words(tokenizer, 55)
    assert result.hypotheses[0] == [names[index] for index in expected]
    assert names[53:] == ["<unused53>", "<unused54>"] and len(set(names)) == 55


@pytest.mark.parametrize(
    "fields, field, allowed",
    [
        ({"decoder_mlp_layer_types": "sparse"}, "decoder_mlp_layer_types=['sparse'", '"dense" in every layer'),
        ({"norm_type": "stdnorm"}, "norm_type='stdnorm'", "'layernorm' or 'rmsnorm'"),
        ({"num_condition_features": 2}, "num_condition_features=2", "0"),
        ({"position_embedding_type": "learned"}, "position_embedding_type='learned'", "'none' beside rotary"),
        ({"rope_parameters": {"rope_type": "linear", "factor": 2.0}}, "rope_parameters={", 'rope_type="default"'),
        ({"eos_token_id": [2, 3]}, "eos_token_id=[2, 3]", "one token"),
    ],
)
def test_what_it_has_no_words_for_is_refused(fields, field, allowed):
    with pytest.raises(ValueError) as error:
        check_expressible(WeftConfig.from_preset("modern-tiny", **fields))
    assert f"CTranslate2 does not support {field}" in str(error.value) and allowed in str(error.value)
    assert "train --preset modern-tiny" in str(error.value)
