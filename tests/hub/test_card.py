"""Cards: metadata that the Hub accepts, intervals in the index and in the text, and no unknown facts."""

import pytest
from huggingface_hub import ModelCard

from weftformer import WeftConfig, WeftDecoder, WeftEncoder, WeftForConditionalGeneration
from weftformer.hub import Facts, MetricResult, build_card, facts_of
from weftformer.tokenization import train_tokenizer

from ..models import tiny_model

SHARE = MetricResult(
    "exact_match", "top-1", 0.752, "held-out routes", 0.708, 0.792, "Wilson", 400, "test", percent=True
)


def facts(preset: str = "modern-tiny", **known) -> Facts:
    return Facts(
        **{
            "name": "someone/model", "config": WeftConfig.from_preset(preset), "parameters": 1234567,
            "active_parameters": 1000, "summary": "Words.",
        } | known
    )  # fmt: skip


def test_a_card_comes_back_as_it_was_written(tmp_path):
    card = build_card(facts("dms-flex-20m", results=[SHARE], license="mit", language=["de"], datasets=["a/b"]))
    card.save(tmp_path / "README.md")
    data = ModelCard.load(tmp_path / "README.md").data
    assert data.to_dict() == card.data.to_dict()
    assert data.tags == ["weft", "encoder-decoder", "mixture-of-experts", "chemistry", "retrosynthesis"]
    assert (data.license, data.language, data.datasets, data.metrics) == ("mit", ["de"], ["a/b"], ["exact_match"])
    (result,) = data.eval_results
    found = (data.model_name, result.task_type, result.dataset_split, result.metric_name, result.metric_value)
    assert found == ("model", "text-generation", "test", "top-1", 0.752)
    assert result.metric_args == {"n": 400, "low": 0.708, "high": 0.792, "confidence": 0.95, "method": "Wilson"}
    assert "| held-out routes | top-1 | 75.2 % | [70.8 %, 79.2 %], Wilson | 400 |\n" in card.text


def test_what_is_not_known_is_not_said():
    card = build_card(facts())
    assert set(card.data.to_dict()) == {"library_name", "tags"}
    assert "is not recorded here" in card.text and "no licence is stated" in card.text
    assert not any(heading in card.text for heading in ("## Decoding", "## Equality", "## Citation"))
    assert "None " not in card.text.replace("None were measured", "") and "{{" not in card.text


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
    card = build_card(facts_of(model, "model", has_tokenizer=has_tokenizer))
    assert card.data.pipeline_tag == (None if model.can_generate() else "feature-extraction")
    assert printed(card, tmp_path, monkeypatch, capsys).startswith(output)
