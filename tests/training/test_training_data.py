"""Every format of pairs gives the same rows, and errors name the file."""

import gzip
import json
import logging
import shutil

import pytest
from datasets import Dataset

from weftformer import WeftConfig
from weftformer.tokenization import train_tokenizer
from weftformer.training import DataArguments
from weftformer.training.encoding import Columns
from weftformer.training.files import load_file, load_file_stream
from weftformer.training.pairs import Pairs, split_validation
from weftformer.training.sources import TrainedSources, source_key

# looks like numbers, nothing and a quotation to a reader that guesses
ROWS = [("007", "NA", "1"), ('he "said', "null", "2.5"), ("a, b", "ü 漢", "-3")]
COLUMNS = ("source", "target", "n")


def _text(lines, encoding="utf-8"):
    return lambda path: path.write_text("".join(f"{line}\n" for line in lines), encoding=encoding)


def _quoted(row):
    return ",".join(f'"{cell.replace(chr(34), chr(34) * 2)}"' for cell in row)


OBJECTS = [{"source": s, "target": t, "n": float(n)} for s, t, n in ROWS]
WRITERS = {
    ".csv": _text(map(_quoted, (COLUMNS, *ROWS)), "utf-8-sig"),
    ".tsv": _text(map("\t".join, (COLUMNS, *ROWS))),
    ".txt": _text("\t".join(row[:2]) for row in ROWS),
    ".jsonl": _text(map(json.dumps, OBJECTS)),
    ".json": _text([json.dumps(OBJECTS)]),
    ".parquet": lambda path: Dataset.from_list(OBJECTS).to_parquet(str(path)),
}


@pytest.mark.parametrize("suffix", WRITERS)
def test_each_format(tmp_path, suffix):
    path = tmp_path / f"pairs{suffix}"
    WRITERS[suffix](path)
    if suffix in (".csv", ".txt", ".jsonl"):
        with open(path, "rb") as plain, gzip.open(f"{path}.gz", "wb") as packed:
            shutil.copyfileobj(plain, packed)
        path = f"{path}.gz"
    dataset = load_file(str(path))
    assert dataset["source"][:] == [row[0] for row in ROWS]
    assert dataset["target"][:] == [row[1] for row in ROWS]
    if "n" in dataset.column_names:
        assert [float(value) for value in dataset["n"]] == [1.0, 2.5, -3.0]


def test_two_files_line_by_line(tmp_path):
    """A byte order mark is no text."""
    source, target = tmp_path / "a.en", tmp_path / "a.de.gz"
    source.write_text("one\n\nthree", encoding="utf-8-sig")
    with gzip.open(target, "wt", encoding="utf-8") as file:
        file.write("eins\nzwei\ndrei\n")
    dataset = load_file(str(source), str(target))
    assert dataset[:] == {"source": ["one", "", "three"], "target": ["eins", "zwei", "drei"]}
    source.write_text("1\n2\n")
    with pytest.raises(ValueError, match=r"a\.en has 2 lines and .*a\.de\.gz has 3"):
        load_file(str(source), str(target))


def test_a_table_without_header(tmp_path):
    path = tmp_path / "a.tsv"
    path.write_text("x\ty\t1\nz\tw\t2\n")
    found = load_file(str(path), no_header=True)[:]
    assert found == {"source": ["x", "z"], "target": ["y", "w"], "column_3": ["1", "2"]}


def test_a_folder_or_hub_data_set(tmp_path):
    for name in ("train", "valid", "test"):
        (tmp_path / f"{name}.csv").write_text(f"en,de\n{name},x\n")
    pairs = Pairs(DataArguments(dataset_name=str(tmp_path)))
    assert pairs.columns == Columns("en", "de") and pairs.train["en"][:] == ["train"]
    held_out = {split: rows["en"][:] for split, rows in pairs.held_out.items()}
    assert held_out == {"validation": ["valid"], "test": ["test"]}


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({}, Columns("source", "target")),
        ({"source_column": "x"}, Columns("x", "target")),
        ({"target_column": "source", "condition_columns": "n, target"}, Columns("x", "source", ("n", "target"))),
        ({"condition_columns": "x, n"}, Columns("source", "target", ("x", "n"))),
        ({"condition_columns": "source, n"}, Columns("x", "target", ("source", "n"))),
    ],
)
def test_which_columns(tmp_path, arguments, expected):
    path = tmp_path / "a.csv"
    path.write_text("x,source,n,target\n1,a,2,b\n")
    assert Pairs(DataArguments(train_file=str(path), **arguments)).columns == expected


def _splits(texts, conditions=(), **splits):
    keys = {
        name: [source_key(text, conditions) for text in rows] for name, rows in ({"train": texts} | splits).items()
    }
    return {name: Dataset.from_dict({"source_key": numbers, "n": numbers}) for name, numbers in keys.items()}


def _split(splits, trained=None, **arguments):
    return split_validation(splits, DataArguments("a", **arguments), trained or TrainedSources())[0]


def test_samples_and_validation_split():
    texts = [f"{n}" for n in range(20)]
    _split(splits := _splits(texts), validation_split=0.25, max_eval_samples=3)
    assert {name: len(rows) for name, rows in splits.items()} == {"train": 15, "validation": 3}
    assert not set(splits["train"]["n"]) & set(splits["validation"]["n"])
    assert splits["train"].column_names == ["n"]
    _split(splits := _splits(texts), validation_split=7)
    assert {name: len(rows) for name, rows in splits.items()} == {"train": 13, "validation": 7}
    with pytest.raises(ValueError, match="would take 20 of 13 training pairs"):
        _split(_splits(texts[:13]), validation_split=20)
    _split(splits := _splits(texts), validation_split=0)
    assert set(splits) == {"train"}


@pytest.mark.parametrize(("rows", "expected"), [(3, 1), (100, 20), (249, 49), (300, 50), (2000, 100)])
def test_small_sets_keep_enough_pairs_to_score(rows, expected):
    _split(splits := _splits([f"{n}" for n in range(rows)]))
    assert (len(splits["validation"]), len(splits["train"])) == (expected, rows - expected)


def test_equal_sources_are_on_one_side():
    """Ten sources, each three times. White space does not count."""
    _split(splits := _splits([f"{n}{end}" for end in ("", " ", "\t") for n in range(10)]), validation_split=7)
    train, held = (set(splits[name]["n"]) for name in ("train", "validation"))
    assert len(splits["validation"]) == 6 and len(held) == 2 and len(train) == 8 and not train & held
    with pytest.raises(ValueError, match="All training pairs have the same source"):
        _split(_splits(["a"] * 4), validation_split=2)


@pytest.mark.parametrize(
    ("mark", "encoding", "read_as"),
    [(",", "utf-8", None), (";", "cp1252", "cp1252"), ("|", "utf-16-le", None), ("\t", "latin-1", "latin-1")],
)
def test_what_spreadsheets_write(tmp_path, caplog, mark, encoding, read_as):
    path = tmp_path / "a.csv"
    # \x81 is no letter of cp1252
    rows = [("a, b; c", "Grüße"), ("café", "x\x81" if encoding == "latin-1" else "x"), ("\t|", "1,5")]
    quoted = [mark.join(f'"{cell}"' for cell in row) for row in (("raw title", "clean"), *rows)]
    path.write_bytes("\r\n".join(quoted).encode(encoding))
    pairs = Pairs(DataArguments(train_file=str(path)))
    assert pairs.columns == Columns("raw title", "clean")
    assert list(zip(pairs.train["raw title"], pairs.train["clean"], strict=True)) == rows
    assert (f"is not UTF-8 and is read as {read_as}" in caplog.text) == (read_as is not None)


@pytest.mark.parametrize(
    ("name", "content", "arguments", "message"),
    [
        ("a.csv", "x,y\n1,2\n", {"source_column": "z"}, "a.csv has no column 'z'; it has 'x', 'y'"),
        ("a.csv", "id,a b,c\n1,2,3\n", {}, "for example --source-column 'a b' --target-column c."),
        ("a.csv", "x,y\n", {}, "a.csv has no training pairs"),
        (
            "a.csv",
            "x,y\n\na,b,c\n",
            {},
            "a.csv: row 3 has 3 cells, and row 1 has 2. Put texts that contain a comma in",
        ),
        ("a.csv", 'x,y\n1,"a\nb"\n\n1,2\na,b,c\n', {}, "a.csv: row 5 has 3 cells, and row 1 has 2."),
        ("a.csv", "1,2\na,b,c\n", {"no_header": True}, "a.csv: row 2 has 3 cells, and row 1 has 2."),
        ("a.tsv", "x\ty\n1\t2\t\n", {}, "a.tsv: row 2 has 3 cells, and row 1 has 2."),
        ("a.csv", 'x,y\n1,2\n"1,2\n', {}, "a.csv cannot be read as csv"),
        ("a.txt", "only a source\n", {}, "by a tab"),
        ("a.doc", "x", {}, "has no known file extension"),
        ("a.csv", "x,y\n1,2\n", {"validation_file": "b.csv"}, "b.csv does not exist. Did you mean `a.csv`"),
    ],
)
def test_messages_about_files(tmp_path, monkeypatch, caplog, name, content, arguments, message):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(logging.getLogger("datasets"), "propagate", True)
    (tmp_path / name).write_text(content)
    with pytest.raises((ValueError, FileNotFoundError)) as raised:
        Pairs(DataArguments(train_file=name, **arguments))
    assert message in str(raised.value) and not caplog.records


@pytest.mark.parametrize(
    ("name", "text", "arguments", "row"),
    [
        ("a.csv", 'x,y\n1,"a\nb"\n\n1,\n\n', {}, 4),  # a cell of two lines, and blank lines
        ("a.csv", '1,"a\nb"\n\n1,\n', {"no_header": True}, 3),
        ("a.tsv", "x\ty\n1\t2\n1\t\n", {}, 3),
        ("a.txt", "1\t2\n\n1\t\n", {}, 3),
        ("a.jsonl", '{"x": "1", "y": "2"}\n{"x": "1", "y": ""}\n', {}, 2),
        ("a.csv", "1\n2\n", {"train_target_file": "b.txt"}, 2),
    ],
)
def test_rows_have_the_numbers_of_a_spreadsheet(tmp_path, caplog, name, text, arguments, row):
    (tmp_path / name).write_text(text)
    (tmp_path / "b.txt").write_text("1\n\n")
    if "train_target_file" in arguments:
        arguments = {"train_target_file": str(tmp_path / "b.txt")}
    pairs = Pairs(DataArguments(str(tmp_path / name), validation_split=0, **arguments))
    data = pairs.encode(train_tokenizer(["12ab"], vocab_size=263), WeftConfig())
    assert len(data["train"]) == 1 and f"1 with an empty text (row {row})." in caplog.text
    assert "Skipped: 1 of 2 pairs" in caplog.text and not pairs.contradictions


def test_limits_are_those_of_the_arguments_or_the_model(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("x,y\n1,2\n")
    pairs = Pairs(DataArguments(train_file=str(path), max_source_length=2000))
    assert pairs.limits(WeftConfig(max_target_positions=77)) == (2000, 77)
    with pytest.raises(ValueError, match=r"max_source_length=2000 is more than .*max_source_positions=1024"):
        pairs.limits(WeftConfig(position_embedding_type="learned"))


def test_numbers_of_json_stay_as_written(tmp_path):
    rows = [("9007199254740993", "1e5"), ("1.50", "3.10"), ("null", "-0")]
    lines = [f'{{"source": {source}, "pair": {{"n": {n}}}, "target": "x"}}' for source, n in rows]
    for name, text in (("a.jsonl", "\n".join(lines)), ("a.json", f"[{','.join(lines)}]")):
        (tmp_path / name).write_text(text)
        loaded = load_file(str(tmp_path / name))
        assert loaded.column_names == ["source", "pair.n", "target"]
        assert loaded["pair.n"][:] == [n for _, n in rows]
        assert loaded["source"][:2] == ["9007199254740993", "1.50"] and loaded["source"][2] is None


@pytest.mark.parametrize("name", ["a.jsonl.gz", "a.csv.gz", "a.csv.zst", "a.jsonl.zst", "a.parquet"])
def test_damaged_file_is_refused_by_name(tmp_path, name):
    pytest.importorskip("zstandard")
    (tmp_path / name).write_bytes(gzip.compress(b"x" * 999)[:12] if name.endswith("gz") else b"\x28\xb5\x2f\xfdxxxxxx")
    with pytest.raises(ValueError, match=name):
        load_file(str(tmp_path / name))


@pytest.mark.parametrize("load", [load_file, load_file_stream])
@pytest.mark.parametrize(("start", "end"), [("[", "]"), ('{"a": ', "}")])
def test_deep_lines_of_json_are_refused(tmp_path, load, start, end):
    text = '{"source": "[{", "target": "b", "other": %s}\n'
    (tmp_path / "a.jsonl.gz").write_bytes(
        gzip.compress((text % 1 + text % (start * 50_000 + "1" + end * 50_000)).encode())
    )
    with pytest.raises(ValueError, match=r"a\.jsonl\.gz, line 2: nested too deeply"):
        load(str(tmp_path / "a.jsonl.gz"))
