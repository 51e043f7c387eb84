"""A stream gives every row once per epoch, in an order set by seed and epoch, to any number of processes."""

import itertools
import json
import shutil
from functools import partial
from pathlib import Path

import pytest
import torch
from datasets import IterableDataset
from safetensors.torch import load_file

from weftformer.training import DataArguments, ModelArguments, ShuffledStream, WeftTrainingArguments, fit_pairs
from weftformer.training.files import load_file_stream
from weftformer.training.trainer import _budget_batches

from . import runs

ROWS = 57


def pairs(numbers) -> list[dict[str, str]]:
    return [{"source": f"{number}", "target": "ab" * (number % 5 + 1)} for number in numbers]


def as_numbers(batch: dict[str, list], rows: list[int]) -> dict[str, list]:
    """Encode rows as features that contain their numbers."""
    assert len(batch["source"]) == len(rows)
    return {
        "input_ids": [[int(text)] * (int(text) % 7 + 1) for text in batch["source"]],
        "labels": [[len(text)] * len(text) for text in batch["target"]],
    }


def write(path: Path, rows: list[dict[str, str]]) -> None:
    if path.suffix == ".jsonl":
        text = "".join(json.dumps(row) + "\n" for row in rows)
    else:
        text = "source,target\n" + "".join(f"{row['source']},{row['target']}\n" for row in rows)
    path.write_text(text)


@pytest.fixture
def shards(tmp_path) -> IterableDataset:
    """Three files, of which the last is the longest."""
    for number, part in enumerate((range(11), range(11, 29), range(29, ROWS))):
        write(tmp_path / f"pairs-{number}.jsonl", pairs(part))
    return load_file_stream(str(tmp_path / "pairs-*.jsonl"))


def numbers(batches) -> list[int]:
    return [row["input_ids"][0] for batch in batches for row in batch]


def epochs(stream: ShuffledStream, count: int) -> list[list[int]]:
    """Return the rows of each of the first epochs, in batches of one."""
    found = numbers(itertools.islice(stream, count * ROWS))
    return [found[start : start + ROWS] for start in range(0, len(found), ROWS)]


@pytest.mark.parametrize("buffer_size", [8, 1000])
def test_every_row_once_an_epoch_in_an_order_of_seed_and_epoch(shards, buffer_size):
    stream = partial(ShuffledStream, shards, as_numbers, buffer_size=buffer_size)
    first = epochs(stream(seed=3), 4)
    assert all(sorted(epoch) == list(range(ROWS)) for epoch in first)
    assert len({tuple(epoch) for epoch in first}) == 4
    assert epochs(stream(seed=3), 4) == first
    assert all(one != other for one, other in zip(epochs(stream(seed=4), 4), first, strict=True))
    # a window is shuffled, not only its border moved
    assert sum(abs(a - b) == 1 for a, b in itertools.pairwise(first[0])) < ROWS / 2


@pytest.mark.parametrize("processes", [2, 3])
def test_processes_share_every_row_of_an_epoch(shards, processes):
    shares = []
    for index in range(processes):
        stream = ShuffledStream(shards, as_numbers, buffer_size=8, seed=1)
        stream.process_index, stream.num_processes = index, processes
        starts = [0]

        def encode(batch, rows, starts=starts):
            """Encode the epoch, the content and the number of each row."""
            starts.append(starts[-1] + (rows[0] < processes))
            return {"input_ids": [[starts[-1], int(s), n] for s, n in zip(batch["source"], rows, strict=True)]}

        stream.encode = encode
        features = (row["input_ids"] for (row,) in stream)
        shares.append(list(itertools.takewhile(lambda row: row[0] < 3, features)))
    for epoch in (1, 2):
        rows = [row for share in shares for row in share if row[0] == epoch]
        assert sorted(row[1] for row in rows) == sorted(row[2] for row in rows) == list(range(ROWS))
    sizes = [len(share) for share in shares]
    assert max(sizes) - min(sizes) <= 2 * 4  # one at most for each window of an epoch


def generated():
    yield from pairs(range(ROWS))


def test_batches_by_length_have_every_row_once(shards):
    stream = ShuffledStream(shards, as_numbers, buffer_size=20, seed=0)
    stream.form_batches = partial(_budget_batches, budget=40)
    rows: list[int] = []
    for batch in stream:
        rows += numbers([batch])
        assert all(len(row[name]) * len(batch) <= 40 for row in batch for name in row)
        if len(rows) >= 2 * ROWS:
            break
    first, second = rows[:ROWS], rows[ROWS:]
    assert sorted(first) == sorted(second) == list(range(ROWS)) and first != second


def test_files_are_named_by_patterns_and_lists(tmp_path):
    for name in ("a.csv", "b.csv", "c.jsonl"):
        write(tmp_path / name, pairs([ord(name[0])]))
    (tmp_path / "d.csv").write_text("target,source\nab,1\n")
    (tmp_path / "f.tsv").write_text("source\ttarget\n1\tab\n")
    (tmp_path / "g.txt").write_text("1\tab\n")

    def sources(text):
        return [int(row["source"]) for row in load_file_stream(text.replace("@", f"{tmp_path}/"))]

    assert sources("@[ab].csv") == sources("@b.csv, @a.csv")[::-1] == [97, 98] and sources("@a.csv") == [97]
    for text, message in (
        ("@a.csv,@c.jsonl", r"a\.csv and .*c\.jsonl differ: format 'csv' and 'json'"),
        ("@f.tsv,@g.txt", r"f\.tsv and .*g\.txt differ: header 0 and None"),
        ("@[abd].csv", r"a\.csv and .*d\.csv differ: names "),
        ("@x*.csv", r"no file matches .*x\*\.csv"),
    ):
        with pytest.raises((ValueError, FileNotFoundError), match=message):
            sources(text)


def curve(trainer) -> list[tuple]:
    return [(log["step"], log["loss"], log["grad_norm"]) for log in trainer.state.log_history if "loss" in log]


@pytest.mark.parametrize(
    "settings",
    [
        {"gradient_accumulation_steps": 2, "max_tokens_per_batch": 60},
        pytest.param({"dataloader_num_workers": 2}, marks=pytest.mark.integration),
    ],
    ids=["tokens", "workers"],
)
def test_resumed_stream_equals_uninterrupted_one(shards, tmp_path, settings):
    """Within the second epoch or later."""
    settings = settings | {
        "streaming": True, "max_steps": 9, "per_device_train_batch_size": 8, "save_strategy": "steps", "save_steps": 3,
        "save_total_limit": 9, "logging_steps": 3, "shuffle_buffer_size": 16, "resume_from_checkpoint": "true",
    }  # fmt: skip
    train = partial(runs.fit, tmp_path / "pairs-*.jsonl", fields={"dropout": 0.1}, **settings)
    whole = train(folder=tmp_path / "whole").trainer
    (tmp_path / "part").mkdir()
    shutil.copytree(tmp_path / "whole" / "checkpoint-3", tmp_path / "part" / "checkpoint-3")
    part = train(folder=tmp_path / "part")
    assert curve(part.trainer) == curve(whole) and len(curve(whole)) == 3 and part.example == "0"
    one, two = (load_file(tmp_path / name / "model.safetensors") for name in ("whole", "part"))
    assert all(torch.equal(one[name], two[name]) for name in one)


def test_a_stream_from_python(tmp_path, caplog):
    arguments = {
        "max_steps": 2, "use_cpu": True, "disable_tqdm": True, "report_to": "none", "save_strategy": "no",
        "predict_with_generate": False,
    }  # fmt: skip
    model = ModelArguments(config_overrides=runs.SIZE, tokenizer_vocab_size=265)
    data = DataArguments(streaming=True, validation_split=8, shuffle_buffer_size=16, max_source_length=3)
    stream = IterableDataset.from_generator(generated).map(lambda row: {"source": row["source"] * 2})
    fitted = fit_pairs(model, data, WeftTrainingArguments(str(tmp_path / "a"), **arguments), stream)
    assert fitted.trainer.state.global_step == 2 and fitted.example == "88"
    results = json.loads((tmp_path / "a" / "all_results.json").read_text())
    assert 0 < results["eval_samples"] <= 8 and results["eval_loss"] > 0
    assert "pairs of the stream, from row" in caplog.text and "max_source_length=3" in caplog.text
