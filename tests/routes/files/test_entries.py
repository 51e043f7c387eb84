"""The entries of a file, each with its place."""

import json
import tracemalloc

import pytest

from weftformer.common.packed import VARIABLE
from weftformer.routes.files.entries import read_entries

LEAF, TREE = {"smiles": "C"}, {"smiles": "CO", "children": [{"smiles": "C"}, {"smiles": "O"}]}
RETROCAST = {"target": {"smiles": "CO", "product_of": {"reactants": [LEAF, {"smiles": "O"}]}, "annotations": {}}}


@pytest.mark.parametrize(
    ("data", "places"),
    [
        ([TREE, LEAF], ["[0]", "[1]"]),
        ([[TREE, LEAF], [], [TREE]], ["[0][0]", "[0][1]", "[2][0]"]),
        ({"rank": 1, **RETROCAST}, [""]),
        ({"children": TREE["children"], "smiles": "CO"}, [""]),
        ({"name": "x", "constraints": [{"kind": 1}], "targets": {"a": TREE, "b'": [RETROCAST]}, "last": 1},
         ["targets['a']", 'targets["b\'"][0]']),
        ({"schema": {"fields": []}, "data": [{"index": 0, "target": "CO", "trees": [TREE]}]}, ["data[0].trees[0]"]),
        ({"t": [{"rank": 1, "route": RETROCAST}, {"rank": 2, "failure": {}}], "u": [], "v": [TREE]},
         ["['t'][0]", "['t'][1]", "['v'][0]"]),
        ([], []),
    ],
)  # fmt: skip
@pytest.mark.parametrize("layout", [{"indent": 2}, {"separators": (",", ":"), "ensure_ascii": False}])
def test_parts_of_a_document_and_their_places(tmp_path, data, places, layout):
    (tmp_path / "a").write_text(json.dumps(data, **layout))
    found = [part.place for entry in read_entries(tmp_path / "a") for part in entry.parts()]
    # an object on one line is a line
    line = "line 1" if "indent" not in layout and isinstance(data, dict) else ""
    assert found == [line + ("." if line and place.startswith(tuple("td")) else "") + place for place in places]


@pytest.mark.parametrize(
    ("text", "before", "place"),
    [
        ('[{"smiles": "C"}, {"smiles": "C', 1, r"\[1\]: "),
        ('[{"smiles": "C"},\n {"smiles": "C"}', 2, r"\[2\]: "),
        ('[{"smiles": "C"},\n {"smiles": "C"}] x', 2, r"\[2\]: "),
        ('{"targets":\n "a" {}}', 0, "the JSON document is damaged"),
        (b'[{"smiles": "C"},\n {"smiles": "\xe9\xe9"}]', 1, r"\[1\]: "),
    ],
)
def test_a_damaged_document_is_read_up_to_the_damage(tmp_path, text, before, place):
    (tmp_path / "a").write_bytes(text.encode() if isinstance(text, str) else text)
    entries = read_entries(tmp_path / "a")
    for _ in range(before):
        next(entries)
    with pytest.raises(ValueError, match=r"a[,:] " + place):
        list(entries)


MAPPED = "[CH4:1].[OH2:2].[Na+].[OH-]>ClCCl>[CH3:1][OH:2]"


@pytest.mark.parametrize(
    "text",
    [
        f"ReactionSmiles\tPatentNumber\tYear\n{MAPPED} |f:2.3|\tUS1\t1999\n",
        f"id,class,reactants>reagents>production\nUS1,1,{MAPPED}\n",
        f"ID,rxn_Class,rxnSmiles_Mapping_NameRxn\nUS1,1,{MAPPED}\n",
        f"{MAPPED} |f:2.3|\tUS1\t1999\n",
    ],
)
def test_tables_of_reactions_of_patents_are_read(tmp_path, text):
    (tmp_path / "a").write_text(text)
    ((route,),) = (entry.routes() for entry in read_entries(tmp_path / "a"))
    assert (route.smiles, route.leaves()) == ("[CH3][OH]", ["[CH4]", "[OH2]"])


@pytest.mark.parametrize(
    "text",
    [
        "[\n" + "[" * 20_000 + "]" * 20_000 + "]",
        "[\n" + '{"a":' * 20_000 + "1" + "}" * 20_000 + "]",
        '[{"smiles": "C"},' + ('{"' + "k" * 1000 + '": [') * 2000,
        '{\n"a": ' + "[" * 100_000,
    ],
)
def test_a_deep_document_takes_little_memory(tmp_path, text):
    (tmp_path / "a").write_text(text)
    tracemalloc.start()
    with pytest.raises(ValueError, match="nested too deeply"):
        list(read_entries(tmp_path / "a"))
    assert tracemalloc.get_traced_memory()[1] < 20 * len(text) + (8 << 20)
    tracemalloc.stop()


@pytest.mark.parametrize("blank", ["\n", "\r\n", " \t\r\n"])
@pytest.mark.parametrize(
    "content", ['{"smiles": "C"}\n', '[{"smiles": "C"},\n{"smiles": "O"}]', "reactions\nC.O>>CO\n", "C.O>>CO\n"]
)
def test_blank_lines_at_the_start_take_linear_time(tmp_path, blank, content):
    (tmp_path / "a").write_bytes((blank * 20_000 + content).encode())
    (entry, *_) = read_entries(tmp_path / "a")
    assert entry.place == {"{": "line 20001", "[": "[0]", "r": "row 1", "C": "line 20001"}[content[0]]


@pytest.mark.parametrize("size", [1 << 20, 5 << 20])
def test_long_first_lines_are_whole(tmp_path, size):
    lines = [{"smiles": "C", "note": "x" * size}, {"smiles": "O"}]
    (tmp_path / "a").write_text("\n" + "".join(json.dumps(line) + "\n" for line in lines))
    assert [entry.parsed for entry in read_entries(tmp_path / "a")] == lines


@pytest.mark.parametrize("start", ['{"smiles": "C"}\n' * 2, "smiles,route\nC,\n", "C.O>>CO\n" * 2])
def test_a_line_has_a_limit(tmp_path, monkeypatch, start):
    (tmp_path / "a").write_text(start + "C" * ((1 << 20) + 1))
    monkeypatch.setenv(VARIABLE, "1")
    with pytest.raises(ValueError, match=rf"/a has a line of more than 1 MiB.*{VARIABLE}"):
        list(read_entries(tmp_path / "a"))
    monkeypatch.setenv(VARIABLE, "2")
    if not start.startswith("smiles"):  # a cell has a limit of its own
        assert len(list(read_entries(tmp_path / "a"))) == 3
