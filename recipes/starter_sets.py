"""Write small sets of pairs, to measure what the starter gives with a few hundred pairs.

    python -m weftformer.recipes.starter_sets --output-dir runs/sets

Each set has 300 pairs to train on and 500 to test on, with different sources, in NAME-train.csv and NAME-test.csv.
`titles` also has 3,000 (titles-3000-train.csv). Titles, numbers, dates and names are of kinds that the starter saw
while it was pretrained (`starter_pairs.py`), in other notations. The other sets were kept apart from it: stock (fields
in another order), roman numerals, formulas (atoms counted), and inflection.

Ten more sets have 300 pairs to test on: chords (618 to train on), quantities (600), logs (500), units (400), and
amounts, code, dimensions, products, records and transliteration (300). The products to test on are others
than those to train on.
"""
# ruff: noqa: RUF001 (Cyrillic letters are meant)

import argparse
import csv
import datetime
import random
import re
from collections import Counter
from collections.abc import Callable, Iterator
from decimal import ROUND_HALF_UP, Decimal
from itertools import islice
from pathlib import Path

from .starter_pairs import plain, spelled, unchanged

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
_ROMAN = {"M": 1000, "CM": 900, "D": 500, "CD": 400, "C": 100, "XC": 90, "L": 50, "XL": 40, "X": 10, "IX": 9, "V": 5,
          "IV": 4, "I": 1}  # fmt: skip
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


# The notes of a chord: steps up the letters, and semitones up from the root.
_THIRDS = {"m": (2, 3), "M": (2, 4), "5": (4, 7), "b5": (4, 6), "#5": (4, 8), "7": (6, 10), "M7": (6, 11), "6": (5, 9),
           "9": (1, 2), "4": (3, 5)}  # fmt: skip
_CHORDS = {
    "": "M 5", "m": "m 5", "dim": "m b5", "aug": "M #5", "sus2": "9 5", "sus4": "4 5", "7": "M 5 7", "maj7": "M 5 M7",
    "m7": "m 5 7", "m7b5": "m b5 7", "6": "M 5 6", "m6": "m 5 6", "add9": "M 5 9", "9": "M 5 7 9", "m9": "m 5 7 9",
    "7b5": "M b5 7", "7#5": "M #5 7", "mMaj7": "m 5 M7",
}  # fmt: skip
_ROOTS = ("C", "C#", "Db", "D", "D#", "Eb", "E", "F", "F#", "Gb", "G", "G#", "Ab", "A", "A#", "Bb", "B")
# Products to train on, and to test on.
_PRODUCTS = {
    "dairy": ("milk yoghurt butter cream cheddar brie kefir mozzarella", "feta quark gouda ricotta buttermilk ghee"),
    "bakery": ("bread baguette croissant bagel muffin brownie roll toast",
               "scone pretzel doughnut ciabatta crumpet pita"),
    "fruit": ("apples bananas pears grapes oranges plums lemons kiwis", "cherries mangoes peaches melons figs limes"),
    "vegetables": ("carrots onions potatoes tomatoes leeks peas spinach celery",
                   "beetroot kale courgette turnips radishes fennel"),
    "drinks": ("juice lemonade cola tea coffee beer cider smoothie", "wine tonic cordial cocoa espresso ale"),
    "household": ("bleach sponges detergent candles matches foil batteries napkins",
                  "bulbs mop bin-liners string tape polish"),
    "meat": ("chicken beef pork sausages ham bacon turkey lamb", "duck salami veal mince venison chorizo"),
}  # fmt: skip
_LABELS = ("organic", "fresh", "large", "value", "Dale Farm", "premium", "local", "Nordic", "family")
_CYRILLIC = dict(re.findall(r"(.)=(\S+)", "а=a б=b в=v г=g д=d е=e з=z и=i к=k л=l м=m н=n о=o п=p р=r с=s т=t у=u "
                            "ф=f х=kh ц=ts ч=ch ш=sh щ=shch ы=y ь=' э=e ю=yu я=ya ж=zh й=y"))  # fmt: skip
_UNITS = (
    ("kg", "g", 3),
    ("g", "mg", 3),
    ("km", "m", 3),
    ("m", "cm", 2),
    ("cm", "mm", 1),
    ("L", "mL", 3),
    ("mol", "mmol", 3),
)
_SUBSTANCES = (
    "NaH", "K2CO3", "THF", "DMF", "NaHCO3", "Pd(PPh3)4", "n-BuLi", "MgSO4", "DIBAL-H", "CuI", "brine", "water",
    "ethanol", "ethyl acetate", "acetic acid", "benzaldehyde", "4-bromoanisole", "silica gel", "triethylamine",
    "1,4-dioxane", "2-chloropyridine", "hydrogen peroxide",
)  # fmt: skip
_NAMES = ("x", "n", "row", "item", "user", "line", "node", "word", "path", "price", "total", "size", "key", "start")
_SERVICES = ("auth", "billing", "search", "mail", "cart", "worker-3", "api-gateway", "cdn", "db", "stock")
_PATHS = ("login", "orders", "users", "items", "health", "cart/lines", "v2/report", "invoices", "img", "search")


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
    forms = [name if r.random() < 0.7 else name[0] + "." for name in first]
    text = r.choice(["", "", "Dr. ", "Prof ", "Ms "]) + " ".join([*forms, last])
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


def chords(r: random.Random) -> tuple[str, str]:
    """A chord, sometimes with another note as bass, to its notes: `Cm7/Eb` to `Eb G Bb C`."""
    root, kind, bass = r.choice(_ROOTS), r.choice(list(_CHORDS)), r.randrange(3)
    pitches = dict(zip("CDEFGAB", (0, 2, 4, 5, 7, 9, 11), strict=True))
    first, pitch = "CDEFGAB".index(root[0]), pitches[root[0]] + root.count("#") - root.count("b")
    notes = [root]
    for steps, semitones in (_THIRDS[name] for name in _CHORDS[kind].split()):
        letter = "CDEFGAB"[(first + steps) % 7]
        sharps = (pitch + semitones - pitches[letter] + 6) % 12 - 6
        notes.append(letter + "#" * sharps + "b" * -sharps)
    return root + kind + (f"/{notes[bass]}" if bass else ""), " ".join(notes[bass:] + notes[:bass])


def products(r: random.Random, is_new: bool = False) -> tuple[str, str]:
    """`VALUE FRESH BAGEL 3 kg` to `bakery`."""
    kind = r.choice(list(_PRODUCTS))
    item = r.choice(_PRODUCTS[kind][is_new].split())
    labels = " ".join(r.sample(_LABELS, r.randint(0, 2)))
    sizes = [
        f"{r.randint(1, 12) * 50} g",
        f"{r.randint(1, 6)} x {r.randint(1, 9) * 100} ml",
        f"{r.randint(2, 12)} pack",
    ]
    text = f"{labels} {item} {r.choice([*sizes, f'{r.randint(1, 5)} kg', ''])}".strip()
    return r.choice([unchanged, str.upper, str.title])(text), kind


def products_new(r: random.Random) -> tuple[str, str]:
    return products(r, is_new=True)


def transliteration(r: random.Random) -> tuple[str, str]:
    """Invented words in Cyrillic letters to Latin ones: `Цябик` to `Tsyabik`."""

    def word() -> str:
        parts = (r.choice("бвгдзклмнпрстфхцчшщжй") + r.choice("аеиоуыэюя") + r.choice(["", "", "ь", "н", "р", "к"])
                 for _ in range(r.randint(1, 4)))  # fmt: skip
        text = "".join(parts)
        return text.capitalize() if r.random() < 0.5 else text

    words = [word() for _ in range(r.randint(1, 3))]
    latin = ["".join(_CYRILLIC[letter] for letter in word.lower()) for word in words]
    return " ".join(words), " ".join(
        b[0].upper() + b[1:] if a[0].isupper() else b for a, b in zip(words, latin, strict=True)
    )


def units(r: random.Random) -> tuple[str, str]:
    """`3.5 kg in g` to `3500 g`, and `95 min` to `1 h 35 min`."""
    if r.random() < 0.25:
        minutes = r.randint(61, 900)
        return f"{minutes} min", f"{minutes // 60} h" + (f" {minutes % 60} min" if minutes % 60 else "")
    large, small, power = r.choice(_UNITS)
    number, places = Decimal(r.randint(1, 999)), r.randint(0, 2)
    if r.random() < 0.5:
        amount, result, pair = plain(number.scaleb(-places)), plain(number.scaleb(power - places)), (large, small)
    else:
        amount, result, pair = str(number), plain(number.scaleb(-power)), (small, large)
    return r.choice(["{} {} in {}", "{} {} to {}", "{} {} = ? {}"]).format(amount, *pair), f"{result} {pair[1]}"


def quantities(r: random.Random) -> tuple[str, str]:
    """`added NaH: 0,5G (60 %)` to `NaH | 0.5 | g | 60%`, with the purity only if it is given."""
    name, unit, purity = r.choice(_SUBSTANCES), r.choice(["g", "mg", "mL", "L", "mmol", "mol"]), r.randint(5, 99)
    amount = plain(Decimal(r.randint(1, 9999)).scaleb(-r.randint(0, 2)))
    quantity = amount.replace(".", r.choice(".,")) + r.choice(["", " "])
    quantity += r.choice([unchanged, str.lower, str.upper])(unit)
    form = r.choice(["{a} {n}{p}", "{a} of {n}{p}", "{n}{p}, {a}", "{n}{p} ({a})", "added {n}: {a}{p}", "{n} {a}{p}"])
    notes = {f" ({purity} %)": f" | {purity}%", f" {purity}%": f" | {purity}%", "": ""}
    note = r.choice(list(notes))
    return form.format(n=name, a=quantity, p=note), f"{name} | {amount} | {unit}{notes[note]}"


def logs(r: random.Random) -> tuple[str, str]:
    """A line of a log with milliseconds in one of three forms to `auth: GET /login/31, 200 in 2.3 s`."""
    service, path = r.choice(_SERVICES), f"/{r.choice(_PATHS)}/{r.randint(1, 999)}"
    method, status = r.choice(["GET", "POST", "PUT"]), r.choice([200, 201, 304, 404, 500])
    time = r.randrange(10 ** r.randint(2, 5))
    day = datetime.datetime(2026, 1, 1) + datetime.timedelta(seconds=r.randrange(31_536_000))
    form = r.choice([
        "{d:%Y-%m-%d %H:%M:%S} INFO [{v}] {m} {p} -> {s} ({t} ms)",
        "ts={d:%H:%M:%S} svc={v} status={s} dur={t}ms method={m} path={p}",
        '{d:%d/%m/%Y} {v} "{m} {p} HTTP/1.1" {s} {t}',
    ])  # fmt: skip
    seconds = Decimal(time).scaleb(-3).quantize(Decimal("0.1"), ROUND_HALF_UP)
    line = form.format(d=day, v=service, m=method, p=path, s=status, t=time)
    return line, f"{service}: {method} {path}, {status} in {seconds} s"


def records(r: random.Random) -> tuple[str, str]:
    """A name and a date of birth on two lines, in three forms each, to two lines: `Dobeck, Clara` and `1994-03-07`."""
    first, last, day = r.choice(_FIRST), surname(r), datetime.date.fromordinal(r.randint(711_858, 736_694))
    name = r.choice(["{f} {l}", "{l}, {f}", "Name: {f} {l}"]).format(f=first, l=last)
    date = r.choice(["{d}.{n}.{y}", "born {m} {d}, {y}", "* {d} {m} {y}"])
    born = date.format(d=day.day, n=day.month, m=_MONTHS[day.month - 1], y=day.year)
    return f"{name}\n{born}", f"{last}, {first}\n{day}"


def code(r: random.Random) -> tuple[str, str]:
    """A loop in Python that appends, with a condition or without, to `found = [row.size for row in rows if row]`."""
    element, rows, target, field = r.sample([*_THINGS, *_NAMES], 4)
    rows, target = r.choice([rows + "s", f"self.{rows}s", f"read({rows})"]), r.choice([target, target + "_list"])
    number = r.randint(0, 99)
    value = r.choice(["{x}", "{x}.{o}", "{o}({x})", "{x} * {n}", "{x}[{n}]", "{x}.{o}()"])
    test = r.choice(["", "", "{x}", "{x} > {n}", "not {x}.{o}", "{x} != {o}"])
    value, test = (form.format(x=element, o=field, n=number) for form in (value, test))
    inner = f"    if {test}:\n        " if test else "    "
    loop = f"{target} = []\nfor {element} in {rows}:\n{inner}{target}.append({value})"
    return loop, f"{target} = [{value} for {element} in {rows}{f' if {test}' if test else ''}]"


def dimensions(r: random.Random) -> tuple[str, str]:
    """`6 x 100 mm` to `0.6 cm, 10 cm`: sizes of parts, in the other unit."""
    unit, target, digits = r.choice([("mm", "cm", 1), ("cm", "m", 2), ("mm", "m", 3)])
    sizes = [r.choice([r.randint(1, 20), 5 * r.randint(1, 200)]) for _ in range(r.randint(1, 3))]
    sign = r.choice([" x ", "x", " × ", "*"])
    text = sign.join(map(str, sizes)) + r.choice([" ", ""]) + unit
    label = r.choice(["", "screw ", "plate ", "M6 ", "no. 12, "])
    values = [f"{size / 10**digits:.{digits}f}".rstrip("0").rstrip(".") for size in sizes]
    return label + text, ", ".join(f"{value} {target}" for value in values)


def amounts(r: random.Random) -> tuple[str, str]:
    """`39 774,50 EUR` to `EUR 39774.50`: amounts of money in several notations."""
    cents, currency = r.randint(1, 10 ** r.randint(3, 8)), r.choice(["EUR", "USD", "CHF", "GBP", "SEK"])
    thousands, point = r.choice([(" ", ","), (".", ","), (",", "."), ("'", "."), ("", "."), ("", ",")])
    units, cents = divmod(cents, 100)
    text = f"{units:,}".replace(",", thousands) + (f"{point}{cents:02d}" if cents or r.random() < 0.7 else "")
    text = r.choice(["{t} {c}", "{c} {t}", "{t}{c}"]).format(t=text, c=currency)
    return r.choice(["", "Total: ", "invoice 12/7, "]) + text, f"{currency} {units}.{cents:02d}"


SETS: dict[str, Callable[[random.Random], tuple[str, str]]] = {
    make.__name__: make for make in (titles, numbers, dates, names, stock, roman, formulas, inflection)
}


# What is trained on and tested on, and the number of pairs to train on.
MORE_SETS = {
    make.__name__: (make, products_new if make is products else make, count)
    for make, count in ((chords, 618), (units, 400), (products, 300), (transliteration, 300), (quantities, 600),
                        (logs, 500), (records, 300), (code, 300), (dimensions, 300), (amounts, 300))
}  # fmt: skip


def _pairs(
    make: Callable[[random.Random], tuple[str, str]], seed: int, sources: set[str]
) -> Iterator[tuple[str, str]]:
    """Yield pairs whose sources are new, and add them to these."""
    r = random.Random(f"{make.__name__} {seed}")
    while True:
        source, target = make(r)
        if source not in sources:
            sources.add(source)
            yield source, target


def main() -> None:
    """Write the sets as csv files."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--output-dir", default="runs/sets", type=Path)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    args.output_dir.mkdir(parents=True, exist_ok=True)
    files: dict[str, Iterator[tuple[str, str]]] = {}
    for name, make in SETS.items():
        pairs = _pairs(make, args.seed, set())
        files |= {f"{name}-test": islice(pairs, 500), f"{name}-train": islice(pairs, 300)}
        if name == "titles":
            files["titles-3000-train"] = islice(pairs, 3000)
    for name, (train, test, count) in MORE_SETS.items():
        sources: set[str] = set()
        files[f"{name}-train"] = islice(_pairs(train, args.seed, sources), count)
        files[f"{name}-test"] = islice(_pairs(test, args.seed + 1, sources), 300)
    for file, pairs in files.items():
        with open(args.output_dir / f"{file}.csv", "w", newline="", encoding="utf8") as stream:
            table = csv.writer(stream)
            table.writerow(["source", "target"])
            table.writerows(pairs)


if __name__ == "__main__":
    main()
