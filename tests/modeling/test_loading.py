"""Weights are saved and loaded bit for bit, and files that cannot be right are refused by name."""

import logging
import shutil
from functools import partial

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import nn
from transformers import AutoConfig, AutoModel, pipeline

from weftformer import WeftConfig, WeftEncoder, WeftForConditionalGeneration, WeftModel
from weftformer.modeling.loading import warn_of_whole_experts

from .. import models
from ..conftest import save_both
from ..models import IDS, SPARSE, TARGET, TINY_CONFIG, tiny_model

BALANCED = SPARSE | {"router_bias_update_rate": 0.1, "mlp_bias": True}
KINDS = {
    "one table for all": models.KINDS["relative"],
    "two vocabularies, head of its own": models.KINDS["learned"] | {"decoder_vocab_size": 23, "tie_word_embeddings": False},
    "sparse, balanced by bias": BALANCED,
    "sparse, noisy": models.KINDS["sparse"] | models.KINDS["additive"] | {"router_bias": True, "is_gated_act": False},
    "yarn": models.KINDS["rotary across"] | {
        "rope_parameters": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 8},
    },
}  # fmt: skip

# Every number is random, also those that begin as 0 or 1, so that one that is not loaded is seen.
build = partial(tiny_model, random=True, dropout=0.0)


def scores(model) -> torch.Tensor:
    return model(input_ids=IDS, decoder_input_ids=TARGET)[0]


def same_weights(first, second) -> None:
    torch.testing.assert_close(first.state_dict(), second.state_dict(), rtol=0, atol=0)


ALL, WHOLE = list(KINDS), WeftForConditionalGeneration
# kinds, how the model is saved, the class and the options of loading
SAVED = {
    "one file": (ALL, {}, WHOLE, {}),
    "shards": (ALL, {"max_shard_size": "4KB"}, WHOLE, {}),
    "without head": (ALL[:2], {}, WeftModel, {}),
    "half precision": (["yarn", "sparse, balanced by bias"], {}, WHOLE, {"dtype": torch.bfloat16}),
}


@pytest.mark.parametrize(("case", "kind"), [(case, kind) for case, row in SAVED.items() for kind in row[0]])
@torch.no_grad()
def test_saved_model_equals_loaded_model(case, kind, tmp_path):
    _, saving, loaded_class, options = SAVED[case]
    model = build(**KINDS[kind])
    model.save_pretrained(tmp_path, **saving)
    assert (len(list(tmp_path.glob("*.safetensors"))) > 1) == (case == "shards")
    torch.manual_seed(1)
    loaded, info = loaded_class.from_pretrained(tmp_path, output_loading_info=True, **options)
    assert not info["missing_keys"] and not info["mismatched_keys"] and not loaded.training
    expected = model.model if loaded_class is WeftModel else model.to(options.get("dtype", torch.float32))
    same_weights(expected, loaded)
    # buffers that are not on disk (rotary frequencies) are made again; they and the biases of routing stay in fp32
    for (name, buffer), (_, found) in zip(expected.named_buffers(), loaded.named_buffers(), strict=True):
        assert torch.equal(buffer, found) and buffer.dtype == torch.float32, name
    # far positions, which frequencies in half precision would put elsewhere
    step = 1 if model.config.has_position_table else 331
    inputs = {"input_ids": IDS, "decoder_input_ids": TARGET, "position_ids": torch.arange(6) * step}
    # loaded tensors stand elsewhere in memory, where the kernels of experts sum in another order
    tolerance = 1e-2 if options else 1e-5
    torch.testing.assert_close(loaded(**inputs)[0], expected(**inputs)[0], rtol=tolerance, atol=tolerance)


@torch.no_grad()
def test_base_model_loads_with_a_new_or_a_tied_head(tmp_path):
    for kind in ALL[:2]:
        model = build(**KINDS[kind])
        model.model.save_pretrained(tmp_path / kind)
        loaded, info = WeftForConditionalGeneration.from_pretrained(tmp_path / kind, output_loading_info=True)
        same_weights(loaded.model, model.model)
        if model.config.tie_word_embeddings:
            assert torch.equal(scores(loaded), scores(model))
        else:
            assert info["missing_keys"] == {"lm_head.weight", "lm_head.bias"}
            assert 0.1 < loaded.lm_head.weight.std() < 0.4 and not loaded.lm_head.bias.any()


@pytest.mark.parametrize("kind", ALL)
@torch.no_grad()
def test_automodel_loads_what_was_saved_alone(kind, tmp_path):
    model = build(**KINDS[kind])
    parts = {"WeftEncoder": model.get_encoder(), "WeftDecoder": model.get_decoder(), "WeftModel": model.model}
    for name, part in parts.items():
        part.save_pretrained(tmp_path / name)
        config = AutoConfig.from_pretrained(tmp_path / name)
        for loaded in (AutoModel.from_pretrained(tmp_path / name, config=given) for given in (None, config)):
            assert type(loaded).__name__ == name
            same_weights(loaded, part)
    assert type(AutoModel.from_config(model.config)) is WeftModel


@torch.no_grad()
def test_a_pipeline_takes_the_states_of_a_saved_encoder(tmp_path):
    model, tokenizer = models.tiny_text_model(["a text"])
    save_both(tmp_path, model.get_encoder(), tokenizer)
    found = pipeline("feature-extraction", model=str(tmp_path), device="cpu")("a text")
    expected = model.get_encoder()(**tokenizer("a text", return_tensors="pt"))[0]
    torch.testing.assert_close(torch.tensor(found), expected, rtol=1e-4, atol=1e-4)


# --- damaged files and weights of other models


def refused(folder, *words, loader=WeftForConditionalGeneration, **options) -> None:
    with pytest.raises(ValueError) as error:
        loader.from_pretrained(folder, **options)
    for word in words:
        assert word in str(error.value), str(error.value)


# what is done to a file or to the index, and whether the message names the file
DAMAGE = {
    "empty": (lambda file, index: file.write_bytes(b""), True),
    "cut off": (lambda file, index: file.write_bytes(file.read_bytes()[:-1]), True),
    "pickle": (lambda file, index: torch.save({"a": torch.zeros(2)}, file), True),
    "missing": (lambda file, index: file.unlink(), False),
    "outside": (lambda file, index: index.write_text(index.read_text().replace(file.name, f"../{file.name}")), False),
    "empty index": (lambda file, index: index.write_text(""), False),
    "no names": (lambda file, index: index.write_text('{"weight_map": {"a": 5}}'), False),
}


@pytest.mark.parametrize(("damage", "size"), [*((name, "4KB") for name in DAMAGE), ("cut off", "1GB")])
def test_damaged_files_are_refused_by_name(damage, size, tmp_path):
    folder = tmp_path / "best"
    build().save_pretrained(folder, max_shard_size=size)
    file, index = sorted(folder.glob("*.safetensors"))[0], folder / "model.safetensors.index.json"
    shutil.copy(file, tmp_path)
    change, names_file = DAMAGE[damage]
    change(file, index)
    words = f"{file} is not a complete safetensors file" if names_file else str(index)
    refused(tmp_path, words, subfolder="best")


def test_weights_of_another_model_or_configuration_are_refused(tmp_path):
    build().save_pretrained(tmp_path)
    file = str(tmp_path / "model.safetensors")
    refused(tmp_path, file, "other weights than", "WeftEncoder", loader=WeftEncoder)
    for fields, word, option in (
        (SPARSE, "router", "allow_missing_weights"),
        (
            {"encoder_ffn_dim": 32},
            "encoder.layers.0.mlp.down_proj.weight of shape (16, 24)",
            "ignore_mismatched_sizes",
        ),
    ):
        WeftConfig(**(TINY_CONFIG | fields)).save_pretrained(tmp_path)
        refused(tmp_path, file, word)
        other = WeftForConditionalGeneration.from_pretrained(tmp_path, **{option: True})
        assert torch.isfinite(scores(other)).all()


@torch.no_grad()
def test_file_of_fewer_layers_is_refused_unless_allowed(tmp_path):
    model = build()
    model.save_pretrained(tmp_path)
    WeftConfig(**(TINY_CONFIG | {"encoder_layers": 4, "decoder_layers": 4})).save_pretrained(tmp_path)
    refused(tmp_path, "lacks 46 of the weights of", "coder.layers.2.", str(tmp_path / "model.safetensors"))
    for option in ("allow_missing_weights", "ignore_mismatched_sizes"):
        decoder = WeftForConditionalGeneration.from_pretrained(tmp_path, **{option: True}).model.decoder
        same_weights(decoder.layers[1], model.model.decoder.layers[1])
        for name, parameter in decoder.layers[3].named_parameters():
            assert torch.isfinite(parameter).all() and parameter.abs().max() > 0, name
            assert torch.equal(parameter, torch.ones_like(parameter)) == ("norm" in name), name
    # missing keys are reported on request instead of refused
    _, info = WeftForConditionalGeneration.from_pretrained(tmp_path, output_loading_info=True)
    assert len(info["missing_keys"]) == 46 and not info["unexpected_keys"]


def test_biases_of_balanced_routing_may_be_missing(tmp_path):
    build(**SPARSE).save_pretrained(tmp_path)
    other = WeftForConditionalGeneration.from_pretrained(tmp_path, router_bias_update_rate=0.1)
    assert len(other.routers()) == 4
    for router in other.routers():
        assert not router.selection_bias.any() and not router.expert_load.any()
    assert torch.equal(scores(other), scores(WeftForConditionalGeneration.from_pretrained(tmp_path)))
    other.save_pretrained(tmp_path)
    name = "model.decoder.layers.0.mlp.router.selection_bias"
    file = tmp_path / "model.safetensors"
    weights = load_file(file)
    del weights[name]
    save_file(weights, file, {"format": "pt"})
    refused(tmp_path, f"lacks 1 of the weights of WeftForConditionalGeneration ({name})")


@pytest.mark.parametrize("rate", [0.0, None])
def test_file_without_biases_loads_without_them(rate, tmp_path, caplog):
    build(**SPARSE).save_pretrained(tmp_path)
    config = WeftConfig.from_pretrained(tmp_path)
    config.router_bias_update_rate = rate  # 0 as in the files of earlier versions
    config.save_pretrained(tmp_path)
    with caplog.at_level(logging.WARNING, "transformers"):
        model = WeftForConditionalGeneration.from_pretrained(tmp_path)
    assert not caplog.records and model.config.router_bias_update_rate is None
    assert not any("selection_bias" in name for name in model.state_dict())


@pytest.mark.parametrize("is_in_file", [True, False])
def test_rate_of_zero_keeps_the_biases(is_in_file, tmp_path):
    model = build(**BALANCED)
    model.save_pretrained(tmp_path)
    fields = {"router_bias_update_rate": 0.0}
    if is_in_file:
        WeftConfig.from_pretrained(tmp_path, **fields).save_pretrained(tmp_path)
    other = WeftForConditionalGeneration.from_pretrained(tmp_path, **({} if is_in_file else fields))
    same_weights(other, model)
    other.train()(input_ids=IDS, labels=TARGET).loss.backward()
    torch.optim.SGD(other.parameters(), lr=0.1).step()
    biases = {name: tensor for name, tensor in model.state_dict().items() if name.endswith("selection_bias")}
    assert len(biases) == 4
    for name, bias in biases.items():
        assert torch.equal(other.state_dict()[name], bias)
    refused(tmp_path, "selection_bias", "allow_missing_weights", router_bias_update_rate=None)


HEADS = {
    "two layers": lambda head: nn.Sequential(nn.Linear(head.in_features, 8), nn.Linear(8, head.out_features)),
    "dropout": lambda head: nn.Sequential(nn.Dropout(0.1), head),
    "none": lambda head: nn.Identity(),
}


@pytest.mark.parametrize("is_tied", [False, True])
@pytest.mark.parametrize("kind", HEADS)
def test_other_head_is_saved_and_not_taken_for_the_usual_one(kind, is_tied, tmp_path):
    model = WeftForConditionalGeneration(WeftConfig(**TINY_CONFIG, tie_word_embeddings=is_tied))
    model.lm_head = HEADS[kind](model.lm_head)
    model.save_pretrained(tmp_path)
    table = model.get_input_embeddings().weight
    weights = {name: weight for name, weight in model.state_dict().items() if name.startswith("lm_head")}
    own = {name for name, weight in weights.items() if weight.data_ptr() != table.data_ptr()}
    with safe_open(tmp_path / "model.safetensors", "pt") as file:
        assert {name for name in [*file.keys()] if name.startswith("lm_head")} == own
    if own or not is_tied:
        refused(tmp_path, "lm_head")


def test_lists_of_start_and_end_tokens_load(tmp_path):
    model = WeftForConditionalGeneration(WeftConfig(**TINY_CONFIG))
    settings = {"decoder_start_token_id": [1, 5], "eos_token_id": [2, 7], "bos_token_id": [1, 3]}
    model.generation_config.update(**settings)
    model.save_pretrained(tmp_path)
    loaded = WeftForConditionalGeneration.from_pretrained(tmp_path).generation_config
    assert {name: getattr(loaded, name) for name in settings} == settings


@pytest.mark.parametrize(("kind", "is_warned"), [("sparse", True), ("dense", False)])
def test_experts_that_a_quantizer_leaves_are_named(kind, is_warned, caplog):
    model = WeftForConditionalGeneration(WeftConfig(**(TINY_CONFIG | {"decoder_mlp_layer_types": kind})))
    with caplog.at_level(logging.WARNING, logger="weftformer"):
        warn_of_whole_experts(model)
    assert ("experts are not quantized" in caplog.text) is is_warned
