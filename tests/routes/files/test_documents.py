"""One JSON document, cut into its parts."""

import json
import random

import pytest

from weftformer.routes.files import documents
from weftformer.routes.files.documents import document_entries
from weftformer.routes.files.formats import routes_in

LEAF, TREE = {"smiles": "C"}, {"smiles": "CO", "children": [{"smiles": "C"}, {"smiles": "O"}]}
RETROCAST = {"target": {"smiles": "CO", "product_of": {"reactants": [LEAF, {"smiles": "O"}]}, "annotations": {}}}


def parts(text: str | bytes, size: int = 7) -> list:
    data = text.encode() if isinstance(text, str) else text
    return list(document_entries(data[start : start + size] for start in range(0, len(data), size)))


@pytest.fixture(autouse=True)
def small_buffer(monkeypatch):
    monkeypatch.setattr(documents, "_CHUNK", 5)


@pytest.mark.parametrize(
    ("data", "places"),
    [
        ([TREE, LEAF], ["[0]", "[1]"]),
        ([[TREE, LEAF], [], [TREE]], ["[0][0]", "[0][1]", "[2][0]"]),
        (TREE, [""]),
        ({"rank": 1, **RETROCAST}, [""]),
        ({"children": TREE["children"], "smiles": "CO"}, [""]),
        ({"name": "x", "constraints": [{"kind": 1}], "targets": {"a": TREE, "b'": [RETROCAST]}, "last": 1},
         ["targets['a']", 'targets["b\'"][0]']),
        ({"schema": {"fields": []}, "data": [{"index": 0, "target": "CO", "trees": [TREE]}]}, ["data[0]"]),
        ({"t": [{"rank": 1, "route": RETROCAST}, {"rank": 2, "failure": {}}], "u": [], "v": [TREE]}, ["['t']", "['v']"]),
        ([], []),
        ("{'smiles':'C'}", [""]),
    ],
)  # fmt: skip
@pytest.mark.parametrize("layout", [{}, {"indent": 2}, {"separators": (",", ":")}])
def test_parts_and_their_places(data, places, layout):
    found = parts(json.dumps(data, **layout))
    assert [place for place, _ in found] == places
    # cut or whole, the routes are the same
    assert [route for place, part in found for route in routes_in(part, place)] == list(routes_in(data))


def test_any_cut_gives_the_same():
    rng = random.Random(0)
    data = [[TREE, {"smiles": 'C"\\]é😀', "n": [1.5, -2e10, True, None]}], [LEAF] * 9]
    expected = [("[0][0]", data[0][0]), ("[0][1]", data[0][1]), *((f"[1][{i}]", LEAF) for i in range(9))]
    for text in (json.dumps(data), json.dumps(data, indent=1, ensure_ascii=False)):
        for _ in range(40):
            assert parts(text, rng.randint(1, 60)) == expected


def test_a_number_is_not_cut():
    assert parts('{"version": 123456789, "targets": [12345678, 9]}', 3) == [
        ("targets[0]", 12345678),
        ("targets[1]", 9),
    ]


@pytest.mark.parametrize(
    ("text", "before", "message"),
    [
        ('[{"smiles": "C"}, {"smiles": "C', 1, r"^\[1\]: Unterminated string.*cut off"),
        ('[{"smiles": "C"}, {"smiles": "C"}', 2, "expected ',' or ']', found the end of the file"),
        ('[{"smiles": "C"},', 1, r"^\[1\]: Expecting value"),
        ('[{"smiles": "C"},\n {"smiles": C}]', 1, r"^\[1\]: Expecting value \(line 2, character 30 of the file\)"),
        (
            '[{"smiles": "C"} {"smiles": "C"}]',
            1,
            r"^line 1, character 17 of the file: expected ',' or '\]', found '{'",
        ),
        ('[{"smiles": "C"}] x', 1, "text after the end of the JSON document"),
        ('{"targets": {"a" {}}}', 0, "expected a name and ':'"),
        ('{"targets": {1: {}}}', 0, "expected a name and ':'"),
        ('[{"smiles": "C"}, nothing]', 1, r"^\[1\]: Expecting value"),
        (b'[{"smiles": "C"}, {"smiles": "\xe9\xe9\xe9\xe9\xe9\xe9\xe9"}]', 1, "the text is not UTF-8"),
        ("[" * 100_000, 0, r"^\[0\]\[0\]\[0\]\[0\]\[0\]\[0\]\[0\]\[0\]: nested too deeply"),
    ],
)
def test_what_ends_the_reading(text, before, message):
    data = text.encode() if isinstance(text, str) else text
    found = document_entries(data[start : start + 9] for start in range(0, len(data), 9))
    for _ in range(before):
        next(found)
    with pytest.raises(ValueError, match=message):
        list(found)


def test_what_has_no_end_is_not_swallowed(monkeypatch):
    monkeypatch.setattr(documents, "MAX_ENTRY", 1000)
    endless = (b'["' if index == 0 else b"C" * 100 for index in range(10**9))
    with pytest.raises(ValueError, match="longer than 1000 characters"):
        list(document_entries(endless))
