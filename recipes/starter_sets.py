"""Write small sets of pairs, to measure what the starter gives with a few hundred pairs.

    python -m weftformer.recipes.starter_sets --output-dir runs/sets

Each set has 300 pairs to train on and 500 to test on, with different sources, in NAME-train.csv and NAME-test.csv.
`titles` also has 3,000 (titles-3000-train.csv). Titles, numbers, dates and names are of kinds that the starter saw
while it was pretrained (`starter_pairs.py`), in other notations. The other sets were kept apart from it: stock (fields
in another order), roman numerals, formulas (atoms counted), and inflection.
"""

import argparse
import csv
import datetime
import random
import re
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path

from .starter_pairs import spelled, unchanged

_TITLE_WORDS = [
    "the", "of", "and", "in", "a", "night", "river", "winter", "garden", "shadow", "king", "queen", "house",
    "stone", "silent", "last", "first", "glass", "city", "dream", "fire", "ocean", "letter", "secret", "history",
    "science", "modern", "art", "guide", "practical", "introduction", "music", "stars", "empire", "return", "road",
    "summer", "blue", "iron", "golden", "island", "memory", "machine", "theory", "light", "dark", "mountain",
    "bird", "forest", "war", "peace", "love", "lost", "world", "journey",
]  # fmt: skip
_MONTHS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"]
_FIRST = [
    "Anna", "Ben", "Clara", "David", "Emil", "Fatima", "George", "Hanna", "Ivan", "Julia", "Karim", "Laura",
    "Miguel", "Nora", "Oskar", "Paula", "Quentin", "Rosa", "Samir", "Tara",
]  # fmt: skip
_ROMAN = (
    (1000, "M"), (900, "CM"), (500, "D"), (400, "CD"), (100, "C"), (90, "XC"), (50, "L"), (40, "XL"), (10, "X"), (9, "IX"),
    (5, "V"), (4, "IV"), (1, "I"),
)  # fmt: skip
_GROUPS = ("CH3", "CH2", "CH", "OH", "NH2", "NH", "CO", "Cl", "Br", "SO2", "C6H5", "C6H4", "COOH", "CF3", "NO2", "CN")
_VERBS = [
    "walk", "carry", "stop", "hope", "play", "try", "plan", "love", "watch", "push", "fix", "agree", "study",
    "move", "dance", "rub", "cry", "enjoy", "mix", "smile", "wash", "hurry", "grab", "bake", "chat", "deny",
    "employ", "face", "guess", "hug", "invite", "jog", "kiss", "last", "marry", "nod", "offer", "pass", "rely",
    "shop", "taste", "use", "visit", "worry", "yell", "save", "tip",
]  # fmt: skip
_THINGS = [
    "lamp", "chair", "table", "desk", "shelf", "sofa", "stool", "bench", "mirror", "carpet", "clock", "vase", "bed",
    "frame", "cabinet",
]  # fmt: skip
_ENDINGS = [
    "b", "ck", "d", "ff", "g", "l", "ll", "mp", "n", "nt", "p", "r", "sh", "ss", "st", "t", "y", "ve", "ze",
]  # fmt: skip


def surname(r: random.Random) -> str:
    middle = "".join(r.choice("bdfgklmnprstvz") + r.choice("aeiou") for _ in range(r.randint(1, 2)))
    return (
        r.choice("BDFGHKLMNPRSTVW")
        + r.choice("aeiou")
        + middle
        + r.choice(["n", "ck", "rs", "ll", "ski", "sen", "ner", ""])
    )


def titles(r: random.Random) -> tuple[str, str]:
    """A file name to a title: `THE_silent-river vol.3.PDF` to `The Silent River, Vol. 3`."""
    words = r.choices(_TITLE_WORDS, k=r.randint(2, 5))
    if r.random() < 1 / 3:
        words[r.randrange(len(words))] = surname(r).lower()
    small = {"the", "of", "and", "in", "a"}
    clean = " ".join(word if i and word in small else word.capitalize() for i, word in enumerate(words))
    noisy = r.choice(["_", " ", "-", ".", "  "]).join(
        r.choice([str.lower, str.upper, str.capitalize])(word) for word in words
    )
    if r.random() < 0.6:
        volume = r.randint(1, 30)
        clean += f", Vol. {volume}"
        noisy += r.choice(
            [" vol.{}", "_v{}", " Volume {}", " ({})", "-VOL{:02}", " #{}", "_no_{}", " part {}"]
        ).format(volume)
    if r.random() < 0.5:
        noisy += r.choice([".pdf", ".PDF", ".epub", ".txt", ".mobi"])
    if r.random() < 0.2:
        noisy = r.choice(["[scan] ", "(2nd copy) ", "  "]) + noisy
    return noisy, clean


def numbers(r: random.Random) -> tuple[str, str]:
    """`twelve thousand and forty` to `12040`."""
    number = r.randrange(10 ** r.randint(1, 6))
    return spelled(number).replace("hundred ", r.choice(["hundred ", "hundred and "])), str(number)


def dates(r: random.Random) -> tuple[str, str]:
    """`7 Mar '94` or `Mar 7 94` to `1994-03-07`."""
    day = datetime.date.fromordinal(r.randint(711_858, 736_694))  # 1950 to 2017
    form = r.choice(["{d} {m} '{y:02}", "{m} {d} {y:02}", "{d}-{n}-{y:02}", "{m}. {d:02}, '{y:02}", "{d:02}{m}{y:02}"])
    return form.format(d=day.day, m=_MONTHS[day.month - 1], n=day.month, y=day.year % 100), day.isoformat()


def names(r: random.Random) -> tuple[str, str]:
    """`Dr. Clara Maria Dobeck` to `Dobeck, C. M.`"""
    first, last = r.sample(_FIRST, k=r.randint(1, 2)), surname(r)
    shown = [name if r.random() < 0.7 else name[0] + "." for name in first]
    text = r.choice(["", "", "Dr. ", "Prof ", "Ms "]) + " ".join([*shown, last])
    text = r.choice([unchanged, unchanged, str.upper])(text)
    return text, f"{last}, " + " ".join(name[0] + "." for name in first)


def stock(r: random.Random) -> tuple[str, str]:
    """`3 x lamp, red, (ref kt 204)` to `KT204|lamp|red|3`."""
    letters, digits, count = "".join(r.choices("ABKLMPRTXZ", k=2)), str(r.randint(10, 9999)), r.randint(1, 60)
    thing = r.choice(_THINGS)
    colour = r.choice(["red", "blue", "green", "black", "white", "brown", "grey", "yellow"])
    reference = r.choice([f"{letters.lower()} {digits}", f"{letters}-{digits}", f"{letters}{digits}"])
    form = r.choice(
        ["{c} x {t}, {k} (ref {r})", "{k} {t} {r} qty {c}", "{r}: {c} pcs {t}, {k}", "{t} ({k}) - {r} - {c}"]
    )
    return form.format(c=count, t=thing, k=colour, r=reference), f"{letters}{digits}|{thing}|{colour}|{count}"


def roman(r: random.Random) -> tuple[str, str]:
    """`1994` to `MCMXCIV`."""
    rest = number = r.randint(1, 3999)
    text = ""
    for size, letters in _ROMAN:
        text, rest = text + letters * (rest // size), rest % size
    return str(number), text


def formulas(r: random.Random) -> tuple[str, str]:
    """Atoms counted in Hill's order: `CH3CH2OH` to `C2H6O`."""
    text = "".join(r.choices(_GROUPS, k=r.randint(2, 5)))
    atoms: Counter[str] = Counter()
    for element, count in re.findall(r"([A-Z][a-z]?)(\d*)", text):
        atoms[element] += int(count or 1)
    order = sorted(atoms, key=lambda element: (element not in "CH", element)) if "C" in atoms else sorted(atoms)
    return text, "".join(f"{element}{atoms[element] if atoms[element] > 1 else ''}" for element in order)


def inflection(r: random.Random) -> tuple[str, str]:
    """`carry PAST` to `carried`: regular verbs, half of them invented."""
    verb = r.choice(_VERBS)
    if r.random() < 0.5:
        verb = r.choice("bcdfgklmnprst") + r.choice("aeiou") + r.choice(_ENDINGS)
    tag = r.choice(["PAST", "ING", "HE"])
    doubled = verb + verb[-1] if re.fullmatch(r"[^aeiou]*[aeiou][bdgklmnprt]", verb) else verb
    if tag == "HE":
        ending = "es" if re.search(r"(s|x|z|ch|sh|o)$", verb) else "s"
        form = verb[:-1] + "ies" if re.search(r"[^aeiou]y$", verb) else verb + ending
    elif tag == "ING":
        form = re.sub(r"(?<!e)e$", "", verb) + "ing" if verb.endswith("e") else doubled + "ing"
    else:
        form = (
            verb[:-1] + "ied"
            if re.search(r"[^aeiou]y$", verb)
            else verb + "d"
            if verb.endswith("e")
            else doubled + "ed"
        )
    return r.choice(["{v} {t}", "{t} {v}", "{v}+{t}"]).format(v=verb, t=tag), form


SETS: dict[str, Callable[[random.Random], tuple[str, str]]] = {
    made.__name__: made for made in (titles, numbers, dates, names, stock, roman, formulas, inflection)
}


def _drawn(make: Callable[[random.Random], tuple[str, str]], seed: int) -> Iterator[tuple[str, str]]:
    """Yield pairs whose sources differ."""
    r, seen = random.Random(f"{make.__name__} {seed}"), set()
    while True:
        source, target = make(r)
        if source not in seen:
            seen.add(source)
            yield source, target


def main() -> None:
    """Write the sets as csv files."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--output-dir", default="runs/sets", type=Path)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    args.output_dir.mkdir(parents=True, exist_ok=True)
    for name, make in SETS.items():
        stream = _drawn(make, args.seed)
        files = {f"{name}-test": 500, f"{name}-train": 300} | ({"titles-3000-train": 3000} if name == "titles" else {})
        for file, count in files.items():
            with open(args.output_dir / f"{file}.csv", "w", newline="", encoding="utf8") as opened:
                table = csv.writer(opened)
                table.writerow(["source", "target"])
                table.writerows(islice(stream, count))


if __name__ == "__main__":
    main()
