"""`weftformer train` from end to end, on texts to copy and models of a few thousand parameters."""

import csv
import io
import json
import random
import shlex
from contextlib import redirect_stdout
from html import unescape

import pytest
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer, TrainerCallback

from weftformer import WeftForConditionalGeneration
from weftformer.common.atomic import locked_folder
from weftformer.scripts import cli
from weftformer.scripts.train import how_to_use
from weftformer.training import DataArguments

from ..training import runs


@pytest.fixture(scope="module")
def pairs(tmp_path_factory):
    """Texts of two to five letters to copy, with their lengths."""
    draw = random.Random(0)
    texts = ["".join(draw.choice("abcd") for _ in range(draw.randint(2, 5))) for _ in range(256)]
    file = tmp_path_factory.mktemp("data") / "pairs.csv"
    file.write_text("source,target,length\n" + "".join(f"{text},{text},{len(text)}\n" for text in texts))
    return file


@pytest.fixture(scope="module")
def trained(pairs, tmp_path_factory):
    """The folder of a training that was started from the command line."""
    folder = tmp_path_factory.mktemp("trained") / "model"
    argv = runs.arguments(
        pairs, folder, validation_split=32, eval_on_start=True, max_steps=60, warmup_steps=5, test_file=pairs,
        max_eval_samples=8, eval_strategy="steps", eval_steps=30, save_strategy="steps", save_steps=30,
        generation_num_beams=2,
    )  # fmt: skip
    with redirect_stdout(io.StringIO()) as printed:
        assert cli.main(["train", *argv]) == 0
    (folder.parent / "printed.txt").write_text(printed.getvalue())
    return folder


def test_the_loss_falls_and_results_are_written(trained):
    history = json.loads((trained / "trainer_state.json").read_text())["log_history"]
    losses = [entry["eval_loss"] for entry in history if "eval_loss" in entry]
    assert len(losses) == 3
    assert losses[-1] < 0.6 * losses[0]
    results = json.loads((trained / "all_results.json").read_text())
    assert results["train_samples"] == 224 and results["eval_samples"] == results["test_samples"] == 8
    assert results["eval_loss"] == pytest.approx(losses[-1])
    assert {"eval_exact_match", "test_exact_match", "eval_gen_len"} <= set(results)
    assert len((trained / "generated_predictions.txt").read_text().splitlines()) == 8


def test_the_last_lines_and_the_report_are_of_the_validation_pairs(trained):
    with (trained / "validation_outputs.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    wrong = sum(row["is_right"] == "False" for row in rows)
    results = json.loads((trained / "all_results.json").read_text())
    assert len(rows) == 8 and results["eval_exact_match"] == 1 - wrong / 8
    printed = (trained.parent / "printed.txt").read_text()
    end = printed[printed.index("Exact match") :]
    distinct = {(row["source"], row["expected"], row["written"]) for row in rows if row["is_right"] == "False"}
    assert f" on 8 validation pairs: {wrong} are wrong" in end and end.count("\nsource ") == len(distinct)
    page = unescape((trained / "report.html").read_text("utf8"))
    advice = [line.strip() for line in end.splitlines() if line.startswith(("  weftformer train ", "The validation"))]
    assert len(advice) == 2 and "<br><code>".join(advice) in page
    assert "pairs.csv" in page and "224, with up to " in page and page.count("<polyline") >= 3


def test_printed_commands_do_what_they_say(trained, capsys):
    """The first is twice the training, in a new folder. The last writes a text."""
    printed = (trained.parent / "printed.txt").read_text()
    advised, use = (shlex.split(line)[1:] for line in printed.splitlines() if line.startswith("  weftformer "))
    assert "still falling. Train for longer:" in printed and advised.count("--output-dir") == 1
    assert cli.main(advised) == 0
    state = json.loads((trained.parent / "model-2" / "trainer_state.json").read_text())
    assert state["global_step"] == 120
    capsys.readouterr()
    assert cli.main(use) == 0 and set(capsys.readouterr().out.strip()) <= set("abcd")


def test_the_folder_loads_and_generates(trained):
    assert not (trained / ".saving").exists()
    model, tokenizer = AutoModelForSeq2SeqLM.from_pretrained(trained), AutoTokenizer.from_pretrained(trained)
    assert isinstance(model, WeftForConditionalGeneration)
    assert model.config.vocab_size == len(tokenizer)
    assert model.config.use_cache
    texts = ["abc", "da"]
    written = model.generate(**tokenizer(texts, return_tensors="pt", padding=True))
    assert written.shape[1] <= model.generation_config.max_length
    assert set("".join(tokenizer.batch_decode(written, skip_special_tokens=True))) <= set("abcd")
    generation = json.loads((trained / "generation_config.json").read_text())
    assert (generation["max_length"], generation["num_beams"]) == (29, 2)  # room beyond five letters and the end
    assert (generation["eos_token_id"], generation["pad_token_id"], generation["decoder_start_token_id"]) == (2, 0, 1)
    assert "length_penalty" not in generation  # defaults stay defaults


def test_a_file_is_scored_as_the_test_file_was(trained, pairs, tmp_path, capsys):
    results = json.loads((trained / "all_results.json").read_text())
    numbers = tmp_path / "numbers.json"
    words = ["evaluate", str(pairs), "--model", str(trained), "--limit", "8"]
    assert cli.main([*words, "--json", str(numbers)]) == 0
    printed, found = capsys.readouterr().out, json.loads(numbers.read_text())
    assert found["pairs"] == 8 and found["scores"]["exact_match"] == results["test_exact_match"]
    assert found["scores"].get("bleu") == pytest.approx(results.get("test_bleu"))
    assert printed.startswith(f"8 pairs of {pairs}\nexact_match ") and "Exact match " in printed
    routes = tmp_path / "routes.jsonl"
    routes.write_text('{"route": {"smiles": "CCO", "children": [{"smiles": "CC"}]}}\n')
    assert cli.main(["evaluate", str(routes), "--model", str(trained)]) == 1
    assert "`weftformer routes evaluate` scores them" in capsys.readouterr().err


def test_the_columns_are_those_of_the_training(trained, tmp_path, capsys):
    new = tmp_path / "new.csv"
    new.write_text("length,source\n2,ab\n")
    words = ["generate", "--model", str(trained), "--input-file", str(new), "--no-progress"]
    assert cli.main(words) == 0
    assert cli.main(["generate", "--model", str(trained), "ab"]) == 0
    first, second = capsys.readouterr().out.splitlines()
    assert first == second
    new.write_text("length,text\n2,ab\n")
    assert cli.main(words) == 1
    assert "has no column 'source': it has length, text." in capsys.readouterr().err
    assert cli.main([*words, "--source-column", "text"]) == 0 and capsys.readouterr().out == f"{first}\n"


def test_conditions_reach_the_model(pairs, tmp_path, capsys):
    seen = []
    encoder = WeftForConditionalGeneration.get_encoder

    class Look(TrainerCallback):
        def on_train_begin(self, args, state, control, model=None, **kwargs):
            encoder(model).register_forward_pre_hook(
                lambda module, args, kwargs: seen.append(kwargs["condition_values"]), with_kwargs=True
            )

    file = tmp_path / "pairs.csv"
    file.write_text("source,target,n,m\n" + "".join(f"a{letter},ab,3,0.5\n" for letter in "abcd"))
    settings = {"eval_strategy": "no", "validation_split": 2, "test_file": file}
    fitted = runs.fit(file, tmp_path / "out", condition_columns="n,m", max_steps=1, callbacks=[Look()], **settings)
    assert fitted.trainer.model.config.num_condition_features == 2
    # in training, and in both halves of the test: generation and loss; nothing is evaluated
    assert [values.tolist() for values in seen] == [[[3.0, 0.5]] * rows for rows in (2, 4, 4)]
    lines = how_to_use(str(tmp_path / "out"), "aa", DataArguments(str(file), condition_columns="n,m")).splitlines()
    assert cli.main(shlex.split(lines[1])[1:]) == 0 and capsys.readouterr().out


def test_a_folder_that_another_run_writes_to_is_refused(pairs, tmp_path):
    with locked_folder(tmp_path / "model"), pytest.raises(ValueError, match="Another run is writing"):
        runs.fit(pairs, tmp_path / "model")
