"""The recipe of Multi30k on forty sentences of the same form."""

import gzip
import hashlib
import json

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoTokenizer, DataCollatorForSeq2Seq, MarianMTModel, Seq2SeqTrainer

from weftformer import WeftConfig, WeftForConditionalGeneration
from weftformer.benchmarks import multi30k
from weftformer.benchmarks.translation import peer_of
from weftformer.tokenization import train_tokenizer
from weftformer.training import WeftTrainer, WeftTrainingArguments, average_checkpoints

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
    assert results["sha256"] == hashlib.sha256(first).hexdigest() and results["machine"]["versions"]["torch"]
    assert first != (tmp_path / "run" / "checkpoint-4" / "model.safetensors").read_bytes()
    multi30k.main(list(map(str, words)))
    assert json.loads((tmp_path / "run" / "results.json").read_text()) == results
    assert (tmp_path / "run" / "model.safetensors").read_bytes() == first


@pytest.mark.integration
def test_marian_is_trained_on_the_same_batches(data, tmp_path, monkeypatch):
    batches: dict[type, list] = {}
    compute_loss = Seq2SeqTrainer.compute_loss

    def recording(self, model, inputs, *args, **kwargs):
        if model.training:
            ids, labels = inputs["input_ids"].tolist(), inputs["labels"].tolist()
            batches.setdefault(type(model), []).append((ids, labels))
        return compute_loss(self, model, inputs, *args, **kwargs)

    monkeypatch.setattr(Seq2SeqTrainer, "compute_loss", recording)
    words = ["--data", data, "--average", "2", "--max-steps", "4", "--max-tokens-per-batch", "60", "--save-steps", "2",
             "--eval-steps", "2", "--config-overrides", SMALL, "--report-to", "none", "--use-cpu",
             "--generation-max-length", "8", "--disable-tqdm", "true"]  # fmt: skip
    for name in ("weft", "marian"):
        multi30k.main([*map(str, words), "--model", name, "--output-dir", str(tmp_path / name)])
    own, peer = batches[WeftForConditionalGeneration], batches[MarianMTModel]
    assert len(own) == 8 and own == peer
    weights = load_file(tmp_path / "marian" / "model.safetensors")
    halves = [load_file(tmp_path / "marian" / f"checkpoint-{step}" / "model.safetensors") for step in (2, 4)]
    name = "model.encoder.layers.0.fc1.weight"
    torch.testing.assert_close(weights[name], (halves[0][name] + halves[1][name]) / 2)
    assert json.loads((tmp_path / "marian" / "results.json").read_text())["steps"] == 4
    vocabularies = [AutoTokenizer.from_pretrained(tmp_path / name).get_vocab() for name in ("weft", "marian")]
    assert vocabularies[0] == vocabularies[1]
    # nothing that another run has made is taken for its own
    before = (tmp_path / "weft" / "model.safetensors").read_bytes()
    for model, folder, message in (("marian", "weft", "model_type='weft'"), ("weft", "marian", "is of another model")):
        with pytest.raises(ValueError, match=message):
            multi30k.main([*map(str, words), "--model", model, "--output-dir", str(tmp_path / folder)])
    assert (tmp_path / "weft" / "model.safetensors").read_bytes() == before
    again = ["--model", "marian", "--output-dir", tmp_path / "marian", "--max-steps", "2",
             "--overwrite-output-dir", "true", "--resume-from-checkpoint", "false"]  # fmt: skip
    multi30k.main([*map(str, words), *map(str, again)])
    assert [path.name for path in (tmp_path / "marian").glob("checkpoint-*")] == ["checkpoint-2"]
    assert json.loads((tmp_path / "marian" / "results.json").read_text())["averaged"] == 1  # there are no two
    with pytest.raises(ValueError, match="no checkpoint of a WeftForConditionalGeneration"):
        average_checkpoints(tmp_path / "marian")
    with pytest.raises(ValueError, match="no checkpoint of a MarianMTModel"):
        average_checkpoints(tmp_path / "weft", model_class=MarianMTModel)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--config-overrides", "norm_first=true"], "has that of Pegasus"),
        (["--config-overrides", "num_experts=2,encoder_mlp_layer_types=sparse"], "encoder_mlp_layer_types="),
        (["--teacher", "some/model"], "--teacher is for Weft models"),
    ],
)
def test_what_a_peer_cannot_be_is_refused(words, message, data, tmp_path):
    with pytest.raises(ValueError, match=message):
        multi30k.main(["--model", "marian", "--data", str(data), "--output-dir", str(tmp_path / "run"), *words])


@pytest.mark.parametrize("label_smoothing", [0.1, 0.0])
def test_the_loss_of_a_peer_is_that_of_weft_with_the_same_weights(label_smoothing, tmp_path):
    tokenizer = train_tokenizer(["a bb ccc dddd"] * 9, vocab_size=270)
    torch.manual_seed(0)
    config = WeftConfig.from_preset("tiny", vocab_size=len(tokenizer), init_std=0.3, dropout=0.0)
    model = WeftForConditionalGeneration(config)
    _, peer = peer_of(model)
    rows = [
        {"input_ids": tokenizer(text)["input_ids"], "labels": tokenizer(text[::-1])["input_ids"]}
        for text in ("a bb", "ccc dddd a", "bb")
    ]
    losses = []
    for one, trainer_class in ((model, WeftTrainer), (peer, multi30k.PeerTrainer)):
        arguments = WeftTrainingArguments(
            output_dir=str(tmp_path), max_steps=1, per_device_train_batch_size=3, gradient_accumulation_steps=2,
            max_tokens_per_batch=16, label_smoothing_factor=label_smoothing, use_cpu=True, report_to="none",
            save_strategy="no", log_expert_statistics=False, logging_steps=1, prediction_loss_only=True,
        )  # fmt: skip
        trainer = trainer_class(
            model=one, args=arguments, train_dataset=rows, eval_dataset=rows,
            data_collator=DataCollatorForSeq2Seq(tokenizer, model=one),
        )  # fmt: skip
        found = [batch["labels"].ne(-100).sum().item() for batch in trainer.get_train_dataloader()]
        assert len(found) == 2 and found[0] != found[1]  # batches of a step that count by their tokens
        losses.append([trainer.evaluate()["eval_loss"], trainer.train().training_loss])
    assert losses[0] == pytest.approx(losses[1], rel=1e-4)
