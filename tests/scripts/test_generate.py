"""`weftformer generate`: a line for each line, in order, whatever the lines contain and wherever a run was stopped."""

import csv
import gzip
import io
import json
import math
import sys
from pathlib import Path

import pytest
import torch

from weftformer.distributed import tasks
from weftformer.hub import loading
from weftformer.hub.loading import load_generator
from weftformer.inference import TextTask, lines
from weftformer.modeling.decoding import graph
from weftformer.modeling.decoding.compiled import compiled_folder, scalar_attrs
from weftformer.modeling.decoding.graph import GraphSearch
from weftformer.scripts import cli

from ..conftest import save_both
from ..models import run_loop, tiny_text_model

LINES = [
    "one two three", "", "two", "three one four one five nine two six", "  ", "six six", "nine five one", "two two",
]  # fmt: skip


def build(folder, **fields):
    model, tokenizer = tiny_text_model(
        ["one two three four five six nine"], max_source_positions=40, max_target_positions=12, **fields
    )
    model.generation_config.max_length = 9
    return save_both(folder, model, tokenizer)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return build(tmp_path_factory.mktemp("texts"))


@pytest.fixture(autouse=True)
def surroundings(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(lines, "_BATCHES", 2)  # several windows in a few lines


def run(folder, *words):
    return cli.main(["generate", "--model", folder, "--batch-size", "2", *map(str, words)])


@pytest.fixture(scope="module")
def alone(folder):
    """The texts for each line alone."""
    task = TextTask(*load_generator(folder, "texts"))
    inputs = [task.inputs([line], beams=2, max_new_tokens=8) for line in LINES]
    texts = [task.generate(input)[0][0].text for input in inputs]
    assert len(set(texts)) > 4, "the model is to tell the lines apart"
    return [" ".join(text.splitlines()) if line.strip() else "" for text, line in zip(texts, LINES, strict=True)]


def test_a_line_for_each_line_in_order(folder, alone, tmp_path):
    (tmp_path / "in.txt").write_bytes("\r\n".join(LINES).encode())  # no end after the last line
    assert run(folder, "--input-file", "in.txt", "--output-file", "out.txt", "--beams", 2) == 0
    assert (tmp_path / "out.txt").read_text().split("\n") == [*alone, ""]


def test_a_csv_has_probabilities_and_doubtful_rows_are_named(folder, alone, tmp_path, capsys):
    (tmp_path / "in.txt").write_text("\n".join(LINES) + "\n")
    words = ["--input-file", "in.txt", "--beams", 2]
    assert run(folder, *words, "--output-file", "out.csv") == 0
    with (tmp_path / "out.csv").open(newline="", encoding="utf8") as file:
        rows = list(csv.DictReader(file))
    assert [(row["source"], row["text"]) for row in rows] == list(zip(LINES, alone, strict=True))
    assert run(folder, *words, "--json-lines", "--output-file", "out.jsonl") == 0
    scores = [json.loads(line)["score"] for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    expected = ["" if score is None else f"{math.exp(score):.4f}" for score in scores]
    assert [row["probability"] for row in rows] == expected and expected.count("") == 2
    numbers = sorted((score, row) for row, score in enumerate(scores, 2) if score is not None)
    names = ", ".join(str(row) for _, row in numbers)
    message = f"probability below 50%: {len(numbers)} of {len(LINES)} texts, the lowest first: row {names}."
    assert capsys.readouterr().err.count(message) == 1  # the JSON lines have all scores


@pytest.mark.parametrize("name", ["", "-", "in.txt.gz", "in.CSV", "in.csv.zst", "in.ndjson"])
def test_every_source_of_lines_gives_the_same(name, folder, alone, monkeypatch, capsys):
    text = "\n".join(LINES) + "\n"
    if ".csv" in name.lower():
        text = "number,question\n" + "".join(f'{i},"{line}"\n' for i, line in enumerate(LINES))
    elif "json" in name:
        text = "".join(json.dumps({"question": line}) + "\n" for line in LINES)
    data = text.encode()
    if name.endswith(".zst"):
        data = pytest.importorskip("zstandard").compress(data)
    elif name.endswith(".gz"):
        data = gzip.compress(data)
    if name == "-":
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))
    elif name:
        Path(name).write_bytes(data)
    words = ["--input-file", name] if name else LINES
    column = ["--source-column", "question"] if ".csv" in name.lower() else []
    assert run(folder, *words, *column, "--beams", 2, "--no-progress") == 0
    out, err = capsys.readouterr()
    assert out.split("\n") == [*alone, ""] and "lines" not in err


def test_only_line_feeds_end_lines(folder, capsys):
    (file := io.BytesIO("one\x0btwo\u2028six\nnine\x85\n".encode())).seek(0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "stdin", io.TextIOWrapper(file))
        run(folder)
    assert capsys.readouterr().out.count("\n") == 2


@pytest.mark.parametrize("sampled", [True, False])
def test_an_interrupted_run_resumes_to_the_same(folder, tmp_path, monkeypatch, capsys, sampled):
    words = ["--json-lines", "--no-progress", *(["--sample", "--seed", 3] if sampled else ["--beams", 2])]
    (tmp_path / "in.txt").write_text("\n".join(LINES))
    assert run(folder, "--input-file", "in.txt", "--output-file", "whole.jsonl", *words) == 0
    answer, windows = tasks.answer_window, []

    def fail_later(task, items, *arguments):
        windows.append(items[0][0])
        if len(windows) == 2:
            raise RuntimeError("a fault")
        return answer(task, items, *arguments)

    monkeypatch.setattr(tasks, "answer_window", fail_later)
    words = ["--input-file", "in.txt", "--output-file", "out.jsonl", *words]
    with pytest.raises(RuntimeError):
        run(folder, *words)
    assert not (tmp_path / "out.jsonl").exists()
    assert run(folder, *words) == 1 and "--resume continues it" in capsys.readouterr().err
    assert run(folder, *words, "--resume", "--max-new-tokens", 3) == 1  # another run
    assert "was started with no --max-new-tokens" in capsys.readouterr().err
    assert run(folder, *words, "--resume") == 0 and windows == [0, 4, 4]  # not the first again
    assert (tmp_path / "out.jsonl").read_text() == (tmp_path / "whole.jsonl").read_text()
    assert not (tmp_path / "out.jsonl.parts").exists()
    assert run(folder, *words) == 1 and "out.jsonl exists: --resume continues" in capsys.readouterr().err


def test_scores_are_log_probabilities(folder, capsys):
    assert run(folder, "one two", "--json-lines", "--beams", 4, "--num-return-sequences", 4) == 0
    row = json.loads(capsys.readouterr().out)
    assert row["source"] == "one two" and row["text"] == row["candidates"][0]["text"]
    task = TextTask(*load_generator(folder, "texts"))
    inputs = {"input_ids": torch.tensor([task.encode("one two", None).ids])}
    with torch.no_grad():
        output = task.model.generate(
            **inputs, num_beams=4, num_return_sequences=4, max_new_tokens=8, max_length=None, length_penalty=0.0,
            return_dict_in_generate=True, output_scores=True,
        )  # fmt: skip
    log_ps = dict(zip(task.tokenizer.batch_decode(output.sequences, skip_special_tokens=True),
                      output.sequences_scores.tolist(), strict=True))  # fmt: skip
    candidates = [candidate for candidate in row["candidates"] if candidate["text"] in log_ps]
    both = [(candidate["score"], log_ps[candidate["text"]]) for candidate in candidates]
    assert both and all(score == pytest.approx(log_p, abs=1e-4) for score, log_p in both)


def test_weights_have_the_given_dtype(folder, monkeypatch, capsys):
    dtypes, move = [], loading.to_device
    monkeypatch.setattr(loading, "to_device", lambda model, *rest: dtypes.append(model.dtype) or move(model, *rest))
    for words in ([], ["--dtype", "bfloat16"]):
        assert run(folder, "one two", *words) == 0
    assert dtypes == [torch.float32, torch.bfloat16]


def test_samples_depend_on_the_seed(folder, capsys):
    def drawn(seed, *words):
        run(folder, *LINES, "--sample", "--seed", seed, *words)
        return capsys.readouterr().out

    assert drawn(1) == drawn(1) != drawn(2)
    assert drawn(1, "--top-k", 1) == drawn(2, "--top-k", 1)
    run(folder, "one two", "--sample", "--num-return-sequences", 5, "--json-lines")
    scores = [candidate["score"] for candidate in json.loads(capsys.readouterr().out)["candidates"]]
    assert len(scores) == 5 and scores == sorted(scores, reverse=True)


def test_a_too_long_line_is_reported_and_empty(folder, alone, capsys):
    assert run(folder, LINES[0], "one " * 60, LINES[2], "--beams", 2) == 1
    out, err = capsys.readouterr()
    assert out.split("\n") == [alone[0], "", alone[2], ""]
    assert "cannot read 1 of 3 lines" in err and "Line 2: text has" in err
    assert run(folder, "one " * 60, LINES[0], "--max-new-tokens", 2, "--json-lines") == 1
    out, err = capsys.readouterr()
    row, cut = map(json.loads, out.splitlines())  # an untrained model seldom ends by itself
    assert cut["is_cut"] and not row.get("is_cut") and "largest number of tokens: 1 of 2 texts" in err
    assert row["text"] == "" and row["score"] is None and "at most 40" in row["problem"]


def test_conditions_come_from_columns(tmp_path_factory, tmp_path, capsys):
    model = build(tmp_path_factory.mktemp("told"), num_condition_features=1)
    (tmp_path / "in.csv").write_text("source,length\none two,1\none two,90\n")
    assert run(model, "--input-file", "in.csv", "--condition-columns", "length") == 0
    first, second, _ = capsys.readouterr().out.split("\n")
    assert first != second
    (tmp_path / "bad.csv").write_text("source,length\none two,1\none two,\n")
    assert run(model, "--input-file", "bad.csv", "--condition-columns", "length") == 1
    assert "Row 3 of bad.csv has '' in condition column 'length'" in capsys.readouterr().err
    assert run(model, "--input-file", "in.csv") == 1
    assert "expects 1 conditions per text, got 0" in capsys.readouterr().err


def test_compiled_graphs_write_what_fits(folder, monkeypatch, capsys):
    def package(graphs, loop, is_single, compiles):
        # the model of `compile` has not been called yet, and that of `generate` has
        key = type(loop).__name__, is_single, scalar_attrs([loop])
        if compiles:
            compiled.append(key)
        return loop if key in compiled else None

    compiled, texts, write = [], [], GraphSearch.write
    monkeypatch.setattr(graph, "while_loop", run_loop)
    monkeypatch.setattr(GraphSearch, "_package", package)
    monkeypatch.setattr(
        GraphSearch, "write", lambda self, *arguments: texts.append(write(self, *arguments)) or texts[-1]
    )
    compiled_folder().mkdir()
    assert run(folder, "--beams", "1", "one two", "six") == 0
    assert not any(text is not None for text in texts)  # nothing is compiled
    expected = capsys.readouterr().out
    assert cli.main(["compile", folder, "--beams", "1"]) == 0
    assert capsys.readouterr().out == f"Greedy search is compiled: {compiled_folder()}\n"
    names = ("SourceGraph", "GreedyGraph")
    assert [key[:2] for key in compiled] == [(name, is_single) for is_single in (True, False) for name in names]
    assert run(folder, "--beams", "1", "one two", "six") == 0
    assert capsys.readouterr().out == expected and texts[-1] is not None
    num_written = len(texts)
    assert run(folder, "--beams", "2", "one two", "six") == 0 and len(texts) == num_written
    expected = capsys.readouterr().out
    assert cli.main(["compile", folder, "--beams", "2"]) == 0
    assert "Beam search with 2 beams is compiled" in capsys.readouterr().out
    assert compiled[-1][:2] == ("BeamGraph", False)
    assert run(folder, "--beams", "2", "one two", "six") == 0
    assert capsys.readouterr().out == expected and texts[-1] is not None
