"""No packed file of molecules or routes fills the memory."""

import gzip

import pytest

from weftformer.common.packed import VARIABLE
from weftformer.routes.files.entries import read_entries
from weftformer.routes.files.targets import read_targets, targets_in
from weftformer.routes.judging.library_files import read_rows
from weftformer.routes.stock.stock import Stock

READERS = {
    "entries": lambda path: list(read_entries(path)),
    "stock": lambda path: Stock.from_file(path, progress=False, cache=False),
    "targets": read_targets,
    "input": lambda path: targets_in(path.open("rb"), "standard input"),
    "library": lambda path: list(read_rows(path)),
}


@pytest.mark.parametrize(
    ("reader", "text"),
    # a library refuses the first line of others
    [(reader, text) for reader in READERS for text in (b"C", b"CCO\n", b"\n") if reader != "library" or text == b"C"],
)
def test_what_unpacks_to_too_much_is_refused(tmp_path, monkeypatch, reader, text):
    monkeypatch.setenv(VARIABLE, "1")
    (tmp_path / "bomb.txt.gz").write_bytes(gzip.compress(text * ((3 << 20) // len(text))))
    with pytest.raises(ValueError, match=rf"unpacks to more than 1 MiB.*{VARIABLE}"):
        READERS[reader](tmp_path / "bomb.txt.gz")
