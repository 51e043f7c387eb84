"""Weights survive the disk bit for bit, and files that cannot be right are refused by name."""

import copy
import json
import pickle
import shutil
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModel, AutoModelForSeq2SeqLM, BartConfig, BartForConditionalGeneration

from weftformer import (
    WeftConfig,
    WeftDecoder,
    WeftEncoder,
    WeftForConditionalGeneration,
    WeftModel,
    WeftPreTrainedModel,
)

from ..models import TINY_CONFIG

TINY = TINY_CONFIG | {"dropout": 0.0}
SPARSE = {"encoder_mlp_layer_types": ["dense", "sparse"], "decoder_mlp_layer_types": "sparse", "num_experts": 4}
SEPARATE = {"share_encoder_decoder_embeddings": False, "decoder_vocab_size": 23}
KINDS = {
    "one table for all": {},
    "head of its own": {"tie_word_embeddings": False, "lm_head_bias": True},
    "table for each stack": {"share_encoder_decoder_embeddings": False},
    "nothing shared": {"share_encoder_decoder_embeddings": False, "tie_word_embeddings": False},
    "two vocabularies": SEPARATE,
    "two vocabularies, head of its own": SEPARATE | {"tie_word_embeddings": False},
    "sparse": SPARSE,
    "sparse, plain and with biases": SPARSE | {"is_gated_act": False, "mlp_bias": True, "router_bias": True},
    "sparse, noisy": SPARSE | {"router_type": "noisy_top_k"},
    "sparse, balanced by bias": SPARSE | {"router_bias_update_rate": 0.1},
    "rotary everywhere": {"cross_attention_position_type": "rotary", "use_qk_norm": True},
    "scaled rotary": {"rope_parameters": {"rope_type": "linear", "factor": 4.0}},
    "yarn": {"rope_parameters": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 8}},
    "learned": {
        "position_embedding_type": "learned",
        "self_attention_position_type": "none",
        "norm_type": "layernorm",
        "attention_bias": True,
        "attention_out_bias": True,
        "num_condition_features": 2,
    },
    "sinusoidal": {
        "position_embedding_type": "sinusoidal",
        "self_attention_position_type": "none",
        "norm_type": "stdnorm",
        "normalize_embedding": True,
    },
    "bucketed": {"self_attention_position_type": "bucketed", "cross_attention_position_type": "bucketed"},
    "relative": {"self_attention_position_type": "relative", "cross_attention_position_type": "relative"},
    "additive": {
        "self_attention_position_type": "additive",
        "cross_attention_position_type": "additive",
        "max_target_positions": 24,
    },
}
IDS = torch.tensor([[5, 6, 7, 8, 9], [9, 4, 3, 0, 0]])
TARGET = torch.tensor([[1, 6, 7, 8], [1, 5, 5, 20]])


def build(kind=WeftForConditionalGeneration, **fields):
    """Every number random, those that begin as 0 or 1 too: what is not loaded is then seen."""
    torch.manual_seed(0)
    model = kind(WeftConfig(**(TINY | fields))).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.ndim == 1 or "relative_bias" in name:
                parameter.normal_()
        for name, buffer in model.named_buffers():
            if name.endswith("selection_bias"):
                buffer.normal_()
    return model


def scores(model) -> torch.Tensor:
    return model(input_ids=IDS, decoder_input_ids=TARGET)[0]


def same_weights(first, second) -> None:
    one, other = first.state_dict(), second.state_dict()
    assert one.keys() == other.keys()
    for name in one:
        assert one[name].dtype == other[name].dtype, name
        assert torch.equal(one[name], other[name]), name


@pytest.mark.stays(size=("5GB",))
@pytest.mark.stays(kind=("sparse", "two vocabularies"))
@pytest.mark.parametrize("size", ["5GB", "4KB"], ids=["one file", "shards"])
@pytest.mark.parametrize("kind", KINDS)
@torch.no_grad()
def test_a_model_survives_the_disk_bit_for_bit(kind, size, tmp_path):
    model = build(**KINDS[kind])
    model.save_pretrained(tmp_path, max_shard_size=size)
    assert len(list(tmp_path.glob("*.safetensors"))) > (1 if size == "4KB" else 0)
    torch.manual_seed(1)
    other, info = WeftForConditionalGeneration.from_pretrained(tmp_path, output_loading_info=True)
    assert not info["missing_keys"] and not info["unexpected_keys"] and not info["mismatched_keys"]
    same_weights(model, other)
    # the buffers that are not on disk (rotary frequencies) were made again, not left as the meta device had them
    for (name, buffer), (_, found) in zip(model.named_buffers(), other.named_buffers(), strict=True):
        assert torch.equal(buffer, found), name
    assert not other.training
    # not bit for bit: loaded tensors stand elsewhere in memory, where the kernels of experts sum in another order
    torch.testing.assert_close(scores(other), scores(model), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_shared_is_written_once_and_shared_again(kind, tmp_path):
    model = build(**KINDS[kind])
    model.save_pretrained(tmp_path)
    written = set(load_file(tmp_path / "model.safetensors"))
    other = WeftForConditionalGeneration.from_pretrained(tmp_path)
    config = model.config
    source, target, head = (
        other.model.encoder.embed_tokens.weight,
        other.model.decoder.embed_tokens.weight,
        other.lm_head.weight,
    )
    assert (source is target) == config.share_encoder_decoder_embeddings
    assert (head is target) == config.tie_word_embeddings
    tables = 1 + (not config.share_encoder_decoder_embeddings) + (not config.tie_word_embeddings)
    assert sum("embed_tokens" in name or "shared" in name or name == "lm_head.weight" for name in written) == tables
    assert written < set(model.state_dict()) or tables == 3


@pytest.mark.parametrize("kind", ["one table for all", "nothing shared", "sparse", "two vocabularies"])
@torch.no_grad()
def test_the_folder_of_a_whole_model_loads_without_its_head_and_back(kind, tmp_path):
    model = build(**KINDS[kind])
    model.save_pretrained(tmp_path / "whole")
    base = WeftModel.from_pretrained(tmp_path / "whole")
    same_weights(base, model.model)
    base.save_pretrained(tmp_path / "base")
    same_weights(WeftModel.from_pretrained(tmp_path / "base"), base)
    again, info = WeftForConditionalGeneration.from_pretrained(tmp_path / "base", output_loading_info=True)
    same_weights(again.model, model.model)
    if model.config.tie_word_embeddings:
        assert torch.equal(scores(again), scores(model))
    else:
        assert "lm_head.weight" in info["missing_keys"]
        assert torch.isfinite(scores(again)).all()


@torch.no_grad()
def test_stacks_survive_the_disk_alone(tmp_path):
    encoder = build(WeftEncoder)
    encoder.save_pretrained(tmp_path / "encoder")
    other = WeftEncoder.from_pretrained(tmp_path / "encoder")
    same_weights(encoder, other)
    assert torch.equal(other(IDS)[0], encoder(IDS)[0])
    decoder = build(WeftDecoder, cross_attention_hidden_size=12)
    decoder.save_pretrained(tmp_path / "decoder")
    again = WeftDecoder.from_pretrained(tmp_path / "decoder")
    same_weights(decoder, again)
    states = torch.randn(2, 3, 12)
    given = {"input_ids": TARGET, "encoder_hidden_states": states}
    assert torch.equal(again(**given)[0], decoder(**given)[0])


@torch.no_grad()
def test_auto_classes_load_the_same(tmp_path):
    model = build(**KINDS["sparse"])
    model.save_pretrained(tmp_path)
    assert type(AutoConfig.from_pretrained(tmp_path)) is WeftConfig
    whole = AutoModelForSeq2SeqLM.from_pretrained(tmp_path)
    assert type(whole) is WeftForConditionalGeneration
    same_weights(whole, model)
    base = AutoModel.from_pretrained(tmp_path)
    assert type(base) is WeftModel
    same_weights(base, model.model)
    assert type(AutoModelForSeq2SeqLM.from_config(model.config)) is WeftForConditionalGeneration
    assert type(AutoModel.from_config(model.config)) is WeftModel


@pytest.mark.parametrize("kind", ["one table for all", "yarn", "sparse, balanced by bias", "learned"])
@torch.no_grad()
def test_loading_in_half_precision(kind, tmp_path):
    model = build(**KINDS[kind])
    model.save_pretrained(tmp_path)
    other = WeftForConditionalGeneration.from_pretrained(tmp_path, dtype=torch.bfloat16)
    assert {parameter.dtype for parameter in other.parameters()} == {torch.bfloat16}
    for name, buffer in other.named_buffers():
        # frequencies and what moves the routing by 1e-3 a step are lost in half precision
        assert buffer.dtype == torch.float32, name
        assert torch.equal(buffer, dict(model.named_buffers())[name]), name
    found, expected = scores(other), scores(model)
    assert found.dtype == torch.bfloat16
    assert (found.float() - expected).abs().mean() / expected.abs().mean() < 0.1
    other.save_pretrained(tmp_path / "half")
    again = WeftForConditionalGeneration.from_pretrained(tmp_path / "half", dtype="auto")
    same_weights(again, other)


@pytest.mark.parametrize("kind", ["one table for all", "yarn", "sparse, balanced by bias", "relative"])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@torch.no_grad()
def test_a_model_can_be_switched_to_half_precision(kind, dtype):
    model = build(**KINDS[kind])
    expected = scores(model)
    found = scores(model.to(dtype))
    assert found.dtype == dtype
    assert (found.float() - expected).abs().mean() / expected.abs().mean() < 0.1
    generated = model.generate(IDS, max_new_tokens=3)
    assert generated.shape[0] == 2


@pytest.mark.parametrize("kind", ["rotary everywhere", "yarn", "sparse, balanced by bias"])
@torch.no_grad()
def test_a_model_switched_to_half_precision_is_the_one_loaded_in_it(kind, tmp_path):
    """Far positions too: frequencies in half precision would put them elsewhere."""
    model = build(**KINDS[kind])
    model.save_pretrained(tmp_path)
    loaded = WeftForConditionalGeneration.from_pretrained(tmp_path, dtype=torch.bfloat16)
    switched = model.to(torch.bfloat16)
    for (name, one), (_, two) in zip(switched.named_buffers(), loaded.named_buffers(), strict=True):
        assert one.dtype == two.dtype == torch.float32, name
        assert torch.equal(one, two), name
    far = {"position_ids": torch.arange(5) * 331, "decoder_position_ids": torch.arange(4) * 577}
    given = {"input_ids": IDS, "decoder_input_ids": TARGET, **far}
    torch.testing.assert_close(switched(**given).logits, loaded(**given).logits, rtol=0, atol=1e-2)


@pytest.mark.parametrize("kind", ["one table for all", "sparse, balanced by bias", "two vocabularies", "yarn"])
@torch.no_grad()
def test_copies_are_equal_and_share_nothing(kind):
    model = build(**KINDS[kind])
    expected = scores(model)
    for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert torch.equal(scores(other), expected)
        assert torch.equal(other.generate(IDS, max_new_tokens=3), model.generate(IDS, max_new_tokens=3))
        tied = other.lm_head.weight is other.model.decoder.embed_tokens.weight
        assert tied == model.config.tie_word_embeddings
        other.model.encoder.embed_tokens.weight.zero_()
        assert torch.equal(scores(model), expected)
        other.config.dropout = 0.9
        assert model.config.dropout == 0.0


@torch.no_grad()
def test_fields_may_be_replaced_while_loading(tmp_path):
    build().save_pretrained(tmp_path)
    other = WeftForConditionalGeneration.from_pretrained(tmp_path, attention_dropout=0.3)
    assert other.model.decoder.layers[0].self_attn.config.attention_dropout == 0.3
    with pytest.raises(ValueError, match="attention_dropout=3 is not allowed"):
        WeftForConditionalGeneration.from_pretrained(tmp_path, attention_dropout=3)


def test_a_subfolder_is_found(tmp_path):
    model = build()
    model.save_pretrained(tmp_path / "best")
    same_weights(WeftForConditionalGeneration.from_pretrained(tmp_path, subfolder="best"), model)
    (tmp_path / "best" / "model.safetensors").write_bytes(b"")
    with pytest.raises(ValueError, match=r"best/model.safetensors is not a complete safetensors file"):
        WeftForConditionalGeneration.from_pretrained(tmp_path, subfolder="best")


@pytest.fixture(scope="module")
def saved(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("saved")
    build().save_pretrained(folder / "whole")
    build().save_pretrained(folder / "shards", max_shard_size="4KB")
    return folder


LOADERS = [WeftForConditionalGeneration, WeftModel, AutoModelForSeq2SeqLM, AutoModel]


def refused(loader, folder, *words) -> None:
    with pytest.raises(ValueError) as error:
        loader.from_pretrained(folder)
    for word in words:
        assert word in str(error.value), str(error.value)


@pytest.mark.parametrize("loader", LOADERS)
@pytest.mark.parametrize("keep", [0, 4, 100, -1], ids=["empty", "no header", "half a header", "one byte short"])
def test_a_truncated_file_is_named(loader, keep, saved, tmp_path):
    folder = shutil.copytree(saved / "whole", tmp_path / "model")
    file = folder / "model.safetensors"
    file.write_bytes(file.read_bytes()[:keep])
    refused(loader, folder, f"{file} is not a complete safetensors file", "copy or download it again")


@pytest.mark.parametrize("loader", LOADERS)
def test_a_file_of_another_format_is_named(loader, saved, tmp_path):
    folder = shutil.copytree(saved / "whole", tmp_path / "model")
    file = folder / "model.safetensors"
    torch.save(build().state_dict(), file)
    refused(loader, folder, f"{file} is not a complete safetensors file")


@pytest.mark.parametrize("loader", LOADERS)
def test_a_truncated_shard_is_named(loader, saved, tmp_path):
    folder = shutil.copytree(saved / "shards", tmp_path / "model")
    file = sorted(folder.glob("*.safetensors"))[2]
    file.write_bytes(file.read_bytes()[:50])
    refused(loader, folder, f"{file} is not a complete safetensors file")


@pytest.mark.parametrize("loader", LOADERS)
def test_a_missing_shard_is_named(loader, saved, tmp_path):
    folder = shutil.copytree(saved / "shards", tmp_path / "model")
    file = sorted(folder.glob("*.safetensors"))[1]
    file.unlink()
    refused(loader, folder, f"names {file.name}, but {file} does not exist")


@pytest.mark.parametrize("name", ["../elsewhere.safetensors", "/etc/passwd", "a/b.safetensors", "..\\x"])
def test_an_index_that_points_outside_is_refused(name, saved, tmp_path):
    folder = shutil.copytree(saved / "shards", tmp_path / "model")
    shutil.copy(sorted(folder.glob("*.safetensors"))[0], tmp_path / "elsewhere.safetensors")
    index = folder / "model.safetensors.index.json"
    content = json.loads(index.read_text())
    first = next(iter(content["weight_map"]))
    content["weight_map"][first] = name
    index.write_text(json.dumps(content))
    if "\\" in name:
        refused(WeftForConditionalGeneration, folder, str(index))
    else:
        refused(WeftForConditionalGeneration, folder, f"{index} points outside its folder, to {name!r}")


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"metadata": {}}', '{"weight_map": 3}', '{"weight_map": {"a": 5}}'], ids=str
)
def test_an_unreadable_index_is_named(text, saved, tmp_path):
    folder = shutil.copytree(saved / "shards", tmp_path / "model")
    index = folder / "model.safetensors.index.json"
    index.write_text(text)
    refused(WeftForConditionalGeneration, folder, str(index))


def test_an_empty_folder_is_refused(tmp_path):
    with pytest.raises((ValueError, OSError), match=str(tmp_path)):
        WeftForConditionalGeneration.from_pretrained(tmp_path)


# Names of BART that are Weft's too, and widths that fit: the encoder's attention would load, the rest stay random.
def test_the_weights_of_another_model_are_refused(tmp_path):
    WeftConfig(**TINY).save_pretrained(tmp_path)
    bart = BartForConditionalGeneration(
        BartConfig(
            vocab_size=31,
            d_model=16,
            encoder_layers=2,
            decoder_layers=2,
            encoder_attention_heads=2,
            decoder_attention_heads=2,
            encoder_ffn_dim=24,
            decoder_ffn_dim=24,
            max_position_embeddings=16,
            pad_token_id=0,
            bos_token_id=1,
            eos_token_id=2,
            decoder_start_token_id=1,
            forced_eos_token_id=2,
        )
    )
    save_file({k: v.clone() for k, v in bart.state_dict().items()}, tmp_path / "model.safetensors", {"format": "pt"})
    for loader in LOADERS:
        refused(loader, tmp_path, str(tmp_path / "model.safetensors"), "weights of another model")


def test_weights_with_no_name_in_common_are_refused(tmp_path):
    WeftConfig(**TINY).save_pretrained(tmp_path)
    save_file({"transformer.wte.weight": torch.zeros(3, 3)}, tmp_path / "model.safetensors", {"format": "pt"})
    refused(WeftForConditionalGeneration, tmp_path, "transformer.wte.weight", "weights of another model")


def test_the_folder_of_a_whole_model_is_none_of_a_stack(tmp_path):
    build().save_pretrained(tmp_path)
    refused(WeftEncoder, tmp_path, "weights of another model", "WeftEncoder")


def test_weights_for_another_configuration_are_refused(tmp_path):
    """The same widths, dense where the configuration says sparse."""
    build().save_pretrained(tmp_path)
    WeftConfig(**TINY, **SPARSE).save_pretrained(tmp_path)
    refused(WeftForConditionalGeneration, tmp_path, str(tmp_path / "model.safetensors"), "router")


def test_weights_of_another_width_are_refused(tmp_path):
    build().save_pretrained(tmp_path)
    WeftConfig(**TINY | {"encoder_ffn_dim": 32}).save_pretrained(tmp_path)
    words = ["encoder.layers.0.mlp.down_proj.weight of shape (16, 24)", "(16, 32)", "another configuration"]
    refused(WeftForConditionalGeneration, tmp_path, str(tmp_path / "model.safetensors"), *words)
    other = WeftForConditionalGeneration.from_pretrained(tmp_path, ignore_mismatched_sizes=True)
    assert torch.isfinite(scores(other)).all()


def without(folder: Path, *parts: str) -> Path:
    """The folder, its file without the weights whose names have one of these parts in them."""
    file = folder / "model.safetensors"
    kept = {name: tensor for name, tensor in load_file(file).items() if not any(part in name for part in parts)}
    save_file(kept, file, {"format": "pt"})
    return folder


def deeper(folder: Path) -> Path:
    """The folder of a model of two layers, its configuration of four."""
    config = json.loads((folder / "config.json").read_text())
    for stack in ("encoder", "decoder"):
        config |= {f"{stack}_layers": 4, f"{stack}_mlp_layer_types": ["dense"] * 4}
    (folder / "config.json").write_text(json.dumps(config))
    return folder


@pytest.mark.parametrize("loader", LOADERS)
def test_a_file_of_fewer_layers_is_refused(loader, tmp_path):
    build().save_pretrained(tmp_path)
    names = ["coder.layers.2.", "allow_missing_weights=True", str(tmp_path / "model.safetensors")]
    refused(loader, deeper(tmp_path), "lacks 46 of the weights of", *names)


@pytest.mark.parametrize(
    "name",
    [
        "encoder.layers.0.self_attn_layer_norm.weight",
        "decoder.layers.1.encoder_attn.k_proj.weight",
        "decoder.layers.1.mlp.experts.down_proj",
        "encoder.layers.1.mlp.router.classifier.weight",
        "lm_head.weight",
        "embed_tokens.weight",
    ],
)
def test_a_file_without_one_weight_is_refused(name, tmp_path):
    fields = {"tie_word_embeddings": False} if name == "lm_head.weight" else {}
    build(**SPARSE, **fields).save_pretrained(tmp_path)
    without(tmp_path, "shared.weight" if "embed" in name else name)
    refused(WeftForConditionalGeneration, tmp_path, "of the weights of WeftForConditionalGeneration", name)
    if name != "lm_head.weight":
        refused(WeftModel, tmp_path, "of the weights of WeftModel", name)


@pytest.mark.parametrize("fresh", ["allow_missing_weights", "ignore_mismatched_sizes"])
@pytest.mark.parametrize("loader", LOADERS)
@torch.no_grad()
def test_missing_weights_start_at_random_where_that_is_asked_for(loader, fresh, tmp_path):
    model = build()
    model.save_pretrained(tmp_path)
    other = loader.from_pretrained(deeper(tmp_path), **{fresh: True})
    base = getattr(other, "model", other)
    assert base.config.decoder_layers == len(base.decoder.layers) == 4
    for index in (0, 1):
        same_weights(base.decoder.layers[index], model.model.decoder.layers[index])
    for name, parameter in base.decoder.layers[3].named_parameters():
        assert torch.isfinite(parameter).all() and parameter.abs().max() > 0, name
        assert torch.equal(parameter, torch.ones_like(parameter)) == ("norm" in name), name


def test_who_asks_what_is_missing_is_told_and_not_refused(tmp_path):
    build().save_pretrained(tmp_path)
    _, info = WeftForConditionalGeneration.from_pretrained(deeper(tmp_path), output_loading_info=True)
    assert len(info["missing_keys"]) == 46 and not info["unexpected_keys"]
    save_file({"tensor": torch.zeros(2)}, tmp_path / "model.safetensors", {"format": "pt"})
    model, info = WeftForConditionalGeneration.from_pretrained(tmp_path, output_loading_info=True)
    assert info["missing_keys"] >= set(dict(model.named_parameters())) and info["unexpected_keys"] == {"tensor"}


def test_weights_of_another_model_are_left_out_only_where_that_is_asked_for(tmp_path):
    build().save_pretrained(tmp_path)
    WeftConfig(**TINY, **SPARSE).save_pretrained(tmp_path)
    with pytest.raises(ValueError, match="weights of another model"):
        WeftForConditionalGeneration.from_pretrained(tmp_path, ignore_mismatched_sizes=True)
    other = WeftForConditionalGeneration.from_pretrained(tmp_path, allow_missing_weights=True)
    assert torch.isfinite(scores(other)).all()


class WithProbe(WeftPreTrainedModel):
    """A head that a person puts on the model."""

    def __init__(self, config):
        super().__init__(config)
        self.model = WeftModel(config)
        self.probe = torch.nn.Linear(config.d_model, 3)
        self.post_init()


def test_a_head_may_be_new(tmp_path):
    model = build(tie_word_embeddings=False)
    model.model.save_pretrained(tmp_path / "base")
    with_head = WeftForConditionalGeneration.from_pretrained(tmp_path / "base")
    same_weights(with_head.model, model.model)
    model.save_pretrained(tmp_path / "whole")
    probe = WithProbe.from_pretrained(tmp_path / "whole")
    same_weights(probe.model, model.model)
    assert torch.isfinite(probe.probe.weight).all()
    # saved with its own head, it has none that is new
    probe.save_pretrained(tmp_path / "probe")
    refused(WithProbe, without(tmp_path / "probe", "probe"), "lacks 2 of the weights of WithProbe", "probe.bias")
    refused(WithProbe, without(tmp_path / "base", "v_proj"), "lacks 6 of the weights of WithProbe")


def test_routing_may_begin_to_be_balanced_by_bias(tmp_path):
    model = build(**SPARSE)
    model.save_pretrained(tmp_path)
    other = WeftForConditionalGeneration.from_pretrained(tmp_path, router_bias_update_rate=0.1)
    assert len(other.routers()) == 3
    for router in other.routers():
        assert not router.selection_bias.any() and not router.expert_load.any()
    assert torch.equal(scores(other), scores(WeftForConditionalGeneration.from_pretrained(tmp_path)))
    other.save_pretrained(tmp_path)
    refused(
        WeftForConditionalGeneration,
        without(tmp_path, "decoder.layers.0.mlp.router.selection_bias"),
        "lacks 1 of the weights of WeftForConditionalGeneration (model.decoder.layers.0.mlp.router.selection_bias)",
    )


def test_weights_given_in_memory():
    model = build()
    state = model.state_dict()
    given = {"pretrained_model_name_or_path": None, "config": model.config}
    same_weights(WeftForConditionalGeneration.from_pretrained(state_dict=state, **given), model)
    # none at all is a way to ask for a model as new
    new = WeftForConditionalGeneration.from_pretrained(state_dict={}, **given)
    assert new.lm_head.weight is new.model.shared.weight is new.model.encoder.embed_tokens.weight
    assert 0.1 < new.lm_head.weight.std() * model.config.d_model**0.5 < 10
    assert torch.isfinite(scores(new)).all()
    part = {name: tensor for name, tensor in state.items() if "layers.1" not in name}
    with pytest.raises(
        ValueError, match=r"The given `state_dict` lacks 23 of the weights of WeftForConditionalGeneration"
    ):
        WeftForConditionalGeneration.from_pretrained(state_dict=part, **given)
    other = WeftForConditionalGeneration.from_pretrained(state_dict=part, allow_missing_weights=True, **given)
    same_weights(other.model.encoder.layers[0], model.model.encoder.layers[0])


@pytest.mark.parametrize(
    "changed",
    [{"num_condition_features": 2}, {"use_qk_norm": True}, {"attention_bias": True}, {"tie_word_embeddings": False}],
    ids=str,
)
def test_fields_that_want_new_weights_are_asked_for_twice(changed, tmp_path):
    build().save_pretrained(tmp_path)
    with pytest.raises(ValueError, match="allow_missing_weights=True"):
        AutoModelForSeq2SeqLM.from_pretrained(tmp_path, **changed)
    other = AutoModelForSeq2SeqLM.from_pretrained(tmp_path, allow_missing_weights=True, **changed)
    assert torch.isfinite(scores(other)).all()


def test_the_number_of_experts_is_a_size(tmp_path):
    build(**SPARSE).save_pretrained(tmp_path)
    with pytest.raises(ValueError, match="another configuration"):
        WeftForConditionalGeneration.from_pretrained(tmp_path, num_experts=6)
    other = WeftForConditionalGeneration.from_pretrained(tmp_path, num_experts=6, ignore_mismatched_sizes=True)
    assert len(other.model.decoder.layers[0].mlp.experts.down_proj) == 6


@torch.no_grad()
def test_a_resized_vocabulary_lacks_nothing(tmp_path):
    for kind in ("one table for all", "head of its own", "table for each stack", "two vocabularies"):
        model = build(**KINDS[kind])
        model.resize_token_embeddings(40)
        model.save_pretrained(tmp_path / kind)
        same_weights(WeftForConditionalGeneration.from_pretrained(tmp_path / kind), model)


def test_adapters_are_loaded_and_missing_ones_refused(tmp_path):
    peft = pytest.importorskip("peft")
    model = build()
    model.save_pretrained(tmp_path / "base")
    base = WeftForConditionalGeneration.from_pretrained(tmp_path / "base")
    adapted = peft.get_peft_model(base, peft.LoraConfig(target_modules=["q_proj"], init_lora_weights=False))
    expected = scores(adapted.eval())
    adapted.save_pretrained(tmp_path / "adapter")
    other = WeftForConditionalGeneration.from_pretrained(tmp_path / "adapter")
    torch.testing.assert_close(scores(other), expected)
    file = tmp_path / "adapter" / "adapter_model.safetensors"
    save_file({key: value for key, value in load_file(file).items() if "layers.0" not in key}, file, {"format": "pt"})
    refused(WeftForConditionalGeneration, tmp_path / "adapter", "lacks 6 of the weights of", "lora_A")


@torch.no_grad()
def test_a_model_spread_over_cpu_and_disk_lacks_nothing(tmp_path):
    model = build(**KINDS["nothing shared"])
    model.save_pretrained(tmp_path / "model", max_shard_size="4KB")
    places = {"model.encoder": "cpu", "model.decoder": "disk", "lm_head": "cpu"}
    other = WeftForConditionalGeneration.from_pretrained(
        tmp_path / "model", device_map=places, offload_folder=str(tmp_path / "offload")
    )
    torch.testing.assert_close(scores(other), scores(model))


def test_a_checkpoint_states_its_format(saved):
    with safe_open(saved / "whole" / "model.safetensors", framework="pt") as file:
        assert file.metadata() == {"format": "pt"}
