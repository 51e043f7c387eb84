"""Scores of generated texts, from ids as the Trainer passes them."""

import numpy
import pytest
from transformers import EvalPrediction

from weftformer.tokenization import train_tokenizer
from weftformer.training import TextMetrics
from weftformer.training.metrics import Row, bootstrap_interval, exact_match, verdict, wrong_rows


def test_exact_match():
    assert exact_match(["a b", " c ", "d"], ["a b", "c", "e"]) == pytest.approx(2 / 3)


def test_the_verdict_shows_wrong_pairs_alone_the_most_different_first():
    right, near, far = Row("a", "b ", " b"), Row("c", "west", "wes\nt"), Row("d", "east", "up")
    assert verdict([], 25) == "Exact match 100% [86.7, 100] on 25 pairs: all 25 are right."
    assert verdict([], 1).endswith("on 1 pair: it is right.")
    wrong = wrong_rows([right] * 298 + [near, far])
    lines = verdict(wrong, 300, "new pair").splitlines()
    assert lines[0] == "Exact match 99.3% [97.6, 99.8] on 300 new pairs: 2 are wrong:"
    shown = ["source    d", "expected  east", "written   up", "source    c", "expected  west", "written   wes t"]
    assert lines[1:] == shown
    assert verdict(wrong, 2, number=1).splitlines()[0].endswith(": 2 are wrong. The worst 1:")
    assert verdict(wrong, 2, number=0).endswith("on 2 pairs: 2 are wrong.")


def test_compute_metrics_from_padded_ids_without_sacrebleu(monkeypatch, caplog):
    tokenizer = train_tokenizer(["ab"], vocab_size=259)
    a, b = tokenizer.convert_tokens_to_ids(["a", "b"])
    # start token, text, eos; pads from the Trainer, -100 where batches of other lengths were joined
    predictions = numpy.array([[1, a, b, 2, 0, -100], [1, a, a, a, 2, -100]])
    labels = numpy.array([[a, b, 2, 0, 0], [a, b, 2, -100, -100]])
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    compute = TextMetrics(tokenizer)
    assert "Skipping bleu and chrf, because sacrebleu is not installed" in caplog.text
    assert compute(EvalPrediction(predictions=predictions, label_ids=labels)) == {"exact_match": 0.5, "gen_len": 4.5}


def test_intervals_hold_the_scores_they_are_of():
    pytest.importorskip("sacrebleu")
    tokenizer = train_tokenizer(["one two three four five six"], vocab_size=280)
    rows = [f"{a} {b} three four five {c}" for a in ("one", "two") for b in ("two", "six") for c in ("one", "six")]
    ids = tokenizer(rows, padding=True, return_tensors="np").input_ids
    compute = TextMetrics(tokenizer)
    assert compute.intervals() == {}
    dates = tokenizer(["one", "two"], padding=True, return_tensors="np").input_ids
    for needed, names in ((None, {"chrf"}), ("eval_bleu", {"chrf", "bleu"})):  # BLEU is about sequences of words
        assert {*TextMetrics(tokenizer, needed)(EvalPrediction(dates, dates))} == {"exact_match", "gen_len"} | names
    scores = compute(EvalPrediction(predictions=numpy.roll(ids, 1, axis=0), label_ids=ids))
    intervals = compute.intervals()
    assert intervals.pop("exact_match")[2] == "Wilson" and set(intervals) == {"bleu", "chrf"}
    for name, (low, high, _) in intervals.items():
        assert 0 < low < scores[name] < high < 100
    assert {name: compute.intervals()[name] for name in intervals} == intervals  # the draws are the same
    few = bootstrap_interval("chrf", compute.predictions * 16, compute.references * 16)
    assert few[1] - few[0] < 0.5 * (intervals["chrf"][1] - intervals["chrf"][0])
    assert bootstrap_interval("bleu", ["a"] * 4, ["b"] * 4) is None
    assert bootstrap_interval("chrf", ["a", "c"], ["b", "c"]) is None


def test_an_interval_ends_at_100():
    pytest.importorskip("sacrebleu")
    texts = ["one two three four", "five six seven eight", "nine ten eleven twelve"] * 9
    low, high = bootstrap_interval("chrf", [*texts[:-1], "nine ten eleven"], texts)
    assert 0 <= low < high == 100
