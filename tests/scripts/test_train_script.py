"""`weftformer train` from end to end, on texts to copy and models of a few thousand parameters."""

import json
import os
import random
import re
import shlex
import subprocess
import sys
from pathlib import Path

import datasets
import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer, TrainerCallback

from weftformer import WeftForConditionalGeneration
from weftformer.modeling.losses import cross_entropy
from weftformer.modeling.moe import Router
from weftformer.scripts import cli
from weftformer.scripts import train as script
from weftformer.tokenization import build_route_tokenizer
from weftformer.training import fit_pairs, parse_arguments
from weftformer.training import pairs as fitting

SIZE = {
    "d_model": 32, "encoder_layers": 1, "decoder_layers": 1, "encoder_attention_heads": 2, "decoder_attention_heads": 2,
    "encoder_ffn_dim": 64, "decoder_ffn_dim": 64,
}  # fmt: skip
SPARSE = {"decoder_mlp_layer_types": "sparse", "num_experts": 4, "router_bias_update_rate": 0.01}


@pytest.fixture(autouse=True)
def surroundings(tmp_path_factory, monkeypatch):
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path_factory.getbasetemp() / "datasets-cache")


@pytest.fixture(scope="module")
def pairs(tmp_path_factory):
    """Texts of two to five letters, to be copied; with their length."""
    draw = random.Random(0)
    texts = ["".join(draw.choice("abcd") for _ in range(draw.randint(2, 5))) for _ in range(256)]
    file = tmp_path_factory.mktemp("data") / "pairs.csv"
    file.write_text("source,target,length\n" + "".join(f"{text},{text},{len(text)}\n" for text in texts))
    return file


def _argv(pairs, output_dir, overrides=None, **arguments):
    arguments = {
        "train_file": pairs, "output_dir": output_dir, "config_overrides": json.dumps(SIZE | (overrides or {})),
        "tokenizer_vocab_size": 262, "learning_rate": 0.01, "disable_tqdm": True, "use_cpu": True,
        "validation_split": 0, "logging_steps": 1, "save_strategy": "no",
    } | arguments  # fmt: skip
    return [word for name, value in arguments.items() for word in (f"--{name}", str(value))]


def _train(*args, **kwargs):
    return fit_pairs(*parse_arguments(_argv(*args, **kwargs))).trainer


def _losses(trainer):
    return [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]


def _weights(folder):
    return load_file(os.path.join(folder, "model.safetensors"))


def _biases(folder):
    return torch.stack([value for name, value in _weights(folder).items() if name.endswith("selection_bias")])


@pytest.fixture(scope="module")
def trained(pairs, tmp_path_factory):
    """Folder, and what was printed, of a training by the command line's own entrance."""
    folder = tmp_path_factory.mktemp("trained") / "model"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path_factory.getbasetemp() / "datasets-cache")
        printed = []
        patch.setattr("builtins.print", lambda *words, **_: printed.append(" ".join(map(str, words))))
        argv = _argv(
            pairs, folder, validation_split=32, eval_on_start=True, max_steps=60, warmup_steps=5, test_file=pairs,
            max_eval_samples=8, eval_strategy="steps", eval_steps=30, save_strategy="steps", save_steps=30,
            generation_num_beams=2,
        )  # fmt: skip
        script.main(argv)
    return folder, "\n".join(printed)


def test_the_loss_falls_and_results_are_written(trained):
    folder, _ = trained
    history = json.loads((folder / "trainer_state.json").read_text())["log_history"]
    losses = [entry["eval_loss"] for entry in history if "eval_loss" in entry]
    assert len(losses) == 3
    assert losses[-1] < 0.6 * losses[0]
    results = json.loads((folder / "all_results.json").read_text())
    assert results["train_samples"] == 224 and results["eval_samples"] == results["test_samples"] == 8
    assert results["eval_loss"] == pytest.approx(losses[-1])
    assert {"eval_exact_match", "test_exact_match", "eval_gen_len"} <= set(results)
    assert len((folder / "generated_predictions.txt").read_text().splitlines()) == 8


def test_the_folder_loads_and_generates(trained):
    folder, _ = trained
    assert not (folder / ".saving").exists()
    model, tokenizer = AutoModelForSeq2SeqLM.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
    assert isinstance(model, WeftForConditionalGeneration)
    assert model.config.vocab_size == len(tokenizer)
    assert model.config.use_cache
    texts = ["abc", "da"]
    written = model.generate(**tokenizer(texts, return_tensors="pt", padding=True))
    assert written.shape[1] <= model.generation_config.max_length
    assert set("".join(tokenizer.batch_decode(written, skip_special_tokens=True))) <= set("abcd")
    generation = json.loads((folder / "generation_config.json").read_text())
    assert (generation["max_length"], generation["num_beams"]) == (7, 2)  # five letters, end, start
    assert (generation["eos_token_id"], generation["pad_token_id"], generation["decoder_start_token_id"]) == (2, 0, 1)
    assert "length_penalty" not in generation  # defaults stay defaults


def test_the_card_has_scores_with_their_intervals(trained):
    pytest.importorskip("sacrebleu")
    folder, _ = trained
    rows = [line for line in (folder / "README.md").read_text().splitlines() if line.startswith("| 8 ")]
    (chrf,) = [row for row in rows if "test pairs | chrF |" in row]
    score, low, high = map(float, re.search(r"\| ([\d.]+) \| \[([\d.]+), ([\d.]+)\], bootstrap \|", chrf).groups())
    assert 0 < low < score < high
    assert sum("Wilson" in row for row in rows) == 2


def test_what_is_printed_at_the_end_runs(trained, capsys):
    folder, printed = trained
    head, *lines = printed[printed.index("Saved in") :].splitlines()
    command, middle, *lines = lines
    assert head == f"Saved in {folder}. To use it:" and middle == "Or in Python:" and len(lines) == 2
    assert cli.main(shlex.split(command)[1:]) == 0
    written = capsys.readouterr().out
    exec("\n".join(line.strip() for line in lines), {})
    assert capsys.readouterr().out == f"{[written.removesuffix(chr(10))]}\n"


def test_a_source_that_looks_like_an_option_is_asked_as_a_source():
    command, *_ = script._how_to_use("runs/mine", "-5+3", 0, True).splitlines()[1:]
    words = shlex.split(command)[2:]
    assert cli.build_parser(["generate"])[1]["generate"].parse_args(words).texts == ["-5+3"]
    assert "weftformer generate" not in script._how_to_use("runs/mine", "-5+3", 0, False)


def test_an_output_dir_with_something_in_it(pairs, trained):
    with pytest.raises(ValueError, match="is not empty"):
        _train(pairs, trained[0], max_steps=1)


def test_resume_is_bit_identical(pairs, tmp_path):
    """Dropout, noisy routers and selection biases, from the middle of an epoch with accumulated batches."""
    whole = tmp_path / "whole"
    options = {
        "overrides": SPARSE | {"dropout": 0.2, "router_type": "noisy_top_k"},
        "max_steps": 8, "per_device_train_batch_size": 16, "gradient_accumulation_steps": 2, "save_strategy": "steps",
        "save_steps": 5, "validation_split": 16, "eval_strategy": "steps", "eval_steps": 5,
    }  # fmt: skip
    _train(pairs, whole, **options)
    part = tmp_path / "part"
    trainer = _train(pairs, part, **options, resume_from_checkpoint=whole / "checkpoint-5")
    assert [entry["step"] for entry in trainer.state.log_history if "loss" in entry][-1] == 8
    expected, found = _weights(whole), _weights(part)
    assert expected.keys() == found.keys()
    assert all(torch.equal(expected[name], found[name]) for name in expected)
    before = _weights(whole / "checkpoint-5")
    assert not any(
        torch.equal(before[name], value) for name, value in expected.items() if name.endswith("proj.weight")
    )
    with pytest.raises(ValueError, match=r"of another model: d_model \(32 there, 64 here\)"):
        _train(pairs, part, overrides={"d_model": 64}, resume_from_checkpoint=whole / "checkpoint-5")


def test_accumulated_batches_equal_one_large_batch(pairs, tmp_path, monkeypatch):
    """In 64 bits, where batches differ by the order of their sums alone; the Trainer adds up losses in 32 all the same."""
    build = fitting.build_model
    monkeypatch.setattr(fitting, "build_model", lambda *args: build(*args).double())
    options = {"overrides": {"dropout": 0.0}, "max_steps": 4, "optim": "sgd", "max_train_samples": 128}
    one = _train(pairs, tmp_path / "one", per_device_train_batch_size=32, **options)
    four = _train(pairs, tmp_path / "four", per_device_train_batch_size=8, gradient_accumulation_steps=4, **options)
    assert _losses(one) == pytest.approx(_losses(four), rel=5e-6)
    assert _losses(one)[0] > _losses(one)[-1]
    expected, found = _weights(tmp_path / "one"), _weights(tmp_path / "four")
    for name, weight in expected.items():
        assert weight.dtype == torch.float64
        torch.testing.assert_close(found[name], weight, atol=1e-10, rtol=1e-10, msg=name)


def test_selection_biases_move_once_an_optimizer_step(pairs, tmp_path, monkeypatch):
    loads = []
    original = Router.update_selection_bias

    def update(router):
        loads.append(router.expert_load.sum().item())
        original(router)

    monkeypatch.setattr(Router, "update_selection_bias", update)
    _train(
        pairs, tmp_path, overrides=SPARSE, max_steps=3, per_device_train_batch_size=8, gradient_accumulation_steps=4
    )
    assert len(loads) == 3
    # every load is that of four batches of 8: two experts for each of 3 to 6 labels
    assert all(4 * 8 * 3 * 2 < load < 4 * 8 * 6 * 2 for load in loads)
    moved = _biases(tmp_path) / SPARSE["router_bias_update_rate"]
    assert moved.abs().max() > 0
    assert torch.allclose(moved, moved.round(), atol=1e-4) and moved.abs().max() < 3.5


def test_label_smoothing_is_the_models_so_router_losses_stay(pairs, tmp_path):
    overrides = {"dropout": 0.0, "decoder_mlp_layer_types": "sparse", "num_experts": 4, "router_aux_loss_coef": 0.5}
    options = {"max_steps": 1, "max_train_samples": 16, "learning_rate": 0.0, "warmup_steps": 0}
    trainer = _train(pairs, tmp_path, overrides=overrides, label_smoothing_factor=0.2, **options)
    assert trainer.label_smoother is None and trainer.args.label_smoothing_factor == 0
    assert AutoModelForSeq2SeqLM.from_pretrained(tmp_path).config.label_smoothing == 0.2
    model = trainer.model.train()
    with torch.no_grad():
        batch = trainer.data_collator(list(trainer.train_dataset))
        output = model(**batch)
        smoothed = cross_entropy(output.logits, batch["labels"], 0.2)
    expected = smoothed + 0.5 * output.aux_loss + model.config.router_z_loss_coef * output.z_loss
    assert _losses(trainer) == pytest.approx([expected.item()], abs=1e-5)
    assert abs(expected - smoothed) > 0.1


def test_conditions_reach_the_model(pairs, tmp_path, monkeypatch):
    seen = []
    encoder = WeftForConditionalGeneration.get_encoder

    class Look(TrainerCallback):
        def on_train_begin(self, args, state, control, model=None, **kwargs):
            encoder(model).register_forward_pre_hook(
                lambda module, args, kwargs: seen.append(kwargs["condition_values"]), with_kwargs=True
            )

    build = fitting._build_trainer

    def built(*args):
        trainer = build(*args)
        trainer.add_callback(Look())
        return trainer

    monkeypatch.setattr(fitting, "_build_trainer", built)
    file = tmp_path / "pairs.csv"
    file.write_text("source,target,n,m\nab,ab,3,0.5\nab,ab,3,0.5\n")
    trainer = _train(file, tmp_path / "out", condition_columns="n,m", max_steps=1, eval_strategy="no", test_file=file)
    assert trainer.model.config.num_condition_features == 2
    # in training, and in both halves of the test: generation and loss
    assert len(seen) == 3 and all(values.tolist() == [[3.0, 0.5]] * 2 for values in seen)


def test_a_file_of_arguments_and_a_trained_model_to_go_on_from(pairs, trained, tmp_path):
    file = tmp_path / "run.yaml"
    file.write_text(f"""
train_file: {pairs}
model_name_or_path: {trained[0]}
output_dir: {tmp_path / "ignored"}
learning_rate: 1e-3
max_steps: 2
logging_steps: 1
save_strategy: no
use_cpu: true
validation_split: 0
disable_tqdm: true
config_overrides: {{dropout: 0.0}}
""")
    script.main([str(file), "--output-dir", str(tmp_path / "out")])
    assert not (tmp_path / "ignored").exists()
    state = json.loads((tmp_path / "out" / "trainer_state.json").read_text())
    assert state["global_step"] == 2 and state["log_history"][0]["loss"] < 3.0  # a fresh model begins above 5
    config = json.loads((tmp_path / "out" / "config.json").read_text())
    assert config["d_model"] == SIZE["d_model"] and config["dropout"] == 0.0


def test_routes_vocabulary_and_no_mask(tmp_path):
    file = tmp_path / "routes.tsv"
    file.write_text("source\ttarget\nCCO\t{'smiles':'CCO'}\nCC(=O)O\t{'smiles':'CC(=O)O'}\n")
    trainer = _train(file, tmp_path / "out", tokenizer="routes", max_steps=1, test_file=file)
    batch = trainer.data_collator(list(trainer.train_dataset))
    assert set(batch) == {"input_ids", "labels"}
    assert trainer.model.config.pad_token_id == 52
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "out")
    assert tokenizer.get_vocab() == build_route_tokenizer().get_vocab()
    results = json.loads((tmp_path / "out" / "all_results.json").read_text())
    assert "test_exact_match" in results and "test_bleu" not in results


def test_over_long_pairs_are_counted(pairs, tmp_path, caplog):
    with caplog.at_level("WARNING", logger="weftformer"):
        trainer = _train(pairs, tmp_path, max_steps=1, max_source_length=5)
    kept = len(trainer.train_dataset)
    assert 0 < kept < 256
    assert f"{256 - kept} of 256 pairs of train are left out" in caplog.text


def test_best_model_without_validation(pairs, tmp_path):
    with pytest.raises(ValueError, match="needs validation pairs"):
        _train(pairs, tmp_path, load_best_model_at_end=True, save_strategy="epoch")


@pytest.mark.slow
def test_two_processes_equal_one(pairs, tmp_path):
    """torchrun with gloo: same vocabulary, same losses and same selection biases as one process with the same batch."""
    options = {
        "overrides": SPARSE | {"dropout": 0.0}, "max_steps": 4, "optim": "sgd", "validation_split": 16,
        "exact_balance_loss": True,
    }  # fmt: skip
    one = _train(pairs, tmp_path / "one", per_device_train_batch_size=32, **options)
    argv = _argv(
        pairs, tmp_path / "two", per_device_train_batch_size=8, gradient_accumulation_steps=2, ddp_backend="gloo",
        **options,
    )  # fmt: skip
    command = [
        str(Path(sys.executable).with_name("torchrun")),
        "--nproc_per_node",
        "2",
        "-m",
        "weftformer.scripts.train",
    ]
    environment = os.environ | {"HF_DATASETS_CACHE": str(tmp_path / "cache")}
    run = subprocess.run([*command, *argv], capture_output=True, text=True, env=environment, cwd=tmp_path, timeout=300)
    assert run.returncode == 0, run.stderr[-3000:]
    assert run.stdout.count("Saved in") == 1
    state = json.loads((tmp_path / "two" / "trainer_state.json").read_text())
    losses = [entry["loss"] for entry in state["log_history"] if "loss" in entry]
    assert losses == pytest.approx(_losses(one), rel=2e-5)  # of 32 bits: 1e-6 was seen
    assert torch.equal(_biases(tmp_path / "one"), _biases(tmp_path / "two"))
    results = json.loads((tmp_path / "two" / "all_results.json").read_text())
    assert results["eval_samples"] == 16


def test_a_student_learns_from_a_teacher_in_its_vocabulary(trained, pairs, tmp_path):
    folder, _ = trained
    student = _train(pairs, tmp_path / "out", {"d_model": 16}, teacher=folder, distillation_alpha=1.0, max_steps=1)
    assert student.processing_class.get_vocab() == AutoTokenizer.from_pretrained(folder).get_vocab()
    assert student.distillation.alpha == 1.0 and student.distillation.temperature == 2.0
    assert (tmp_path / "out" / "model.safetensors").stat().st_size < (folder / "model.safetensors").stat().st_size
    with pytest.raises(ValueError, match=r"words that are not the 26\d of this model's tokenizer"):
        _train(pairs, tmp_path / "other", teacher=folder, tokenizer="bpe", tokenizer_vocab_size=264)
    with pytest.raises(ValueError, match="There is no tokenizer in"):
        _train(pairs, tmp_path / "other", teacher=tmp_path / "nothing")
    teacher = tmp_path / "out" / "checkpoint-1"
    teacher.mkdir(exist_ok=True)
    with pytest.raises(ValueError, match=r"would remove .*checkpoint-1, which training reads"):
        _train(pairs, tmp_path / "out", teacher=teacher, overwrite_output_dir=True)
