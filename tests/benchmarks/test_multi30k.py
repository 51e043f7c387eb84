"""The recipe of Multi30k on forty sentences of the same form."""

import gzip
import json

import pytest
import torch

from weftformer import WeftConfig, WeftForConditionalGeneration
from weftformer.benchmarks import multi30k
from weftformer.tokenization import train_tokenizer

pytest.importorskip("sacremoses")
pytest.importorskip("sacrebleu")

SMALL = (
    "d_model=16,encoder_attention_heads=2,decoder_attention_heads=2,encoder_ffn_dim=16,decoder_ffn_dim=16,"
    "encoder_layers=1,decoder_layers=1"
)


@pytest.fixture
def data(tmp_path, monkeypatch):
    folder = tmp_path / "raw"
    folder.mkdir()
    monkeypatch.setattr(multi30k, "_SENTENCES", {"train": 40, "val": 4, "test_2016_flickr": 4})
    for split, count in multi30k._SENTENCES.items():
        for language, text in (("en", "A Man's dog, {}."), ("de", "Der „Hund“ eines Mannes, {}.")):
            with gzip.open(folder / f"{split}.{language}.gz", "wt", encoding="utf-8") as file:
                file.writelines(text.format("o" * (index % 5 + 1)) + "\n" for index in range(count))
    return folder


def test_texts_are_prepared_as_the_authors_do(data):
    assert multi30k.read_tokenized(data, "val", "en")[1] == "a man &apos;s dog , oo ."
    assert multi30k.read_tokenized(data, "val", "de")[1] == "der &quot; hund &quot; eines mannes , oo ."


def test_wrong_data_is_named(data, tmp_path):
    with pytest.raises(ValueError, match=r"There is no .*val\.fr\.gz"):
        multi30k.read_tokenized(data, "val", "fr")
    multi30k._SENTENCES["val"] = 5
    with pytest.raises(ValueError, match="has 4 sentences"):
        multi30k.read_tokenized(data, "val", "en")


def test_bleu_is_that_of_tokens():
    scores = multi30k.score(["a b c d e ."], ["a b c d e ."])
    assert scores["bleu"] == pytest.approx(100) and "tok:none" in scores["bleu_signature"]
    # 5 of 6 words, 4 of 5 pairs, 3 of 4, 2 of 3
    expected = 100 * (5 / 6 * 4 / 5 * 3 / 4 * 2 / 3) ** 0.25
    assert multi30k.score(["a b c d e !"], ["a b c d e ."])["bleu"] == pytest.approx(expected)


def test_translations_come_in_the_order_of_their_sources(monkeypatch):
    monkeypatch.setattr(multi30k, "_AT_ONCE", 2)
    tokenizer = train_tokenizer(["a bb ccc dddd"] * 9, vocab_size=270)
    torch.manual_seed(0)
    config = WeftConfig.from_preset("modern-tiny", vocab_size=len(tokenizer), init_std=0.3, max_target_positions=12)
    model = WeftForConditionalGeneration(config).eval()
    model.generation_config.max_length = 12
    sources = ["a bb ccc dddd", "a", "ccc a", "bb"]
    together = multi30k.translate(model, tokenizer, sources, num_beams=2)
    assert len(set(together)) > 1
    assert together == [multi30k.translate(model, tokenizer, [source], num_beams=2)[0] for source in sources]


@pytest.mark.integration
def test_the_recipe_runs_and_goes_on(data, tmp_path, capsys):
    words = [
        "--data", data, "--output-dir", tmp_path / "run", "--average", "2", "--max-steps", "4", "--save-steps", "2",
        "--eval-steps", "2", "--warmup-steps", "1", "--config-overrides", SMALL, "--report-to", "none", "--use-cpu",
        "--generation-max-length", "8", "--disable-tqdm", "true",
    ]  # fmt: skip
    multi30k.main(list(map(str, words)))
    results = json.loads((tmp_path / "run" / "results.json").read_text())
    assert results["steps"] == 4 and results["averaged"] == 2 and results["num_beams"] == 5
    assert len((tmp_path / "run" / "translations.txt").read_text().splitlines()) == 4
    first = (tmp_path / "run" / "model.safetensors").read_bytes()
    assert first != (tmp_path / "run" / "checkpoint-4" / "model.safetensors").read_bytes()
    multi30k.main(list(map(str, words)))
    assert json.loads((tmp_path / "run" / "results.json").read_text()) == results
    assert (tmp_path / "run" / "model.safetensors").read_bytes() == first
