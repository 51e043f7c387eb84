"""The pairs of the starter are reproducible and short, and the small sets keep train and test apart."""

import csv
import hashlib
from itertools import islice

import pytest

from weftformer.benchmarks import starter_pairs, starter_sets
from weftformer.benchmarks.starter_pairs import MAX_SOURCE, MAX_TARGET, Pairs, spelled

SENTENCES = ["Return the first line of a file.", "Close the stream, and forget what was read"]


def drawn(seed, count=2000):
    return list(islice(Pairs(seed, SENTENCES, ["pear", "o'clock"]), count))


def test_a_seed_gives_the_same_pairs_and_another_seed_gives_others():
    assert drawn(1) == drawn(1)
    assert drawn(1) != drawn(2)


def test_the_pairs_are_those_that_the_included_starter_was_trained_on():
    digest = hashlib.sha256(repr(drawn(1)).encode()).hexdigest()
    assert digest == "982915cd0fb1e07e0446c36dc341f8518f01dfd8436d1f9e33e2bbd5ad1f0de5"


def test_pairs_are_short_and_half_of_them_have_no_instruction():
    pairs = drawn(3)
    assert all(len(a.encode()) <= MAX_SOURCE and 1 <= len(b.encode()) <= MAX_TARGET for a, b in pairs)
    names = set(Pairs(0, SENTENCES).named)
    assert 0.2 < sum(source.split(":")[0] in names for source, _ in pairs) / len(pairs) < 0.4


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (0, "zero"),
        (40, "forty"),
        (21, "twenty-one"),
        (90_010, "ninety thousand ten"),
        (1_000_200, "one million two hundred"),
    ],
)
def test_spelled(number, words):
    assert spelled(number) == words


def test_the_words_of_a_dictionary_are_read_without_variants_and_numbers(tmp_path):
    file = tmp_path / "dict"
    file.write_text("a AH0\na(2) EY1\no'clock AH0\n3d TH R\n", encoding="utf8")
    assert starter_pairs.read_words(file) == ["a", "o'clock"]


@pytest.mark.parametrize(("number", "text"), [("1994", "MCMXCIV"), ("9", "IX"), ("2024", "MMXXIV"), ("40", "XL")])
def test_roman(number, text, monkeypatch):
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
