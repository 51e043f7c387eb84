"""Make the pairs of short texts on which the starter (training/starter) is pretrained: noisy sources, and their clean forms as targets.

    python -m weftformer.recipes.starter_pairs --rows 100000 --words cmudict.dict --output-file pairs.csv

Six in ten pairs have no instruction: the target is the plausible clean form of the source, such as a title in one case
without debris, an ISO date, or a number in digits. The others begin with the name of a task (`sort: pear fig`), so that the
model learns operations that no source reveals. A model that is fine-tuned sees no such names.

All texts are made, or come with Python: sentences of its docstrings and its language reference (PSF License), and words of
the same. `--words` adds the words of another file, the first of each line, such as those of the CMU Pronouncing Dictionary
(BSD-2-Clause). Only the standard library is needed. One seed, one version of Python and one file of words give the same pairs.
"""

import argparse
import ast
import csv
import datetime
import html
import pydoc_data.topics
import random
import re
import string
import sysconfig
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

# In bytes of UTF-8.
MAX_SOURCE, MAX_TARGET = 159, 159

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
_UNITS = {
    "km": "kilometers kilometres KM kms", "kg": "kilograms kilos KG kgs", "cm": "centimeters centimetres CM",
    "mm": "millimeters MM", "g": "grams gr gms", "ml": "milliliters ML mls", "l": "liters litres ltr", "h": "hours hrs hr",
    "min": "minutes mins", "s": "seconds secs sec", "ft": "feet foot", "in": "inches inch", "lb": "pounds lbs",
    "W": "watts Watt", "V": "volts Volt", "Hz": "hertz hz", "GB": "gigabytes gb Gb", "MB": "megabytes mb Mb", "%": "percent pct",
}  # fmt: skip
_SHORT = {
    "street": "st.", "avenue": "ave", "road": "rd.", "and": "&", "with": "w/", "without": "w/o", "number": "no.", "doctor": "dr.",
    "company": "co.", "limited": "ltd.", "department": "dept.", "north": "n.", "south": "s.", "international": "int'l",
    "you": "u", "are": "r", "to": "2", "for": "4", "please": "pls", "at": "@", "maximum": "max.", "minimum": "min.",
    "example": "ex.", "government": "govt", "university": "univ.", "edition": "ed.", "page": "p.", "mount": "mt.",
}  # fmt: skip
_LOOKS_LIKE = {
    "o": "0", "l": "1", "i": "1", "e": "3", "s": "5", "a": "@", "m": "rn", "w": "vv", "t": "7", "g": "9", "b": "8",
}  # fmt: skip
_DEBRIS = [
    "!!!", "***", "~~", "--", "#1", "(1)", "[x]", "(new)", ">>", "...", "|", "==", "copy", "(copy)", "[sic]", "??",
    "<br>", "//", "final", "FWD:", "Re:", "*", "•", "\u2013", "@", ";;",
]  # fmt: skip
_SUFFIXES = [
    "txt", "pdf", "jpg", "tar.gz", "csv", "doc", "html", "md", "zip", "png", "bak", "mp3", "old", "py", "xml",
    "tmp", "log", "json",
]  # fmt: skip
_SEPARATORS = (" ", " ", " ", "_", "-", ".", "  ", "+", "%20", "\t", " - ", "/", "__", ", ")
_DATES = [
    "{m} {d}, {y}", "{d} {m} {y}", "{d}{suffix} {m} {y}", "{m} {d}{suffix} {y}", "{d}.{n}.{y}", "{d:02}.{n:02}.{y}",
    "{n}/{d}/{y}", "{n:02}/{d:02}/{y}", "{y}{n:02}{d:02}", "{y}/{n}/{d}", "{d}-{m}-{y}", "{y}, {m} {d}",
    "the {d}{suffix} of {m}, {y}",
]  # fmt: skip
_PHONES = [
    "({a}) {b}-{c}", "{a}.{b}.{c}", "{a}{b}{c}", "{a} {b} {c}", "+1 {a} {b} {c}", "1-{a}-{b}-{c}", "tel. {a}/{b}{c}",
]  # fmt: skip
_FIELDS = [
    "{k}={v}", "{k} : {v}", '"{k}": "{v}"', "<{k}>{v}</{k}>", "{k} -> {v}", "--{k}={v}", "{k}:{v};", "[{k}] {v}",
]  # fmt: skip
_WRAPPINGS = [
    "<b>{}</b>", '"{}"', "({})", "[{}]", "  {} ", "https://www.{}", "<p>{}</p>", "« {} »", "{}\\n", "'{}',",
    "/tmp/{}", "&nbsp;{}", "mojibake", "entities",
]  # fmt: skip


def spelled(number: int) -> str:
    """Return a number from 0 to 999,999,999 in English words."""
    if number < 20:
        return _ONES[number]
    if number < 100:
        return _TENS[number // 10 - 2] + (f"-{_ONES[number % 10]}" if number % 10 else "")
    for size, name in ((10**6, "million"), (1000, "thousand"), (100, "hundred")):
        if number >= size:
            rest = number % size
            return f"{spelled(number // size)} {name}" + (f" {spelled(rest)}" if rest else "")
    raise AssertionError


def unchanged(text: str) -> str:
    return text


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
        documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
        texts += [ast.get_docstring(node) or "" for node in ast.walk(tree) if isinstance(node, documented)]
    split = (" ".join(part.split()) for text in texts for part in re.split(r"(?<=[.!?:])\s+|\n\s*\n", text))
    return list(dict.fromkeys(part for part in split if re.fullmatch(r"[A-Z][A-Za-z ,'-]{12,110}[.]?", part)))


class Pairs:
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
        self.clean: list[Callable[[], tuple[str, str]]] = [
            *[self.noisy_text] * 12, self.date, self.quantity, self.number, self.name, self.items, self.code,
            self.field, self.measure, self.phone,
        ]  # fmt: skip
        self.pick = self.random.choice
        # each takes a list of words
        self.named: dict[str, Callable[[list[str]], str]] = {
            "upper": lambda words: " ".join(words).upper(),
            "lower": lambda words: " ".join(words).lower(),
            "title": lambda words: " ".join(word.capitalize() for word in words),
            "swapcase": lambda words: " ".join(words).swapcase(),
            "copy": " ".join,
            "reverse": lambda words: " ".join(words)[::-1],
            "backwards": lambda words: " ".join(words[::-1]),
            "mirror": lambda words: " ".join(word[::-1] for word in words),
            "sort": lambda words: " ".join(sorted(words, key=str.lower)),
            "letters": lambda words: " ".join("".join(sorted(word.lower())) for word in words),
            "longest first": lambda words: " ".join(sorted(words, key=len, reverse=True)),
            "unique": lambda words: " ".join(dict.fromkeys(words)),
            "initials": lambda words: "".join(word[0] for word in words).upper(),
            "dotted": lambda words: "".join(word[0].upper() + "." for word in words),
            "first": lambda words: words[0],
            "last": lambda words: words[-1],
            "rest": lambda words: " ".join(words[1:]) or "-",
            "last to front": lambda words: " ".join(words[-1:] + words[:-1]),
            "first to end": lambda words: " ".join(words[1:] + words[:1]),
            "swap": lambda words: " ".join(words[1::-1] + words[2:]),
            "twice": lambda words: " ".join(word for word in words for _ in range(2)),
            "spaced": lambda words: " ".join("".join(words)),
            "joined": "".join,
            "camel": lambda words: "".join(word.capitalize() for word in words),
            "snake": lambda words: "_".join(words).lower(),
            "list": lambda words: ", ".join(words),
            "count": lambda words: str(len(words)),
            "length": lambda words: str(len(" ".join(words))),
            "lengths": lambda words: " ".join(str(len(word)) for word in words),
            "vowels": lambda words: re.sub(r"(?i)[^aeiou ]", "", " ".join(words)),
            "consonants": lambda words: re.sub(r"(?i)[aeiou]", "", " ".join(words)),
            "digits": lambda words: re.sub(r"\D", "", " ".join(words)) or "-",
            "no digits": lambda words: re.sub(r"\d", "", " ".join(words)).strip() or "-",
            "endings": lambda words: " ".join(word[-3:] for word in words),
            "beginnings": lambda words: " ".join(word[:3] for word in words),
            "every second": lambda words: " ".join(words)[::2],
            "next letters": lambda words: " ".join(words).lower().translate(_NEXT),
            "quoted": lambda words: " ".join(f"'{word}'" for word in words),
            "numbered": lambda words: " ".join(f"{i}.{word}" for i, word in enumerate(words, 1)),
            "middle": lambda words: words[len(words) // 2],
            "dashes": lambda words: "-".join("".join(words)),
            "pig": lambda words: " ".join(word[1:] + word[0] + "ay" for word in words),
            "bytes": lambda words: " ".join(words).encode()[:15].hex(),
        }
        self.special: list[Callable[[], tuple[str, str]]] = [
            self.replace, self.look_up, self.spell, self.sum_of, self.column, self.long_date, self.compare, self.remove,
        ]  # fmt: skip

    def __iter__(self) -> Iterator[tuple[str, str]]:
        while True:
            kind = self.random.random()
            if kind < 0.62:
                source, target = self.pick(self.clean)()
            elif kind < 0.9:
                name = self.pick(list(self.named))
                words = self.text(self.length())
                source, target = f"{name}: {' '.join(words)}", self.named[name](words)
            else:
                source, target = self.pick(self.special)()
            if source.strip() and 1 <= len(target.encode()) <= MAX_TARGET and len(source.encode()) <= MAX_SOURCE:
                yield source, target

    # texts

    def length(self) -> int:
        """Return a number of words: few, but positions past those of short texts are to be known too."""
        return self.random.randint(7, 18) if self.random.random() < 0.06 else self.random.randint(1, 6)

    def digits(self, most: int) -> str:
        return "".join(self.pick(string.digits) for _ in range(self.random.randint(1, most)))

    def syllables(self) -> str:
        parts = (self.pick("bcdfghjklmnprstvwz") + self.pick("aeiou") for _ in range(self.random.randint(1, 4)))
        return "".join(parts) + self.pick(["", "n", "r", "s", "l", "x", "th"])

    def invented(self) -> str:
        """Return a word that stands in no dictionary."""
        draw = self.random.random()
        if draw < 0.3:
            return self.syllables()
        if draw < 0.45:
            return "".join(self.random.choices(string.ascii_letters, k=self.random.randint(2, 9)))
        if draw < 0.65:
            return self.digits(5)
        if draw < 0.75:
            return "".join(self.random.choices(string.ascii_uppercase, k=self.random.randint(1, 3))) + self.digits(4)
        if draw < 0.85:
            return self.digits(2) + self.pick(".,/-:") + self.digits(3)
        if draw < 0.93:
            characters = string.ascii_letters + string.digits + "()[]=#+-./_:"
            return "".join(self.random.choices(characters, k=self.random.randint(3, 12)))
        first, last = self.pick([(0xC0, 0x17F), (0x391, 0x3C9), (0x410, 0x44F)])
        return "".join(chr(self.random.randint(first, last)) for _ in range(self.random.randint(2, 5)))

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
        if self.random.random() < 0.1:
            words[0] = self.accented(words[0])
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
            text = self.wrapped(text)
        return text, " ".join(words)

    def reordered(self, words: list[str]) -> list[str]:
        """Return the words in short forms, in another order, and with debris, each now and then."""
        noisy, draw = list(words), self.random.random()
        if self.random.random() < 0.12:
            noisy = [_SHORT.get(word.lower(), word) for word in noisy]
        if draw < 0.15 and len(noisy) > 1:
            noisy = [noisy[-1] + ",", *noisy[:-1]]
        elif draw < 0.23 and len(noisy) > 1:
            i = self.random.randrange(len(noisy) - 1)
            noisy[i : i + 2] = noisy[i + 1], noisy[i]
        elif draw < 0.28:
            i = self.random.randrange(len(noisy))
            noisy.insert(i, noisy[i])
        for _ in range(self.pick([1, 1, 2]) if self.random.random() < 0.35 else 0):
            noisy.insert(self.pick([0, len(noisy), self.random.randint(0, len(noisy))]), self.pick(_DEBRIS))
        return noisy

    def accented(self, word: str) -> str:
        marks = ("\u0301", "\u0300", "\u0308", "\u0302", "\u0303")
        i = self.random.randrange(len(word))
        return unicodedata.normalize("NFC", word[: i + 1] + self.pick(marks) + word[i + 1 :])

    def recased(self, text: str) -> str:
        draw = self.random.random()
        if draw < 0.4:
            return text
        if draw < 0.9:
            return self.pick([str.lower, str.upper, str.lower, str.swapcase, str.title])(text)
        return "".join(self.pick([str.lower, str.upper])(letter) for letter in text)

    def mistyped(self, text: str) -> str:
        letters = list(text)
        for _ in range(max(1, len(letters) // 12)):
            i, draw = self.random.randrange(len(letters)), self.random.random()
            if draw < 0.25:
                letters[i] = ""
            elif draw < 0.45:
                letters[i] *= 2
            elif draw < 0.65 and i:
                letters[i - 1 : i + 1] = letters[i], letters[i - 1]
            elif draw < 0.9:
                letters[i] = _LOOKS_LIKE.get(letters[i].lower(), letters[i])
            else:
                letters[i] = self.pick("?_ " + string.ascii_lowercase)
        return "".join(letters)

    def wrapped(self, text: str) -> str:
        form = self.pick(_WRAPPINGS)
        if form == "mojibake":
            return text.encode().decode("cp1252", "ignore")
        return html.escape(text) if form == "entities" else form.format(text)

    def day(self) -> datetime.date:
        return datetime.date.fromordinal(self.random.randint(693_596, 767_010))  # from 1900 to 2100

    def date(self) -> tuple[str, str]:
        day = self.day()
        month = self.pick([unchanged, unchanged, str.lower, str.upper])(_MONTHS[day.month - 1])
        month = self.pick([month, month[:3], month[:3] + "."])
        suffix = {1: "st", 2: "nd", 3: "rd"}.get(day.day % 10 if day.day // 10 != 1 else 0, "th")
        form = self.pick(_DATES)
        return form.format(d=day.day, n=day.month, y=day.year, m=month, suffix=suffix), day.isoformat()

    def amount(self) -> int:
        return self.random.randrange(10 ** self.random.randint(1, 7))

    def number(self) -> tuple[str, str]:
        number = self.amount()
        text = spelled(number)
        if self.random.random() < 0.3:
            text = text.replace("hundred ", "hundred and ")
        if self.random.random() < 0.3:
            text = text.replace("-", " ")
        return self.recased(text), str(number)

    def quantity(self) -> tuple[str, str]:
        """Digits with separators of thousands, decimals or a currency."""
        whole, cents = self.amount(), self.random.randrange(100)
        text = f"{whole:,}.{cents:02}"
        if self.random.random() < 0.5:
            text = text.translate({44: self.pick(". '"), 46: ","})
        sign = self.pick(["$", "€", "EUR ", "USD ", "£", ""])
        return self.pick([f"{sign}{text}", f"{text} {sign}", f"{sign} {text}-"]), f"{whole}.{cents:02}"

    def name(self) -> tuple[str, str]:
        first, last = (self.pick([self.syllables(), self.pick(self.words)]).capitalize() for _ in range(2))
        initial = self.pick(string.ascii_uppercase) + "." if self.random.random() < 0.4 else ""
        given = f"{first} {initial}".strip()
        title = self.pick(["", "", "Mr. ", "Mrs ", "Prof. ", "Dr "])
        form = self.pick(["{l}, {g}", "{t}{g} {l}", "{l}; {g}", "{l} ({g})", "{l}/{g}", "{g}_{l}", "{t}{l}, {g}"])
        return self.recased(form.format(l=last, g=given, t=title)), f"{given} {last}"

    def items(self) -> tuple[str, str]:
        words = self.text(self.random.randint(2, 5))
        joined = self.pick([",", ";", " | ", " , ", "/", "\t", " and ", " + ", ",,", ";  "]).join(words)
        return self.pick(["{}", "[{}]", "({})", "{},", "- {}"]).format(joined), ", ".join(words)

    def code(self) -> tuple[str, str]:
        parts = ["".join(self.random.choices(string.ascii_uppercase, k=self.random.randint(1, 4))), self.digits(4)]
        parts += [self.invented()[:4].upper() for _ in range(self.pick([0, 0, 1]))]
        joined = self.pick(["", " ", "_", ".", "/", " - ", "--", ":"]).join(parts)
        return self.pick(["{}", "#{}", "({})", "no. {}", "id={}"]).format(self.recased(joined)), "-".join(parts)

    def field(self) -> tuple[str, str]:
        key, value = self.pick(self.words).lower(), " ".join(self.text(self.random.randint(1, 3)))
        form = self.pick(_FIELDS)
        return form.format(k=self.recased(key), v=value), f"{key}: {value}"

    def measure(self) -> tuple[str, str]:
        unit = self.pick(list(_UNITS))
        number = self.digits(3).lstrip("0") or "0"
        decimals = "." + self.digits(2) if self.random.random() < 0.3 else ""
        noisy = self.pick([number + decimals, number + decimals.replace(".", ",")])
        if not decimals and self.random.random() < 0.3:
            noisy = spelled(int(number))
        return noisy + self.pick([" ", "", " ", "  "]) + self.pick(
            [unit, *_UNITS[unit].split()]
        ), f"{number}{decimals} {unit}"

    def phone(self) -> tuple[str, str]:
        area, first, second = (str(self.random.randint(10 ** (k - 1), 10**k - 1)) for k in (3, 3, 4))
        form = self.pick(_PHONES)
        return form.format(a=area, b=first, c=second), f"{area}-{first}-{second}"

    # tasks with arguments

    def replace(self) -> tuple[str, str]:
        words = self.text(self.random.randint(1, 5))
        text = " ".join(words)
        old, new = (
            self.pick([self.pick(text.replace(" ", "")), self.pick(words)]),
            self.pick([*string.ascii_lowercase, *words]),
        )
        return f"{old} becomes {new}: {text}", text.replace(old, new) or "-"

    def remove(self) -> tuple[str, str]:
        words = self.text(self.random.randint(2, 5))
        word = self.pick(words)
        return f"without {word}: {' '.join(words)}", " ".join(other for other in words if other != word) or "-"

    def look_up(self) -> tuple[str, str]:
        table = {self.pick(self.words): self.invented() for _ in range(self.random.randint(2, 4))}
        key = self.pick(list(table))
        return f"get {key}: " + self.pick([", ", "; "]).join(f"{k}={v}" for k, v in table.items()), table[key]

    def column(self) -> tuple[str, str]:
        words = self.text(self.random.randint(2, 5))
        i = self.random.randrange(len(words))
        return f"item {i + 1}: " + self.pick([", ", ";", "|", "\t"]).join(words), words[i]

    def spell(self) -> tuple[str, str]:
        number = self.amount()
        return f"in words: {number}", spelled(number)

    def sum_of(self) -> tuple[str, str]:
        first, second = self.random.randrange(1000), self.random.randrange(100)
        return self.pick([(f"plus: {first} {second}", str(first + second)), (f"next: {first}", str(first + 1))])

    def long_date(self) -> tuple[str, str]:
        day = self.day()
        return f"long date: {day.isoformat()}", f"{_MONTHS[day.month - 1]} {day.day}, {day.year}"

    def compare(self) -> tuple[str, str]:
        numbers = [self.amount() for _ in range(self.random.randint(2, 4))]
        return "ascending: " + " ".join(map(str, numbers)), " ".join(map(str, sorted(numbers)))


_NEXT = str.maketrans(string.ascii_lowercase, string.ascii_lowercase[1:] + "a")


def read_words(file: str | Path) -> list[str]:
    """Return the first word of each line, if it has only letters and an apostrophe, without comments."""
    words = (line.split(maxsplit=1)[0] for line in Path(file).read_text("utf8").splitlines() if line.strip())
    return sorted({word for word in words if re.fullmatch(r"[a-z]+('[a-z]+)?", word)})


def main() -> None:
    """Write pairs as a csv file."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--output-file", default="pairs.csv")
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--words", help="A file whose lines begin with a word, such as cmudict.dict.")
    args = parser.parse_args()
    pairs = Pairs(args.seed, sentences_of_python(), read_words(args.words) if args.words else ())
    with open(args.output_file, "w", newline="", encoding="utf8") as file:
        table = csv.writer(file)
        table.writerow(["source", "target"])
        table.writerows(pair for pair, _ in zip(pairs, range(args.rows), strict=False))


if __name__ == "__main__":
    main()
