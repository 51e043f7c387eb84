"""WeftTrainer: batches by tokens, and checkpoints that are complete or absent."""

import dataclasses
import json

import datasets
import pytest
import torch
from datasets import Dataset
from transformers import DataCollatorForSeq2Seq, Seq2SeqTrainingArguments

from weftformer.modeling.losses import cross_entropy
from weftformer.tokenization import build_route_tokenizer
from weftformer.training import ShuffledStream, WeftTrainer, WeftTrainingArguments
from weftformer.training.checkpoints import checkpoints
from weftformer.training.planning import RunFacts, plan_training

from . import runs

ONE_LAYER = {"encoder_layers": 1, "decoder_layers": 1}


def trainer(folder, model=None, vocab_size: int = 53, **settings) -> WeftTrainer:
    model = model or runs.build(**ONE_LAYER, vocab_size=vocab_size, dropout=0.1)
    steps = {"max_steps": 4, "save_strategy": "steps", "save_steps": 2, "per_device_train_batch_size": 4}
    return runs.trainer(folder, model, Dataset.from_list(runs.rows(24)), **(steps | settings))


def test_learning_rate_and_epochs_that_are_not_given(tmp_path):
    new, large = trainer(tmp_path, max_steps=-1), trainer(tmp_path, max_steps=-1, gradient_accumulation_steps=300)
    assert (new.args.learning_rate, new.args.num_train_epochs) == (2e-3, 100)
    wide = runs.build(**ONE_LAYER, d_model=384)
    assert trainer(tmp_path, wide).args.learning_rate == 1e-3
    few = Dataset.from_list(runs.rows(24) * 40)  # 960 pairs: 30 steps of 32, 2,000 of which are 67 epochs
    some = runs.trainer(tmp_path, runs.build(**ONE_LAYER), few, per_device_train_batch_size=32)
    assert some.args.num_train_epochs == 67
    assert large.args.num_train_epochs == 100
    model = runs.build(**ONE_LAYER)
    model.name_or_path = "somewhere"
    assert trainer(tmp_path, model).args.learning_rate == 5e-5
    given = trainer(tmp_path, model, learning_rate=0.1, num_train_epochs=3)
    assert (given.args.learning_rate, given.args.num_train_epochs) == (0.1, 3)


def test_the_arguments_of_the_caller_stay_as_they_are(tmp_path):
    args = WeftTrainingArguments(str(tmp_path), use_cpu=True, report_to="none", auto_find_batch_size=True,
                                 max_tokens_per_batch=40, per_device_train_batch_size=2)  # fmt: skip
    before = dict(vars(args))
    run = WeftTrainer(runs.build(**ONE_LAYER), args, train_dataset=Dataset.from_list(runs.rows(24)))
    run.create_optimizer()
    assert vars(args) == before and args.learning_rate is None
    planned = run.args
    assert (planned.per_device_train_batch_size, planned.eval_strategy, planned.do_eval) == (32, "no", False)
    assert planned.ddp_find_unused_parameters is False and planned.num_train_epochs > 10
    with pytest.raises(dataclasses.FrozenInstanceError):
        plan_training(args, RunFacts(24)).num_train_epochs = 3


def test_only_as_many_are_kept_as_asked_for_and_the_best(tmp_path):
    run = trainer(
        tmp_path, max_steps=8, save_total_limit=2, eval_strategy="steps", eval_steps=2, load_best_model_at_end=True,
        metric_for_best_model="loss", greater_is_better=True,  # the first, as the loss falls
    )  # fmt: skip
    run.train()
    assert [path.name for path in checkpoints(tmp_path)] == ["checkpoint-8", "checkpoint-2"]
    assert run.state.best_model_checkpoint == str(tmp_path / "checkpoint-2")
    state = json.loads((tmp_path / "checkpoint-2" / "trainer_state.json").read_text())
    assert state["best_model_checkpoint"] == str(tmp_path / "checkpoint-2")


@pytest.mark.parametrize("error", [OSError("disk"), RuntimeError("disk"), KeyboardInterrupt()])
def test_a_save_that_fails_leaves_the_last_checkpoint(tmp_path, monkeypatch, error):
    run, save = trainer(tmp_path), WeftTrainer._save_rng_state

    def fail_once(self, folder):
        save(self, folder)
        if self.state.global_step == 4:
            raise error

    monkeypatch.setattr(WeftTrainer, "_save_rng_state", fail_once)
    with pytest.raises(type(error)):
        run.train()
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoint-2"]


@pytest.mark.parametrize("pad_to", [None, 16])
def test_batches_by_tokens(tmp_path, pad_to):
    settings = {"max_tokens_per_batch": 100, "num_train_epochs": 2, "max_steps": -1, "save_strategy": "no"}
    run = trainer(tmp_path, pad_to=pad_to, **settings)
    seen: list[list[int]] = [[]]
    step = run.training_step

    def counted(model, inputs, *rest):
        assert max(inputs["input_ids"].numel(), inputs["labels"].numel()) <= 100
        seen[-1].append(len(inputs["labels"]))
        return step(model, inputs, *rest)

    run.training_step = counted
    run.train()
    batches = len(run.get_train_dataloader())
    epochs = [seen[0][:batches], seen[0][batches:]]
    assert sum(epochs[0]) == sum(epochs[1]) == 24 and epochs[0] != epochs[1] and len(set(epochs[0])) > 1


class LongStream(runs.Rows):
    """A stream that knows its length."""

    def __len__(self):
        return len(self.rows)


class LongShuffledStream(ShuffledStream):
    def __len__(self):
        return 24


def test_a_stream_with_a_length_has_batches_of_rows_but_not_of_tokens(tmp_path):
    model = runs.build(**ONE_LAYER)
    settings = {"max_steps": -1, "num_train_epochs": 2, "per_device_train_batch_size": 4, "save_strategy": "no"}
    run = runs.trainer(tmp_path, model, LongStream(runs.rows(24)), **settings)
    run.train()
    assert run.state.global_step == 12
    with pytest.raises(ValueError, match=r"max_tokens_per_batch=100 needs the lengths of all rows"):
        runs.trainer(tmp_path, model, LongStream(runs.rows(24)), **settings, max_tokens_per_batch=100).train()
    with pytest.raises(ValueError, match="A ShuffledStream has no end"):
        runs.trainer(tmp_path, model, LongShuffledStream(None, None), **settings)


@pytest.mark.parametrize("rows", [1, 32])
@pytest.mark.parametrize("is_stream", [False, True])
def test_a_token_budget_is_lowered_until_batches_fit(tmp_path, caplog, is_stream, rows):
    """Also in a run that is resumed, which has the same batches."""
    settings = {"max_tokens_per_batch": 400, "auto_find_batch_size": True, "save_total_limit": 2}
    settings["per_device_train_batch_size"] = rows
    sizes: list[int] = []

    def limit_memory(model, args, kwargs):
        sizes.append(max(kwargs["input_ids"].numel(), kwargs["labels"].numel()))
        if sizes[-1] > 100:
            raise torch.OutOfMemoryError("CUDA out of memory.")

    def start():
        run = trainer(tmp_path, **settings)
        if is_stream:
            table = datasets.IterableDataset.from_generator(lambda: iter(runs.rows(24)))
            run.train_dataset = ShuffledStream(table, lambda columns, numbers: columns, buffer_size=16)
        run.model.register_forward_pre_hook(limit_memory, with_kwargs=True)
        return run

    run = start()
    run.train()
    assert run.state.global_step == 4 and max(sizes) > 100 and max(sizes[-4:]) > 50
    assert "lowers max_tokens_per_batch from 400 to " in caplog.text
    whole, last = run.model.state_dict(), sizes[-2:]
    sizes.clear()
    again = start()
    again.train(resume_from_checkpoint=str(tmp_path / "checkpoint-2"))
    assert sizes == last
    torch.testing.assert_close(again.model.state_dict(), whole, rtol=0, atol=0)


PLAIN_STREAMS = {
    "torch": runs.Rows,
    "datasets": lambda rows: Dataset.from_list(rows).to_iterable_dataset(num_shards=3).shuffle(seed=1, buffer_size=5),
}


@pytest.mark.parametrize("kind", PLAIN_STREAMS)
@pytest.mark.parametrize(("count", "step"), [(18, 4), (20, 5), (20, 6), (36, 4)])
def test_a_stream_without_a_length_continues_where_it_was(tmp_path, caplog, kind, count, step):
    """In the middle of a pass over its rows, or at the end of one, the first or a later one."""
    settings = {"max_steps": 8, "save_steps": step, "save_total_limit": 4}
    settings["gradient_accumulation_steps"] = 2 if count == 18 else 1

    def train(checkpoint=None):
        run = trainer(tmp_path, **settings)
        run.train_dataset = PLAIN_STREAMS[kind](runs.rows(count))
        run.train(resume_from_checkpoint=checkpoint)
        return run

    whole = train()
    assert "without a length" not in caplog.text
    again = train(str(tmp_path / f"checkpoint-{step}"))
    assert again.state.epoch == whole.state.epoch and "without a length" in caplog.text
    torch.testing.assert_close(again.model.state_dict(), whole.model.state_dict(), rtol=0, atol=0)


SPARSE = {"decoder_mlp_layer_types": "sparse", "num_experts": 4, "router_aux_loss_coef": 0.5}
KINDS = {
    "dense": {}, "conditions": {"num_condition_features": 1},
    "routers without losses": SPARSE | {"router_aux_loss_coef": 0.0, "router_z_loss_coef": 0.0},
    "noisy routers": SPARSE | {"router_type": "noisy_top_k"},
}  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_unused_weights_are_searched_for_only_where_there_may_be_some(tmp_path, kind):
    run = trainer(tmp_path, runs.build(**ONE_LAYER, **KINDS[kind]))
    run.compute_loss(run.model.train(), dict(run.data_collator(run.train_dataset.to_list()[:1]))).backward()
    unused = [name for name, weight in run.model.named_parameters() if weight.grad is None]
    assert unused == ["model.encoder.condition_proj.weight"] * (kind == "conditions")
    assert run.args.ddp_find_unused_parameters is (None if unused else False)
    assert trainer(tmp_path, run.model, ddp_find_unused_parameters=True).args.ddp_find_unused_parameters


def test_smoothed_labels_keep_the_losses_of_routers(tmp_path):
    """With the arguments of transformers alone, of which its own Trainer would lose labels and routers."""
    model = runs.build(**ONE_LAYER, **SPARSE)
    arguments = Seq2SeqTrainingArguments(str(tmp_path), label_smoothing_factor=0.2, use_cpu=True, report_to="none")
    run = WeftTrainer(model, arguments, DataCollatorForSeq2Seq(build_route_tokenizer()))
    batch = dict(run.data_collator([{"input_ids": [1, 2], "labels": [3, 4, 5]}, {"input_ids": [1], "labels": [6]}]))
    loss = run.compute_loss(run.model.train(), batch)
    output = run.model(**batch)
    smoothed = cross_entropy(output.logits, batch["labels"], 0.2)
    routers = output.loss - cross_entropy(output.logits, batch["labels"])
    assert routers > 0
    torch.testing.assert_close(loss, smoothed + routers)
    assert run.evaluate(Dataset.from_list([{"input_ids": [1], "labels": [6]}]))["eval_loss"] == pytest.approx(
        model.eval()(input_ids=torch.tensor([[1]]), labels=torch.tensor([[6]])).loss.item(), rel=1e-5
    )


LARGE, SMALL = 4096, 4095


@pytest.mark.parametrize(
    ("vocabulary", "settings", "is_chunked"),
    [(LARGE, {"label_smoothing_factor": 0.1}, True), (SMALL, {}, False), (LARGE, {"chunked_loss": False}, False)],
    ids=["large", "small", "switched off"],
)
def test_the_training_chunked_loss(tmp_path, vocabulary, settings, is_chunked):
    """With a large vocabulary, and nowhere but in training."""
    settings |= {"max_steps": 1, "save_strategy": "no", "vocab_size": vocabulary, "predict_with_generate": False}
    run = trainer(tmp_path, **settings)
    seen = []
    run.model.register_forward_hook(lambda model, args, output: seen.append((model.training, output.logits is None)))
    run.train()
    assert seen == [(True, is_chunked)]
    batch = run.data_collator([run.train_dataset[0]])
    loss, outputs = run.compute_loss(run.model.train(), dict(batch), return_outputs=True)
    assert outputs.logits is not None and loss.requires_grad  # outputs are returned on request
    seen.clear()
    run.compute_metrics = lambda prediction: {"width": prediction.predictions[0].shape[-1]}
    assert run.evaluate()["eval_width"] == vocabulary
    assert seen and not any(is_training or no_logits for is_training, no_logits in seen)


@pytest.mark.parametrize("generates", [False, True])
def test_prediction_without_labels(tmp_path, generates):
    settings = {"predict_with_generate": generates, "generation_max_length": 4, "per_device_eval_batch_size": 2}
    predicting = trainer(tmp_path, **settings)
    predicting.data_collator = lambda rows: {"input_ids": torch.tensor([[7, 8]] * len(rows)), "labels": None}
    output = predicting.predict([{"input_ids": [7, 8]}] * 3)
    assert output.label_ids is None and "test_loss" not in output.metrics
    assert len(output.predictions) == 3 if generates else output.predictions[0].shape == (3, 2, 53)
