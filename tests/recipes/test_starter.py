"""The pairs of the starter are reproducible and right, and the small sets keep train and test apart."""

import csv
import hashlib
from itertools import islice

import pytest

from weftformer.recipes import starter
from weftformer.recipes.starter import VERSION, StarterPairs
from weftformer.training.building import STARTER

SENTENCES = ["Return the first line of a file.", "Close the stream, and forget what was read"]
ANSWERS = {
    "12 d in wk": "1 wk 5 d", "round 2: 0.502": "0.50", "largest: 8964570 8724 8 42362": "8964570",
    "digit 6: 758282": "2", "shift 2: file": "hkng", "latin: Φξπεωφγθ": "Phxpeophgth", "name: ó": "oacute",
    "total: XXX": "X3", "in words: 98": "ninety-eight", "last to front: ñwoNék]yβU tajXOñrдO": "tajXOñrдO ñwoNék]yβU",
}  # fmt: skip


def test_a_version_has_its_pairs_and_the_card_of_the_starter_names_its_own():
    pairs = list(islice(StarterPairs(1, SENTENCES, ["pear", "o'clock"]), 2000))
    digest = hashlib.sha256(repr(pairs).encode()).hexdigest()
    expected = "1a4894175f4b8d091038a18039f1fd6d9f5aa9fe4894c1f18c30ad5b570b05bd"
    assert (VERSION, digest) == (4, expected)  # other pairs are another version
    assert ANSWERS.items() <= dict(pairs).items()
    assert "of version 1 of their generator" in (STARTER / "README.md").read_text("utf8")


@pytest.mark.parametrize(
    ("make", "source", "target"),
    [
        (starter.numbers, "three hundred and eighty-four", "384"),
        (starter.dates, "Apr. 09, '79", "1979-04-09"),
        (starter.stock, "red chair ZT-7007 qty 10", "ZT7007|chair|red|10"),
        (starter.roman, "394", "CCCXCIV"),
        (starter.formulas, "BrCH3", "CH3Br"),
        (starter.units, "353 mmol to mol", "0.353 mol"),
    ],
)
def test_a_set_has_right_answers_and_parts_that_share_no_source(make, source, target, tmp_path, monkeypatch):
    monkeypatch.setattr("sys.argv", ["starter", "sets", "--output-dir", str(tmp_path)])
    monkeypatch.setattr(starter, "SETS", (make,))
    starter.main()
    train, test = (dict(rows(tmp_path / f"{make.__name__}-{part}.csv")[1:]) for part in ("train", "test"))
    assert (len(train), len(test), len(train | test)) == (300, 500, 800)
    assert (train | test)[source] == target


def rows(file):
    with file.open(newline="", encoding="utf8") as stream:
        return [tuple(row) for row in csv.reader(stream)]


def test_processes_share_the_rows(tmp_path, monkeypatch):
    monkeypatch.setattr(starter, "sentences_of_python", lambda: SENTENCES)
    file = tmp_path / "pairs.csv"
    words = ["starter", "--seed", "3", "pairs", "--rows", "7", "--processes", "2", "--output-file", str(file)]
    monkeypatch.setattr("sys.argv", words)
    starter.main()
    expected = [pair for seed in (3, 4) for pair in islice(StarterPairs(seed, SENTENCES), 4)]
    assert rows(file) == [("source", "target"), *expected]
