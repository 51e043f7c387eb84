"""Arguments from the command line and from files, and the messages about invalid ones."""

import json
import os
from dataclasses import fields

import pytest
import torch

from weftformer.common.overrides import parse_overrides
from weftformer.scripts.parsing import parse_arguments
from weftformer.training import DataArguments, ModelArguments, WeftTrainingArguments, arguments

NEEDED = ["--train-file", "a.csv", "--use-cpu", "--output-dir", "out"]


def test_a_file_and_arguments_that_win_over_it(tmp_path):
    values = {
        "train_file": "a.csv", "output_dir": "out", "use_cpu": True, "seed": 7, "config_overrides": {"d_model": 32},
        "learning_rate": "1e-3",  # what YAML makes of an unquoted 1e-3
        "predict_with_generate": False, "max_steps": 10,
    }  # fmt: skip
    file = tmp_path / "run.yaml"
    file.write_text(json.dumps(values))  # JSON is YAML
    model_args, _, training_args = parse_arguments([str(file), "--seed", "8"])
    assert (training_args.learning_rate, training_args.seed, training_args.max_steps) == (1e-3, 8, 10)
    assert model_args.config_overrides == {"d_model": 32}
    assert not training_args.predict_with_generate
    assert parse_arguments([str(file)])[2].seed == 7
    assert parse_arguments([*NEEDED, "--epochs", "3"])[2].num_train_epochs == 3


def test_a_switch_may_be_unset_on_or_off():
    def switch(*words):
        return parse_arguments([*NEEDED, *words])[2].predict_with_generate

    assert switch() is None and switch("--predict-with-generate") is True
    assert switch("--no-predict-with-generate") is switch("--predict_with_generate", "false") is False


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        ([*NEEDED, "--lerning-rate", "1"], "no argument --lerning-rate. Did you mean `--learning-rate`"),
        ([*NEEDED, "--max-steps", "ten"], "--max-steps"),
        ([*NEEDED, "--model-name-or-path", "m", "--preset", "tiny"], "--preset tiny is for a new model"),
        ([*NEEDED, "--model-name-or-path", "m", "--from-scratch"], "--from-scratch is for random weights"),
        ([*NEEDED, "--train-sampling-strategy", "sequential", "--max-tokens-per-batch", "9"], "shuffles"),
        ([*NEEDED, "--overwrite-output-dir", "--resume-from-checkpoint"], "give one"),
        ([*NEEDED, "--dataset-name", "d"], "got both"),
        (["--output-dir", "out"], "got neither"),
        ([*NEEDED, "--max-source-length", "0"], "max_source_length=0"),
        ([*NEEDED, "--validation-split", "-1"], "validation_split=-1.0"),
        ([*NEEDED, "--validation-target-file", "v"], "needs the sources too"),
    ],
)
def test_messages(argv, message):
    with pytest.raises((ValueError, FileNotFoundError)) as raised:
        parse_arguments(argv)
    assert message in str(raised.value)


def test_help_has_one_blank_between_words():
    kinds = (ModelArguments, DataArguments, WeftTrainingArguments)
    assert not [field.name for kind in kinds for field in fields(kind) if "  " in field.metadata.get("help", "")]


def test_a_mistake_in_a_file_is_named(tmp_path):
    file = tmp_path / "run.yaml"
    for text, message in (
        ("sead: 1", "there is no argument `sead`. Did you mean `seed`"),
        ("- a", "must contain a mapping"),
    ):
        file.write_text(text)
        with pytest.raises(ValueError, match=rf"run\.yaml.*{message}"):
            parse_arguments([str(file), *NEEDED])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (None, {}),
        ({"d_model": 8}, {"d_model": 8}),
        ('{"d_model": 8}', {"d_model": 8}),
        ("d_model=8, norm_first=False,head_dim=none", {"d_model": 8, "norm_first": False, "head_dim": None}),
        ('position_embedding_type=none,norm_type="rms"', {"position_embedding_type": "none", "norm_type": "rms"}),
        (
            'mlp_layer_types=["dense","sparse"],num_experts=4',
            {"mlp_layer_types": ["dense", "sparse"], "num_experts": 4},
        ),
    ],
)
def test_overrides(text, expected):
    assert parse_overrides(text) == expected


@pytest.mark.parametrize(
    ("words", "wants", "folder"),
    [([], False, None), (["false"], False, None), (["true"], True, None), ([None], True, None),
     (["out/checkpoint-5", "--overwrite-output-dir"], True, "out/checkpoint-5")],
)  # fmt: skip
def test_resume_as_word_or_folder(words, wants, folder):
    option = ["--resume-from-checkpoint", *filter(None, words)] if words else []
    given = parse_arguments([*NEEDED, *option])[2]
    assert given.wants_resume is wants and (not wants or given.checkpoint_to_resume() == folder)
    assert WeftTrainingArguments("out", resume_from_checkpoint=wants, use_cpu=True).wants_resume is wants


@pytest.fixture
def gpu(monkeypatch):
    """Let torch say that there is a GPU."""
    monkeypatch.setattr(WeftTrainingArguments, "device", torch.device("cuda"))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(arguments, "is_torch_tf32_available", lambda: False)  # it would ask the driver
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation=True: True)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "a GPU")
    monkeypatch.setattr(torch.backends.cuda, "enable_cudnn_sdp", lambda enabled: None)
    monkeypatch.setattr(torch, "set_float32_matmul_precision", lambda precision: None)
    monkeypatch.setattr(os, "cpu_count", lambda: 16)


def test_training_on_a_gpu_is_in_16_bits_unless_it_is_told_otherwise(gpu, monkeypatch):
    made = parse_arguments(["--train-file", "a.csv", "--output-dir", "out"])[2]
    assert (made.bf16, made.dataloader_num_workers, made.optim) == (True, 4, "adamw_torch_fused")
    words = ["--bf16", "false", "--dataloader-num-workers", "0", "--muon"]
    other = parse_arguments(["--train-file", "a.csv", "--output-dir", "out", *words])[2]
    assert (other.bf16, other.dataloader_num_workers) == (False, 0)
    choices = "(--bf16, --optim and --dataloader-num-workers choose others)."
    for arguments_, text in (
        (made, "in bfloat16 with adamw_torch_fused and 4 processes that make batches"),
        (other, "in float32 with Muon and 0 processes that make batches"),
    ):
        assert arguments_.describe_speed() == f"Training on a GPU {text} {choices}"
    assert not WeftTrainingArguments("out", fp16=True).bf16
    monkeypatch.setenv("ACCELERATE_MIXED_PRECISION", "fp16")
    assert not WeftTrainingArguments("out").bf16
    monkeypatch.delenv("ACCELERATE_MIXED_PRECISION")
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation=True: including_emulation)
    assert not WeftTrainingArguments("out").bf16
    monkeypatch.setattr(WeftTrainingArguments, "device", torch.device("cpu"))
    cpu = parse_arguments(NEEDED)[2]
    assert (cpu.bf16, cpu.dataloader_num_workers, cpu.describe_speed()) == (False, 0, None)


@pytest.mark.parametrize("given", [{}, {"tf32": False, "accelerator_config": {"non_blocking": False}}])
def test_defaults_on_a_gpu(monkeypatch, given):
    enabled, cudnn = [], []
    monkeypatch.setattr(WeftTrainingArguments, "device", torch.device("cuda"))
    monkeypatch.setattr(arguments, "is_torch_tf32_available", lambda: True)
    monkeypatch.setattr(torch, "set_float32_matmul_precision", enabled.append)
    monkeypatch.setattr(torch.backends.cuda, "enable_cudnn_sdp", cudnn.append)
    made = WeftTrainingArguments("out", bf16=False, **given)
    assert (made.accelerator_config.non_blocking, enabled) == ((False, []) if given else (True, ["high"]))
    assert cudnn == [False]
    monkeypatch.setattr(arguments, "is_torch_tf32_available", lambda: False)
    enabled.clear()
    assert WeftTrainingArguments("out").tf32 is None and not enabled


@pytest.mark.parametrize("name", ["DEEPSPEED", "FSDP"])
@pytest.mark.parametrize("by_word", [True, False])
def test_other_engines_are_refused(monkeypatch, name, by_word):
    words = [f"--{name.lower()}", "zero3.json" if name == "DEEPSPEED" else "full_shard"] if by_word else []
    monkeypatch.setenv(f"ACCELERATE_USE_{name}", str(not by_word))
    with pytest.raises(ValueError, match="--distributed-config fsdp_size="):
        parse_arguments(NEEDED + words)


@pytest.mark.parametrize(
    ("given", "keeps"),
    [
        ({}, False),
        ({"save_steps": 5}, True),
        ({"save_strategy": "best", "eval_strategy": "epoch", "metric_for_best_model": "loss"}, True),
        ({"save_total_limit": 10}, True),
        ({"save_steps": 5, "keep_checkpoints": False}, False),
        ({"keep_checkpoints": True}, True),
    ],
    ids=str,
)
def test_checkpoints_stay_if_they_are_asked_for(tmp_path, given, keeps):
    assert WeftTrainingArguments(str(tmp_path), use_cpu=True, **given).keeps_checkpoints is keeps
