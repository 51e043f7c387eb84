"""The files that are pushed to the Hub, as a stand-in receives them over HTTP. No test talks to the Hub itself."""

import pytest
import torch
from huggingface_hub import ModelCard
from transformers import DataCollatorForSeq2Seq, Seq2SeqTrainingArguments

from weftformer import WeftForConditionalGeneration, WeftModel
from weftformer.hub.export import flat_files
from weftformer.tokenization import train_tokenizer
from weftformer.training import WeftTrainer

from ..models import tiny_model

IDS = torch.tensor([[5, 6, 7, 8]])
REPOSITORY = "someone/model"


def build(kind=WeftForConditionalGeneration, **fields):
    return tiny_model(kind, encoder_layers=1, decoder_layers=1, **fields)


@pytest.mark.parametrize("kind", [WeftForConditionalGeneration, WeftModel])
def test_a_whole_model_is_pushed_with_its_code_and_a_card(kind, hub):
    model = build(kind)
    model.push_to_hub(REPOSITORY)
    expected = {"config.json", "model.safetensors", "README.md", *flat_files()}
    expected |= {"generation_config.json"} if kind is WeftForConditionalGeneration else set()
    assert hub.files(REPOSITORY) == expected
    assert hub.commits == [REPOSITORY]
    folder = hub.folder / REPOSITORY
    other = kind.from_pretrained(folder)
    given = {"input_ids": IDS, "decoder_input_ids": IDS}
    torch.testing.assert_close(other(**given)[0], model(**given)[0])
    card = ModelCard.load(folder / "README.md")
    assert (card.data.library_name, "weft" in card.data.tags) == ("transformers", True)
    assert f"| parameters | {model.num_parameters():,} |" in card.text
    assert "How these weights were trained is not recorded here." in card.text and "None were measured." in card.text


def test_tags_and_a_card_that_a_person_wrote_stay(hub):
    file = hub.folder / REPOSITORY / "README.md"
    file.parent.mkdir(parents=True)
    file.write_text("---\nlicense: mit\n---\n\n# Mine\n")
    build().push_to_hub(REPOSITORY)
    assert "# Mine" in file.read_text() and ModelCard.load(file).data.license == "mit"
    file.unlink()
    build().push_to_hub(REPOSITORY, tags=["opera"])
    tags = ModelCard.load(file).data.tags
    assert tags == ["weft", "encoder-decoder", "opera"]


def test_a_trainer_pushes_a_repository_that_stands_alone(hub, tmp_path):
    tokenizer = train_tokenizer(["a b"], vocab_size=259)
    rows = [{"input_ids": [5, 6, 7, 2], "labels": [7, 6, 2]}] * 8
    args = Seq2SeqTrainingArguments(
        str(tmp_path / "run"), max_steps=2, learning_rate=3e-3, per_device_train_batch_size=4, seed=7, use_cpu=True,
        report_to=[], disable_tqdm=True, save_strategy="no", hub_model_id=REPOSITORY, logging_steps=1,
    )  # fmt: skip
    trainer = WeftTrainer(
        model=build(decoder_mlp_layer_types="sparse"), args=args, train_dataset=rows, eval_dataset=rows,
        data_collator=DataCollatorForSeq2Seq(tokenizer), processing_class=tokenizer,
    )  # fmt: skip
    trainer.train()
    loss = trainer.evaluate()["eval_loss"]
    trainer.push_to_hub(language=["de", "en"], license="mit", tasks="translation", dataset_tags="someone/pairs")
    files = {"config.json", "generation_config.json", "model.safetensors", "tokenizer.json", "README.md"}
    assert files | set(flat_files()) <= hub.files(REPOSITORY)
    card = ModelCard.load(hub.folder / REPOSITORY / "README.md")
    data = card.data
    assert (data.language, data.license, data.pipeline_tag) == (["de", "en"], "mit", "translation")
    assert data.datasets == ["someone/pairs"] and "mixture-of-experts" in data.tags
    (result,) = data.eval_results
    assert (result.metric_type, result.dataset_split, result.metric_args) == ("loss", "validation", {"n": 8})
    assert result.metric_value == pytest.approx(loss, abs=1e-6)
    assert "| highest learning rate | 0.003 |" in card.text and "| steps | 2 (1.0 epochs) |" in card.text
