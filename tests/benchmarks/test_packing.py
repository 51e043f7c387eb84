"""The benchmark of packing: every pair is in one batch of each contender, and the table has a row for each."""

import gzip
import json
import random

import pytest
import torch

from weftformer import WeftConfig
from weftformer.benchmarks import packing as script
from weftformer.routes import Route, write_routes
from weftformer.training import DataCollatorForPackedSeq2Seq

SMALL = {"d_model": 16, "encoder_layers": 1, "decoder_layers": 1, "encoder_ffn_dim": 16, "decoder_ffn_dim": 16}


@pytest.fixture
def data(tmp_path, monkeypatch):
    preset = WeftConfig.from_preset
    monkeypatch.setattr(WeftConfig, "from_preset", lambda name, **fields: preset(name, **(SMALL | fields)))
    draw = random.Random(0)
    chains = ["C" * draw.randint(2, 30) for _ in range(24)]
    write_routes(tmp_path / "routes.jsonl", [Route(f"{chain}O", (Route(chain), Route("O"))) for chain in chains])
    for language in ("en", "de"):
        with gzip.open(tmp_path / f"train.{language}.gz", "wt") as lines:
            lines.write("".join(" ".join(draw.choices("abcd", k=draw.randint(2, 20))) + "\n" for _ in range(30)))
    return ["--routes", str(tmp_path / "routes.jsonl"), "--texts", str(tmp_path)]


def test_each_way_has_a_row(data, tmp_path, capsys):
    threads = torch.get_num_threads()
    script.main([*data, "--tokens", "200", "--step-tokens", "1", "--runs", "1", "--row-lengths", "180",
                 "--json", str(tmp_path / "figures.json")])  # fmt: skip
    torch.set_num_threads(threads)
    figures = json.loads((tmp_path / "figures.json").read_text())
    assert figures["pairs"] == {"routes": 24, "Multi30k": 30}
    assert [row["task"] for row in figures["rows"]] == ["routes"] * 4 + ["Multi30k"] * 4
    for row in figures["rows"]:
        assert 0 <= row["padding"] < 1 and row["tokens_per_s"] > 0
    assert figures["rows"][3]["batches"] == "1 packed row of 180" and figures["rows"][0]["times_as_fast"] == 1
    assert capsys.readouterr().out.count("\n| ") == 9


def test_every_pair_is_in_one_batch_and_padding_is_what_the_batches_have(data):
    task = script.text_task(script.Path(data[3]), 30)
    for contender in script.build_contenders(task, 200):
        assert sorted(pair for batch in contender.batches for pair in batch) == list(range(30))
        whole = 0
        for batch in contender.batches:
            inputs = contender.collate([dict(task.pairs[index]) for index in batch])
            whole += inputs["input_ids"].numel() + inputs["labels"].numel()
        assert contender.padding == pytest.approx(1 - task.lengths.sum() / whole)


def test_a_packed_batch_has_the_loss_of_its_pairs(data, monkeypatch):
    task = script.text_task(script.Path(data[3]), 30)
    contenders = script.build_contenders(task, 200)
    assert script.difference(task, contenders[-1]) < 1e-4
    broken = script.Contender("broken", contenders[-1].batches, OneSequence(task.tokenizer, 200), 0)
    assert script.difference(task, broken) > 1e-3
    with pytest.raises(ValueError, match="broken: losses of a packed batch differ"):
        script.measure(task, [broken], 1, 1)


class OneSequence(DataCollatorForPackedSeq2Seq):
    def __call__(self, features, return_tensors=None):
        batch = super().__call__(features, return_tensors)
        return {name: value.clamp(max=0) if "sequence_ids" in name else value for name, value in batch.items()}


def test_what_cannot_be_is_said(data):
    with pytest.raises(ValueError, match="nothing to learn"):
        script.main([])
    with pytest.raises(ValueError, match="--runs must be at least 1: got 0"):
        script.main([*data, "--runs", "0"])
