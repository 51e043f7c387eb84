"""Tokenizer, configuration and model are made to fit each other, or are refused."""

import pytest
import torch
from transformers import BartConfig, DataCollatorForSeq2Seq
from transformers.distributed import DistributedConfig

from weftformer import WeftConfig, WeftForConditionalGeneration
from weftformer.tokenization import build_route_tokenizer, train_tokenizer
from weftformer.training import ModelArguments, WeftTrainingArguments
from weftformer.training.building import (
    build_config,
    build_distributed_config,
    build_model,
    build_tokenizer,
    set_generation_defaults,
)

from ..models import TINY_CONFIG

SMALL = {name: value for name, value in TINY_CONFIG.items() if name != "vocab_size"}
TEXTS = ["a b c", "d e f"] * 3


@pytest.fixture(scope="module")
def tokenizer():
    return train_tokenizer(["a b c"], vocab_size=300)


@pytest.fixture
def folder(tmp_path, tokenizer):
    path = tmp_path / "model"
    WeftForConditionalGeneration(build_config(ModelArguments(config_overrides=SMALL), tokenizer)).save_pretrained(path)
    tokenizer.padding_side = "left"
    tokenizer.save_pretrained(path)
    tokenizer.padding_side = "right"
    return str(path)


def test_a_new_model_speaks_the_tokenizers_language(tokenizer):
    config = build_config(ModelArguments(preset="modern-tiny", config_overrides="d_model=48"), tokenizer, 2)
    assert (config.d_model, config.vocab_size) == (48, len(tokenizer))
    assert (config.pad_token_id, config.bos_token_id, config.eos_token_id) == (0, 1, 2)
    assert config.decoder_start_token_id == 1
    assert config.num_condition_features == 2
    routes = build_config(ModelArguments(preset="dms-flash-10m"), build_route_tokenizer(), 1)
    assert routes == WeftConfig.from_preset("dms-flash-10m")


def test_what_the_tokenizer_does_not_mask_the_model_does(tokenizer):
    for made, is_needed in ((tokenizer, False), (build_route_tokenizer(), True)):
        batch = DataCollatorForSeq2Seq(made)([{"input_ids": [5, 6], "labels": [5]}, {"input_ids": [5], "labels": [5]}])
        assert ("attention_mask" not in batch) is is_needed
        assert build_config(ModelArguments(preset="modern-tiny"), made).infer_attention_mask is is_needed


def test_which_tokenizer(folder, tokenizer, caplog):
    trained = build_tokenizer(ModelArguments(tokenizer_vocab_size=262), TEXTS)
    assert len(trained) == 262 and trained.tokenize("e") == ["e"]
    assert "no effect" not in caplog.text
    loaded = build_tokenizer(ModelArguments(model_name_or_path=folder, tokenizer_vocab_size=300), TEXTS)
    assert "--tokenizer-vocab-size has no effect" in caplog.text
    assert loaded.get_vocab() == tokenizer.get_vocab()
    assert loaded.padding_side == "right"  # saved as "left", which would shift labels wrongly
    assert len(build_tokenizer(ModelArguments(), TEXTS, checkpoint=folder)) == len(tokenizer)


def test_a_trained_model_is_loaded_in_float32_with_overrides(folder, tokenizer):
    WeftForConditionalGeneration.from_pretrained(folder).to(torch.bfloat16).save_pretrained(folder)
    arguments = ModelArguments(model_name_or_path=folder, config_overrides="dropout=0.3", attn_implementation="eager")
    model = build_model(arguments, build_config(arguments, tokenizer))
    assert {parameter.dtype for parameter in model.parameters()} == {torch.float32}
    assert model.config.dropout == 0.3
    assert model.config._attn_implementation == "eager"


def test_a_preset_that_fits_the_data(tokenizer, caplog):
    caplog.set_level("INFO", logger="weftformer")
    widths = [build_config(ModelArguments(), tokenizer, num_pairs=pairs).d_model for pairs in (300, 200_000)]
    assert widths == [192, 384] and "The new model is a modern-tiny, the default for 300 pairs" in caplog.text
    config = build_config(ModelArguments(config_overrides="dropout=0.3"), tokenizer, num_pairs=300)
    assert (config.d_model, config.dropout, config.cross_attention_position_type) == (192, 0.3, "rotary")
    assert build_config(ModelArguments(config_overrides=SMALL), tokenizer, num_pairs=300).d_model < 192
    named = build_config(ModelArguments(preset="modern-tiny"), tokenizer, num_pairs=300)
    assert named.cross_attention_position_type == "none"


def test_generation_defaults(tokenizer):
    arguments = ModelArguments(config_overrides=SMALL)
    model = build_model(arguments, build_config(arguments, tokenizer))
    set_generation_defaults(model, 9, WeftTrainingArguments(output_dir="out", use_cpu=True))
    generation = model.generation_config
    assert (generation.max_length, generation.num_beams) == (10, 1)
    assert (generation.pad_token_id, generation.eos_token_id, generation.decoder_start_token_id) == (0, 2, 1)
    given = {"generation_max_length": 5, "generation_num_beams": 4}
    set_generation_defaults(model, 9, WeftTrainingArguments(output_dir="out", use_cpu=True, **given))
    assert (generation.max_length, generation.num_beams) == (5, 4)


def test_messages(folder, tokenizer, tmp_path):
    def config_error(vocabulary=tokenizer, conditions=0, **arguments):
        with pytest.raises(ValueError) as raised:
            build_config(ModelArguments(**arguments), vocabulary, conditions)
        return str(raised.value)

    BartConfig().save_pretrained(tmp_path / "bart")
    missing = str(tmp_path / "none")
    assert "no preset 'modern'" in config_error(preset="modern")
    assert "is a bart model" in config_error(model_name_or_path=str(tmp_path / "bart"))
    larger = train_tokenizer(["abcdefgh" * 9], vocab_size=1000, min_frequency=1)
    for reason, given in (
        (f"has {len(larger)} tokens and the model {len(tokenizer)}", {"vocabulary": larger}),
        ("pad_token_id is 52 and the model's is 0", {"vocabulary": build_route_tokenizer()}),
        ("has 2 columns, and num_condition_features=0", {"conditions": 2}),
    ):
        assert reason in config_error(model_name_or_path=folder, **given)
    with pytest.raises(ValueError, match="There is no tokenizer in"):
        build_tokenizer(ModelArguments(tokenizer_name=missing), TEXTS)
    arguments = ModelArguments(model_name_or_path=folder, config_overrides="d_model=32")
    with pytest.raises(ValueError, match="but the configuration requires"):
        build_model(arguments, build_config(arguments, tokenizer))


def split(given):
    arguments = WeftTrainingArguments(output_dir="out", use_cpu=True)
    return build_distributed_config(ModelArguments(distributed_config=given), arguments)


splits = pytest.mark.skipif(
    not hasattr(DistributedConfig, "dp_replicate_size"), reason="transformers splits no model before 5.23"
)


@splits
@pytest.mark.parametrize(
    ("given", "processes", "message"),
    [
        ("fsdp_siz=2", 1, "has no key `fsdp_siz`. Did you mean `fsdp_size`"),
        ("pp_size=2", 1, "pp_size=2 is not supported"),
        ({"fsdp_size": 2, "ep_size": 2}, 1, "is for 2 processes (dp_replicate_size=1 x fsdp_size=2 x tp_size=1), and there are 1"),
        ("tp_size=2", 2, "tp_size=2 needs GPUs"),
    ],
)  # fmt: skip
def test_a_split_that_cannot_be(monkeypatch, given, processes, message):
    monkeypatch.setattr(WeftTrainingArguments, "world_size", processes)
    with pytest.raises(ValueError) as raised:
        split(given)
    assert message in str(raised.value)


@splits
def test_a_split_by_transformers(monkeypatch):
    assert [split(given) for given in (None, "fsdp_size=1", {})] == [None] * 3
    monkeypatch.setattr(WeftTrainingArguments, "world_size", 2)
    sizes = split("fsdp_size=2")
    assert sizes is not None and sizes.fsdp_size == 2
