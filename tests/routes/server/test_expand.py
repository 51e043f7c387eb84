"""POST /expand, a stream of JSON lines, and POST /build, a route that is being built."""

import json
import re
import threading

import httpx
import pytest

from weftformer.routes import Stock
from weftformer.routes.judging import Transformation
from weftformer.routes.planning.expansion import Expansion
from weftformer.routes.server import RouteTask, building

from ...serving.conftest import PLAIN, running, soon
from ..planning.test_pool import CHLORIDE, COUPLING

AMIDE, AMINE, ACID = "CC(=O)NCc1ccccc1", "NCc1ccccc1", "CC(=O)O"


@pytest.fixture
def task(planner, library):
    library(("O1", Transformation(COUPLING, 30)), ("Cl1", Transformation(CHLORIDE, 10)))
    return RouteTask(planner, Stock([ACID]))


def expand(server, **body):
    return server.client.post("/expand", json={"smiles": AMIDE, "beams": 2} | body)


def rows_of(response):
    assert response.headers["content-type"].startswith("application/x-ndjson")
    return [json.loads(line) for line in response.text.splitlines()]


def test_reactions_come_in_one_list_and_then_their_number(task, planner):
    with running(task) as server:
        *proposed, last = rows_of(expand(server, smiles="O=C(C)NCc1ccccc1"))
    assert last["target"] == AMIDE and last["remarks"] == []
    assert [row["rank"] for row in proposed] == list(range(1, last["found"] + 1))
    assert [row["reaction"] for row in proposed[:2]] == [f"{ACID}.{AMINE}>>{AMIDE}", f"CC(=O)Cl.{AMINE}>>{AMIDE}"]
    assert [part["in_stock"] for part in proposed[0]["reactants"]] == [True, False]
    assert proposed == rows_of_search(planner, task.stock)


def rows_of_search(planner, stock):
    from weftformer.routes.planning.expansion import proposal_row

    return list(map(proposal_row, planner.expand(AMIDE, stock=stock, beams=2).candidates))


def test_wishes_cards_and_bad_input(task):
    with running(task, refuse=("on_salt",)) as server:
        first, *_ = rows_of(expand(server, n=1, html=True, have=[AMINE], forbidden=[f"{AMINE}.{ACID}>>{AMIDE}"]))
        assert first["reaction"] == f"CC(=O)Cl.{AMINE}>>{AMIDE}" and first["reactants"][1]["in_stock"]
        assert first["html"].count("<svg") == 2 and "your own store" in first["html"]
        for body, reason in (
            ({"smiles": "C1CC"}, "'C1CC' is not a molecule"), ({"smiles": "CCO.CCN"}, "is 2 molecules"),
            ({"n": 0}, "body.n"), ({"n_steps": 1}, "body.n_steps"), ({"forbidden": ["C1"]}, "'C1'"),
            ({"have": ["x"]}, "'x'"), ({"on_salt": "strip"}, "body.on_salt"),
        ):  # fmt: skip
            answer = expand(server, **body)
            assert answer.status_code == 422 and reason in answer.json()["detail"], body
        assert "--" not in expand(server, smiles="CCO.CCN").json()["detail"]  # no options of a command


def test_a_request_counts_in_the_queue_and_a_client_that_leaves_ends_its_job(task, monkeypatch):
    go, running_now = threading.Event(), threading.Event()

    def wait(self):
        running_now.set()
        go.wait(0.01)

    monkeypatch.setattr(Expansion, "advance", wait)
    with running(task, max_batch_size=1, max_queue=1) as server, httpx.Client(timeout=0.5, **PLAIN) as hasty:
        url = f"{server.client.base_url}/expand"
        with pytest.raises(httpx.TimeoutException), hasty.stream("POST", url, json={"smiles": AMIDE}) as answer:
            assert answer.status_code == 200 and running_now.wait(20)
            later = server.later({"targets": AMIDE, "n_steps": 1, "beams": 2})
            soon(lambda: server.batcher.waiting == 1)
            assert expand(server).status_code == 429
            next(answer.iter_lines())
        soon(lambda: later)  # the job has ended, and the next one begins
        assert later[0].status_code == 200
        soon(lambda: server.batcher.computing == 0)


def test_errors_are_lines(task, monkeypatch):
    with running(task, timeout_s=1) as server:
        monkeypatch.setattr(Expansion, "next_job", lambda self: None)  # the model is never asked
        [row] = rows_of(expand(server))
        assert row.keys() == {"detail"} and "1 s" in row["detail"]

        def fail(self):
            raise RuntimeError("secret of the house")

        monkeypatch.setattr(Expansion, "next_job", fail)
        assert "(RuntimeError)" in rows_of(expand(server))[-1]["detail"]
        assert "weft_failures_total 1.0" in server.client.get("/metrics").text


def test_the_page_needs_no_key_and_its_requests_do(task):
    with running(task, api_key="secret") as server:
        page = server.client.get("/build")
        assert page.status_code == 200 and 'id="key"' in page.text
        policy = page.headers["content-security-policy"]
        assert "default-src 'none'" in policy and "script-src 'sha256-" in policy and "src=" not in page.text
        assert server.client.post("/build", json={"text": AMIDE}).status_code == 401
        assert expand(server).status_code == 401 and '<a href="build">Build</a>' in server.client.get("/").text


def test_a_route_that_is_being_built_is_drawn_and_judged(task):
    route = {"smiles": "O=C(C)NCc1ccccc1", "children": [{"smiles": "OC(C)=O"}, {"smiles": AMINE}]}
    with running(task) as server:

        def build(**body):
            return server.client.post("/build", json=body)

        picture = build(route=route, forbidden=["<b>"]).json()
        assert picture["open"] == [AMINE] and "1 open molecule<" in picture["html"] and "&lt;b&gt;" in picture["html"]
        assert re.search(r"\d+ recorded", picture["html"]) and picture["html"].count('class="molecule') == 3
        assert build(route=route, have=[AMINE]).json()["open"] == []
        assert build(route={"smiles": AMIDE}).json()["open"] == [AMIDE]
        assert b"$RXN" in build(route=route, file=".rdf").content
        for body, reason in (
            ({"route": {"smiles": "C1CC"}}, "C1CC"), ({"route": {}}, "smiles: missing"),
            ({"route": {"smiles": 1}}, "smiles"), ({"route": route, "file": ".exe"}, "body.file"), ({}, "route"),
            ({"text": "C1CC"}, "'C1CC' is not a molecule"),
            ({"route": {"smiles": "CCO", "children": [{"smiles": "CO"}] * 200}}, "201 molecules"),
        ):  # fmt: skip
            answer = build(**body)
            assert answer.status_code == 422 and reason in answer.json()["detail"], body


def test_routes_are_built_within_the_limits_of_the_server(task, monkeypatch):
    go, started = threading.Event(), []

    def wait(route):
        started.append(route)
        assert go.wait(20)
        return route

    monkeypatch.setattr(building, "canonical_route", wait)
    body = {"route": {"smiles": AMIDE, "children": [{"smiles": ACID}, {"smiles": AMINE}]}}
    with running(task, max_queue=1, timeout_s=2) as server:
        first = [server.later(body, "/build") for _ in range(building.AT_ONCE)]
        soon(lambda: len(started) == building.AT_ONCE)
        overflow = [server.later(body, "/build") for _ in range(2)]
        soon(lambda: all(overflow))
        full, late = sorted((answer for [answer] in overflow), key=lambda answer: answer.status_code)
        assert full.status_code == 429 and "waiting: 1)" in full.json()["detail"]
        assert late.status_code == 504 and "2 s" in late.json()["detail"]
        soon(lambda: all(first))  # in time, although their threads go on
        go.set()
        assert [answer.status_code for [answer] in first] == [504] * building.AT_ONCE  # no step was judged in time
        assert server.client.post("/build", json=body).status_code == 200
    assert len(started) == building.AT_ONCE + 1  # the others never began


def test_names_of_molecules_are_those_beside_the_column_of_the_stock(planner, tmp_path):
    file = tmp_path / "stock.csv"
    file.write_text(f"name,structure to buy\nAcetic acid,{ACID}\nBenzylamine,{AMINE}\n")
    with running(RouteTask(planner, Stock.from_file(file, column="structure to buy", cache=False))) as server:
        answer = server.client.post("/build", json={"text": "benzylamine"})
    assert answer.json() == {"smiles": AMINE}


WRONG = (None, True, -1, 1.5, "C1CC", [1], {"a": 1}, "x" * 5000)


def test_values_of_wrong_types_are_refused_with_a_reason(task):
    bodies = {
        "/plan": {"targets": "CCO", "beams": 2, "max_new_tokens": 5}, "/expand": {"smiles": "CCO", "beams": 2},
        "/build": {"route": {"smiles": AMIDE, "children": [{"smiles": ACID}, {"smiles": AMINE}]}},
    }  # fmt: skip
    with running(task) as server:
        schemas = server.client.get("/openapi.json").json()["components"]["schemas"]
        requests = {"/plan": "PlanRequest", "/expand": "ExpandRequest", "/build": "BuildRequest"}
        statuses = set()
        for path, body in bodies.items():
            for field in (*schemas[requests[path]]["properties"], "library", "stock", "model"):
                for value in WRONG:
                    answer = server.client.post(path, json=body | {field: value})
                    statuses.add(answer.status_code)
                    assert answer.status_code in (200, 422), (path, field, value)
                    assert answer.status_code == 200 or answer.json().keys() == {"detail"}, (path, field, value)
        assert statuses == {200, 422}


def test_a_request_names_no_file_of_the_server(task, tmp_path):
    (tmp_path / "secret.smi").write_text("CCCCCCC secret\n")
    path = str(tmp_path / "secret.smi")
    with running(task) as server:
        for address, body in (
            ("/plan", {"targets": path}), ("/plan", {"targets": "CCO", "library": path}), ("/expand",
            {"smiles": path}),
            ("/plan", {"targets": "CCO", "have": [path]}), ("/build", {"text": path}), ("/build", {"route": path}),
            ("/build", {"route": {"smiles": path}}), ("/build", {"route": {"smiles": "CCO"}, "file": path}),
        ):  # fmt: skip
            answer = server.client.post(address, json=body)
            assert answer.status_code == 422 and "CCCCCCC" not in answer.text, body
        for place in ("/../../etc/passwd", "/%2e%2e/%2e%2e/etc/passwd", f"/{path}", f"/build/{path}"):
            assert server.client.get(place).status_code == 404
