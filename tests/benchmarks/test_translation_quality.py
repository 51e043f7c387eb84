"""BLEU of one model in every way to run it: rows, their order, and what their figures mean."""

import json
from importlib.util import find_spec

import pytest
import torch

from weftformer.benchmarks import translation_quality as benchmark
from weftformer.scripts.cli import run_script
from weftformer.tokenization import train_tokenizer

from .test_translation import PRE_NORM, SINES, TEXTS, built

pytest.importorskip("sacrebleu")


@pytest.fixture
def files(tmp_path):
    tokenizer = train_tokenizer(TEXTS, vocab_size=269)
    model = built(vocab_size=len(tokenizer), lm_head_bias=True, **PRE_NORM, **SINES)
    model.lm_head.bias.data[tokenizer.eos_token_id] += 5.0  # so that some searches end
    for part in (model, tokenizer):
        part.save_pretrained(tmp_path / "model")
    pairs = tmp_path / "pairs.jsonl"
    rows = [{"source": text, "target": text[::-1]} for text in TEXTS]
    pairs.write_text("\n".join(map(json.dumps, rows)) + "\n")
    return str(tmp_path / "model"), str(pairs)


@pytest.mark.integration  # ONNX takes long to export
def test_every_way_that_is_exact_writes_the_same_texts(files, tmp_path, capsys):
    model, pairs = files
    figures = tmp_path / "figures.json"
    words = ["--model", model, "--pairs", pairs, "--new-tokens", "12", "--batch", "2", "--threads", "1",
             "--json", str(figures)]  # fmt: skip
    assert run_script("quality", benchmark.main, words) == 0
    cases = json.loads(figures.read_text())["cases"]
    greedy, beams = ([row["name"] for row in cases[name]] for name in ("greedy", "5 beams"))
    assert greedy[:3] == ["Pegasus (transformers)", "Weft, plain path", "Weft"] and "Weft, bfloat16" in greedy
    assert ("CTranslate2, int8" in beams) == (find_spec("ctranslate2") is not None)
    assert "ONNX" not in beams and ("ONNX" in greedy) == (find_spec("onnxscript") is not None)
    for rows in cases.values():
        rounded = ("bfloat16", "int8")
        assert all(row["same"] == 1 for row in rows if not row["name"].endswith(rounded)), rows
    table = capsys.readouterr().out.strip().splitlines()[-2 - len(greedy) :]
    assert table[0] == "| way to run | BLEU, greedy | same texts | BLEU, 5 beams | same texts |"
    assert {line.count("|") for line in table} == {6}


def test_figures_are_those_of_the_texts(files, monkeypatch):
    model, pairs = files
    case = benchmark.QualityCase("a case", model=model, pairs=pairs, limit=3)
    assert [source for source, _ in case.rows] == sorted(TEXTS[:3], key=len)
    references = [target for _, target in case.rows]
    ids = [case.task.tokenizer(text, add_special_tokens=False)["input_ids"] for text in references]
    other = [ids[0], ids[1], ids[0]]
    contenders = [benchmark.Contender(name, lambda found=found: found) for name, found in (("a", ids), ("b", other))]
    monkeypatch.setattr(benchmark.QualityCase, "contenders", lambda self, compiled: iter(contenders))
    first, second = benchmark.quality_rows(case)
    assert first["bleu"] == pytest.approx(100) and first["same"] == 1
    assert second["bleu"] < 90 and second["same"] == pytest.approx(2 / 3)


def test_bfloat16_leaves_the_model_of_the_other_ways_alone(files):
    model, pairs = files
    case = benchmark.QualityCase("a case", model=model, pairs=pairs, new_tokens=4)
    contender = next(one for one in case.contenders(compiled=False) if one.name == "Weft, bfloat16")
    assert len(contender.run()) == len(TEXTS)
    assert case.task.model.dtype == torch.float32


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--beams", "0"], "--beams must be at least 1: got 0"),
        (["--limit", "0"], "--limit must be at least 1: got 0"),
        (["--pairs", "none.jsonl"], "none.jsonl"),
        (["--json", "no/such/folder/x.json"], "there is no folder no/such/folder"),
    ],
)
def test_mistakes_are_named(words, message, files, capsys):
    model, pairs = files
    assert run_script("quality", benchmark.main, ["--model", model, "--pairs", pairs, "--threads", "1", *words]) == 1
    assert message in capsys.readouterr().err
