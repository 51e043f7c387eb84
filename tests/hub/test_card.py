"""Cards: metadata that the Hub accepts, intervals in the index and in the text, and no unknown facts."""

import pytest
import torch
from huggingface_hub import ModelCard

from weftformer import WeftDecoder, WeftEncoder, WeftForConditionalGeneration
from weftformer.conversion import SOURCES
from weftformer.hub import build_card, converted_card, evaluation_results, loadable_name, metric_result
from weftformer.hub.card import count_parameters
from weftformer.tokenization import train_tokenizer

from ..models import tiny_model

INTERVAL = (0.708, 0.792, "Wilson")
SHARE = metric_result("exact_match", "top-1", 0.752, "held-out routes", split="test", n=400, interval=INTERVAL)


def test_a_card_comes_back_as_it_was_written(tmp_path):
    model = tiny_model(decoder_mlp_layer_types="sparse", num_experts=4)
    metadata = {"license": "mit", "language": ["de"], "datasets": ["a/b"]}
    card = build_card(model, "someone/model", results=[SHARE], is_routes=True, metadata=metadata)
    card.save(tmp_path / "README.md")
    data = ModelCard.load(tmp_path / "README.md").data
    assert data.to_dict() == card.data.to_dict()
    assert data.tags == ["weft", "encoder-decoder", "mixture-of-experts", "chemistry", "retrosynthesis"]
    assert (data.license, data.language, data.datasets, data.metrics) == ("mit", ["de"], ["a/b"], ["exact_match"])
    (result,) = data.eval_results
    found = (data.model_name, result.task_type, result.dataset_split, result.metric_name, result.metric_value)
    assert found == ("model", "text-generation", "test", "top-1", 0.752)
    assert result.metric_args == {"n": 400, "low": 0.708, "high": 0.792, "confidence": 0.95, "method": "Wilson"}
    assert "| held-out routes | top-1 | 75.2% | [70.8%, 79.2%], Wilson | 400 |\n" in card.text


def test_what_is_not_known_is_not_said():
    card = build_card(tiny_model(), "someone/model")
    assert set(card.data.to_dict()) == {"library_name", "tags"}
    assert "is not recorded here" in card.text and "no licence is stated" in card.text
    assert not any(heading in card.text for heading in ("## Equality", "## Citation"))
    assert "None " not in card.text.replace("None were measured", "") and "{{" not in card.text


def test_a_folder_has_the_name_by_which_it_loads(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert loadable_name("runs/mine") == loadable_name(tmp_path / "runs" / "mine") == "runs/mine"
    assert [loadable_name(folder) for folder in (".", "..")] == [tmp_path.as_posix(), tmp_path.parent.as_posix()]


def printed(card, folder, monkeypatch, capsys) -> str:
    """Return what the example of a card prints in this folder."""
    monkeypatch.chdir(folder)
    exec(card.text.split("```python\n")[1].split("```")[0], {})
    return capsys.readouterr().out


@pytest.mark.parametrize(
    ("kind", "fields", "output"),
    [
        (WeftForConditionalGeneration, {"num_condition_features": 2}, "tensor([["),
        (WeftForConditionalGeneration, {"vocab_size": 270}, "['"),
        (WeftEncoder, {}, "torch.Size([1, 3, 16])"),
        (WeftDecoder, {}, "torch.Size([1, 3, 16])"),
    ],
)
def test_what_a_card_shows_runs(kind, fields, output, tmp_path, monkeypatch, capsys):
    model, has_tokenizer = tiny_model(kind, **fields), "vocab_size" in fields
    model.save_pretrained(tmp_path / "model")
    if has_tokenizer:
        train_tokenizer(["a b c"], vocab_size=259).save_pretrained(tmp_path / "model")
    card = build_card(model, "model", has_tokenizer=has_tokenizer)
    assert card.data.pipeline_tag == (None if model.can_generate() else "feature-extraction")
    assert printed(card, tmp_path, monkeypatch, capsys).startswith(output)


def test_parameters_are_counted_as_they_are_without_drawing_random_numbers():
    model = tiny_model(decoder_layers=1, decoder_mlp_layer_types="sparse", num_experts=4, num_experts_per_tok=1)
    before = torch.get_rng_state()
    total, active = count_parameters(model)
    assert torch.equal(torch.get_rng_state(), before)
    experts = sum(p.numel() for name, p in model.named_parameters() if ".experts." in name)
    assert total == sum(p.numel() for p in model.parameters()) and active == total - experts * 3 // 4
    assert experts == 4 * 3 * 16 * 24


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
    results = evaluation_results(metrics, "eval", "pairs", n=5, intervals={"bleu": (28.0, 32.0, "bootstrap")})
    loss = results[0]
    found = (loss.metric_value, loss.metric_args, loss.dataset_split)
    assert len(results) == 2 and found == (1.234568, {"n": 5}, "validation")
    assert "| pairs | BLEU | 30 | [28, 32], bootstrap | 5 |" in build_card(tiny_model(), "it", results=results).text
