"""What can be bought: read from files of several kinds, asked in any SMILES, kept beside the file."""

import gzip
import logging
import os

import pytest

pytest.importorskip("rdkit")

from weftformer.routes import Route, Stock
from weftformer.routes import stock as stock_module

# ethanol, benzene, acetic acid
KEYS = ["LFQSCWFLJHTTHZ-UHFFFAOYSA-N", "UHOVQNZJYSORNB-UHFFFAOYSA-N", "QTBSBXVTEAMEQO-UHFFFAOYSA-N"]


def read(path, **settings):
    return Stock.from_file(path, progress=False, **settings)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("list.smi", "OCC ethanol\nC1=CC=CC=C1\tbenzene\n\nCC(O)=O\n"),
        ("list.txt", "OCC\r\nc1ccccc1\r\nCC(O)=O\r\n"),
        ("table.csv", 'id,SMILES,price\n1,OCC,"1,50"\n2,c1ccccc1,2\n3,CC(O)=O,3\n'),
        ("table.tsv", "smiles\tid\nOCC\t1\nc1ccccc1\t2\nCC(O)=O\t3\n"),
        ("excel.csv", '\ufeff"smiles","price"\n"OCC","1"\n"c1ccccc1","2"\n"CC(O)=O",""\n'),
        ("semicolons.csv", 'id;smiles;"name, long"\n1;OCC;"a, b"\n2;c1ccccc1;b\n3;CC(O)=O;c\n'),
        ("keys.txt", "\n".join(KEYS)),
        ("keys.csv", "name,InChIKey\n" + "".join(f"x,{key}\n" for key in KEYS)),
    ],
)
@pytest.mark.parametrize("packed", [False, True])
def test_files_of_every_kind_are_read(tmp_path, name, text, packed):
    path = tmp_path / (f"{name}.gz" if packed else name)
    path.write_bytes(gzip.compress(text.encode()) if packed else text.encode())
    found = read(path)
    assert len(found) == 3 and found.num_bad == 0
    assert all(smiles in found for smiles in ("CCO", "C(C)O", "c1ccccc1", "CC(=O)O"))
    assert "CCCO" not in found and "no molecule" not in found and "" not in found


def test_bad_lines_are_counted_and_shown(tmp_path, caplog):
    path = tmp_path / "list.smi"
    path.write_text(f"CCO\nCCC\nnonsense!\n{'C' * 2000}\nC1CC\n{'C' * 2001}\n")
    with caplog.at_level(logging.WARNING):
        found = read(path)
    assert len(found) == 3 and found.num_bad == 3 and found.bad_lines[:2] == ["nonsense!", "C1CC"]
    assert "C" * 2000 in found and "C" * 2001 not in found
    assert "3 lines are not molecules" in caplog.text and "nonsense!" in caplog.text


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "is empty"),
        (b'{"a": 1,\n"b": [2, 3],\n"c": "hello"}\n', "is not a stock: .*neither SMILES nor InChIKeys"),
        (b"\x89PNG\xff\xfe\x00", "is not a text file"),
    ],
)
def test_files_of_another_kind_are_refused(tmp_path, content, said):
    path = tmp_path / "file"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=said):
        read(path)
    assert os.listdir(tmp_path) == ["file"]


def test_what_was_read_is_kept_until_the_file_changes(tmp_path, monkeypatch, caplog):
    path = tmp_path / "list.smi"
    path.write_text("CCO\nxx\nCCC\n")
    first = read(path)
    monkeypatch.setattr(stock_module, "_entries", lambda path: pytest.fail("the file was read again"))
    again = read(path)
    assert len(again) == len(first) == 2 and "CCC" in again and again.bad_lines == ["xx"]
    monkeypatch.undo()
    path.write_text("CCO\nCCC\nCCCC\nCCCCC\n")
    assert len(read(path)) == 4
    (tmp_path / "list.smi.weft-stock.npz").write_bytes(b"damaged")
    assert len(read(path)) == 4


def test_reading_can_be_ended(tmp_path):
    path, calls = tmp_path / "list.smi", []
    path.write_text("CCO\n" * 30)

    def check():
        calls.append(1)
        if len(calls) > 40:
            raise TimeoutError

    with pytest.raises(TimeoutError):
        read(path, check=check)
    assert len(calls) == 41 and os.listdir(tmp_path) == ["list.smi"]


def test_missing_leaves_are_named_once():
    route = Route("CCOC(C)=O", (Route("CCO"), Route("CC(=O)O", (Route("CC=O"), Route("CCO")))))
    assert Stock(["CCO"]).missing(route) == ["CC=O"]
    assert Stock(["CCO", "CC=O"]).missing(route) == []
    assert Stock([]).missing(route) == ["CCO", "CC=O"]


def test_damaged_files_are_named(tmp_path):
    whole = gzip.compress(b"CCO\n" * 3000)
    (tmp_path / "stock.smi.gz").write_bytes(whole[:20] + bytes([whole[20] ^ 255]) + whole[21:])
    with pytest.raises(ValueError, match=r"stock\.smi\.gz is not a text file"):
        Stock.from_file(tmp_path / "stock.smi.gz", progress=False)
    (tmp_path / "open.csv").write_text('smiles,name\nCCO,"open\n' + "CCN,long name\n" * 12_000)
    with pytest.raises(ValueError, match="a quote is not closed"):
        Stock.from_file(tmp_path / "open.csv", progress=False)


def test_a_folder_that_cannot_be_written_is_no_obstacle(tmp_path, monkeypatch, caplog):
    path = tmp_path / "list.smi"
    path.write_text("CCO\n")

    def refuse(*args, **kwargs):
        raise PermissionError("read-only")

    monkeypatch.setattr(stock_module.np, "savez", refuse)
    assert len(read(path)) == 1 and "cannot be written" in caplog.text
