"""Loss, gradients and eval_loss do not depend on how rows are cut into batches, padded, or dealt out to processes."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from transformers import DataCollatorForSeq2Seq

from weftformer import WeftConfig, WeftForConditionalGeneration
from weftformer.modeling.moe import Router
from weftformer.tokenization import build_route_tokenizer
from weftformer.training import EXPERT_LOAD, WeftTrainer, WeftTrainingArguments, read_expert_load

SIZES = {
    "vocab_size": 53, "d_model": 16, "encoder_layers": 2, "decoder_layers": 2, "encoder_ffn_dim": 16,
    "decoder_ffn_dim": 16, "encoder_attention_heads": 2, "decoder_attention_heads": 2, "pad_token_id": 52,
    "bos_token_id": 0, "eos_token_id": 22, "decoder_start_token_id": 0, "dropout": 0.0,
    "init_std": 0.3, "infer_attention_mask": True,  # the batches hold none
}  # fmt: skip
KINDS = {
    "dense": {},
    "sparse": {
        "encoder_mlp_layer_types": ["dense", "sparse"], "decoder_mlp_layer_types": "sparse", "num_experts": 4,
        "router_aux_loss_coef": 0.5, "router_z_loss_coef": 0.1, "router_bias_update_rate": 0.05,
    },
    "z": {"encoder_mlp_layer_types": "sparse", "num_experts": 4, "router_aux_loss_coef": 0.0,
          "router_z_loss_coef": 0.1},
}  # fmt: skip
ROWS, STEPS = 12, 2
# The models are of 64 bits, where a step of other batches differs by the order of its sums alone; the Trainer adds up losses
# in 32 bits all the same.
EXACT, LOGGED = {"rtol": 1e-10, "atol": 1e-10}, {"rel": 5e-6}


def rows(count: int = ROWS) -> list[dict[str, list[int]]]:
    """Of very different lengths, sources and targets each in their own order; the first token is the row's number."""
    generator = torch.Generator().manual_seed(0)
    lengths = torch.stack([torch.randperm(count, generator=generator) + 1 for _ in range(2)], dim=1).tolist()
    draw = torch.randint(23, 50, (count, 2, count), generator=generator).tolist()
    return [
        {"input_ids": [1 + index, *draw[index][0][:source]], "labels": draw[index][1][:target]}
        for index, (source, target) in enumerate(lengths)
    ]


def trainer(folder, kind="dense", pad_to=None, data=None, model_fields=None, **settings) -> WeftTrainer:
    torch.manual_seed(0)
    arguments = {
        "max_steps": STEPS, "optim": "sgd", "learning_rate": 0.1, "label_smoothing_factor": 0.1, "lr_scheduler_type": "constant", "warmup_steps": 0,
        "weight_decay": 0.0, "max_grad_norm": 0.0, "save_strategy": "no", "eval_strategy": "no", "report_to": "none",
        "use_cpu": True, "disable_tqdm": True, "logging_steps": 1, "per_device_train_batch_size": ROWS,
        "exact_balance_loss": True,
    }  # fmt: skip
    data = rows() if data is None else data
    config = WeftConfig(**(SIZES | KINDS[kind] | (model_fields or {})))
    return WeftTrainer(
        WeftForConditionalGeneration._from_config(config, dtype=torch.float64),
        WeftTrainingArguments(output_dir=str(folder), **(arguments | settings)),
        DataCollatorForSeq2Seq(build_route_tokenizer(), pad_to_multiple_of=pad_to),
        data,
        eval_dataset=data,
    )


def trained(folder, kind, **settings) -> tuple[list[float], dict[str, torch.Tensor]]:
    """Losses and weights after `STEPS` plain steps on all rows, which move weights by a tenth of their gradients."""
    run = trainer(folder, kind, **settings)
    run.train()
    return outcome(run)


def outcome(run: WeftTrainer) -> tuple[list[float], dict[str, torch.Tensor]]:
    return [log["loss"] for log in run.state.log_history if "loss" in log], run.model.state_dict()


def assert_same(found, expected) -> None:
    assert found[0] == pytest.approx(expected[0], **LOGGED) and len(found[0]) == STEPS
    assert found[1].keys() == expected[1].keys()
    for name, value in expected[1].items():
        assert value.dtype == torch.float64 or name.endswith("selection_bias")
        torch.testing.assert_close(found[1][name], value, **EXACT, msg=name)


@pytest.fixture(scope="module", params=KINDS)
def one_batch(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("one")
    before = {name: value.clone() for name, value in trainer(folder, request.param).model.state_dict().items()}
    expected = trained(folder, request.param)
    moved = [(value - before[name]).abs().max() for name, value in expected[1].items()]
    assert sum(change > 1e-3 for change in moved) > len(moved) // 2  # far above what is let pass below
    return request.param, expected


SPLITS = {
    "in two": {"per_device_train_batch_size": 6, "gradient_accumulation_steps": 2},
    "in four": {"per_device_train_batch_size": 3, "gradient_accumulation_steps": 4},
    "other neighbours": {"per_device_train_batch_size": 3, "gradient_accumulation_steps": 4, "seed": 7},
    "unequal": {"per_device_train_batch_size": 5, "gradient_accumulation_steps": 3},
    "wider": {"pad_to": 16},
    "wider, in two": {"pad_to": 16, "per_device_train_batch_size": 6, "gradient_accumulation_steps": 2},
}


@pytest.mark.stays(one_batch=("sparse",))
@pytest.mark.stays(split=("unequal", "wider, in two"))
@pytest.mark.parametrize("split", SPLITS)
def test_a_step_is_that_of_one_batch(one_batch, tmp_path, split):
    kind, expected = one_batch
    assert_same(trained(tmp_path, kind, **SPLITS[split]), expected)


def test_the_counting_pass_draws_no_random_numbers_and_counts_nothing(tmp_path, monkeypatch):
    """With dropout and noise: the loads it finds are those of the pass that trains."""
    run = trainer(
        tmp_path, "sparse", model_fields={"dropout": 0.3, "router_type": "noisy_top_k"},
        per_device_train_batch_size=3, gradient_accumulation_steps=4,
    )  # fmt: skip
    given, counted = [], []
    compute, update = WeftTrainer.compute_loss, Router.update_selection_bias

    def look(self, model, inputs, *args, **kwargs):
        result = compute(self, model, inputs, *args, **kwargs)
        given.append(self._sum_router_counts(None))
        return result

    def updated(router):
        counted.append(router.expert_load.clone())
        update(router)

    monkeypatch.setattr(WeftTrainer, "compute_loss", look)
    monkeypatch.setattr(Router, "update_selection_bias", updated)
    run.train()
    assert len(given) == 4 * STEPS and len(counted) == 3 * STEPS
    for step in range(STEPS):
        load = torch.stack(counted[3 * step : 3 * step + 3])
        assert all(torch.equal(counts[:, :-1], load) for counts in given[4 * step : 4 * step + 4])
    assert not torch.equal(torch.stack(counted[:3]), torch.stack(counted[3:]))


BY_DEFAULT = WeftTrainingArguments.exact_balance_loss


@pytest.mark.parametrize(("kind", "exact", "passes"), [("sparse", True, 8), ("sparse", BY_DEFAULT, 4), ("z", True, 4)])
def test_a_pass_more_is_paid_for_an_exact_balance_loss_alone(tmp_path, kind, exact, passes):
    """It is to be asked for. Without it everything else is still that of one batch, and the balance loss is near."""
    fields = {"router_bias_update_rate": 0.0}
    settings = {"max_steps": 1, "model_fields": fields}
    run = trainer(tmp_path, kind, per_device_train_batch_size=3, gradient_accumulation_steps=4,
                  exact_balance_loss=exact, **settings)  # fmt: skip
    calls = []
    run.model.register_forward_pre_hook(lambda *_: calls.append(1))
    run.train()
    assert len(calls) == passes
    expected = trainer(tmp_path, kind, **settings)
    expected.train()
    losses = [one.state.log_history[0]["loss"] for one in (run, expected)]
    assert losses[0] == pytest.approx(losses[1], **(LOGGED if exact else {"abs": 0.1}))
    if not exact:
        assert losses[0] != pytest.approx(losses[1], abs=1e-4)
        without = [
            trainer(tmp_path, kind, max_steps=1, model_fields=fields | {"router_aux_loss_coef": 1e-9},
                    exact_balance_loss=False, **split)
            for split in ({}, {"per_device_train_batch_size": 3, "gradient_accumulation_steps": 4})
        ]  # fmt: skip
        for one in without:
            one.train()
        near = [one.state.log_history[0]["loss"] for one in without]
        assert near[0] == pytest.approx(near[1], **LOGGED)


@pytest.mark.parametrize("masked", [True, False])
def test_tokens_given_as_embeddings_are_counted_without_a_pass(tmp_path, masked):
    """The z-loss is a mean over them."""
    table = torch.nn.Embedding(53, 16, dtype=torch.float64)
    data = rows() if masked else [{**row, "input_ids": [5, 6, 7]} for row in rows()]
    losses, calls = [], []
    for split in ({}, {"per_device_train_batch_size": 3, "gradient_accumulation_steps": 4}):
        run = trainer(tmp_path, "z", max_steps=1, data=data, exact_balance_loss=BY_DEFAULT, **split)
        collate = run.data_collator

        def embedded(batch, collate=collate):
            batch = collate(batch)
            ids = batch.pop("input_ids")
            given = {"inputs_embeds": table(ids).detach(), "labels": batch["labels"]}
            return given | ({"attention_mask": ids.ne(52).long()} if masked else {})

        run.data_collator = embedded
        run.model.register_forward_pre_hook(lambda *_: calls.append(1))
        run.args.remove_unused_columns = False
        run.train()
        losses.append(run.state.log_history[0]["loss"])
    assert losses[1] == pytest.approx(losses[0], abs=1e-6) and len(calls) == 1 + 4


@pytest.mark.parametrize("generate", [False, True])
def test_eval_loss_is_the_mean_over_labels(tmp_path, generate):
    data = rows(11)  # a last batch that is not full
    settings = {"data": data, "predict_with_generate": generate, "generation_max_length": 3}
    found = [
        trainer(tmp_path, "sparse", per_device_eval_batch_size=size, pad_to=pad, **settings).evaluate()["eval_loss"]
        for size, pad in ((11, None), (4, None), (1, 8))
    ]
    run = trainer(tmp_path, "sparse", **settings)
    model = run.model.eval()
    with torch.no_grad():
        losses = [(model(**run.data_collator([row])).loss.item(), len(row["labels"])) for row in data]
    expected = sum(loss * count for loss, count in losses) / sum(count for _, count in losses)
    assert found == pytest.approx([expected] * 3, **LOGGED)
    by_rows = sum(loss for loss, _ in losses) / len(losses)
    assert abs(by_rows - expected) > 1e-3
    # `metric_for_best_model` and the log get the same
    assert run.evaluate()["eval_loss"] == run.state.log_history[-1]["eval_loss"] == pytest.approx(expected, **LOGGED)


# --- two processes

PARTS = {"two": {"per_device_train_batch_size": 6}, "four": {"per_device_train_batch_size": 3,
         "gradient_accumulation_steps": 2}}  # fmt: skip


def work(folder: Path) -> None:
    """What each of two processes does: every run of this file that wants them, as starting them takes longest."""
    rank = int(os.environ["RANK"])
    found: dict = {"losses": {}, "eval": []}
    for kind in ("dense", "sparse"):
        for part, settings in PARTS.items():
            name = f"{kind}-{part}"
            losses, weights = trained(folder / name, kind, ddp_backend="gloo", **settings)
            found["losses"][name] = losses
            if rank == 0:
                torch.save(weights, folder / f"{name}.pth")
    for generate in (False, True):
        run = trainer(
            folder / "eval", data=rows(11), per_device_eval_batch_size=4, predict_with_generate=generate,
            generation_max_length=3, ddp_backend="gloo",
        )  # fmt: skip
        found["eval"].append(run.evaluate()["eval_loss"])
    run = trainer(
        folder / "budget", data=rows(17), max_tokens_per_batch=20, num_train_epochs=1, max_steps=-1,
        learning_rate=0.0, ddp_backend="gloo",
    )  # fmt: skip
    step, seen = run.training_step, []
    run.training_step = lambda model, inputs, *rest: (
        seen.append(inputs["input_ids"][:, 0].tolist()) or step(model, inputs, *rest)
    )
    run.train()
    found["rows"] = seen
    (folder / f"{rank}.json").write_text(json.dumps(found))


@pytest.fixture(scope="module")
def two_processes(tmp_path_factory):
    folder = tmp_path_factory.mktemp("two")
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2", __file__]
    run = subprocess.run([*command, str(folder)], capture_output=True, text=True, timeout=300)
    assert run.returncode == 0, run.stderr[-3000:]
    return folder, [json.loads((folder / f"{rank}.json").read_text()) for rank in range(2)]


@pytest.mark.integration
@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("kind", ["dense", "sparse"])
def test_two_processes_take_the_step_of_one(two_processes, tmp_path, kind, part):
    folder, (found, other) = two_processes
    name = f"{kind}-{part}"
    assert found["losses"][name] == other["losses"][name]
    expected = trained(tmp_path, kind)
    assert_same((found["losses"][name], torch.load(folder / f"{name}.pth")), expected)


@pytest.mark.integration
def test_two_processes_evaluate_each_row_once(two_processes, tmp_path):
    expected = trainer(tmp_path, data=rows(11)).evaluate()["eval_loss"]
    for found in two_processes[1]:
        assert found["eval"] == pytest.approx([expected] * 2, **LOGGED)


@pytest.mark.integration
def test_two_processes_share_batches_by_tokens(two_processes):
    first, second = (found["rows"] for found in two_processes[1])
    assert len(first) == len(second) > 2
    assert sorted(row for batch in first + second for row in batch) == list(range(1, 18))


@pytest.mark.integration
def test_two_processes_add_up_what_their_experts_do(two_processes, tmp_path):
    trained(tmp_path, "sparse")
    expected = read_expert_load(tmp_path / EXPERT_LOAD)
    assert len(expected) == STEPS and set(expected[0]["layers"]) == {"encoder_1", "decoder_0", "decoder_1"}
    for part in PARTS:
        expected = read_expert_load(tmp_path / EXPERT_LOAD)
        found = read_expert_load(two_processes[0] / f"sparse-{part}" / EXPERT_LOAD)
        for one, other in zip(found, expected, strict=True):
            assert one["step"] == other["step"] and one["layers"].keys() == other["layers"].keys()
            for name, numbers in other["layers"].items():
                loads = one["layers"][name].pop("load"), numbers.pop("load")
                assert loads[0] == pytest.approx(loads[1]) and one["layers"][name] == pytest.approx(numbers, abs=1e-5)


if __name__ == "__main__":
    work(Path(sys.argv[1]))
