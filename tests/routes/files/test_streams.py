import gzip

import pytest

from weftformer.routes.files.streams import read_routes, write_routes
from weftformer.routes.tree import Route

ROUTES = [Route("CCO", (Route("C"), Route("O"))), Route("C/C=C\\C"), Route("N", (Route("O", (Route("C"),)),))]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"route": {"smiles": "C", "children": [{"smiles": "C"}, {}]}}', r"line 2\.route\.children\[1\]\.smiles: missing"),
        ("[1]", r"line 2\[0\]: expected a route or a list of routes, got int"),
        *((text, "line 2") for text in ("[" * 100_000, "5", '"x"', "1e999", "NaN", "9" * 5000, "\x00", "[{}]")),
        ('{"smiles": "\\ud800"}', r"line 2: a text has '\\ud800'"),
        ('{"smiles": "C", "id": "\\ud800"}', r"line 2: a text has '\\ud800'"),
    ],
)  # fmt: skip
def test_errors_name_file_and_line(tmp_path, line, message):
    path = tmp_path / "broken.jsonl"
    path.write_text('{"smiles": "C"}\n' + line + "\n")
    routes = read_routes(path)
    assert next(routes) == Route("C")  # reading is a stream
    with pytest.raises(ValueError, match=r"broken\.jsonl, " + message):
        next(routes)


@pytest.mark.parametrize("name", ["routes.training", "routes.gz"])
def test_routes_read_back(tmp_path, name):
    routes = [*ROUTES, Route("CC[Pt]", (Route("CC[Na+].[Cl-]"), Route("N->[Pt]"))), ROUTES[0]]
    assert write_routes(tmp_path / name, iter(routes)) == 5
    content = (tmp_path / name).read_bytes()
    assert content.startswith(b"\x1f\x8b") == name.endswith(".gz")
    if name.endswith(".gz"):
        assert not content[3]  # no name, which would be that of the temporary file
    else:
        assert content.startswith(b'{"route":{"smiles":"CCO","children":[{"smiles":"C"},{"smiles":"O"}]}}\n')
    (tmp_path / name).rename(tmp_path / "other.xyz")  # what it is called does not matter
    assert list(read_routes(tmp_path / "other.xyz")) == routes


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
