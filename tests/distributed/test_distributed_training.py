"""Training on two processes, with the model in parts or not, gives the same as on one, even if killed and resumed."""

import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForSeq2SeqLM

SPARSE = {
    "encoder_mlp_layer_types": ["dense", "sparse"], "decoder_mlp_layer_types": "sparse", "num_experts": 4,
    "router_bias_update_rate": 0.01, "router_aux_loss_coef": 0.0, "router_z_loss_coef": 0.01,
}  # fmt: skip
TIED = {"tie_word_embeddings": True, "share_encoder_decoder_embeddings": True}


STEPS = {"max_steps": 4, "optim": "sgd", "learning_rate": 0.1, "warmup_steps": 0}


@pytest.mark.integration
@pytest.mark.parametrize(
    ("fields", "sizes", "held_out"),
    [
        pytest.param(SPARSE, None, 2, id="ddp"),
        # 44 rows: the third step has 12, and one process repeats four of them
        pytest.param(TIED, "fsdp_size=2", 6, id="tied"),
        pytest.param(SPARSE, "fsdp_size=2,ep_size=2", 2, id="experts"),
    ],
)
def test_training_on_two_processes_equals_one(pair, data, tmp_path, fields, sizes, held_out):
    from .training_jobs import train  # only here: it imports much that no fast test needs

    settings = STEPS | {"fields": fields, "data": data, "validation_split": held_out, "dtype": torch.float64}
    settings |= {"test_file": data} if sizes is None else {}  # 50 pairs, and each process repeats one
    one = train(folder=tmp_path / "one", per_device_train_batch_size=16, **settings)
    split = {"per_device_train_batch_size": 4, "gradient_accumulation_steps": 2, "per_device_eval_batch_size": 2}
    split |= {} if sizes is None else {"distributed_config": sizes}
    both = pair.run(train, folder=tmp_path / "two", **split, **settings)
    for result in both:
        # the Trainer adds up losses in 32 bits, whatever the dtype of the model
        torch.testing.assert_close(result["curve"], one["curve"], rtol=5e-6, atol=5e-6)
        assert result["eval_loss"] == pytest.approx(one["eval_loss"], rel=5e-6)
        assert (result["held"] < 0.8 * one["held"]) == (sizes is not None) and result["is_tied"]
    weights = [AutoModelForSeq2SeqLM.from_pretrained(tmp_path / name).state_dict() for name in ("one", "two")]
    assert all(value.dtype == torch.float64 or name.endswith("selection_bias") for name, value in weights[0].items())
    torch.testing.assert_close(*weights, rtol=0, atol=1e-10)
    if sizes is None:
        texts = [(tmp_path / name / "generated_predictions.txt").read_text().splitlines() for name in ("one", "two")]
        assert texts[0] == texts[1] and len(texts[0]) == 50
        # the loads of experts are summed over processes; in the third step a process repeats rows
        for first, second in zip(one["experts"][:2], both[0]["experts"][:2], strict=True):
            assert first == pytest.approx(second, abs=1e-5) and len(first) == 5


EVALUATIONS = [
    {"per_device_eval_batch_size": 2}, {"per_device_eval_batch_size": 3, "eval_accumulation_steps": 1},
    {"count": 8, "per_device_eval_batch_size": 4}, {"count": 1}, {"count": 9, "per_device_eval_batch_size": 4},
    {"predict_with_generate": False, "per_device_eval_batch_size": 2},
    {"train_sampling_strategy": "group_by_length", "per_device_eval_batch_size": 3},
    {"dataloader_drop_last": True, "per_device_eval_batch_size": 2},
    {"accelerator_config": {"even_batches": False}, "per_device_eval_batch_size": 2},
    {"stream": True, "per_device_eval_batch_size": 2},
    {"stream": True, "accelerator_config": {"dispatch_batches": False}, "per_device_eval_batch_size": 2},
    {"accelerator_config": {"split_batches": True}, "per_device_eval_batch_size": 4},
]  # fmt: skip


@pytest.mark.integration
def test_each_row_counts_once_in_an_evaluation_by_two_processes(pair, tmp_path):
    from .training_jobs import evaluate

    expected = evaluate(tmp_path, EVALUATIONS)
    for count, result in zip([case.get("count", 7) for case in EVALUATIONS], expected, strict=True):
        assert [row[0] for row in result["labels"]] == list(range(7, 7 + count)) and result["losses"] == count
        assert [row[0] for row in result["sources"]] == list(range(3, 3 + count))
        assert result["predicted"] == result["labels"]
    for found in pair.run(evaluate, folder=tmp_path, cases=EVALUATIONS):
        for case, one, both in zip(EVALUATIONS, expected, found, strict=True):
            losses = {name: pytest.approx(one[name], rel=1e-5) for name in ("eval_loss", "test_loss")}
            assert both == one | losses, case


# As in `test_resume.py`: saves come within an epoch.
KILLED = {
    "fields": SPARSE | {"dropout": 0.1, "activation_dropout": 0.1, "router_type": "noisy_top_k"},
    "resume_from_checkpoint": "true", "max_steps": 6, "save_strategy": "steps", "save_steps": 2, "logging_steps": 2,
    "gradient_accumulation_steps": 2, "max_tokens_per_batch": 20,
}  # fmt: skip


def assert_same_end(results, expected, folder: Path, whole: Path) -> None:
    assert [result["curve"] for result in results] == [result["curve"] for result in expected]
    weights = [load_file(path / "model.safetensors") for path in (whole, folder)]
    assert any(name.endswith("selection_bias") for name in weights[0])
    torch.testing.assert_close(*weights, rtol=0, atol=0)
    assert [result["experts"] for result in results] == [result["experts"] for result in expected]
    assert not any(path.name.startswith(".") for path in folder.iterdir())


IN_PARTS = {"distributed_config": "fsdp_size=2,ep_size=2"}
# a resumed epoch whose last batch is not full: 44 rows, 16 of them a step, and two of the three steps are done
ROWS = {
    "max_tokens_per_batch": None, "per_device_train_batch_size": 4, "validation_split": 6,
    "predict_with_generate": False,
}  # fmt: skip


STREAM = {"streaming": True, "shuffle_buffer_size": 16}


@pytest.mark.integration
@pytest.mark.parametrize("other", [IN_PARTS, ROWS, STREAM], ids=["experts", "rows", "stream by tokens"])
def test_a_resumed_run_equals_an_uninterrupted_one(pair, data, tmp_path, other):
    from .training_jobs import train

    settings = {**KILLED, "data": data, "save_total_limit": 9, **other}
    settings = {name: value for name, value in settings.items() if value is not None}
    whole, folder, step = tmp_path / "whole", tmp_path / "run", "checkpoint-2" if other is ROWS else "checkpoint-4"
    expected = pair.run(train, folder=whole, **settings)
    state = torch.load(whole / step / "optimizer.pt", weights_only=True)["state"]
    kept = sum(values["exp_avg"].numel() for values in state.values())
    assert kept == sum(p.numel() for p in AutoModelForSeq2SeqLM.from_pretrained(whole).parameters())
    shutil.copytree(whole / step, folder / step)
    found = pair.run(train, folder=folder, **settings)
    assert_same_end(found, expected, folder, whole)
