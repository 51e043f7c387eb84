import numpy as np
import pytest
import torch
from datasets import Dataset

from weftformer.tokenization import build_route_tokenizer
from weftformer.training.batching import PairCollator, TokenBudgetSampler, row_lengths
from weftformer.training.batching import padded as padding


@pytest.fixture(scope="module")
def lengths() -> np.ndarray:
    """Lengths like those of routes: long targets, and short sources that hardly depend on them."""
    rng = np.random.default_rng(0)
    return np.stack([rng.integers(10, 90, 1500), np.minimum(rng.gamma(4.0, 60.0, 1500).astype(int) + 40, 700)])


def padded(batch: list[int], lengths: np.ndarray) -> tuple[int, int]:
    return tuple(len(batch) * int(side[batch].max()) for side in lengths)


@pytest.mark.parametrize("processes", [1, 2, 7])
def test_every_row_is_in_one_batch_that_fits(lengths, processes):
    sampler = TokenBudgetSampler(*lengths, 2048, num_processes=processes)
    batches = list(sampler)
    assert sorted(row for batch in batches for row in batch) == list(range(1500))
    assert all(max(padded(batch, lengths)) <= 2048 for batch in batches)
    assert len(batches) == len(sampler) and len(sampler) % processes == 0


def test_the_order_is_that_of_seed_and_epoch(lengths):
    def epoch(number, seed=3):
        sampler = TokenBudgetSampler(*lengths, 2048, seed=seed)
        sampler.set_epoch(number)
        return list(sampler)

    assert epoch(2) == epoch(2) and epoch(2) != epoch(1) and epoch(2) != epoch(2, seed=4)
    # nor do short and long batches come in the same places
    assert [len(batch) for batch in epoch(1)] != [len(batch) for batch in epoch(2)]
    # as many batches in every epoch, of the same shapes; the rows in them are not always the same
    shapes = [sorted((len(b), *padded(b, lengths)) for b in epoch(number)) for number in (1, 2)]
    assert shapes[0] == shapes[1]
    short = np.array([[5] * 40, [7] * 40])
    sampler = TokenBudgetSampler(*short, 70)
    first = {frozenset(batch) for batch in sampler}
    sampler.set_epoch(1)
    assert first != {frozenset(batch) for batch in sampler}
    assert all(len(batch) == 10 for batch in first)


def test_batches_of_one_row_are_not_split():
    sampler = TokenBudgetSampler([80, 80, 80], [80, 80, 80], 80, num_processes=2)
    assert sorted(sampler) == [[0], [1], [2]]


def test_what_cannot_be_is_said():
    with pytest.raises(ValueError, match=r"Row 1 has 90 tokens: .*max_tokens_per_batch=80"):
        TokenBudgetSampler([10, 90], [20, 20], 80)
    with pytest.raises(ValueError, match="2 rows are too few for 3 processes"):
        TokenBudgetSampler([10, 20], [20, 20], 80, num_processes=3)


@pytest.mark.parametrize(
    ("device", "multiple", "expected"), [("cpu", None, (9, 5)), ("cuda", None, (12, 8)), ("cuda", 3, (9, 6))]
)
def test_pads_end_at_a_multiple_or_at_the_limit(device, multiple, expected):
    """With a device only named: a learned position table has no rows beyond the limit."""
    tokenizer = build_route_tokenizer()
    tokenizer.model_input_names = ["input_ids", "attention_mask"]
    collator = PairCollator(tokenizer, (12, 20), torch.device(device), multiple)
    rows = [{"input_ids": list(range(9)), "labels": [1]}, {"input_ids": [1], "labels": list(range(5))}]
    batch = collator(rows)
    assert (batch["input_ids"].shape[1], batch["labels"].shape[1]) == expected
    assert batch["input_ids"][0].tolist() == [*range(9)] + [52] * (expected[0] - 9)
    assert batch["labels"][1].tolist() == [*range(5)] + [-100] * (expected[1] - 5)
    assert batch["attention_mask"].sum() == 10
    lengths = np.array([[9, 11], [5, 19]])
    assert padding(lengths, collator).tolist() == ([[9, 11], [5, 19]] if device == "cpu" else
        [[12, 12], [8, 20]] if multiple is None else [[9, 12], [6, 20]])  # fmt: skip
    assert "attention_mask" not in collator([{"input_ids": [1] * 12, "labels": [1]}] * 2)  # there is nothing to mask


def ids(count: int) -> list[int]:
    return list(range(count))


ROWS = [{"input_ids": ids(1 + row % 7), "labels": ids(2 + row % 5)} for row in range(30)]
DATASETS = {
    "data set": lambda: Dataset.from_list(ROWS),
    "in an order of its own": lambda: Dataset.from_list(ROWS[::-1]).select(range(29, -1, -1)),
    "made when asked for": lambda: Dataset.from_list([{"row": row} for row in range(30)]).with_transform(
        lambda batch: {name: [ROWS[row][name] for row in batch["row"]] for name in ("input_ids", "labels")}
    ),
    "list": lambda: ROWS,
}


@pytest.mark.parametrize("kind", DATASETS)
def test_lengths_of_rows(kind):
    lengths = row_lengths(DATASETS[kind](), ("input_ids", "labels"))
    assert lengths.dtype == np.int32
    assert lengths.tolist() == [[len(row[name]) for row in ROWS] for name in ("input_ids", "labels")]
