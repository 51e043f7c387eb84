"""Packed rows: who is in them, what a batch of them holds, and training that is that of the same pairs unpacked."""

import numpy as np
import pytest
import torch
from accelerate.data_loader import BatchSamplerShard
from datasets import Dataset
from transformers import (
    BartConfig,
    BartForConditionalGeneration,
    DataCollatorForSeq2Seq,
    Seq2SeqTrainer,
    Seq2SeqTrainingArguments,
)

from weftformer import WeftConfig, WeftForConditionalGeneration
from weftformer.tokenization import build_route_tokenizer, train_tokenizer
from weftformer.training import (
    DataCollatorForPackedSeq2Seq,
    PackingSampler,
    TokenBudgetSampler,
    WeftPretrainingArguments,
    WeftTrainer,
    WeftTrainingArguments,
)
from weftformer.training.packing import best_fit, in_given_order

from ..conftest import one_stays
from .test_invariance import KINDS, ROWS, SIZES, assert_same, outcome, rows, trained, trainer

TOKENIZER = build_route_tokenizer()


def filled(row_of: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """Tokens of each row, on both sides."""
    return np.stack([np.bincount(row_of, weights=side).astype(int) for side in lengths])


def plain_best_fit(lengths: np.ndarray, row_length: int) -> list[int]:
    """The definition: look at every row for each pair, the longest first."""
    main = int(lengths[1].sum() >= lengths[0].sum())
    order = sorted(range(lengths.shape[1]), key=lambda pair: (-lengths[:, pair].max(), -lengths[:, pair].sum(), pair))
    free: list[list[int]] = []
    row_of = [0] * len(order)
    for pair in order:
        need = lengths[:, pair]
        fitting = [row for row, room in enumerate(free) if (need <= room).all()]
        row = min(fitting, key=lambda row: (free[row][main], free[row][1 - main], row), default=len(free))
        if row == len(free):
            free.append([row_length, row_length])
        free[row] = [room - part for room, part in zip(free[row], need, strict=True)]
        row_of[pair] = row
    return row_of


@pytest.mark.parametrize("swapped", [False, True])
@pytest.mark.parametrize("row_length", [700, 1024])
def test_best_fit_is_what_it_is_by_definition(lengths, row_length, swapped):
    some = lengths[::-1, :400] if swapped else lengths[:, :400]
    found = best_fit(some, row_length)
    assert found.tolist() == plain_best_fit(some, row_length)
    assert filled(found, some).max() <= row_length


def test_rows_in_the_given_order_are_the_fewest_of_this_order():
    lengths = np.array([[3, 3, 1, 5, 1], [1, 2, 4, 1, 1]])
    assert in_given_order(lengths, 6).tolist() == [0, 0, 1, 1, 2]
    assert in_given_order(lengths, 5).tolist() == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("processes", [1, 2, 7])
def test_every_pair_is_in_one_row(lengths, processes):
    sampler = PackingSampler(*lengths, 1024, 4, num_processes=processes)
    batches = list(sampler)
    assert sorted(pair for batch in batches for pair in batch) == list(range(1500))
    assert len(batches) == len(sampler) and len(sampler) % processes == 0
    # the collator finds the rows again, or fewer
    for batch in batches:
        row_of = in_given_order(lengths[:, batch], 1024)
        assert row_of.max() < 4 and filled(row_of, lengths[:, batch]).max() <= 1024


def test_less_is_padding_than_in_batches_by_tokens(lengths):
    sampler = PackingSampler(*lengths, 1024, 4)
    assert sampler.padding() < 0.02 < TokenBudgetSampler(*lengths, 4096).padding()
    padded = 0
    for batch in sampler:
        held = filled(in_given_order(lengths[:, batch], 1024), lengths[:, batch])
        padded += held.shape[1] * held.max(axis=1).sum()
    assert sampler.padding() == pytest.approx(1 - lengths.sum() / padded, abs=0.003)


def test_the_order_is_that_of_seed_and_epoch(lengths):
    def epoch(number, seed=3):
        sampler = PackingSampler(*lengths, 1024, 2, seed=seed)
        sampler.set_epoch(number)
        return list(sampler)

    assert epoch(2) == epoch(2) and epoch(2) != epoch(1) and epoch(2) != epoch(2, seed=4)
    # as many tokens in each batch of every epoch
    held = [sorted(map(tuple, (lengths[:, batch].sum(axis=1) for batch in epoch(number)))) for number in (1, 2)]
    assert held[0] == held[1]
    # pairs of equal lengths meet others in another epoch
    sampler = PackingSampler([5] * 40, [7] * 40, 21, 2)
    first = {frozenset(batch) for batch in sampler}
    sampler.set_epoch(1)
    assert first != {frozenset(batch) for batch in sampler}
    assert {len(batch) for batch in first} == {6, 4} and len(first) == 7


def test_two_processes_share_the_batches(lengths):
    sampler = PackingSampler(*lengths, 1024, 3, num_processes=2)
    shares = [list(BatchSamplerShard(sampler, 2, index)) for index in range(2)]
    assert len(shares[0]) == len(shares[1]) == len(sampler) // 2
    assert sorted(pair for share in shares for batch in share for pair in batch) == list(range(1500))


def test_rows_are_cut_where_processes_have_none():
    sampler = PackingSampler([2] * 6, [3] * 6, 100, 4, num_processes=4)
    assert sorted(map(len, sampler)) == [1, 1, 2, 2] and len(sampler) == 4
    assert len(PackingSampler([80] * 3, [80] * 3, 80, 4, num_processes=2)) == 2


def test_what_cannot_be_sampled_is_said():
    with pytest.raises(
        ValueError, match=r"Pair 1 has 90 tokens, more than the 80 of a packed row: raise packing_length"
    ):
        PackingSampler([10, 90], [20, 20], 80)
    with pytest.raises(ValueError, match="2 pairs are too few for 3 processes"):
        PackingSampler([10, 20], [20, 20], 80, num_processes=3)
    with pytest.raises(ValueError, match="rows_per_batch=0"):
        PackingSampler([10, 20], [20, 20], 80, 0)


@pytest.fixture(scope="module")
def tokenizer():
    return train_tokenizer(["one two three", "three two one"], vocab_size=300)


def pair(source: list[int], labels: list[int], **more) -> dict:
    return {"input_ids": source, "labels": labels, **more}


def test_a_batch_of_the_collator(tokenizer):
    collate = DataCollatorForPackedSeq2Seq(tokenizer, 4)
    batch = collate([pair([5, 6], [7]), pair([8], [9, 10, 2]), pair([11, 0, 12], [13, 2])])
    expected = {
        "input_ids": [[5, 6, 8], [11, 0, 12]],
        "attention_mask": [[1, 1, 1], [1, 1, 1]],
        "labels": [[7, 9, 10, 2], [13, 2, -100, -100]],
        "sequence_ids": [[0, 0, 1], [0, 0, 0]],
        "decoder_sequence_ids": [[0, 1, 1, 1], [0, 0, -1, -1]],
    }
    assert {name: value.tolist() for name, value in batch.items()} == expected
    rounded = DataCollatorForPackedSeq2Seq(tokenizer, 4, pad_to_multiple_of=4)(
        [pair([5, 6], [7], condition_values=[1.5, 2.0]), pair([8], [9], condition_values=[3, 4])]
    )
    assert rounded["condition_values"].tolist() == [[[1.5, 2.0]] * 2 + [[3.0, 4.0]] + [[0.0, 0.0]]]
    assert rounded["attention_mask"].tolist() == [[1, 1, 1, 0]] and rounded["sequence_ids"].tolist() == [[0, 0, 1, -1]]
    assert rounded["input_ids"].tolist() == [[5, 6, 8, tokenizer.pad_token_id]] and rounded["labels"].shape == (1, 4)


def test_masks_are_those_of_pairs_that_are_not_packed(tokenizer):
    """A tokenizer without a mask leaves pads inside a source to the model, which reads them from the ids."""
    pad = TOKENIZER.pad_token_id
    packed = DataCollatorForPackedSeq2Seq(TOKENIZER, 9)([pair([5, pad, 6], [7]), pair([8], [9])])
    assert packed["attention_mask"].tolist() == [[1, 0, 1, 1]]
    given = DataCollatorForPackedSeq2Seq(tokenizer, 9)([pair([5, 6], [7], attention_mask=[0, 1]), pair([8], [9])])
    assert given["attention_mask"].tolist() == [[0, 1, 1]]


def test_the_collator_packs_what_does_not_come_row_by_row(tokenizer):
    features = [pair([1] * size, [1] * size) for size in (3, 7, 2, 8, 4, 6)]
    collate = DataCollatorForPackedSeq2Seq(tokenizer, 10)
    batch = collate(features)
    assert batch["input_ids"].shape == (3, 10) and (batch["sequence_ids"] >= 0).all()
    lengths = [[int((row == number).sum()) for number in (0, 1)] for row in batch["sequence_ids"]]
    assert sorted(map(sorted, lengths)) == [[2, 8], [3, 7], [4, 6]]


def test_what_cannot_be_packed_is_said(tokenizer):
    collate = DataCollatorForPackedSeq2Seq(tokenizer, 4)
    with pytest.raises(ValueError, match="Pair 1 has 5 tokens, more than the 4 of a packed row"):
        collate([pair([5], [6]), pair([1] * 5, [6])])
    with pytest.raises(ValueError, match="has the columns input_ids, labels, position_ids: packing needs"):
        collate([pair([5], [6], position_ids=[3])])
    with pytest.raises(ValueError, match="has the columns input_ids: packing needs input_ids and labels"):
        collate([{"input_ids": [5]}])
    with pytest.raises(ValueError, match="return_tensors='np'"):
        collate([pair([5], [6])], return_tensors="np")


@pytest.mark.parametrize("smoothing", one_stays([0.1, 0.0]))
def test_the_plain_trainer_takes_the_collator(tmp_path, smoothing):
    """With its own label smoothing too, for which the collator makes the decoder's inputs."""
    losses = []
    for packed in (False, True):
        torch.manual_seed(0)
        config = WeftConfig(**(SIZES | {"label_smoothing": 0.0}))
        model = WeftForConditionalGeneration._from_config(config, dtype=torch.float64)
        collator = (
            DataCollatorForPackedSeq2Seq(TOKENIZER, 20, model) if packed else DataCollatorForSeq2Seq(TOKENIZER, model)
        )
        arguments = Seq2SeqTrainingArguments(
            output_dir=str(tmp_path), max_steps=3, per_device_train_batch_size=ROWS, report_to="none", use_cpu=True,
            disable_tqdm=True, logging_steps=1, save_strategy="no", label_smoothing_factor=smoothing,
        )  # fmt: skip
        run = Seq2SeqTrainer(model, arguments, collator, Dataset.from_list(rows()), eval_dataset=rows())
        run.train()
        losses.append([log["loss"] for log in run.state.log_history if "loss" in log] + [run.evaluate()["eval_loss"]])
    assert losses[1] == pytest.approx(losses[0], rel=1e-5) and losses[0][0] - losses[0][2] > 1e-4


def with_conditions() -> list[dict]:
    return [{**row, "condition_values": [float(number), -1.0]} for number, row in enumerate(rows())]


@pytest.fixture(scope="module", params=KINDS)
def unpacked(request, tmp_path_factory):
    fields = {"num_condition_features": 2}
    settings = {"data": with_conditions(), "model_fields": fields}
    return request.param, settings, trained(tmp_path_factory.mktemp("unpacked"), request.param, **settings)


PACKED = {
    "one batch": {},
    "rows of the longest pair": {"packing_length": None},
    "in two": {"per_device_train_batch_size": 3, "gradient_accumulation_steps": 2},
    "by tokens": {"max_tokens_per_batch": 70, "gradient_accumulation_steps": 2},
    "wider": {"pad_to": 16},
}


@pytest.mark.parametrize("how", one_stays(["in two", *(how for how in PACKED if how != "in two")]))
def test_a_step_is_that_of_the_same_pairs_unpacked(unpacked, tmp_path, how):
    """Dense and sparse, with conditions and smoothed labels; the weights after two steps agree within 1e-10."""
    kind, settings, expected = unpacked
    # 90 source and 78 target tokens in all
    run = trainer(tmp_path, kind, packing=True, **({"packing_length": 20} | settings | PACKED[how]))
    shapes = []
    run.model.register_forward_pre_hook(lambda _, args, given: shapes.append(given["labels"].shape), with_kwargs=True)
    run.train()
    assert_same(outcome(run), expected)
    assert all(len(shape) == 2 and shape[0] < ROWS for shape in shapes)


def test_evaluation_is_not_packed(tmp_path):
    run = trainer(tmp_path, packing=True, predict_with_generate=True, generation_max_length=4, max_steps=1)
    run.train()
    plain = trainer(tmp_path, predict_with_generate=True, generation_max_length=4, max_steps=1)
    plain.model.load_state_dict(run.model.state_dict())
    found, expected = (one.predict(rows()) for one in (run, plain))
    assert np.array_equal(found.predictions, expected.predictions) and len(found.predictions) == ROWS
    assert found.metrics["test_loss"] == pytest.approx(expected.metrics["test_loss"])


@pytest.mark.parametrize("steps", one_stays([6, 4]))  # within an epoch, and at its end
def test_a_resumed_run_goes_on_with_the_same_rows(tmp_path, steps):
    def run(folder, checkpoint=None):
        one = trainer(
            tmp_path / folder, packing=True, packing_length=14, per_device_train_batch_size=4, max_steps=8,
            save_strategy="steps", save_steps=steps, model_fields={"dropout": 0.2}, data=rows() * 2,
        )  # fmt: skip
        one.train(resume_from_checkpoint=checkpoint)
        return one

    whole = run("whole")
    assert len(whole.get_train_dataloader()) == 4
    resumed = run("resumed", str(tmp_path / "whole" / f"checkpoint-{steps}"))
    for name, value in whole.model.state_dict().items():
        assert torch.equal(resumed.model.state_dict()[name], value), name


def test_what_does_not_go_together_is_said(tmp_path, tokenizer, monkeypatch):
    def refused(message, collator=None, **settings):
        with pytest.raises(ValueError, match=message):
            arguments = WeftTrainingArguments(
                output_dir=str(tmp_path), use_cpu=True, report_to="none", max_steps=1, eval_strategy="no", **settings
            )
            config = WeftConfig(**SIZES)
            collator = collator or DataCollatorForSeq2Seq(TOKENIZER)
            WeftTrainer(WeftForConditionalGeneration(config), arguments, collator, rows()).train()

    refused("packing_length=8 is for --packing", packing_length=8)
    refused("packing_length=0 is not allowed", packing=True, packing_length=0)
    refused("has 13 tokens, more than the 8 of a packed row", packing=True, packing_length=8)
    refused("max_tokens_per_batch=10 is less than a packed row of 13 tokens", packing=True, max_tokens_per_batch=10)
    packed = DataCollatorForPackedSeq2Seq(TOKENIZER, 20)
    refused("the data_collator is a DataCollatorForPackedSeq2Seq", packed, packing=True)
    refused("the data_collator is a function", lambda features: features, packing=True)
    with pytest.raises(ValueError, match="--packing needs all lengths before training begins"):
        WeftPretrainingArguments(output_dir=str(tmp_path), max_steps=1, packing=True)
    with pytest.raises(
        ValueError, match="needs all lengths before training begins, and the train_dataset has no length"
    ):
        trainer(tmp_path, packing=True, data=Dataset.from_list(rows()).to_iterable_dataset())
    monkeypatch.setattr("weftformer.training.trainer.uses_flash", lambda config: True)
    refused("cannot keep the pairs of a row apart", packing=True)


def test_the_collator_alone_is_for_one_process(tmp_path, monkeypatch):
    monkeypatch.setattr(WeftTrainingArguments, "world_size", 2)
    arguments = WeftTrainingArguments(output_dir=str(tmp_path), use_cpu=True, report_to="none", eval_strategy="no")
    with pytest.raises(ValueError, match=r"On several processes give WeftTrainingArguments\(packing=True\)"):
        WeftTrainer(
            WeftForConditionalGeneration(WeftConfig(**SIZES)),
            arguments,
            DataCollatorForPackedSeq2Seq(TOKENIZER, 20),
            rows(),
        )


def test_a_teacher_of_another_family_is_refused(tmp_path):
    sizes = {"d_model": 8, "encoder_layers": 1, "decoder_layers": 1, "encoder_attention_heads": 2,
             "decoder_attention_heads": 2, "encoder_ffn_dim": 8, "decoder_ffn_dim": 8}  # fmt: skip
    bart = BartForConditionalGeneration(BartConfig(vocab_size=SIZES["vocab_size"], **sizes))
    student = WeftForConditionalGeneration(WeftConfig(**SIZES))
    arguments = {"output_dir": str(tmp_path), "use_cpu": True, "report_to": "none", "eval_strategy": "no"}
    with pytest.raises(ValueError, match="BartForConditionalGeneration, which knows no packed rows"):
        WeftTrainer(
            student,
            WeftTrainingArguments(**arguments, packing=True),
            DataCollatorForSeq2Seq(TOKENIZER),
            rows(),
            teacher=bart,
        )
    run = WeftTrainer(
        student, WeftTrainingArguments(**arguments), DataCollatorForPackedSeq2Seq(TOKENIZER, 20), rows(), teacher=bart
    )
    with pytest.raises(ValueError, match="which knows no packed rows"):
        run.train()


def test_a_teacher_of_the_family_reads_packed_rows(tmp_path):
    losses = []
    for packing in (False, True):
        run = trainer(tmp_path, packing=packing, max_steps=1)
        torch.manual_seed(1)
        config = WeftConfig(**(SIZES | {"d_model": 8}))
        teacher = WeftForConditionalGeneration._from_config(config, dtype=torch.float64)
        run = WeftTrainer(run.model, run.args, run.data_collator, rows(), teacher=teacher)
        run.train()
        losses.append(run.state.log_history[0]["loss"])
    assert losses[1] == pytest.approx(losses[0], rel=5e-6)
