"""The pairs of the starter are reproducible and short, and the small sets keep train and test apart."""

import ast
import csv
import hashlib
import re
from collections import Counter
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
    expected = "1a4894175f4b8d091038a18039f1fd6d9f5aa9fe4894c1f18c30ad5b570b05bd"
    assert (VERSION, digest) == (4, expected)  # other pairs are another version
    assert "of version 1 of `weftformer.recipes.starter_pairs`" in (STARTER / "README.md").read_text("utf8")


def test_the_answers_of_numbers_and_letters_are_right():
    pairs = StarterPairs(2, SENTENCES)
    for _ in range(200):
        (places, number), rounded = re.findall(r"[\d.]+", (pair := pairs.rounded())[0]), pair[1]
        assert abs(Decimal(rounded) - Decimal(number)) <= Decimal(5).scaleb(-int(places) - 1)
        source, converted = pairs.converted()
        amount, unit, _, into, *places = source.split()
        meters = {"km": 3, "m": 0, "cm": -2, "kg": 3, "g": 0, "mg": -3, "L": 0, "mL": -3, "s": 0, "ms": -3}
        number, same = converted.split()
        exact = Decimal(amount).scaleb(meters[unit] - meters[into])
        allowed = Decimal(5).scaleb(-int(places[1]) - 1) if places else 0
        assert same == into and abs(Decimal(number) - exact) <= allowed
        source, text = pairs.duration()
        sizes = {"wk": 10080, "d": 1440, "h": 60, "min": 1, "s": Decimal(1) / 60}
        before, after = (
            sum(int(number) * sizes[unit] for number, unit in re.findall(r"(\d+) (\w+)", part))
            for part in (source.split(" in ")[0], text)
        )
        assert abs(before - after) < Decimal("1e-9")
        source, text = pairs.totalled()
        assert atoms(source.removeprefix("total: ")) == atoms(text) and len(re.findall("[A-Z]", text)) == len(
            atoms(text)
        )
        steps, word = re.match(r"shift (\d): (.*)", (pair := pairs.shifted())[0]).groups()
        shifts = [(ord(new) - ord(old)) % 26 for old, new in zip(word, pair[1], strict=True) if old.isalpha()]
        assert set(shifts) == {int(steps)}
        source, text = pairs.latin()
        assert text.isascii() and len(text.split()) == len(source.split()) - 1
        source, answer = pairs.ordered()
        numbers = [int(word) for word in source.split(": ")[1].split()]
        expected = {"ascending": sorted(numbers), "largest": [max(numbers)]}.get(source.split(":")[0])
        assert expected is None or answer == " ".join(map(str, expected))


def atoms(formula):
    """Return the number of each symbol."""
    totals = Counter()
    for symbol, number in re.findall(r"([A-Z][a-z]?)(\d*)", formula):
        totals[symbol] += int(number or 1)
    return totals


@pytest.mark.parametrize(("number", "text"), [("1994", "MCMXCIV"), ("9", "IX"), ("2024", "MMXXIV"), ("40", "XL")])
def test_roman(number, text):
    class Fixed:
        def randint(self, *_):
            return int(number)

    assert starter_sets.roman(Fixed()) == (number, text)


def test_the_parts_of_a_set_share_no_source(tmp_path, monkeypatch):
    monkeypatch.setattr("sys.argv", ["starter_sets", "--output-dir", str(tmp_path)])
    starter_sets.main()
    sizes = dict.fromkeys(starter_sets.SETS, (300, 500)) | {
        name: (count, 300) for name, (*_, count) in starter_sets.MORE_SETS.items()
    }
    for name, size in sizes.items():
        train, test = (rows(tmp_path / f"{name}-{part}.csv") for part in ("train", "test"))
        assert (len(train), len(test), len({*dict(train), *dict(test)})) == (*size, sum(size))


def rows(file):
    with file.open(newline="", encoding="utf8") as opened:
        return list(csv.reader(opened))[1:]


def drawn(name, count=300):
    return list(islice(starter_sets._pairs(starter_sets.MORE_SETS[name][0], 0, set()), count))


def test_the_answers_of_chords_logs_quantities_records_and_code_are_right():
    notes = {
        "C7": "C E G Bb",
        "F#dim": "F# A C",
        "G#aug": "G# B# D##",
        "Cm7/Eb": "Eb G Bb C",
        "Dbm9": "Db Fb Ab Cb Eb",
    }
    assert notes.items() <= dict(drawn("chords", 900)).items()
    for source, target in drawn("logs"):
        (milliseconds,) = re.findall(r"\((\d+) ms|dur=(\d+)ms| (\d+)$", source)
        *known, seconds = re.fullmatch(r"(\S+): (\S+) (\S+), (\d+) in (\d+\.\d) s", target).groups()
        assert all(text in source for text in known)
        assert abs(1000 * Decimal(seconds) - int("".join(milliseconds))) <= 50
    for source, target in drawn("quantities"):
        name, amount, unit, *purity = target.split(" | ")
        rest = source.replace(name, "", 1).replace(",", ".").lower()
        assert re.search(rf"(?<![\d.]){amount} ?{unit.lower()}\b", rest) and name in source
        assert re.findall(r"\d+(?= ?%)", source) == [text.rstrip("%") for text in purity]
    for source, target in drawn("records"):
        (last, first), day = target.split("\n")[0].split(", "), target.split("\n")[1]
        year, month, _ = day.split("-")
        assert {last, first} <= set(re.findall(r"[A-Z][a-z]+", source.split("\n")[0]))
        words = re.findall(r"\w+", source.split("\n")[1])
        assert year in words and {str(int(month)), starter_sets._MONTHS[int(month) - 1]} & set(words)
    for source, target in drawn("code"):
        loop, comprehension = ast.parse(source).body[1], ast.parse(target).body[0].value
        (part,) = comprehension.generators
        test = loop.body[0].test if part.ifs else None
        call = (loop.body[0].body[0] if part.ifs else loop.body[0]).value
        for ours, theirs in (
            ([loop.target, loop.iter, *filter(None, [test])], [part.target, part.iter, *part.ifs]),
            (call.args, [comprehension.elt]),
        ):
            assert list(map(ast.unparse, ours)) == list(map(ast.unparse, theirs))


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
