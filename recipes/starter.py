"""Make the pairs that a starter (training/starter) is pretrained on, and small sets that show what it gives.

    python -m weftformer.recipes.starter pairs --rows 100000 --words cmudict.dict --output-file pairs.csv
    python -m weftformer.recipes.starter sets --output-dir runs/sets

**Pairs** have a noisy source and its clean form as target. A third of them have no instruction: the target is a
plausible clean form of the source, such as a title in one case without debris, an ISO date, or a number in digits. The
others name a task (`sort: pear fig`), so that the model learns operations that no source reveals. A model that is
fine-tuned sees no such names. All texts are made, or come with Python: sentences of its docstrings and its language
reference (PSF License), and words of the same. `--words` adds the words of another file, the first of each line, such
as those of the CMU Pronouncing Dictionary (BSD-2-Clause). Only the standard library is needed. One seed, one version
of Python, one file of words and one `VERSION` give the same pairs. The card of a model names its version: the included
starter has seen version 1, with twice as many kinds.

**Sets** are in NAME-train.csv and NAME-test.csv, with different sources. Dates and numbers are of kinds that the
starter has seen, in other notations. It has not seen the others: fields in another order, Roman numerals, atoms
counted, and units, of which docs/data.md has figures with other pairs of the same kind.
"""
# ruff: noqa: RUF001 (letters of other alphabets are meant)

import argparse
import ast
import csv
import datetime
import pydoc_data.topics
import random
import re
import string
import sysconfig
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from decimal import ROUND_HALF_UP, Decimal
from functools import partial
from html.entities import name2codepoint
from itertools import chain, islice
from pathlib import Path

# The version of the data, which changes with any pair.
VERSION = 4
# The length of a text, in bytes of UTF-8.
MAX_BYTES = 159

_ONES = [
    "zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve",
    "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen",
]  # fmt: skip
_TENS = ["twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"]
# those of `calendar` depend on the locale
_MONTHS = [
    "January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November",
    "December",
]  # fmt: skip
_LOOKS_LIKE = {"o": "0", "l": "1", "i": "1", "e": "3", "s": "5", "a": "@", "m": "rn", "w": "vv", "t": "7"}
_DEBRIS = ["!!!", "***", "--", "#1", "(1)", "(new)", ">>", "...", "|", "copy", "[sic]", "<br>", "final", "Re:"]
_SUFFIXES = ["txt", "pdf", "jpg", "tar.gz", "csv", "html", "md", "zip", "mp3", "old", "py", "xml"]
_SEPARATORS = [" ", " ", " ", "_", "-", ".", "  ", "+", "%20", "\t", " - ", "/", ", "]
_DATES = ["{m} {d}, {y}", "{d}{th} {m} {y}", "{d}.{n}.{y}", "{n:02}/{d:02}/{y}", "{d}-{m}-{y}"]
_WRAPPINGS = ["<b>{}</b>", '"{}"', "({})", "[{}]", "  {} ", "https://www.{}", "{}\\n", "/tmp/{}", "&nbsp;{}"]
# Units with the power of ten by which they differ.
_UNITS = [("s", "ms", 3), ("kg", "g", 3), ("g", "mg", 3), ("L", "mL", 3), ("km", "m", 3), ("m", "cm", 2)]
_MEASURES = ["{a} {u} {n}", "{a}{u} {n}", "{a} {u} of {n}", "{n} ({a} {u})", "{n}, {a}{u}", "{n}: {a} {u}"]
_CYRILLIC = (
    "а=a б=b в=v г=g д=d е=e з=z и=i к=k л=l м=m н=n о=o п=p р=r с=s т=t у=u ф=f х=kh ц=ts ч=ch ш=sh ы=y э=e ю=yu я=ya"
)
_GREEK = "α=a β=b γ=g δ=d ε=e ζ=z η=e θ=th ι=i κ=k λ=l μ=m ν=n ξ=x ο=o π=p ρ=r σ=s τ=t υ=y φ=ph χ=ch ψ=ps ω=o"
# Operations on words that a source names.
_NAMED: dict[str, Callable[[list[str]], str]] = {
    "upper": lambda words: " ".join(words).upper(),
    "lower": lambda words: " ".join(words).lower(),
    "title": lambda words: " ".join(word.capitalize() for word in words),
    "reverse": lambda words: " ".join(words)[::-1],
    "backwards": lambda words: " ".join(words[::-1]),
    "sort": lambda words: " ".join(sorted(words, key=str.lower)),
    "initials": lambda words: "".join(word[0] for word in words).upper(),
    "first": lambda words: words[0],
    "last": lambda words: words[-1],
    "last to front": lambda words: " ".join(words[-1:] + words[:-1]),
    "list": ", ".join,
    "count": lambda words: str(len(words)),
    "length": lambda words: str(len(" ".join(words))),
    "digits": lambda words: re.sub(r"\D", "", " ".join(words)) or "-",
    "numbered": lambda words: " ".join(f"{i}.{word}" for i, word in enumerate(words, 1)),
}


def spelled(number: int) -> str:
    """Return a number from 0 to 999,999,999 in English words."""
    if number < 20:
        return _ONES[number]
    if number < 100:
        return _TENS[number // 10 - 2] + (f"-{_ONES[number % 10]}" if number % 10 else "")
    for size, name in ((10**6, "million"), (1000, "thousand"), (100, "hundred")):
        if number >= size:
            count, remainder = divmod(number, size)
            return f"{spelled(count)} {name}" + (f" {spelled(remainder)}" if remainder else "")
    raise AssertionError


def unchanged(text: str) -> str:
    return text


def plain(number: Decimal) -> str:
    """Return a number without an exponent and without zeros at the end."""
    text = f"{number:f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def formula(parts: Iterable[tuple[str, int]]) -> str:
    """Return symbols with their numbers, of which 1 is left out."""
    return "".join(symbol + (str(number) if number > 1 else "") for symbol, number in parts)


def sentences_of_python() -> list[str]:
    """Return the plain sentences of the docstrings and of the language reference that come with this Python."""
    texts = list(pydoc_data.topics.topics.values())
    library = Path(sysconfig.get_paths()["stdlib"])
    for file in sorted(library.rglob("*.py")):
        if {"site-packages", "dist-packages", "test", "tests", "lib2to3"} & set(file.parts):
            continue
        try:
            tree = ast.parse(file.read_text("utf8"))
        except (SyntaxError, ValueError):
            continue
        kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
        texts += [ast.get_docstring(node) or "" for node in ast.walk(tree) if isinstance(node, kinds)]
    parts = (" ".join(part.split()) for text in texts for part in re.split(r"(?<=[.!?:])\s+|\n\s*\n", text))
    return list(dict.fromkeys(part for part in parts if re.fullmatch(r"[A-Z][A-Za-z ,'-]{12,110}[.]?", part)))


class StarterPairs:
    """A stream of pairs, which never ends.

    Args:
        seed: of the pairs.
        sentences: for example [`sentences_of_python`].
        words: further words. The words of the sentences are always among them.
    """

    def __init__(self, seed: int, sentences: Sequence[str], words: Sequence[str] = ()):
        self.random = random.Random(seed)
        self.sentences = sentences
        self.words = sorted({word for text in sentences for word in re.findall(r"[a-z]{2,}", text)} | set(words))
        self.pick = self.random.choice
        kinds = [self.date, self.number, self.name, self.items, self.measure, self.measure]
        self.clean: list[Callable[[], tuple[str, str]]] = [*[self.noisy_text] * 7, *kinds]
        self.special: list[Callable[[], tuple[str, str]]] = [
            self.look_up, self.spell, self.rounded, self.converted, self.converted, self.duration, self.ordered,
            self.latin, self.entity, self.totalled, self.shifted,
        ]  # fmt: skip

    def __iter__(self) -> Iterator[tuple[str, str]]:
        while True:
            kind = self.random.random()
            if kind < 0.35:
                source, target = self.pick(self.clean)()
            elif kind < 0.55:
                name, words = self.pick(list(_NAMED)), self.text(self.length())
                source, target = f"{name}: {' '.join(words)}", _NAMED[name](words)
            else:
                source, target = self.pick(self.special)()
            if source.strip() and target and max(len(text.encode()) for text in (source, target)) <= MAX_BYTES:
                yield source, target

    # texts

    def length(self) -> int:
        """Return a number of words: few, but positions past those of short texts are to be known too."""
        return self.random.randint(7, 18) if self.random.random() < 0.06 else self.random.randint(1, 6)

    def syllables(self) -> str:
        parts = (self.pick("bcdfghjklmnprstvwz") + self.pick("aeiou") for _ in range(self.random.randint(1, 4)))
        return "".join(parts) + self.pick(["", "n", "r", "s", "l", "x", "th"])

    def invented(self) -> str:
        """Return a word that stands in no dictionary."""
        draw = self.random.random()
        if draw < 0.4:
            return self.syllables()
        if draw < 0.7:
            letter = self.pick(["", self.pick(string.ascii_uppercase)])
            return letter + "".join(self.pick(string.digits) for _ in range(self.random.randint(1, 5)))
        characters = string.ascii_letters + string.digits + "()[]=#+-./_:éüñßαβд"
        return "".join(self.random.choices(characters, k=self.random.randint(3, 12)))

    def text(self, length: int) -> list[str]:
        """Return some words in a row: of a sentence, of the dictionary, or invented."""
        draw, words = self.random.random(), []
        if draw < 0.4:
            words = self.pick(self.sentences).rstrip(".").split()
            start = self.random.randint(0, max(0, len(words) - length))
            words = words[start : start + length]
        elif draw < 0.8:
            words = [self.pick(self.words) for _ in range(length)]
        for _ in range(self.pick([0, 0, 1, 1, 2]) if words else length):
            words.insert(self.random.randint(0, len(words)), self.invented())
        return words

    # clean forms that need no instruction

    def noisy_text(self) -> tuple[str, str]:
        words = self.text(self.length())
        style = self.pick([unchanged, unchanged, str.lower, str.capitalize, str.capitalize, str.capitalize])
        words = [style(word) if word.isalpha() and word.isascii() else word for word in words]
        noisy = self.reordered(words)
        separator = self.pick(_SEPARATORS)
        if self.random.random() < 0.1 and all(word.isalpha() for word in noisy):
            separator, noisy = "", [word.capitalize() for word in noisy]
        text = separator.join(noisy)
        if self.random.random() < 0.3:
            text = self.mistyped(text)
        text = self.recased(text)
        if self.random.random() < 0.15:
            text += "." + self.pick(_SUFFIXES)
        if self.random.random() < 0.15:
            text = self.pick(_WRAPPINGS).format(text)
        return text, " ".join(words)

    def reordered(self, words: list[str]) -> list[str]:
        """Return the words in another order, and with debris, each now and then."""
        noisy, draw = list(words), self.random.random()
        if draw < 0.15 and len(noisy) > 1:
            noisy = [noisy[-1] + ",", *noisy[:-1]]
        elif draw < 0.23 and len(noisy) > 1:
            i = self.random.randrange(len(noisy) - 1)
            noisy[i : i + 2] = noisy[i + 1], noisy[i]
        if self.random.random() < 0.35:
            noisy.insert(self.pick([0, len(noisy), self.random.randint(0, len(noisy))]), self.pick(_DEBRIS))
        return noisy

    def recased(self, text: str) -> str:
        if self.random.random() < 0.1:
            return "".join(self.pick([str.lower, str.upper])(letter) for letter in text)
        return self.pick([unchanged, unchanged, str.lower, str.lower, str.upper, str.swapcase, str.title])(text)

    def mistyped(self, text: str) -> str:
        letters = list(text)
        for _ in range(max(1, len(letters) // 12)):
            i, draw = self.random.randrange(len(letters)), self.random.random()
            if draw < 0.45:
                letters[i] *= self.pick([0, 2])
            elif draw < 0.65 and i:
                letters[i - 1 : i + 1] = letters[i], letters[i - 1]
            else:
                letters[i] = _LOOKS_LIKE.get(letters[i].lower(), self.pick("?_" + string.ascii_lowercase))
        return "".join(letters)

    def date(self) -> tuple[str, str]:
        day = datetime.date.fromordinal(self.random.randint(693_596, 767_010))  # from 1900 to 2100
        month = self.pick([unchanged, unchanged, str.lower, str.upper])(_MONTHS[day.month - 1])
        month = self.pick([month, month[:3], month[:3] + "."])
        suffix = {1: "st", 2: "nd", 3: "rd"}.get(day.day % 10 if day.day // 10 != 1 else 0, "th")
        form = self.pick(_DATES)
        return form.format(d=day.day, n=day.month, y=day.year, m=month, th=suffix), day.isoformat()

    def amount(self) -> int:
        return self.random.randrange(10 ** self.random.randint(1, 7))

    def number(self) -> tuple[str, str]:
        number = self.amount()
        text = spelled(number).replace("hundred ", self.pick(["hundred ", "hundred and "]))
        return self.recased(text.replace("-", self.pick("- "))), str(number)

    def name(self) -> tuple[str, str]:
        first, last = (self.pick([self.syllables(), self.pick(self.words)]).capitalize() for _ in range(2))
        title = self.pick(["", "", "Mr. ", "Mrs ", "Prof. ", "Dr "])
        form = self.pick(["{l}, {f}", "{t}{f} {l}", "{l}; {f}", "{l} ({f})", "{f}_{l}", "{t}{l}, {f}"])
        return self.recased(form.format(l=last, f=first, t=title)), f"{first} {last}"

    def items(self) -> tuple[str, str]:
        words = self.text(self.random.randint(2, 5))
        text = self.pick([",", ";", " | ", " , ", "/", "\t", " and ", " + ", ",,", ";  "]).join(words)
        return self.pick(["{}", "[{}]", "({})", "{},", "- {}"]).format(text), ", ".join(words)

    def measure(self) -> tuple[str, str]:
        """Return a quantity of something in fields. Letters keep their case."""
        name, amount = " ".join(self.text(self.random.randint(1, 2))), self.decimal()
        unit = self.pick(self.pick(_UNITS)[:2])
        form = self.pick(_MEASURES)
        return form.format(n=name, a=amount, u=unit), f"{name} | {amount} | {unit}"

    # tasks with arguments

    def decimal(self) -> Decimal:
        return Decimal(self.amount()).scaleb(-self.random.randint(0, 3))

    def rounded(self) -> tuple[str, str]:
        places, number = self.random.randint(0, 2), Decimal(self.amount()).scaleb(-3)
        return f"round {places}: {number}", str(number.quantize(Decimal(1).scaleb(-places), ROUND_HALF_UP))

    def converted(self) -> tuple[str, str]:
        large, small, power = self.pick(_UNITS)
        amount = self.decimal()
        from_unit, to_unit, power = self.pick([(large, small, power), (small, large, -power)])
        source, result = f"{amount:f} {from_unit} in {to_unit}", amount.scaleb(power)
        if self.random.random() < 0.3:
            places = self.random.randint(0, 2)
            result = result.quantize(Decimal(1).scaleb(-places), ROUND_HALF_UP)
            return f"{source} round {places}", f"{result:f} {to_unit}"
        return source, f"{plain(result)} {to_unit}"

    def duration(self) -> tuple[str, str]:
        unit, size, smaller = self.pick([("wk", 7, "d"), ("d", 24, "h"), ("min", 60, "s")])
        number = self.random.randrange(size, 20 * size)
        whole, remainder = divmod(number, size)
        return f"{number} {smaller} in {unit}", f"{whole} {unit}" + (f" {remainder} {smaller}" if remainder else "")

    def ordered(self) -> tuple[str, str]:
        """Return numbers in order, the largest of them, or the place of a digit in a number."""
        numbers = [self.amount() for _ in range(self.random.randint(2, 5))]
        text, draw = " ".join(map(str, numbers)), self.random.randrange(3)
        if draw == 2:
            place = self.random.randint(1, len(str(numbers[0])))
            return f"digit {place}: {numbers[0]}", str(numbers[0])[place - 1]
        if draw == 1:
            return f"ascending: {text}", " ".join(map(str, sorted(numbers)))
        return f"largest: {text}", str(max(numbers))

    def totalled(self) -> tuple[str, str]:
        """Return symbols with numbers, and each symbol once with its total: `total: Xy2ZXy` and `Xy3Z`."""
        capitals, letters, size = string.ascii_uppercase, string.ascii_lowercase, self.random.randint(1, 4)
        symbols = [self.pick(capitals) + self.pick(["", "", self.pick(letters)]) for _ in range(size)]
        parts = [(self.pick(symbols), self.pick([1, 1, 1, 2, 3, 12])) for _ in range(self.random.randint(2, 8))]
        totals: Counter[str] = Counter()
        for symbol, number in parts:
            totals[symbol] += number
        return f"total: {formula(parts)}", formula(sorted(totals.items()))

    def shifted(self) -> tuple[str, str]:
        """Return a word whose letters are moved along the alphabet, which begins again after z."""
        steps, letters, word = self.random.randint(1, 6), string.ascii_lowercase, self.pick(self.words)[:10]
        return f"shift {steps}: {word}", word.translate(str.maketrans(letters, letters[steps:] + letters[:steps]))

    def latin(self) -> tuple[str, str]:
        """Return words of another alphabet in Latin letters."""
        alphabet = dict(re.findall(r"(.)=(\w+)", self.pick([_CYRILLIC, _GREEK])))
        size, number = self.random.randint, self.random.randint(1, 3)
        words = ["".join(self.random.choices(list(alphabet), k=size(2, 9))) for _ in range(number)]
        style = self.pick([unchanged, str.capitalize])
        spelled_out = ("".join(alphabet[letter] for letter in word) for word in words)
        return "latin: " + " ".join(map(style, words)), " ".join(map(style, spelled_out))

    def entity(self) -> tuple[str, str]:
        """Return what only memory knows: the character of a name in HTML, or the name."""
        name, code = self.pick(sorted(name2codepoint.items()))
        return (f"character: {name}", chr(code)) if self.random.random() < 0.5 else (f"name: {chr(code)}", name)

    def look_up(self) -> tuple[str, str]:
        table = {self.pick(self.words): self.invented() for _ in range(self.random.randint(2, 4))}
        key = self.pick(list(table))
        return f"get {key}: " + self.pick([", ", "; "]).join(f"{k}={v}" for k, v in table.items()), table[key]

    def spell(self) -> tuple[str, str]:
        number = self.amount()
        return f"in words: {number}", spelled(number)


def read_words(file: str | Path) -> list[str]:
    """Return the first word of each line, if it has only letters and an apostrophe, without comments."""
    words = (line.split(maxsplit=1)[0] for line in Path(file).read_text("utf8").splitlines() if line.strip())
    return sorted({word for word in words if re.fullmatch(r"[a-z]+('[a-z]+)?", word)})


# sets: functions of a generator of random numbers

_FIELDS = ("{c} x {t}, {k} (ref {r})", "{k} {t} {r} qty {c}", "{r}: {c} pcs {t}, {k}", "{t} ({k}) - {r} - {c}")
_THINGS = [
    "lamp", "chair", "table", "desk", "shelf", "sofa", "stool", "bench", "mirror", "carpet", "clock", "vase", "bed",
    "frame", "cabinet",
]  # fmt: skip
_COLOURS = ["red", "blue", "green", "black", "white", "brown", "grey", "yellow"]
_ROMAN = {"M": 1000, "CM": 900, "D": 500, "CD": 400, "C": 100, "XC": 90, "L": 50, "XL": 40, "X": 10, "IX": 9, "V": 5,
          "IV": 4, "I": 1}  # fmt: skip
_GROUPS = ("CH3", "CH2", "CH", "OH", "NH2", "NH", "CO", "Cl", "Br", "SO2", "C6H5", "C6H4", "COOH", "CF3", "NO2", "CN")
_SET_UNITS = (*_UNITS[1:], ("cm", "mm", 1), ("mol", "mmol", 3))


def numbers(r: random.Random) -> tuple[str, str]:
    """`twelve thousand and forty` to `12040`."""
    number = r.randrange(10 ** r.randint(1, 6))
    return spelled(number).replace("hundred ", r.choice(["hundred ", "hundred and "])), str(number)


def dates(r: random.Random) -> tuple[str, str]:
    """`7 Mar '94` or `Mar 7 94` to `1994-03-07`."""
    day = datetime.date.fromordinal(r.randint(711_858, 736_694))  # 1950 to 2017
    form = r.choice(["{d} {m} '{y:02}", "{m} {d} {y:02}", "{d}-{n}-{y:02}", "{m}. {d:02}, '{y:02}", "{d:02}{m}{y:02}"])
    return form.format(d=day.day, m=_MONTHS[day.month - 1][:3], n=day.month, y=day.year % 100), day.isoformat()


def stock(r: random.Random) -> tuple[str, str]:
    """`3 x lamp, red, (ref kt 204)` to `KT204|lamp|red|3`."""
    letters, digits, count = "".join(r.choices("ABKLMPRTXZ", k=2)), str(r.randint(10, 9999)), r.randint(1, 60)
    thing, colour = r.choice(_THINGS), r.choice(_COLOURS)
    reference = r.choice([f"{letters.lower()} {digits}", f"{letters}-{digits}", f"{letters}{digits}"])
    source = r.choice(_FIELDS).format(c=count, t=thing, k=colour, r=reference)
    return source, f"{letters}{digits}|{thing}|{colour}|{count}"


def roman(r: random.Random) -> tuple[str, str]:
    """`1994` to `MCMXCIV`."""
    remainder = number = r.randint(1, 3999)
    text = ""
    for letters, size in _ROMAN.items():
        text, remainder = text + letters * (remainder // size), remainder % size
    return str(number), text


def formulas(r: random.Random) -> tuple[str, str]:
    """Atoms counted in Hill's order: `CH3CH2OH` to `C2H6O`."""
    text = "".join(r.choices(_GROUPS, k=r.randint(2, 5)))
    atoms: Counter[str] = Counter()
    for element, count in re.findall(r"([A-Z][a-z]?)(\d*)", text):
        atoms[element] += int(count or 1)
    order = sorted(atoms, key=lambda element: (element not in "CH", element)) if "C" in atoms else sorted(atoms)
    return text, formula((element, atoms[element]) for element in order)


def units(r: random.Random) -> tuple[str, str]:
    """`3.5 kg in g` to `3500 g`, and `95 min` to `1 h 35 min`."""
    if r.random() < 0.25:
        minutes = r.randint(61, 900)
        return f"{minutes} min", f"{minutes // 60} h" + (f" {minutes % 60} min" if minutes % 60 else "")
    large, small, power = r.choice(_SET_UNITS)
    number, places = Decimal(r.randint(1, 999)), r.randint(0, 2)
    if r.random() < 0.5:
        amount, result, pair = plain(number.scaleb(-places)), plain(number.scaleb(power - places)), (large, small)
    else:
        amount, result, pair = str(number), plain(number.scaleb(-power)), (small, large)
    return r.choice(["{} {} in {}", "{} {} to {}", "{} {} = ? {}"]).format(amount, *pair), f"{result} {pair[1]}"


# The functions of the sets, and their numbers of pairs.
SETS = (numbers, dates, stock, roman, formulas, units)
NUM_TEST, NUM_TRAIN = 500, 300


def distinct(make: Callable[[random.Random], tuple[str, str]], seed: int, number: int) -> list[tuple[str, str]]:
    """Return pairs of a set that have different sources."""
    draw, pairs = random.Random(f"{make.__name__} {seed}"), dict[str, str]()
    while len(pairs) < number:
        pairs.setdefault(*make(draw))
    return list(pairs.items())


def write(file: Path, pairs: Iterable[tuple[str, str]]) -> None:
    with open(file, "w", newline="", encoding="utf8") as stream:
        csv.writer(stream).writerows(chain([("source", "target")], pairs))


def main() -> None:
    """Write pairs, or the sets, as csv files."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--seed", type=int, default=0)
    actions = parser.add_subparsers(dest="action", required=True)
    add = actions.add_parser("pairs").add_argument
    add("--output-file", default="pairs.csv", type=Path)
    add("--rows", type=int, default=100_000)
    add("--words", help="A file whose lines begin with a word, such as cmudict.dict.")
    add("--processes", type=int, default=1, help="Each makes a share of the rows, with the next seed.")
    actions.add_parser("sets").add_argument("--output-dir", default="runs/sets", type=Path)
    args = parser.parse_args()
    if args.action == "sets":
        args.output_dir.mkdir(parents=True, exist_ok=True)
        for make in SETS:
            pairs = distinct(make, args.seed, NUM_TEST + NUM_TRAIN)
            write(args.output_dir / f"{make.__name__}-test.csv", pairs[:NUM_TEST])
            write(args.output_dir / f"{make.__name__}-train.csv", pairs[NUM_TEST:])
        return
    words = read_words(args.words) if args.words else ()
    make_share = partial(_pairs, -(-args.rows // args.processes), sentences_of_python(), words)
    with ProcessPoolExecutor(args.processes) as processes:
        shares = processes.map(make_share, range(args.seed, args.seed + args.processes))
        write(args.output_file, chain.from_iterable(shares))


def _pairs(number: int, sentences: Sequence[str], words: Sequence[str], seed: int) -> list[tuple[str, str]]:
    return list(islice(StarterPairs(seed, sentences, words), number))


if __name__ == "__main__":
    main()
