import gzip
import json
from pathlib import Path

import pytest

from weft.routes.files import read_routes, write_routes
from weft.routes.tree import Route

DATA = Path(__file__).resolve().parents[2] / ".." / "shared" / "data" / "routes"
ROUTES = [Route("CCO", (Route("C"), Route("O"))), Route("C/C=C\\C"), Route("N", (Route("O", (Route("C"),)),))]


@pytest.mark.parametrize("name", ["routes.jsonl", "routes.jsonl.gz"])
def test_round_trip(tmp_path, name):
    assert write_routes(tmp_path / name, iter(ROUTES)) == 3
    assert list(read_routes(tmp_path / name)) == ROUTES
    assert [file.name for file in tmp_path.iterdir()] == [name]


def test_written_text_is_literal(tmp_path):
    write_routes(tmp_path / "a.jsonl", ROUTES[:2])
    assert (tmp_path / "a.jsonl").read_text() == (
        '{"route":{"smiles":"CCO","children":[{"smiles":"C"},{"smiles":"O"}]}}\n{"route":{"smiles":"C/C=C\\\\C"}}\n'
    )
    write_routes(tmp_path / "a.jsonl.gz", ROUTES[:2])
    assert gzip.decompress((tmp_path / "a.jsonl.gz").read_bytes()) == (tmp_path / "a.jsonl").read_bytes()


def test_both_layouts_and_blank_lines(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text('{"id": "x", "route": {"smiles": "C"}, "depth": 0}\n\n{"smiles": "N"}\n')
    assert list(read_routes(path)) == [Route("C"), Route("N")]


def test_reading_is_a_stream(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text('{"smiles": "C"}\nbroken\n')
    routes = read_routes(path)
    assert next(routes) == Route("C")
    with pytest.raises(ValueError, match=r"a\.jsonl, line 2: Expecting value"):
        next(routes)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"route": {"smiles": "C", "children": [{"smiles": "C"}, {}]}}', r"line 2: children\[1\]\.smiles: missing"),
        ("[1]", "line 2: route: expected an object, got list"),
        ('{"route": "C"}', "line 2: route: expected an object, got str"),
        ("[" * 100_000, "line 2: "),
    ],
)
def test_errors_name_file_and_line(tmp_path, line, message):
    path = tmp_path / "broken.jsonl"
    path.write_text('{"smiles": "C"}\n' + line + "\n")
    with pytest.raises(ValueError, match=r"broken\.jsonl, " + message):
        list(read_routes(path))


def test_errors_in_the_bytes_name_file_and_line(tmp_path):
    good = gzip.compress(b"".join(json.dumps({"smiles": "C" * n}).encode() + b"\n" for n in range(1, 300)))
    for name, content in [
        ("none.gz", b'{"smiles": "C"}\n'),
        ("short.gz", good[:-20]),
        ("damaged.gz", good[:30] + b"\xff" * 9 + good[39:]),
        ("latin.jsonl", b'{"smiles": "\xe9"}\n'),
    ]:
        (tmp_path / name).write_bytes(content)
        with pytest.raises(ValueError, match=name + r", line \d+: "):
            list(read_routes(tmp_path / name))


def test_missing_file_is_an_os_error(tmp_path):
    with pytest.raises(FileNotFoundError):
        next(read_routes(tmp_path / "nothing.jsonl"))


def test_failed_write_leaves_the_old_file(tmp_path):
    path = tmp_path / "a.jsonl"
    write_routes(path, ROUTES)
    before = path.read_bytes()

    def failing():
        yield ROUTES[0]
        raise RuntimeError("no more")

    with pytest.raises(RuntimeError, match="no more"):
        write_routes(path, failing())
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.skipif(not DATA.exists(), reason="../shared/data is not here")
@pytest.mark.parametrize(("name", "rows"), [("paroutes-n5.jsonl.gz", 4087), ("paroutes-n1.jsonl.gz", 3805)])
def test_paroutes(name, rows):
    path = DATA / name
    routes = list(read_routes(path))
    assert len(routes) == rows
    with gzip.open(path, "rt") as lines:
        for line, route in zip(lines, routes, strict=True):
            data = json.loads(line)
            assert (route.depth, sorted(route.leaves())) == (data["depth"], sorted(data["leaves"]))
            assert route.to_string() == str(data["route"]).replace(" ", "")
            assert Route.from_string(route.to_string()) == route
