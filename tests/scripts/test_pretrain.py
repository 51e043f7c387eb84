"""`weftformer pretrain` from end to end: texts become a folder that `weftformer train` goes on from."""

import gzip
import json
import random

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

from weftformer.scripts import cli
from weftformer.scripts.parsing import ArgumentParser, parse_arguments
from weftformer.tokenization import sentinel_ids
from weftformer.training import ModelArguments, PretrainingArguments, WeftPretrainingArguments, fit_pairs, fit_texts

SIZE = {
    "d_model": 16, "encoder_layers": 1, "decoder_layers": 1, "encoder_attention_heads": 2, "decoder_attention_heads": 2,
    "encoder_ffn_dim": 16, "decoder_ffn_dim": 16,
}  # fmt: skip


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    draw = random.Random(0)
    lines = [" ".join(draw.choice(["ab", "cd", "ef."]) for _ in range(draw.randint(4, 12))) for _ in range(60)]
    file = tmp_path_factory.mktemp("texts") / "corpus.txt.gz"
    with gzip.open(file, "wt", encoding="utf-8") as text:
        text.write("\n".join([*lines, "", "a"]) + "\n")
    return file


def argv(corpus, folder, overrides=None, **arguments):
    arguments = {
        "train_file": corpus, "output_dir": folder, "config_overrides": json.dumps(SIZE | (overrides or {})),
        "tokenizer_vocab_size": 265, "max_steps": 6, "disable_tqdm": True, "use_cpu": True, "logging_steps": 1,
        "save_strategy": "no", "per_device_train_batch_size": 16, "learning_rate": 0.01, "shuffle_buffer_size": 32,
    } | arguments  # fmt: skip
    return [word for name, value in arguments.items() if value is not None for word in (f"--{name}", str(value))]


def fit(*args, **kwargs):
    kinds = [ModelArguments, PretrainingArguments, WeftPretrainingArguments]
    return fit_texts(*ArgumentParser(kinds).parse(argv(*args, **kwargs)))


def losses(trainer):
    return [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]


def test_the_loss_falls_and_pairs_are_trained_from_the_folder(corpus, tmp_path, capsys):
    folder = tmp_path / "pretrained"
    assert cli.main(["pretrain", *argv(corpus, folder, max_steps=20, validation_file=corpus)]) == 0
    assert f"--model-name-or-path {folder}" in capsys.readouterr().out
    history = json.loads((folder / "trainer_state.json").read_text())["log_history"]
    found = [entry["loss"] for entry in history if "loss" in entry]
    assert len(found) == 20 and found[-1] < 0.8 * found[0]
    results = json.loads((folder / "all_results.json").read_text())
    assert results["eval_samples"] == 60 and results["eval_loss"] < found[0]
    assert "corpus.txt.gz" in (folder / "README.md").read_text()

    tokenizer, model = AutoTokenizer.from_pretrained(folder), AutoModelForSeq2SeqLM.from_pretrained(folder)
    assert model.config.vocab_size == len(tokenizer)
    assert len(sentinel_ids(tokenizer)) == 100
    pairs = tmp_path / "pairs.csv"
    pairs.write_text("source,target\n" + "ab cd,cd ab\n" * 8)
    words = [
        "--train-file", str(pairs), "--model-name-or-path", str(folder), "--output-dir", str(tmp_path / "tuned"),
        "--max-steps", "1", "--use-cpu", "--disable-tqdm", "true", "--validation-split", "0", "--save-strategy", "no",
        "--learning-rate", "1e-9",
    ]  # fmt: skip
    fit_pairs(*parse_arguments(words))
    before, after = (load_file(path / "model.safetensors") for path in (folder, tmp_path / "tuned"))
    assert before.keys() == after.keys()
    assert all(torch.allclose(before[name], after[name], atol=1e-6) for name in before)


def test_a_model_of_pairs_gets_rows_for_the_new_tokens(corpus, tmp_path):
    pairs = tmp_path / "pairs.csv"
    pairs.write_text("source,target\n" + "ab cd,cd ab\n" * 8)
    fit_pairs(*parse_arguments([
        "--train-file", str(pairs), "--output-dir", str(tmp_path / "first"), "--config-overrides", json.dumps(SIZE),
        "--max-steps", "1", "--use-cpu", "--disable-tqdm", "true", "--validation-split", "0", "--save-strategy", "no",
        "--tokenizer-vocab-size", "265",
    ]))  # fmt: skip
    old = AutoTokenizer.from_pretrained(tmp_path / "first")
    fit(corpus, tmp_path / "second", model_name_or_path=tmp_path / "first", config_overrides=None, max_steps=1)
    new = AutoTokenizer.from_pretrained(tmp_path / "second")
    model = AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "second")
    assert len(new) == len(old) + 100 == model.config.vocab_size == model.get_input_embeddings().num_embeddings


@pytest.mark.parametrize("batches", [{}, {"max_tokens_per_batch": 200}], ids=["rows", "tokens"])
def test_a_run_that_was_stopped_goes_on_as_if_it_were_not(corpus, tmp_path, caplog, batches):
    """More steps than the corpus has batches, so that it is read again."""
    settings = {"max_steps": 8, "save_strategy": "steps", "save_steps": 5, "lr_scheduler_type": "constant"} | batches
    whole = fit(corpus, tmp_path / "whole", **settings)
    fit(corpus, tmp_path / "parts", **(settings | {"max_steps": 5}))
    parts = fit(corpus, tmp_path / "parts", **settings, resume_from_checkpoint="true")
    assert losses(parts) == losses(whole)
    assert "no effect" not in caplog.text  # the size of the vocabulary had its effect when the run began
    one, two = (load_file(tmp_path / name / "model.safetensors") for name in ("whole", "parts"))
    assert all(torch.equal(one[name], two[name]) for name in one)


def test_checkpoints_and_evaluations_come_every_so_many_steps(corpus, tmp_path):
    """To the Trainer all steps of a stream are one epoch, at the end of which nothing is left to resume."""
    trainer = fit(corpus, tmp_path, save_strategy=None, save_steps=2, eval_steps=3, validation_file=corpus)
    assert trainer.args.save_strategy == trainer.args.eval_strategy == "steps"
    assert {path.name for path in tmp_path.glob("checkpoint-*")} == {"checkpoint-4", "checkpoint-6"}
    evaluated = [entry["step"] for entry in trainer.state.log_history if "eval_loss" in entry]
    assert evaluated == [3, 6, 6]  # and at the end
    with pytest.raises(ValueError, match=r"is of another model: .*d_model"):
        fit(corpus, tmp_path, {"d_model": 24}, resume_from_checkpoint="true")
    with pytest.raises(ValueError, match=r"is of another model: .*is_gated_act"):  # which no override names
        fit(corpus, tmp_path, preset="tiny", resume_from_checkpoint="true")


def test_what_cannot_be_is_refused(corpus, tmp_path):
    (tmp_path / "empty.txt").write_text("a\n\n")
    apart = {"decoder_vocab_size": 500, "share_encoder_decoder_embeddings": False, "tie_word_embeddings": False}
    for given, message in (
        ({"max_steps": -1}, "a stream of texts has no end, so give --max-steps"),
        ({"predict_with_generate": True}, "--predict-with-generate"),
        ({"train_file": tmp_path / "none.txt"}, r"none\.txt does not exist"),
        ({"train_file": tmp_path / "empty.txt"}, r"nothing to train on: it has no rows, or all are left out"),
        ({"overrides": apart}, "have a vocabulary each"),
    ):
        with pytest.raises((ValueError, FileNotFoundError), match=message):
            fit(corpus, tmp_path / "out", **given)
