"""No packed file fills the memory, whatever reads it, and no file of data is refused."""

import bz2
import gzip
import io
import lzma
import os
import random
import zipfile
from argparse import Namespace
from concurrent.futures import ThreadPoolExecutor

import pytest

from weftformer.common.packed import VARIABLE, most_text
from weftformer.scripts import generate
from weftformer.training.files import load_file, load_file_stream

SIZE = 3 << 20


def zipped(data: bytes) -> bytes:
    with zipfile.ZipFile(archive := io.BytesIO(), "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("a.txt", data)
    return archive.getvalue()


def zstandard(data: bytes) -> bytes:
    return pytest.importorskip("zstandard").compress(data)


def lines_of(path):
    return list(generate.read(Namespace(texts=[], input_file=str(path), source_column=None, condition_columns=None)))


ANY = [lines_of, lambda path: load_file(str(path)), lambda path: load_file_stream(str(path))]
PACKED = {".gz": gzip.compress, ".zst": zstandard, ".xz": lzma.compress, ".bz2": bz2.compress, ".zip": zipped}


@pytest.mark.parametrize(
    ("read", "ending"),
    [(read, end) for read in ANY for end in PACKED if read is lines_of or end in (".gz", ".zst")],
)  # fmt: skip
@pytest.mark.parametrize("text", [b"C", b"CCO\n", b"\n"])
def test_what_unpacks_to_too_much_is_refused(tmp_path, monkeypatch, read, ending, text):
    monkeypatch.setenv(VARIABLE, "1")
    path = tmp_path / f"bomb.txt{ending}"
    path.write_bytes(PACKED[ending](text * (SIZE // len(text))))
    with pytest.raises(ValueError, match=rf"unpacks to more than 1 MiB.*{VARIABLE}"):
        read(path)


@pytest.mark.parametrize("name", ["a.xlsx", "a.json", "a.csv"])
def test_the_content_decides_what_is_packed(tmp_path, monkeypatch, name):
    monkeypatch.setenv(VARIABLE, "1")
    (tmp_path / name).write_bytes((zipped if name == "a.xlsx" else gzip.compress)(b" " * SIZE))
    with pytest.raises(ValueError, match="unpacks to more than 1 MiB"):
        load_file(str(tmp_path / name))


def test_data_of_any_size_are_read(tmp_path, monkeypatch):
    monkeypatch.setenv(VARIABLE, "1")
    rng = random.Random(1)
    lines = ["".join(rng.choices("CNO", k=6)) + "\tone two three four five six seven eight" * 3 for _ in range(20_000)]
    (tmp_path / "a.txt.gz").write_bytes(packed := gzip.compress("\n".join(lines).encode()))
    assert SIZE // 2 < len("\n".join(lines)) > 10 * len(packed)
    assert len(lines_of(tmp_path / "a.txt.gz")) == 20_000


@pytest.mark.parametrize("read", ANY[1:])
def test_a_packed_table_may_have_any_name(tmp_path, read):
    (tmp_path / "a.csv").write_bytes(gzip.compress(b"source,target\nC,O\nN,F\n"))
    assert len(list(read(tmp_path / "a.csv"))) == 2


def test_a_damaged_archive_is_refused(tmp_path):
    (tmp_path / "a.zip").write_bytes(b"C\n" * 99)
    with pytest.raises(ValueError, match=r"a\.zip is damaged"):
        lines_of(tmp_path / "a.zip")


def test_a_limit_that_is_no_number_is_refused(monkeypatch):
    monkeypatch.setenv(VARIABLE, "big")
    with pytest.raises(ValueError, match=f"{VARIABLE}=big is not allowed"):
        most_text()


@pytest.mark.parametrize("ending", [".gz", ".zst"])
@pytest.mark.parametrize("line", [b"C\tO\n", b'{"source": "C", "target": "O"}\n'], ids=["txt", "jsonl"])
def test_shards_of_a_stream_are_checked_while_they_are_read(tmp_path, monkeypatch, ending, line):
    monkeypatch.setenv(VARIABLE, "20")
    for number, rows in enumerate((3, (21 << 20) // len(line))):
        name = f"{number}.{'txt' if line[:1] == b'C' else 'jsonl'}{ending}"
        (tmp_path / name).write_bytes(PACKED[ending](line * rows))
    tables = load_file_stream(f"{tmp_path}/*").with_format("arrow").iter(100_000)
    assert next(tables)[:1].to_pylist() == [{"source": "C", "target": "O"}]
    with pytest.raises(ValueError, match="unpacks to more than 20 MiB"):
        list(tables)


def test_a_pipe_is_read_once(tmp_path):
    os.mkfifo(tmp_path / "a")
    with ThreadPoolExecutor(1) as pool:
        pool.submit((tmp_path / "a").write_bytes, gzip.compress(b"one line\n" * 3))
        assert len(lines_of(tmp_path / "a")) == 3
