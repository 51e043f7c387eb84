"""A pair that a model was trained on never validates it or its descendants."""

import json
import random

import pytest

from weftformer import WeftConfig
from weftformer.scripts import cli
from weftformer.scripts.parsing import parse_arguments
from weftformer.tokenization import build_route_tokenizer, train_tokenizer
from weftformer.training import DataArguments, WeftTrainer, WeftTrainingArguments, fit_pairs
from weftformer.training.pairs import Pairs
from weftformer.training.sources import TrainedSources

from . import runs

TEXTS = [f"{n:03}" for n in range(400)]


@pytest.fixture
def run(tmp_path):
    """Return a function that trains, as far as the pairs are concerned: from a model, or a new one, to a model."""

    def train(parent, name, texts, validation=(), test=(), **arguments):
        for split, rows in (("train", texts), ("validation", validation), ("test", test)):
            if rows:
                file = tmp_path / f"{name}-{split}.csv"
                file.write_text("source,target\n" + "".join(f"{text},x\n" for text in rows))
                arguments[f"{split}_file"] = str(file)
        pairs = Pairs(DataArguments(**arguments))
        tokenizer = train_tokenizer(["0123456789x"], vocab_size=270)
        data = pairs.encode(tokenizer, WeftConfig(), trained=TrainedSources.load(parent))
        pairs.trained.save(tokenizer)
        tokenizer.save_pretrained(tmp_path / name)

        def sources(rows):
            return tokenizer.batch_decode([row["input_ids"] for row in rows], skip_special_tokens=True)

        if arguments.get("streaming"):  # which has no end
            data["train"] = [row for _, batch in zip(texts, data["train"], strict=False) for row in batch]
        return str(tmp_path / name), {split: sources(rows) for split, rows in data.items()}, pairs.notes

    return train


def test_no_descendant_is_validated_by_what_its_ancestors_were_trained_on(run):
    """Whatever the order, the rows that are added or removed, their number, or the files."""
    draw = random.Random(0)
    changes = [
        {"validation_split": 80}, {"validation_split": 0.3}, {}, {"max_eval_samples": 5}, {"max_train_samples": 100},
        {"validation": TEXTS[100:300]}, {"streaming": True, "validation": TEXTS[50:120]}, {"validation_split": 3},
    ]  # fmt: skip
    for attempt in range(3):
        parent, trained = None, set()
        for number, change in enumerate(draw.sample(changes[:-2], 4)):
            texts = draw.sample(TEXTS[: draw.choice([200, 300, 400])], 150)
            parent, data, notes = run(parent, f"{attempt}-{number}", texts, **change)
            trained |= set(data["train"])
            assert not trained & set(data.get("validation", ())) and notes == []


def test_the_same_pairs_validate_again(run):
    parent, first, _ = run(None, "a", TEXTS[:200])
    assert len(first["validation"]) == 40
    for name, texts in (("b", TEXTS[:200][::-1]), ("c", [f" {text} " for text in TEXTS[:200]])):
        assert set(map(str.strip, run(parent, name, texts)[1]["validation"])) == set(first["validation"])
        assert set(map(str.strip, run(None, name, texts)[1]["validation"])) == set(first["validation"])


def test_nothing_validates_if_all_was_trained_on(run, caplog):
    parent, _, _ = run(None, "a", TEXTS[:50], validation_split=0)
    assert "validation" not in run(parent, "b", TEXTS[:50])[1] and "Nothing is evaluated" in caplog.text
    caplog.clear()
    assert "validation" not in run(parent, "c", TEXTS[50:99], TEXTS[:50])[1]
    assert "Left out: 50 of 50 validation pairs" in caplog.text and "Nothing is evaluated" in caplog.text
    _, data, notes = run(parent, "d", TEXTS[50:99], TEXTS[40:60] + TEXTS[200:210], [*TEXTS[45:55], "x"])
    assert data["validation"] == TEXTS[200:210] and notes == [
        "The model was trained on the sources of 10 of 11 test pairs: their scores do not show how well it does "
        "on new texts."
    ]


def test_what_is_not_known_is_said(run, tmp_path):
    """Of a model without a record, and of one that was trained on a stream, except for pairs that it did not read."""
    train_tokenizer(["a"], vocab_size=270).save_pretrained(tmp_path / "old")
    parent, data, notes = run(str(tmp_path / "old"), "a", TEXTS[:100])
    assert len(data["validation"]) == 20 and "20 of 20 validation pairs may be among them" in notes[0]
    assert run(parent, "b", TEXTS[100:200])[2] and run(parent, "c", TEXTS[:100])[2]
    parent, data, notes = run(None, "stream", TEXTS, streaming=True, validation=TEXTS[:30])
    assert len(data["validation"]) == 30 and not set(data["train"]) & set(data["validation"]) and notes == []
    _, data, notes = run(parent, "d", TEXTS[:200])
    assert set(TEXTS[:30]) < set(data["validation"]) and "10 of 40 validation pairs may be" in notes[0]
    assert run(parent, "e", TEXTS, streaming=True, validation=TEXTS[:30])[2] == []


def test_another_training_removes_the_record(tmp_path):
    tokenizer = build_route_tokenizer()
    TrainedSources().save(tokenizer)
    WeftTrainer(runs.build(), WeftTrainingArguments(str(tmp_path / "a"), use_cpu=True), processing_class=tokenizer)
    tokenizer.save_pretrained(tmp_path)
    assert not TrainedSources.load(str(tmp_path)).is_complete


def test_a_damaged_record_is_refused_by_name(tmp_path):
    train_tokenizer(["a"], vocab_size=270).save_pretrained(tmp_path)
    file = tmp_path / "tokenizer_config.json"
    settings = json.loads(file.read_text())
    for record in ("x", {"keys": "AAA", "untrained": "", "is_complete": True}, {"keys": "A" * 6}):
        file.write_text(json.dumps(settings | {"trained_sources": record}))
        with pytest.raises(ValueError, match=f"{tmp_path}.*damaged"):
            TrainedSources.load(str(tmp_path))


def test_trainings_keep_the_sources_in_model_and_checkpoints(tmp_path, capsys):
    """With other seeds, rows and orders, from the model or a checkpoint, or resumed; scripts read the record."""

    def train(name, rows, **further):
        draw = random.Random(name)
        file = tmp_path / "pairs.csv"
        texts = draw.sample(rows, len(rows))
        file.write_text("source,target\n" + "".join(f"{text},x\n" for text in texts))
        arguments = {
            "train_file": file, "output_dir": tmp_path / name, "use_cpu": True, "disable_tqdm": True, "max_steps": 2,
            "save_strategy": "steps", "save_steps": 1, "seed": draw.randint(0, 99),
            "generation_max_length": 4,
        } | further  # fmt: skip
        fitted = fit_pairs(*parse_arguments([w for key, v in arguments.items() for w in (f"--{key}", str(v))]))
        held_out = {row.source for row in fitted.report.rows}
        return set(rows) - held_out, held_out, fitted.report

    trained, held_out, report = train(
        "a", TEXTS[:60], config_overrides=json.dumps(runs.SIZE), tokenizer_vocab_size=270, max_steps=1
    )
    assert len(held_out) == 12 and not report.notes
    for name, rows, further in (
        ("b", TEXTS[:60], {"model_name_or_path": tmp_path / "a"}),
        ("c", TEXTS[:90], {"model_name_or_path": tmp_path / "a" / "checkpoint-1"}),
        ("a", TEXTS[:90], {"resume_from_checkpoint": "true", "config_overrides": json.dumps(runs.SIZE)}),
    ):
        validation = train(name, rows, **further)[1]
        assert validation and not validation & trained
    assert cli.main(["upcycle", str(tmp_path / "a"), str(tmp_path / "sparse")]) == 0
    assert set(TrainedSources.load(str(tmp_path / "sparse")).keys) == set(
        TrainedSources.load(str(tmp_path / "a")).keys
    )
    capsys.readouterr()
    assert cli.main(["evaluate", str(tmp_path / "pairs.csv"), "--model", str(tmp_path / "sparse")]) == 0
    assert f"\nThe model was trained on the sources of {90 - len(validation)} of 90 pairs:" in capsys.readouterr().out
    (tmp_path / "a" / "tokenizer_config.json").write_text(
        json.dumps(json.loads((tmp_path / "a" / "tokenizer_config.json").read_text()) | {"trained_sources": None})
    )
    report = train("d", TEXTS[:60], model_name_or_path=tmp_path / "a")[2]
    texts = str(report), (tmp_path / "d" / "README.md").read_text(), (tmp_path / "d" / "report.html").read_text()
    assert all("12 of 12 validation pairs may be among them" in text for text in texts)
