"""Scores of generated texts, from ids as the Trainer hands them over."""

import logging

import numpy
import pytest
from transformers import EvalPrediction

from weft.tokenization import train_tokenizer
from weft.training import build_compute_metrics
from weft.training.metrics import bleu, chrf, exact_match, usable_metrics


def test_exact_match():
    assert exact_match(["a b", " c ", "d"], ["a b", "c", "e"]) == pytest.approx(2 / 3)


def test_bleu_and_chrf_are_sacrebleus():
    pytest.importorskip("sacrebleu")
    texts = ["the cat sat on the mat", "a dog barked at the moon"]
    assert bleu(texts, texts) == pytest.approx(100)
    assert chrf(texts, texts) == pytest.approx(100)
    assert 0 < bleu(["the cat sat on the hat", texts[1]], texts) < 100
    # references are one list of all lines, not one list a line: the latter would score 0 here
    assert bleu([texts[0], "nothing in common here at all"], texts) > 0


def test_compute_metrics_from_padded_ids():
    tokenizer = train_tokenizer(["ab"], vocab_size=259)
    a, b = tokenizer.convert_tokens_to_ids(["a", "b"])
    # start token, text, eos; pads from the Trainer, -100 where batches of other lengths were joined
    predictions = numpy.array([[1, a, b, 2, 0, -100], [1, a, a, a, 2, -100]])
    labels = numpy.array([[a, b, 2, 0, 0], [a, b, 2, -100, -100]])
    compute = build_compute_metrics(tokenizer, ["exact_match"])
    assert compute(EvalPrediction(predictions=predictions, label_ids=labels)) == {"exact_match": 0.5, "gen_len": 4.5}


def test_without_sacrebleu_the_rest_is_computed(monkeypatch, caplog):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with caplog.at_level(logging.WARNING, logger="weft"):
        assert usable_metrics(["exact_match", "bleu", "chrf"]) == ["exact_match"]
    assert "bleu and chrf left out: sacrebleu is not installed" in caplog.text


def test_unknown_metric():
    with pytest.raises(ValueError, match=r"no metric 'blue'.*Did you mean `bleu`"):
        usable_metrics(["blue"])
