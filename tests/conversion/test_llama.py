"""Decoder-only models with random weights, and the encoder-decoder of each: without its new part it is the decoder."""

import json

import pytest
import torch
import transformers
from transformers import AutoModelForCausalLM, AutoModelForSeq2SeqLM

from weftformer.conversion import SOURCES, DoesNotFit, convert, export, read_source_config, read_weights

from .references import largest_error

pytestmark = pytest.mark.dtype(torch.float64)

LLAMA = SOURCES["llama"]
# Heads that are not as wide together as the model, and fewer of them for keys and values.
SMALL = {
    "vocab_size": 60, "hidden_size": 32, "intermediate_size": 40, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 6, "max_position_embeddings": 32, "pad_token_id": 0,
}  # fmt: skip
LLAMA3 = {"rope_type": "llama3", "rope_theta": 500.0, "factor": 4.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 16}  # fmt: skip
YARN = {"rope_type": "yarn", "rope_theta": 500.0, "factor": 2.0, "original_max_position_embeddings": 16}
# class, fields of its configuration
FAMILIES = {
    "llama 3": ("Llama", {"rope_parameters": LLAMA3, "tie_word_embeddings": True, "eos_token_id": [2, 5]}),
    "llama": ("Llama", {"rope_parameters": YARN, "attention_bias": True, "mlp_bias": True}),
    "qwen3": ("Qwen3", {"attention_bias": True, "bos_token_id": None}),
}
every_family = pytest.mark.parametrize("family", FAMILIES)


def original(family):
    """Random values everywhere: norms start at one, where a mistake would not be seen."""
    name, own = FAMILIES[family]
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(getattr(transformers, f"{name}Config")(**(SMALL | own)))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.1)
    return model.eval()


def converted(there, weights=None, **fields):
    weights = there.state_dict() if weights is None else weights
    return convert(weights, LLAMA, source_config=there.config.to_dict() | fields)


def words(length=28):
    """More tokens than the original length of the scaled positions."""
    return torch.randint(3, 60, (2, length), generator=torch.Generator().manual_seed(1))


@every_family
@torch.no_grad()
def test_decoder_and_encoder_are_the_original(family):
    """The decoder where its cross-attention is off, the encoder where its mask is causal."""
    there, ids = original(family), words()
    here, causal = converted(there).build(), torch.ones(28, 28, dtype=torch.bool).tril()[None, None]
    states, expected = there.model(ids).last_hidden_state, there(ids).logits
    encoder = here.model.encoder
    # the norms of the originals compute in 32 bits in any dtype
    assert largest_error(encoder(input_ids=ids, attention_mask=causal).last_hidden_state, states) <= 1e-6
    assert largest_error(encoder(input_ids=ids).last_hidden_state, states) > 0.01
    assert largest_error(here(input_ids=ids[:, :9], decoder_input_ids=ids).logits, expected) > 0.01
    for layer in here.model.decoder.layers:
        for parameter in layer.encoder_attn.out_proj.parameters():
            parameter.zero_()
    assert largest_error(here(input_ids=ids[:, :9], decoder_input_ids=ids).logits, expected) <= 1e-6
    settings = {"max_new_tokens": 12, "do_sample": False, "eos_token_id": None, "pad_token_id": 0}
    start = torch.tensor([[here.config.decoder_start_token_id, token] for token in (7, 30)])
    found = here.generate(words(5), decoder_input_ids=start, **settings)
    assert found.tolist() == there.generate(start, attention_mask=torch.ones_like(start), **settings).tolist()


@every_family
@torch.no_grad()
def test_cross_attention_begins_with_self_attention_and_an_untrained_model_goes_back(family):
    there = original(family)
    conversion = converted(there)
    here = conversion.build()
    places = [parameter.data_ptr() for parameter in [*there.parameters(), *here.parameters()]]
    assert len(set(places)) == len(places)
    for layer in here.model.decoder.layers:
        own, cross = layer.self_attn.state_dict(), layer.encoder_attn.state_dict()
        assert own.keys() == cross.keys() and all(torch.equal(own[name], cross[name]) for name in own)
        assert torch.equal(layer.encoder_attn_layer_norm.weight, layer.self_attn_layer_norm.weight)
    back, weights = export(here, LLAMA, conversion.source_config), there.state_dict()
    assert back.keys() == weights.keys() and all(torch.equal(back[key], weights[key]) for key in weights)
    here.model.decoder.layer_norm.weight.add_(1)
    with pytest.raises(ValueError, match=r"model\.norm\.weight is one tensor for all of"):
        export(here, LLAMA, conversion.source_config)


@every_family
def test_special_tokens(family):
    there = original(family)
    here, own = converted(there).build(), there.config
    assert (here.config.pad_token_id, here.config.bos_token_id) == (0, own.bos_token_id)
    assert here.config.eos_token_id == own.eos_token_id == here.generation_config.eos_token_id
    assert here.config.decoder_start_token_id == (0 if own.bos_token_id is None else own.bos_token_id)


def test_a_folder_of_shards_is_read_and_the_model_saved_and_loaded(tmp_path):
    there = original("llama 3")
    there.save_pretrained(tmp_path / "there", max_shard_size="20KB")
    assert len(list((tmp_path / "there").glob("*.safetensors"))) > 2
    weights, source_config = read_weights(tmp_path / "there"), read_source_config(tmp_path / "there")
    here = convert(weights, LLAMA, source_config=source_config).build()
    here.save_pretrained(tmp_path / "here")
    loaded = AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "here", dtype="auto")
    expected, found = converted(there).build().state_dict(), loaded.state_dict()
    assert found.keys() == expected.keys() and all(torch.equal(found[key], expected[key]) for key in expected)
    assert loaded.lm_head.weight is loaded.model.shared.weight


def test_a_model_that_was_saved_without_its_head():
    there = original("llama 3")
    weights = there.model.state_dict() | {"layers.0.self_attn.rotary_emb.inv_freq": torch.ones(3)}  # in old files
    found, expected = converted(there, weights).found.weights, converted(there).found.weights
    assert found.keys() == expected.keys() and all(torch.equal(found[key], expected[key]) for key in expected)
    there = original("qwen3")
    with pytest.raises(DoesNotFit, match=r"1 missing \(lm_head\.weight \(for lm_head\.weight"):
        converted(there, there.model.state_dict())


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"model_type": "gemma2"}, "model_type='gemma2' is none of llama, qwen3"),
        ({"quantization_config": {"quant_method": "fp8"}}, "quantization_config={'quant_method': 'fp8'}"),
        (
            {"rope_parameters": {"rope_type": "default", "partial_rotary_factor": 0.5}},
            "these models rotate whole heads",
        ),
        ({"hidden_act": "swish9"}, "activation_function='swish9'"),
        ({"sliding_window": 8}, "sliding_window=8 of this qwen3 model"),
        ({"pad_token_id": None}, "has no pad token.*--config-overrides pad_token_id=ID"),
        ({"num_hidden_layers": 1}, r"unexpected \(model\.layers\.1"),
    ],
)
def test_checkpoints_that_do_not_convert(fields, message):
    with pytest.raises(ValueError, match=message):
        converted(original("qwen3"), **fields)


def test_a_configuration_as_it_was_published(tmp_path):
    """As in the file of Llama 3.2 1B, which an older transformers wrote."""
    published = {
        "model_type": "llama", "vocab_size": 128256, "hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 16,
        "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 64, "hidden_act": "silu", "max_position_embeddings": 131072,
        "rope_theta": 500000.0, "rms_norm_eps": 1e-5, "tie_word_embeddings": True, "torch_dtype": "bfloat16", "pretraining_tp": 1,
        "rope_scaling": {"factor": 32.0, "high_freq_factor": 4.0, "low_freq_factor": 1.0, "rope_type": "llama3",
                         "original_max_position_embeddings": 8192},
    }  # fmt: skip
    (tmp_path / "config.json").write_text(json.dumps(published))
    fields = LLAMA.fields({}, read_source_config(tmp_path))
    assert (fields["rope_parameters"]["rope_theta"], fields["rope_parameters"]["rope_type"]) == (500000.0, "llama3")
