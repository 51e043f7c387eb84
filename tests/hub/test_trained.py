"""The cards that commands and trainers leave in the folders they write."""

import pytest

from weftformer.conversion import SOURCES
from weftformer.hub import converted_card, measured

from ..models import tiny_model


@pytest.mark.parametrize(("source", "new"), [("dms", ()), ("torch", ("model.encoder.embed_tokens.weight",))])
def test_converted_weights_have_the_citation_and_licence_of_their_source(source, new):
    card = converted_card(tiny_model(), "out", source, SOURCES[source].title, new=new)
    assert "were not compared with the original" in card.text and "license" not in card.data.to_dict()
    assert ("MIT licence" in card.text) == (source == "dms") == ("@article{directmultistep" in card.text)
    assert 'from_pretrained("out"' in card.text
    assert ("These weights are random and need training before use: `model.encoder" in card.text) == bool(new)


def test_only_metrics_are_taken_from_an_evaluation():
    metrics = {"eval_loss": 1.23456789, "eval_bleu": 30.0, "test_loss": 2.0}
    metrics |= {"eval_runtime": 3.0, "eval_gen_len": 4.0, "epoch": 1.0}
    loss, bleu = measured(metrics, "eval", "pairs", n=5, intervals={"bleu": (28.0, 32.0, "bootstrap")})
    assert (loss.value, loss.low, loss.split, loss.n) == (1.234568, None, "validation", 5)
    assert (bleu.name, bleu.shown_value, bleu.shown_interval) == ("BLEU", "30", "[28, 32], bootstrap")
