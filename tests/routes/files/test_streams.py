import gzip
import itertools
import json
import random

import pytest

from weftformer.routes.files.streams import FORMS, read_routes, write_routes
from weftformer.routes.tree import Route

ROUTES = [Route("CCO", (Route("C"), Route("O"))), Route("C/C=C\\C"), Route("N", (Route("O", (Route("C"),)),))]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"route": {"smiles": "C", "children": [{"smiles": "C"}, {}]}}', r"line 2: children\[1\]\.smiles: missing"),
        ("[1]", r"line 2: \[0\]: expected a route or a list of routes, got int"),
        *((text, "line 2: ") for text in ("[" * 100_000, "5", '"x"', "1e999", "NaN", "9" * 5000, "\x00", "[{}]")),
        ('{"smiles": "\\ud800"}', "line 2: "),
    ],
)
def test_errors_name_file_and_line(tmp_path, line, message):
    path = tmp_path / "broken.jsonl"
    path.write_text('{"smiles": "C"}\n' + line + "\n")
    routes = read_routes(path)
    assert next(routes) == Route("C")  # reading is a stream
    with pytest.raises(ValueError, match=r"broken\.jsonl, " + message):
        next(routes)


def random_routes(count: int, seed: int = 0) -> list[Route]:
    """Trees of molecules that are each made in one way: salts, stereo bonds and dative bonds among them."""
    rng, names = random.Random(seed), itertools.count(1)

    def grow(depth: int) -> Route:
        smiles = f"[{next(names)}C]" + rng.choice(["", "O", "/C=C\\F", "[Na+].[Cl-]", "N->[Pt]"])
        children = rng.randint(1, 3) if depth and rng.random() < 0.8 else 0
        return Route(smiles, tuple(grow(depth - 1) for _ in range(children)))

    return [Route("C" * (i + 1) + "S", (grow(3), grow(2))) for i in range(count)]


@pytest.mark.parametrize("name", ["routes.data", "routes.gz"])
@pytest.mark.parametrize("form", [form for form in FORMS if form != "retrocast"])
def test_every_form_reads_back(tmp_path, form, name):
    routes = random_routes(30)
    assert write_routes(tmp_path / name, iter([*routes, routes[-1]]), form) == 31
    assert (tmp_path / name).read_bytes().startswith(b"\x1f\x8b") == name.endswith(".gz")
    if name.endswith(".gz"):
        assert not (tmp_path / name).read_bytes()[3]  # no name, which would be that of the temporary file
    (tmp_path / name).rename(tmp_path / "other.xyz")  # what it is called does not matter
    assert list(read_routes(tmp_path / "other.xyz")) == [*routes, routes[-1]]


def test_other_forms_are_literal(tmp_path):
    path = tmp_path / "a"
    write_routes(path, ROUTES[:2])
    assert path.read_text() == (
        '{"route":{"smiles":"CCO","children":[{"smiles":"C"},{"smiles":"O"}]}}\n{"route":{"smiles":"C/C=C\\\\C"}}\n'
    )
    write_routes(path, ROUTES[:1], "dms")
    assert path.read_text() == "{'smiles':'CCO','children':[{'smiles':'C'},{'smiles':'O'}]}\n"
    write_routes(path, ROUTES[:1], "reactions")
    assert path.read_text() == "C.O>>CCO\n"
    # a list for each target
    write_routes(path, [ROUTES[0], ROUTES[0], Route("C"), ROUTES[0]], "aizynthfinder")
    tree = {"type": "mol", "smiles": "CCO", "in_stock": False, "children": [
        {"type": "reaction", "smiles": "CCO>>C.O", "children": [
            {"type": "mol", "smiles": "C", "in_stock": True}, {"type": "mol", "smiles": "O", "in_stock": True}]}]}  # fmt: skip
    assert json.loads(path.read_text()) == [[tree, tree], [{"type": "mol", "smiles": "C", "in_stock": True}], [tree]]


def test_a_refused_route_leaves_the_old_file(tmp_path):
    path = tmp_path / "a"
    write_routes(path, ROUTES[:1], "reactions")
    with pytest.raises(ValueError, match=r"route 1: C/C=C.* is a single molecule"):
        write_routes(path, ROUTES, "reactions")
    with pytest.raises(ValueError, match=r"form must be one of weft, dms, .*, got 'askcos'"):
        write_routes(path, ROUTES, "askcos")
    with pytest.raises(ValueError, match=r"^route 1: 'CC\(C' is not a molecule"):
        write_routes(path, [Route("CCO", (Route("C"),)), Route("CCO", (Route("CC(C"),))], "retrocast")
    assert path.read_text() == "C.O>>CCO\n" and list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    "text",
    [
        "{'smiles': 'CCO', 'children': [{'smiles': 'C'}, {'smiles': 'O'}]}",  # as Python prints it
        "\n\r\n  {'smiles':'CCO','children':[{'smiles':'C'},{'smiles':'O'}]}\r\n",
        '\ufeff{"smiles": "CCO", "children": [{"smiles": "C"}, {"smiles": "O"}]}',
        "[\"{'smiles':'CCO','children':[{'smiles':'C'},{'smiles':'O'}]}\"]",
        '{\n "smiles": "CCO",\n "children": [\n  {"smiles": "C"},\n  {"smiles": "O"}\n ]\n}\n',
        "C.O>>CCO\tethanol",
        "\n \ntarget,reactions\nCCO,C.O>>CCO\n,\n",
        '[]\n\n{"name": "x", "smiles": "CCO", "children": [{"smiles": "C"}, {"smiles": "O"}]}\n{"target": "CCO", "trees": []}\n',
    ],
)
def test_form_is_detected_from_the_content(tmp_path, text):
    path = tmp_path / "routes"
    for data in (text.encode(), gzip.compress(text.encode())):
        path.write_bytes(data)
        assert list(read_routes(path)) == [ROUTES[0]]
