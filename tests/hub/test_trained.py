"""The cards that commands and trainers leave in the folders they write."""

import json
from types import SimpleNamespace

import pytest
import torch
from datasets import config as datasets_config
from huggingface_hub import ModelCard
from peft import LoraConfig, TaskType, get_peft_model
from transformers import Seq2SeqTrainingArguments

from weftformer import WeftConfig, WeftForConditionalGeneration
from weftformer.conversion import SOURCES, export
from weftformer.hub import measured
from weftformer.hub.facts import written_facts
from weftformer.hub.trained import hardware, training_table
from weftformer.scripts import cli
from weftformer.training import WeftTrainer

from ..models import tiny_model

SMALL = "d_model=16,encoder_layers=1,decoder_layers=1,encoder_ffn_dim=16,decoder_ffn_dim=16"
QUICK = "--max-steps 2 --use-cpu true --disable-tqdm true --save-strategy no"


@pytest.fixture(autouse=True)
def datasets_cache(tmp_path, monkeypatch):
    monkeypatch.setattr(datasets_config, "HF_DATASETS_CACHE", tmp_path / "datasets-cache")


def test_weft_train_leaves_a_card(tmp_path):
    texts = [f"{a} {b}" for a in "abcdef" for b in "abcdef"]
    (tmp_path / "pairs.csv").write_text("source,target\n" + "".join(f"{text},{text}\n" for text in texts))
    words = f"train --train-file {tmp_path}/pairs.csv --output-dir {tmp_path}/model --learning-rate 0.002 {QUICK}"
    words += (
        f" --config-overrides {SMALL},encoder_attention_heads=2,decoder_attention_heads=2 --tokenizer-vocab-size 260"
    )
    words += " --validation-split 4"
    assert cli.main(words.split()) == 0
    card = ModelCard.load(tmp_path / "model" / "README.md")
    measures = {result.metric_type: result for result in card.data.eval_results}
    scores = json.loads((tmp_path / "model" / "eval_results.json").read_text())
    assert {"loss", "exact_match", "chrf"} <= set(measures)
    assert measures["chrf"].metric_value == pytest.approx(scores["eval_chrf"], abs=1e-6)
    assert measures["loss"].metric_value == pytest.approx(scores["eval_loss"], abs=1e-6)
    share = measures["exact_match"]
    assert share.metric_value == scores["eval_exact_match"] and share.metric_args["n"] == 4
    assert share.metric_args["low"] <= share.metric_value <= share.metric_args["high"] < 1
    assert "Data: `pairs.csv`." in card.text and str(tmp_path) not in str(card)
    assert "| highest learning rate | 0.002 |" in card.text and "| examples | 32 |" in card.text
    assert "`num_beams=1`" in card.text and "license" not in card.data.to_dict()


@pytest.mark.parametrize("kind", ["dms", "torch"])
def test_weft_convert_leaves_a_card_with_the_errors_of_its_source(kind, tmp_path):
    torch.manual_seed(0)
    if kind == "dms":
        widths = {
            "d_model": 16,
            "encoder_layers": 1,
            "decoder_layers": 1,
            "encoder_ffn_dim": 32,
            "decoder_ffn_dim": 32,
        }
        model = WeftForConditionalGeneration(WeftConfig.from_preset("dms-flash-10m", **widths))
        weights = export(model, SOURCES["dms"])
    else:
        weights = torch.nn.TransformerEncoder(
            torch.nn.TransformerEncoderLayer(16, 8), 1, enable_nested_tensor=False
        ).state_dict()
    torch.save(weights, tmp_path / "weights.pt")
    assert cli.main(["convert", str(tmp_path / "weights.pt"), str(tmp_path / "out"), "--heads", "8"]) == 0
    card = ModelCard.load(tmp_path / "out" / "README.md")
    for row in written_facts()["sources"][kind]["parity"]:
        assert f"| {' | '.join(row)} |\n" in card.text
    assert "was not compared with the original" in card.text and "license" not in card.data.to_dict()
    assert ("MIT licence" in card.text) == (kind == "dms") == ("@article{directmultistep" in card.text)
    assert 'from_pretrained("out"' in card.text
    assert ("These weights are random and need training before use: `model.encoder" in card.text) == (kind == "torch")


def test_an_adapter_has_the_card_of_its_own_library(tmp_path):
    lora = LoraConfig(r=2, target_modules=["q_proj"], task_type=TaskType.SEQ_2_SEQ_LM)
    args = Seq2SeqTrainingArguments(str(tmp_path), use_cpu=True, report_to=[])
    model = get_peft_model(tiny_model(), lora)
    trainer = WeftTrainer(model=model, args=args, train_dataset=[{"input_ids": [5], "labels": [5]}])
    trainer.create_model_card(model_name="mine")
    assert "generated automatically" in (tmp_path / "README.md").read_text()


def test_only_metrics_are_taken_from_an_evaluation():
    metrics = {
        "eval_loss": 1.23456789,
        "eval_bleu": 30.0,
        "eval_runtime": 3.0,
        "eval_gen_len": 4.0,
        "epoch": 1.0,
        "test_loss": 2.0,
    }
    loss, bleu = measured(metrics, "eval", "pairs", n=5, intervals={"bleu": (28.0, 32.0, "bootstrap")})
    assert (loss.value, loss.low, loss.split, loss.n) == (1.234568, None, "validation", 5)
    assert (bleu.name, bleu.shown_value, bleu.shown_interval) == ("BLEU", "30", "[28, 32], bootstrap")


def test_the_time_of_a_resumed_run_is_that_of_its_last_part(tmp_path):
    arguments = Seq2SeqTrainingArguments(output_dir=str(tmp_path), report_to="none", use_cpu=True)
    trainer = WeftTrainer(tiny_model(), arguments)
    trainer.state.log_history = [{"train_runtime": 60.0, "train_loss": 1.5, "step": 9}]
    for before, shown in ((0, "60 s"), (4, "60 s (steps 5 to 9)"), (9, "60 s")):
        trainer._initial_global_step, trainer.state.global_step = before, 9
        assert training_table(trainer, trainer.model)["time"] == shown
    trainer._initial_global_step = 4
    assert training_table(trainer, trainer.model)["training loss, mean"] == "1.5 (steps 5 to 9)"


def test_gpus_are_named(monkeypatch):
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "NVIDIA H100")
    for counts in ({"world_size": 2, "n_gpu": 1}, {"world_size": 1, "n_gpu": 2}):
        assert hardware(SimpleNamespace(device=torch.device("cuda"), **counts)) == "2 x NVIDIA H100"
