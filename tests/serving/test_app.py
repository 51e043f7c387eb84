"""The HTTP API of a real server, with a task that needs no model."""

import html
import json
import logging
import re
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import httpx
import pytest
from pydantic import BaseModel

from weftformer.serving import Limits, app, build_app
from weftformer.serving.batching import Threads
from weftformer.serving.connections import JsonFormatter
from weftformer.serving.endpoint import Endpoint, StreamEndpoint
from weftformer.serving.translate import translate_endpoint

from .conftest import PLAIN, StubTask, running, soon

JSON = {"content-type": "application/json"}


@pytest.fixture
def server(stub):
    with running(stub, max_batch_size=1, max_queue=3, max_inputs=3, timeout_s=30) as instance:
        yield instance


def test_health_a_full_queue_and_openapi(server, stub):
    assert server.client.get("/health").json() == {
        "status": "ready", "model": "stub", "endpoint": "/translate", "version": "0.1.0", "waiting": 0, "computing": 0,
    }  # fmt: skip
    [model] = server.client.get("/v1/models").json()["data"]
    assert model == {"id": "stub", "object": "model", "owned_by": "weftformer"}
    first = server.later({"texts": "wait"})
    assert stub.started.wait(20)
    second = server.later({"texts": ["a", "b"], "beams": 2})
    soon(lambda: server.client.get("/health").json()["waiting"] == 2)
    assert server.client.get("/health").json()["computing"] == 1
    refused = server.client.post("/translate", json={"texts": ["c", "d"]})
    assert refused.status_code == 429 and refused.headers["retry-after"] == "1"
    assert "inputs: 2, waiting: 2" in refused.json()["detail"]
    stub.go.set()
    soon(lambda: first and second)
    assert first[0].json() == {"translations": ["WAIT"]} and second[0].json() == {"translations": ["A", "B"]}
    schema = server.client.get("/openapi.json").json()
    assert set(schema["paths"]) == {"/health", "/ready", "/v1/models", "/translate"}
    assert schema["components"]["schemas"]["TranslateRequest"]["properties"]["beams"]["maximum"] == 50


def test_page_has_a_form_settings_and_links(server):
    response = server.client.get("/")
    policy = response.headers["content-security-policy"]
    assert "default-src 'none'" in policy and "connect-src 'self'" in policy and "script-src 'sha256-" in policy
    assert not re.search(r"<link|<img|<iframe|@import|url\(|src=", response.text, re.IGNORECASE)
    for link in re.findall(r'href="([^"]*)"', response.text):
        assert server.client.get(f"/{link}").status_code == 200
    text = html.unescape(response.text)
    assert "stub" in text and "POST /translate" in text and "/plan" not in text
    assert re.findall(r'name="(\w+)"', text[text.index("<form") :]) == ["texts", "beams", "max_new_tokens"]
    assert re.search(r'name="beams"[^>]*min="1" max="50" value="4"', text) and 'id="key"' not in text
    assert re.search(r"--max-inputs</th><td>3<", text) and re.search(r"--timeout-s</th><td>30<", text)
    [(url, body)] = re.findall(r"curl (\S+) -H 'content-type: application/json' -d '(.*)'", text)
    answer = httpx.post(url, content=body.encode(), headers=JSON, **PLAIN)
    assert answer.json() == {"translations": ["EIN HAUS", "ZWEI HUNDE"]}


def test_answer_as_html_for_the_page(server):
    answer = server.client.post("/translate", json={"texts": ["<b>", "bad"]}, headers={"accept": "text/html"})
    assert answer.headers["content-type"].startswith("text/html")
    assert answer.text == (
        "<dl><dt>&lt;b&gt;</dt><dd class=text>&lt;B&gt;</dd>"
        "<dt>bad</dt><dd class=problem>&#x27;bad&#x27; is no text.</dd></dl>"
    )


MALFORMED = {
    "no json": (b"{", "Expecting property name"),
    "not utf-8": (b'{"texts": "\xff"}', "utf-8"),
    "too deep": (b"[" * 50_000, "recursion"),
    "half a surrogate pair": (b'{"texts": "\\ud800"}', "unicode"),
    "another name": (b'{"texts": "a", "temperature": 1}', "body.temperature"),
    "NaN": (b'{"texts": "a", "beams": NaN}', "body.beams"),
    "NaN as a condition": (b'{"texts": "a", "conditions": [NaN]}', "body.conditions"),
    "a large number": (b'{"texts": "a", "beams": 10000000000000000000000}', "body.beams"),
    "a number of many digits": (b'{"texts": "a", "beams": ' + b"9" * 5000 + b"}", "digits"),
    "too many": (b'{"texts": ["a", "a", "a", "a"]}', "body.texts"),
    "none": (b'{"texts": []}', "body.texts"),
    "too long": (b'{"texts": "' + b"a" * 2001 + b'"}', "got 'aaaa"),
    "refused by the task": (b'{"texts": ["bad", "bad"]}', "'bad' is no text."),
}


def test_malformed_input_is_refused_with_the_reason(server, stub):
    for name, (body, reason) in MALFORMED.items():
        response = server.client.post("/translate", content=body, headers=JSON)
        assert response.status_code in (400, 422), name
        assert set(response.json()) == {"detail"} and reason in response.json()["detail"], name
        assert ".py" not in response.text and len(response.json()["detail"]) < 700 and stub.computed == []
    assert server.client.post("/translate", content=b'{"texts": "a"}').status_code == 422  # of another kind
    assert server.client.get("/translate").status_code == 405
    response = server.client.post("/plan", json={"targets": "CCO"})
    assert response.status_code == 404 and "POST /translate" in response.json()["detail"]
    assert server.client.post("/translate", json={"texts": "a"}).status_code == 200


@pytest.mark.parametrize("is_counted", [True, False])
def test_too_large_a_body_is_refused(stub, is_counted):
    body = json.dumps({"texts": "a", "pad": "x" * 5000}).encode()
    with running(stub, max_request_bytes=1000) as server:
        # an iterator is sent in chunks, without its length
        content = body if is_counted else iter([body[:500], body[500:]])
        assert server.client.post("/translate", content=content, headers=JSON).status_code == 413
        assert server.client.post("/translate", json={"texts": "a"}).status_code == 200


HEAD = b"POST /translate HTTP/1.1\r\nhost: a\r\ncontent-type: application/json\r\ncontent-length: 99\r\n\r\n{"


WHOLE = b"GET /health HTTP/1.1\r\nhost: a\r\n\r\n"
# What a client sends of a request, and how the answer begins.
UNFINISHED = {
    b"": b"",
    b"GET": b"",
    b"GET / HTTP/1.1\r\na": b"",
    WHOLE + b"G": b"HTTP/1.1 200 ",
    HEAD: b"HTTP/1.1 408 ",
}


@pytest.mark.parametrize("trickles", [False, True])
def test_requests_and_bodies_that_do_not_arrive_are_given_up(stub, trickles):
    with running(stub, header_timeout_s=0.3, timeout_s=0.3) as server, ThreadPoolExecutor(len(UNFINISHED)) as clients:

        def answer(begin):
            with socket.create_connection(("127.0.0.1", server.port)) as slow:
                slow.sendall(begin)
                return until_closed(slow, b"a" if trickles and begin else b"")

        for (sent, expected), reply in zip(UNFINISHED.items(), clients.map(answer, UNFINISHED), strict=True):
            assert reply.startswith(expected), sent


def until_closed(connection: socket.socket, trickle: bytes = b"") -> bytes:
    """Return what the server sends until it closes the connection, to which a client sends more bytes now and then."""
    received, end = b"", time.monotonic() + 20
    connection.settimeout(0.05)
    while time.monotonic() < end:
        try:
            connection.sendall(trickle)
            more = connection.recv(1000)
        except TimeoutError:
            continue
        except ConnectionError:
            return received
        if not more:
            return received
        received += more
    raise AssertionError("the connection is still open")


def test_a_connection_that_does_not_read_its_answers_is_closed(stub):
    with running(stub, header_timeout_s=0.3) as server, socket.socket() as deaf:
        deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        deaf.connect(("127.0.0.1", server.port))
        deaf.settimeout(20)
        with pytest.raises(ConnectionError):
            while True:  # until the server closes the connection
                deaf.sendall(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n" * 1000)


def test_requests_are_named_logged_and_counted(server, caplog):
    with caplog.at_level(logging.INFO, logger="weftformer.serving"):
        first = server.client.post("/translate", json={"texts": ["a", "bc"]}, headers={"x-request-id": "mine-1"})
        unnamed = [server.client.get("/nothing", headers={"x-request-id": f"no\tname{i}"}) for i in range(2)]
    assert first.headers["x-request-id"] == "mine-1"
    ids = [response.headers["x-request-id"] for response in unnamed]
    assert all(re.fullmatch("[0-9a-f]{32}", name) for name in ids) and ids[0] != ids[1]
    assert re.search(r"mine-1 127\.0\.0\.1 POST '/translate' 200 \d\.\d{3} s", caplog.text)
    (record,) = [record for record in caplog.records if "mine-1" in record.getMessage()]
    line = json.loads(JsonFormatter().format(record))
    assert (line["id"], line["status"], line["level"]) == ("mine-1", 200, "INFO") and "time" in line
    failed = server.client.post("/translate", json={"texts": ["a", "fail"]})
    assert failed.status_code == 500 and "secret of the house" in caplog.text
    assert failed.json().keys() == {"detail"} and "(RuntimeError)" in failed.text and "secret" not in failed.text
    figures = server.client.get("/metrics").text
    for line in (
        'weft_requests_total{path="/translate",status="200"} 1.0',
        'weft_requests_total{path="other",status="404"} 2.0',
        'weft_request_seconds_count{path="/translate"} 2.0', "weft_tokens_total 3.0", "weft_failures_total 1.0",
        "weft_waiting 0.0", "weft_computing 0.0",
    ):  # fmt: skip
        assert f"\n{line}\n" in figures


def test_an_error_of_the_server_is_a_500(server, stub, monkeypatch):
    monkeypatch.setattr(stub, "inputs", None)
    response = server.client.post("/translate", json={"texts": "a"})
    assert response.status_code == 500 and "x-request-id" in response.headers
    assert response.json().keys() == {"detail"} and "NoneType" not in response.text


def test_a_key_is_compared_as_bytes_and_asked_for_by_path(stub):
    with running(stub, api_key="schlüssel", allowed_hosts=["127.0.0.1"]) as server:
        post = partial(server.client.post, "/translate", json={"texts": "a"})
        for header in ("", "Bearer other", "schlüssel", "Basic schlüssel"):
            assert post(headers={"authorization": header.encode()}).status_code == 401
        for scheme in ("Bearer", "bearer"):
            assert post(headers={"authorization": f"{scheme} schlüssel".encode()}).status_code == 200
        paths = ("/", "/health", "/ready", "/metrics", "/docs", "/openapi.json")
        assert [server.client.get(path).status_code for path in paths] == [200, 200, 200, 401, 401, 401]
        assert 'id="key"' in server.client.get("/").text
        assert server.client.get("/health", headers={"host": "evil.example"}).status_code == 400
    with running(stub, api_key="key") as server:
        assert server.client.get("/metrics", headers={"host": "x/health?"}).status_code == 401
        with socket.create_connection(("127.0.0.1", server.port)) as slow:
            slow.sendall(HEAD)  # without the rest of the body
            assert until_closed(slow).startswith(b"HTTP/1.1 401 ")


def test_fields_may_be_refused(stub):
    with running(stub, refuse=("beams",)) as server:
        response = server.client.post("/translate", json={"texts": "a", "beams": 1})
        assert response.status_code == 422 and response.json()["detail"].startswith("body.beams: ")
        assert server.client.post("/translate", json={"texts": "a"}).status_code == 200
        assert 'name="beams"' not in server.client.get("/").text
    with pytest.raises(ValueError, match="max_queue=0 is not allowed"):
        Limits(max_queue=0)
    with pytest.raises(ValueError, match="refuse='texts' is not allowed"):
        build_app(stub, name="stub", limits=Limits(refuse=("texts",)))


def test_a_refused_or_empty_text_does_not_harm_the_others(server, stub):
    response = server.client.post("/translate", json={"texts": ["a", "bad", " "]})
    assert response.json() == {"translations": ["A", None, ""], "problems": [None, "'bad' is no text.", None]}
    assert server.client.post("/translate", json={"texts": ""}).json() == {"translations": [""]}
    assert stub.computed == ["a"]


def test_too_late_an_answer_is_given_up_and_its_computation_ends(stub):
    with running(stub, timeout_s=0.3, stop_timeout_s=0.3) as server:
        response = server.client.post("/translate", json={"texts": "wait"})
        assert response.status_code == 504 and "0.3 s" in response.json()["detail"]
        soon(lambda: stub.gave_up == 1)
        assert server.client.post("/translate", json={"texts": "b"}).json() == {"translations": ["B"]}
    with running(stub, stop_timeout_s=0.3) as server:  # nor does a server that stops wait for it
        first = server.later({"texts": "wait"})
        soon(lambda: server.batcher.computing == 1)
        server.stop()
        soon(lambda: first, 5)
        assert first[0].status_code == 503


def test_nothing_is_computed_for_a_client_that_leaves(server, stub):
    server.later({"texts": "wait"}, timeout=1.0)
    assert stub.started.wait(20)
    waiting = server.later({"texts": "never"}, timeout=0.2)
    soon(lambda: waiting)
    assert isinstance(waiting[0], httpx.TimeoutException)
    soon(lambda: server.batcher.waiting == 0)
    assert stub.gave_up == 0
    soon(lambda: stub.gave_up == 1)  # the first has left too
    assert server.client.post("/translate", json={"texts": "b"}).status_code == 200
    assert "never" not in stub.computed


def test_stopping_answers_what_is_computed_and_refuses_the_rest(server, stub):
    first = server.later({"texts": "wait"})
    assert stub.started.wait(20)
    second = server.later({"texts": ["a", "b"]})
    soon(lambda: server.batcher.waiting == 2)
    server.batcher.stop()
    soon(lambda: second)
    assert {second[0].status_code, server.client.post("/translate", json={"texts": "c"}).status_code} == {503}
    health, ready = server.client.get("/health"), server.client.get("/ready")
    assert (health.status_code, ready.status_code) == (200, 503) and health.json() == ready.json()
    assert ready.json()["status"] == "stopping"
    stub.go.set()
    soon(lambda: first)
    assert first[0].json() == {"translations": ["WAIT"]}


class Body(BaseModel):
    number: int = 1


class SlowTask(StubTask):
    """Has two paths whose answers are made in threads, until `go` is set."""

    def slow(self, *_):
        self.started.set()
        self.go.wait(30)
        return {"answer": "b"}

    def endpoints(self, limits):
        def check(fields, report):
            report("a part")
            return [("a", None)]

        rows = StreamEndpoint(
            path="/rows", summary="", request=Body, check=check, row=self.slow, last_row=lambda answer: {"last": answer}
        )  # fmt: skip
        threads = Threads(self.slow, 1, 1, limits.timeout_s)
        alone = Endpoint(path="/alone", summary="", request=Body, check=lambda *_: [("a", None)], queue=threads)
        return [translate_endpoint(self, limits), rows, alone]


@pytest.mark.parametrize("path", ["/rows", "/alone"])
def test_what_threads_compute_has_a_time_too_and_is_not_ready_while_they_are_held(path, monkeypatch):
    monkeypatch.setattr(app, "_THREADS", 1)
    task = SlowTask()
    with running(task, timeout_s=0.5) as server:
        assert "No answer within 0.5 s." in server.client.post(path, json={}).text
        soon(lambda: server.client.get("/ready").json()["status"] == "stuck")
        assert server.client.get("/ready").status_code == 503
        task.go.set()
        soon(lambda: server.client.get("/ready").status_code == 200)
        assert '"b"' in server.client.post(path, json={}).text


@pytest.mark.parametrize("path", ["/rows", "/alone"])
@pytest.mark.parametrize("ends", [True, False])
def test_a_server_that_stops_waits_for_what_threads_compute(path, ends):
    task = SlowTask()
    with running(task, stop_timeout_s=60 if ends else 0.3) as server:
        answer = server.later({}, path)
        assert task.started.wait(20)
        server.stop()
        if ends:
            soon(lambda: server.batcher.status == "stopping")
            task.go.set()
        soon(lambda: answer, 10)
        assert ('"b"' if ends else "stopping") in answer[0].text
        assert answer[0].status_code == (200 if ends or path == "/rows" else 503)
    task.go.set()
