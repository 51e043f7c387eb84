"""The pairs of the starter are reproducible and short, and the small sets keep train and test apart."""

import csv
import hashlib
from itertools import islice

import pytest

from weftformer.recipes import starter_sets
from weftformer.recipes.starter_pairs import VERSION, StarterPairs
from weftformer.training.building import STARTER

SENTENCES = ["Return the first line of a file.", "Close the stream, and forget what was read"]


def test_a_version_has_its_pairs_and_the_card_of_the_starter_names_its_own():
    pairs = list(islice(StarterPairs(1, SENTENCES, ["pear", "o'clock"]), 2000))
    digest = hashlib.sha256(repr(pairs).encode()).hexdigest()
    expected = "61c8d27388335f0897d0248c79286210c40f1f37ccc974fef6700c25f2258dac"
    assert (VERSION, digest) == (2, expected)  # other pairs are another version
    assert "of version 1 of `weftformer.recipes.starter_pairs`" in (STARTER / "README.md").read_text("utf8")


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
