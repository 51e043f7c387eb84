"""Decoder-only models with random weights, and the encoder-decoder made of each: without its new part it is the decoder."""

import json

import pytest
import torch
import transformers
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForSeq2SeqLM

from weftformer.conversion import (
    DoesNotFit,
    adapt,
    adapted_config,
    read_source_config,
    read_weights,
    special_token_ids,
)
from weftformer.tokenization import train_tokenizer

pytestmark = pytest.mark.dtype(torch.float64)

# Heads that are not as wide together as the model, and fewer of them for keys and values.
SMALL = {
    "vocab_size": 60, "hidden_size": 32, "intermediate_size": 40, "num_hidden_layers": 3, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 6, "max_position_embeddings": 32, "pad_token_id": 0,
}  # fmt: skip
LLAMA3 = {"rope_type": "llama3", "rope_theta": 500.0, "factor": 4.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 16}  # fmt: skip
YARN = {"rope_type": "yarn", "rope_theta": 500.0, "factor": 2.0, "original_max_position_embeddings": 16}
# class, fields of its configuration
FAMILIES = {
    "llama 3": ("Llama", {"rope_parameters": LLAMA3, "tie_word_embeddings": True, "eos_token_id": [2, 5]}),
    "llama": ("Llama", {"rope_parameters": YARN, "attention_bias": True, "mlp_bias": True}),
    "mixtral": ("Mixtral", {"num_local_experts": 4, "router_aux_loss_coef": 0.02}),
    "mixtral, tied": ("Mixtral", {"num_local_experts": 3, "num_experts_per_tok": 1, "tie_word_embeddings": True}),
    "qwen3": ("Qwen3", {"attention_bias": True}),
    "qwen3, tied": ("Qwen3", {"tie_word_embeddings": True, "max_window_layers": 1}),
    "gemma": ("Gemma", {}),
    "gemma, biases": ("Gemma", {"attention_bias": True, "tie_word_embeddings": False, "num_key_value_heads": 1}),
}
every_family = pytest.mark.parametrize("family", FAMILIES)


def original(family, seed=0, **fields):
    """Random values everywhere: norms start at one, where a mistake would not be seen."""
    name, own = FAMILIES[family]
    torch.manual_seed(seed)
    config = getattr(transformers, f"{name}Config")(**(SMALL | own | fields))
    model = AutoModelForCausalLM.from_config(config)
    if name == "Mixtral":
        model.set_experts_implementation("eager")  # the default has no 64 bits
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.1)
    return model.eval()


def adapted(there, **arguments):
    return adapt(there.state_dict(), there.config.to_dict(), **arguments)


def words(length=28):
    """More tokens than the original length of the scaled positions."""
    return torch.randint(3, 60, (2, length), generator=torch.Generator().manual_seed(1))


def largest_error(found, expected):
    """Relative to the largest of the expected values. The norms of the originals compute in 32 bits in any dtype."""
    return (found - expected).abs().max() / expected.abs().max()


@torch.no_grad()
def without_cross_attention(model):
    for layer in model.model.decoder.layers:
        layer.encoder_attn.out_proj.weight.zero_()
        if layer.encoder_attn.out_proj.bias is not None:
            layer.encoder_attn.out_proj.bias.zero_()
    return model


CAUSAL = torch.ones(28, 28, dtype=torch.bool).tril()[None, None]


@every_family
@torch.no_grad()
def test_decoder_and_encoder_are_the_original(family):
    """The decoder where its cross-attention is off, the encoder where its mask is causal."""
    there = original(family)
    here, ids = adapted(there), words()
    states, expected = there.model(ids).last_hidden_state, there(ids).logits
    encoder = here.model.encoder
    assert largest_error(encoder(input_ids=ids, attention_mask=CAUSAL).last_hidden_state, states) <= 1e-6
    assert largest_error(encoder(input_ids=ids).last_hidden_state, states) > 0.01
    assert largest_error(here(input_ids=ids[:, :9], decoder_input_ids=ids).logits, expected) > 0.01
    here = without_cross_attention(here)
    assert largest_error(here(input_ids=ids[:, :9], decoder_input_ids=ids).logits, expected) <= 1e-6
    settings = {"max_new_tokens": 12, "do_sample": False, "eos_token_id": None, "pad_token_id": 0}
    start = torch.tensor([[1, 7], [1, 30]])
    found = here.generate(words(5), decoder_input_ids=start, **settings)
    assert found.tolist() == there.generate(start, attention_mask=torch.ones_like(start), **settings).tolist()


@every_family
def test_cross_attention_begins_with_self_attention_and_nothing_is_shared(family):
    there = original(family)
    here = adapted(there)
    places = [parameter.data_ptr() for parameter in [*there.parameters(), *here.parameters()]]
    assert len(set(places)) == len(places)
    for layer in here.model.decoder.layers:
        own, cross = layer.self_attn.state_dict(), layer.encoder_attn.state_dict()
        assert own.keys() == cross.keys() and all(torch.equal(own[name], cross[name]) for name in own)
        assert torch.equal(layer.encoder_attn_layer_norm.weight, layer.self_attn_layer_norm.weight)


@pytest.mark.parametrize("family", ["llama 3", "mixtral", "qwen3"])
def test_a_folder_of_shards_is_read_and_what_is_made_of_it_saved_and_loaded(family, tmp_path):
    there = original(family)
    there.save_pretrained(tmp_path / "there", max_shard_size="20KB")
    assert len(list((tmp_path / "there").glob("*.safetensors"))) > 2
    weights, source_config = read_weights(tmp_path / "there"), read_source_config(tmp_path / "there")
    here = adapt(weights, source_config, dtype=torch.float64)
    here.save_pretrained(tmp_path / "here")
    loaded = AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "here", dtype="auto")
    assert loaded.dtype == torch.float64
    expected, found = adapted(there).state_dict(), loaded.state_dict()
    assert found.keys() == expected.keys() and all(torch.equal(found[key], expected[key]) for key in expected)
    tied = there.config.tie_word_embeddings
    assert loaded.config.tie_word_embeddings == tied
    for model in (here, loaded):
        table = model.model.shared.weight
        assert (model.lm_head.weight is table) == tied and torch.equal(model.lm_head.weight, table) == tied
        assert model.model.encoder.embed_tokens.weight is table and model.model.decoder.embed_tokens.weight is table
    assert loaded.generate(words(), max_new_tokens=4).shape[0] == 2


def test_the_dtype_is_that_of_the_weights_or_the_one_that_is_asked_for():
    there = original("llama").to(torch.bfloat16)
    assert adapted(there).dtype == torch.bfloat16 == adapted(there).config.dtype
    here = adapted(there, dtype=torch.float32)
    assert {parameter.dtype for parameter in here.parameters()} == {torch.float32}
    weights = there.state_dict()
    weights["model.layers.0.self_attn.rotary_emb.inv_freq"] = torch.ones(3)  # in old files, and never read
    assert adapt(weights, there.config.to_dict()).dtype == torch.bfloat16
    weights["model.norm.weight"] = weights["model.norm.weight"].float()
    assert adapt(weights, there.config.to_dict()).dtype == torch.float32
    weights["model.norm.weight"] = weights["model.norm.weight"].to(torch.int8)
    with pytest.raises(ValueError, match=r"model\.norm\.weight is of torch\.int8"):
        adapt(weights, there.config.to_dict())


@pytest.mark.parametrize(
    ("family", "fields", "message"),
    [
        ("llama", {"model_type": "gpt2"}, "model_type='gpt2' cannot be adapted: .* llama"),
        ("llama", {"quantization_config": {"quant_method": "awq"}}, "quantization_config={'quant_method': 'awq'}"),
        ("llama", {"rope_parameters": {"rope_type": "default", "partial_rotary_factor": 0.5}},
         "partial_rotary_factor': 0.5} of this llama model cannot be expressed"),
        ("llama", {"hidden_act": "swish9"}, "activation_function='swish9'"),
        ("mixtral", {"sliding_window": 8}, "sliding_window=8 of this mixtral model"),
        ("mixtral", {"router_jitter_noise": 0.1}, "router_jitter_noise=0.1 of this mixtral model"),
        ("qwen3", {"sliding_window": 16}, "sliding_window=16 of this qwen3 model"),
        ("gemma", {"use_bidirectional_attention": True}, "use_bidirectional_attention=True of this gemma model"),
    ],
)  # fmt: skip
def test_what_cannot_be_expressed_is_named_before_weights_are_read(family, fields, message):
    source_config = original(family).config.to_dict() | fields
    with pytest.raises(ValueError, match=message):
        adapted_config(source_config)
    with pytest.raises(ValueError, match=message):
        adapt({}, source_config)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("Gemma2", "norms behind sub-layers, attn_logit_softcapping=50.0, final_logit_softcapping=30.0, sli"),
        ("Gemma3Text", "model_type='gemma3_text' .* norms behind sub-layers, sliding_window=4096"),
        ("Gemma3", "model_type='gemma3' .* norms behind sub-layers"),
    ],
)
def test_later_gemmas_are_refused_with_what_they_need(name, message):
    with pytest.raises(ValueError, match=message):
        adapted_config(getattr(transformers, f"{name}Config")().to_dict())


@torch.no_grad()
def test_the_norms_of_a_gemma_are_not_rounded_unless_that_is_asked_for():
    there = original("gemma").to(torch.bfloat16)
    norm = there.model.norm.weight
    here = adapted(there)
    assert {parameter.dtype for parameter in here.parameters()} == {torch.float32}
    assert torch.equal(here.model.decoder.layer_norm.weight, 1.0 + norm.float())
    assert torch.equal(here.model.shared.weight, there.model.embed_tokens.weight.float())
    rounded = adapted(there, dtype=torch.bfloat16).model.decoder.layer_norm.weight
    assert rounded.dtype == torch.bfloat16 and torch.equal(rounded, (1.0 + norm.float()).to(torch.bfloat16))
    assert not torch.equal(rounded.float(), 1.0 + norm.float())


# As in the files of Llama 3.2 1B and Gemma 2B, which older transformers wrote.
PUBLISHED = {
    "llama": {
        "vocab_size": 128256, "hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 16, "num_attention_heads": 32,
        "num_key_value_heads": 8, "head_dim": 64, "hidden_act": "silu", "max_position_embeddings": 131072, "rope_theta": 500000.0,
        "rms_norm_eps": 1e-5, "tie_word_embeddings": True, "torch_dtype": "bfloat16", "pretraining_tp": 1,
        "rope_scaling": {"factor": 32.0, "high_freq_factor": 4.0, "low_freq_factor": 1.0, "rope_type": "llama3",
                         "original_max_position_embeddings": 8192},
    },
    "gemma": {
        "vocab_size": 256000, "hidden_size": 2048, "intermediate_size": 16384, "num_hidden_layers": 18, "num_attention_heads": 8,
        "num_key_value_heads": 1, "head_dim": 256, "hidden_act": "gelu", "hidden_activation": None, "rope_scaling": None,
        "max_position_embeddings": 8192, "rope_theta": 10000.0, "rms_norm_eps": 1e-6, "torch_dtype": "bfloat16",
    },
}  # fmt: skip


@pytest.mark.parametrize("family", PUBLISHED)
def test_configurations_as_they_were_published(family, tmp_path):
    published = PUBLISHED[family]
    (tmp_path / "config.json").write_text(json.dumps(published | {"model_type": family}))
    config = adapted_config(read_source_config(tmp_path))
    assert config.rope_parameters["rope_theta"] == published["rope_theta"]
    assert config.rope_parameters["rope_type"] == ("llama3" if family == "llama" else "default")
    # transformers 5.17 takes the old name that Gemma's files have for what it says, newer ones for the tanh form
    assert config.activation_function == AutoConfig.for_model(family, **published).hidden_act
    assert config.stack_heads(True) == (
        published["num_attention_heads"], published["num_key_value_heads"], published["head_dim"]
    )  # fmt: skip


def test_weights_that_do_not_fit_are_named():
    there = original("llama")
    weights = there.state_dict()
    del weights["model.layers.1.mlp.up_proj.weight"]
    with pytest.raises(DoesNotFit, match=r"decoder\.model\.layers\.1\.mlp\.up_proj\.weight"):
        adapt(weights, there.config.to_dict())
    with pytest.raises(DoesNotFit, match=r"unexpected \(encoder\.model\.layers\.2"):
        adapt(there.state_dict(), there.config.to_dict() | {"num_hidden_layers": 2})
    with pytest.raises(ValueError, match="These are not the keys of a decoder-only checkpoint"):
        adapt({"wte.weight": torch.ones(2, 2)}, there.config.to_dict())
    with pytest.raises(ValueError, match="decoder_layers=4 is more than the num_hidden_layers=3 of the checkpoint"):
        adapted(there, overrides={"decoder_layers": 4})


def test_a_model_that_was_saved_without_its_head():
    there = original("qwen3, tied")
    weights = there.model.state_dict()
    assert "layers.0.mlp.up_proj.weight" in weights
    found, expected = adapt(weights, there.config.to_dict()).state_dict(), adapted(there).state_dict()
    assert found.keys() == expected.keys() and all(torch.equal(found[key], expected[key]) for key in expected)
    there = original("qwen3")
    with pytest.raises(DoesNotFit, match=r"1 missing \(decoder\.lm_head\.weight \(for lm_head\.weight"):
        adapt(there.model.state_dict(), there.config.to_dict())


@torch.no_grad()
def test_some_of_the_layers_evenly_spaced():
    """The encoder gets 3 of 6, the decoder 1: the original with these layers alone."""
    there = original("llama", num_hidden_layers=6)
    here = without_cross_attention(adapted(there, overrides={"encoder_layers": 3, "decoder_layers": 1}))
    assert (here.config.encoder_layers, here.config.decoder_layers) == (3, 1)
    ids, layers = words(), list(there.model.layers)
    there.model.layers = torch.nn.ModuleList([layers[0], layers[2], layers[5]])
    found = here.model.encoder(input_ids=ids, attention_mask=CAUSAL).last_hidden_state
    assert largest_error(found, there.model(ids, use_cache=False).last_hidden_state) <= 1e-6
    there.model.layers = torch.nn.ModuleList(layers[:1])
    expected = there(ids, use_cache=False).logits
    assert largest_error(here(input_ids=ids, decoder_input_ids=ids).logits, expected) <= 1e-6


def test_an_expert_that_a_file_lacks_is_named(tmp_path):
    there = original("mixtral")
    there.save_pretrained(tmp_path)
    weights = read_weights(tmp_path)
    for matrix in (1, 2, 3):
        del weights[f"model.layers.0.block_sparse_moe.experts.2.w{matrix}.weight"]
    with pytest.raises(DoesNotFit, match=r"experts\.gate_up_proj would be \(3, 80, 32\)"):
        adapt(weights, there.config.to_dict())
    del weights["model.layers.1.block_sparse_moe.experts.2.w3.weight"]
    with pytest.raises(DoesNotFit, match=r"layers\.1\.block_sparse_moe\.experts.* cannot be split or joined"):
        adapt(weights, there.config.to_dict())


@pytest.mark.parametrize("family", ["llama 3", "mixtral"])
@torch.no_grad()
def test_a_second_checkpoint_for_the_encoder(family, tmp_path):
    there, other = original(family), original(family, seed=1, num_hidden_layers=2, intermediate_size=24)
    if family == "mixtral":
        other = original(family, seed=1, num_hidden_layers=2)
    here = adapted(there, encoder=(other.state_dict(), other.config.to_dict()))
    here.save_pretrained(tmp_path)
    here = without_cross_attention(AutoModelForSeq2SeqLM.from_pretrained(tmp_path, dtype="auto"))
    assert (here.config.encoder_layers, here.config.decoder_layers) == (2, 3)
    ids = words()
    found = here.model.encoder(input_ids=ids, attention_mask=CAUSAL).last_hidden_state
    assert largest_error(found, other.model(ids).last_hidden_state) <= 1e-6
    assert largest_error(here(input_ids=ids[:, :9], decoder_input_ids=ids).logits, there(ids).logits) <= 1e-6
    tables = here.model.encoder.embed_tokens.weight, here.model.decoder.embed_tokens.weight
    assert not torch.equal(*tables) and not here.config.has_two_vocabularies
    assert (here.lm_head.weight is tables[1]) == there.config.tie_word_embeddings
    here.resize_token_embeddings(70)
    assert here(input_ids=ids + 8, decoder_input_ids=ids + 8).logits.shape[-1] == 70


@pytest.mark.parametrize(
    ("family", "fields", "message"),
    [
        ("qwen3", {}, "encoder has model_type='qwen3', and that of the decoder model_type='llama'"),
        ("llama", {"hidden_size": 16}, "encoder has d_model=16, and that of the decoder d_model=32"),
        ("llama", {"vocab_size": 61}, "encoder has vocab_size=61, and that of the decoder vocab_size=60"),
        ("llama", {"rope_parameters": LLAMA3}, "encoder has rope_parameters="),
    ],
)
def test_checkpoints_that_do_not_fit_together(family, fields, message):
    there, other = original("llama"), original(family, **fields)
    with pytest.raises(ValueError, match=message):
        adapted(there, encoder=(other.state_dict(), other.config.to_dict()))


def tokenizer(**tokens):
    """A tokenizer as decoder-only models have them: it pads on the left, if it has a pad token at all."""
    made = train_tokenizer(["the weft crosses the warp"] * 4, vocab_size=270)
    made.padding_side = "left"
    for name in ("pad_token", "bos_token", "eos_token"):
        setattr(made, name, tokens.get(name))
    return made


def test_special_tokens():
    ends = {"bos_token": "<s>", "eos_token": "</s>"}
    own = {"vocab_size": 300, "pad_token_id": None, "bos_token_id": 1, "eos_token_id": 2}
    pad, bos, eos = (tokenizer().get_vocab()[name] for name in ("<pad>", "<s>", "</s>"))
    made = tokenizer(**ends, pad_token="<pad>")
    assert special_token_ids(made, own) == {
        "pad_token_id": pad, "bos_token_id": bos, "eos_token_id": eos, "decoder_start_token_id": bos,
    }  # fmt: skip
    assert made.padding_side == "right"

    # the configuration has what the tokenizer lacks, and more ends
    made = tokenizer(eos_token="</s>")
    found = special_token_ids(made, own | {"pad_token_id": 5, "bos_token_id": None, "eos_token_id": [9, eos]})
    assert found == {"pad_token_id": 5, "bos_token_id": None, "eos_token_id": [eos, 9], "decoder_start_token_id": 5}
    assert made.pad_token_id == 5
    assert special_token_ids(None, own | {"pad_token_id": 0})["decoder_start_token_id"] == 1

    made = tokenizer(**ends)
    for old in (None, -1):
        with pytest.raises(
            ValueError, match=r"no pad token, .*\(--pad-token TOKEN\)\. Its other special tokens are .*<pad>"
        ):
            special_token_ids(made, own | {"pad_token_id": old})
    with pytest.raises(ValueError, match="pad_token='<none>' is not in the vocabulary"):
        special_token_ids(made, own, "<none>")
    assert special_token_ids(made, own, "<pad>")["pad_token_id"] == pad == made.pad_token_id
    with pytest.raises(ValueError, match="no eos token"):
        special_token_ids(tokenizer(pad_token="<pad>"), own | {"eos_token_id": None})
    with pytest.raises(ValueError, match=f"has {len(made)} tokens, and the model vocab_size=10"):
        special_token_ids(made, own | {"vocab_size": 10})
