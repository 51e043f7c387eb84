"""The pairs of the starter are reproducible and short, and the small sets keep train and test apart."""

import csv
import hashlib
import re
from decimal import Decimal
from itertools import islice

import pytest

from weftformer.recipes import starter_pairs, starter_sets
from weftformer.recipes.starter_pairs import VERSION, StarterPairs
from weftformer.training.building import STARTER

SENTENCES = ["Return the first line of a file.", "Close the stream, and forget what was read"]


def test_a_version_has_its_pairs_and_the_card_of_the_starter_names_its_own():
    pairs = list(islice(StarterPairs(1, SENTENCES, ["pear", "o'clock"]), 2000))
    digest = hashlib.sha256(repr(pairs).encode()).hexdigest()
    expected = "dca10a8c6eb8a91bd9aa6ef925f88c70a1a75bc602d53ed4485c5f8f3bd84173"
    assert (VERSION, digest) == (3, expected)  # other pairs are another version
    assert "of version 1 of `weftformer.recipes.starter_pairs`" in (STARTER / "README.md").read_text("utf8")


def test_the_answers_of_numbers_and_letters_are_right():
    pairs = StarterPairs(2, SENTENCES)
    for _ in range(200):
        (places, number), rounded = re.findall(r"[\d.]+", (found := pairs.rounded())[0]), found[1]
        assert abs(Decimal(rounded) - Decimal(number)) <= Decimal(5).scaleb(-int(places) - 1)
        source, converted = pairs.converted()
        amount, unit, _, into = source.split()
        meters = {"km": 3, "m": 0, "cm": -2, "kg": 3, "g": 0, "mg": -3, "L": 0, "mL": -3, "s": 0, "ms": -3}
        number, same = converted.split()
        assert same == into and Decimal(number) == Decimal(amount).scaleb(meters[unit] - meters[into])
        source, text = pairs.latin()
        assert text.isascii() and len(text.split()) == len(source.split()) - 1
        source, answer = pairs.ordered()
        numbers = [int(word) for word in source.split(": ")[1].split()]
        expected = {"ascending": sorted(numbers), "largest": [max(numbers)]}.get(source.split(":")[0])
        assert expected is None or answer == " ".join(map(str, expected))


@pytest.mark.parametrize(("number", "text"), [("1994", "MCMXCIV"), ("9", "IX"), ("2024", "MMXXIV"), ("40", "XL")])
def test_roman(number, text):
    class Fixed:
        def randint(self, *_):
            return int(number)

    assert starter_sets.roman(Fixed()) == (number, text)


def test_sets_of_300_and_500_pairs_share_no_source(tmp_path, monkeypatch):
    monkeypatch.setattr("sys.argv", ["starter_sets", "--output-dir", str(tmp_path)])
    starter_sets.main()
    for name in starter_sets.SETS:
        parts = [(tmp_path / f"{name}-{part}.csv").read_text("utf8").splitlines() for part in ("train", "test")]
        train, test = ([row["source"] for row in csv.DictReader(part)] for part in parts)
        assert (len(train), len(test)) == (300, 500)
        assert len({*train, *test}) == 800
    for name, (*_, count) in starter_sets.MORE_SETS.items():
        train, test = (
            (tmp_path / f"{name}-{part}.csv").read_text("utf8").splitlines()[1:] for part in ("train", "test")
        )
        assert (len(train), len(test), len({*train, *test})) == (count, 300, count + 300)
    rows = [*csv.reader((tmp_path / "chords-train.csv").open()), *csv.reader((tmp_path / "chords-test.csv").open())]
    notes = {
        "C7": "C E G Bb",
        "F#dim": "F# A C",
        "G#aug": "G# B# D##",
        "Cm7/Eb": "Eb G Bb C",
        "Dbm9": "Db Fb Ab Cb Eb",
    }
    assert notes.items() <= dict(rows).items()


def test_processes_share_the_rows(tmp_path, monkeypatch):
    monkeypatch.setattr(starter_pairs, "sentences_of_python", lambda: SENTENCES)
    file = tmp_path / "pairs.csv"
    words = ["starter_pairs", "--rows", "7", "--seed", "3", "--processes", "2", "--output-file", str(file)]
    monkeypatch.setattr("sys.argv", words)
    starter_pairs.main()
    with file.open(newline="", encoding="utf8") as rows:
        pairs = [tuple(row) for row in csv.reader(rows)]
    expected = [pair for seed in (3, 4) for pair in islice(StarterPairs(seed, SENTENCES), 4)]
    assert pairs == [("source", "target"), *expected]
