"""Over HTTP, with a real server and a task that needs no model."""

import gc
import html
import json
import re
import socket
from concurrent.futures import Future

import httpx
import pytest

from weftformer.inference.batching import Item
from weftformer.serving import Limits

from .conftest import running, soon

JSON = {"content-type": "application/json"}


@pytest.fixture
def server(stub):
    with running(stub, max_batch_size=1, max_queue=3, max_inputs=3, timeout_s=30) as made:
        yield made


def test_health_and_openapi(server, stub):
    assert server.client.get("/health").json() == {
        "status": "ready", "model": "stub", "endpoint": "/translate", "version": "0.1.0", "waiting": 0, "computing": 0,
    }  # fmt: skip
    first = server.later({"texts": "wait"})
    assert stub.started.wait(20)
    second = server.later({"texts": ["a", "b"], "beams": 2})
    soon(lambda: server.client.get("/health").json()["waiting"] == 2)
    assert server.client.get("/health").json()["computing"] == 1
    stub.go.set()
    soon(lambda: first and second)
    schema = server.client.get("/openapi.json").json()
    assert set(schema["paths"]) == {"/health", "/translate"}
    assert schema["components"]["schemas"]["TranslateRequest"]["properties"]["beams"]["maximum"] == 50


# What a page could load from elsewhere.
FOREIGN = re.compile(r"<script|<link|<img|<iframe|@import|url\(|src=", re.IGNORECASE)


def test_the_page_says_how_to_ask_and_loads_nothing_from_anywhere(server):
    response = server.client.get("/")
    assert not FOREIGN.search(response.text) and "default-src 'none'" in response.headers["content-security-policy"]
    for link in re.findall(r'href="([^"]*)"', response.text):
        assert server.client.get(f"/{link}").status_code == 200
    text = html.unescape(response.text)
    assert "stub" in text and "POST /translate" in text and "/plan" not in text
    assert re.search(r"--max-inputs</th><td>3<", text) and re.search(r"--timeout-s</th><td>30<", text)
    [(url, body)] = re.findall(r"curl (\S+) -H 'content-type: application/json' -d '(.*)'", text)
    response = httpx.post(url, content=body.encode(), headers=JSON, trust_env=False)
    assert response.json() == {"translations": ["EIN HAUS", "ZWEI HUNDE"]}


MALFORMED = {
    "no json": (b"{", "Expecting property name"),
    "not utf-8": (b'{"texts": "\xff"}', "utf-8"),
    "too deep": (b"[" * 50_000, "recursion"),
    "half a surrogate pair": (b'{"texts": "\\ud800"}', "unicode"),
    "another name": (b'{"texts": "a", "temperature": 1}', "body.temperature: Extra inputs"),
    "NaN as a number": (b'{"texts": "a", "beams": NaN}', "valid integer"),
    "NaN as a condition": (b'{"texts": "a", "conditions": [NaN]}', "finite number"),
    "a large number": (b'{"texts": "a", "beams": 10000000000000000000000}', "less than or equal to 50"),
    "a number of many digits": (b'{"texts": "a", "beams": ' + b"9" * 5000 + b"}", "digits"),
    "too many": (b'{"texts": ["a", "a", "a", "a"]}', "at most 3 items"),
    "none": (b'{"texts": []}', "at least 1 item"),
    "too long": (b'{"texts": "' + b"a" * 2001 + b'"}', "at most 2000 characters: got 'aaaa"),
    "refused by the task": (b'{"texts": ["a", "bad"]}', "'bad' is no text."),
}


def test_malformed_input_is_refused_with_the_reason(server, stub):
    for name, (body, reason) in MALFORMED.items():
        response = server.client.post("/translate", content=body, headers=JSON)
        assert response.status_code in (400, 422), name
        assert set(response.json()) == {"detail"} and reason in response.json()["detail"], name
        assert "Traceback" not in response.text and ".py" not in response.text
        assert len(response.json()["detail"]) < 700 and stub.computed == []
    assert server.client.post("/translate", content=b'{"texts": "a"}').status_code == 422  # of another kind
    for method, path, status in (("GET", "/translate", 405), ("POST", "/nothing", 404)):
        response = server.client.request(method, path)
        assert response.status_code == status and "detail" in response.json()
    response = server.client.post("/plan", json={"targets": "CCO"})
    assert response.status_code == 404
    assert response.json() == {"detail": "stub writes texts, not routes: POST /translate."}
    assert server.client.post("/translate", json={"texts": "a"}).status_code == 200


@pytest.mark.parametrize("is_counted", [True, False])
def test_a_body_that_is_too_large_is_refused(stub, is_counted):
    body = json.dumps({"texts": "a", "pad": "x" * 5000}).encode()
    with running(stub, max_request_bytes=1000) as server:
        # an iterator is sent in chunks, without its length
        content = body if is_counted else iter([body[:500], body[500:]])
        response = server.client.post("/translate", content=content, headers=JSON)
        assert response.status_code == 413
        assert server.client.post("/translate", json={"texts": "a"}).status_code == 200


def test_a_body_that_does_not_arrive_is_given_up(stub):
    with running(stub, timeout_s=0.3) as server, socket.create_connection(("127.0.0.1", server.port)) as slow:
        slow.settimeout(20)
        slow.sendall(
            b"POST /translate HTTP/1.1\r\nhost: a\r\ncontent-type: application/json\r\ncontent-length: 99\r\n\r\n{"
        )
        assert slow.recv(1000).startswith(b"HTTP/1.1 408 ")


def test_too_many_are_refused_until_there_is_room(server, stub):
    first = server.later({"texts": "wait"})
    assert stub.started.wait(20)
    second = server.later({"texts": ["a", "b"]})
    soon(lambda: server.batcher.waiting == 2)
    response = server.client.post("/translate", json={"texts": ["c", "d"]})
    assert response.status_code == 429 and response.headers["retry-after"] == "1"
    assert response.json()["detail"] == ("2 inputs are waiting, and there is no room for these 2: try again later.")
    stub.go.set()
    soon(lambda: first and second)
    assert first[0].json() == {"translations": ["WAIT"]} and second[0].json() == {"translations": ["A", "B"]}
    assert server.client.post("/translate", json={"texts": ["c", "d"]}).status_code == 200


def test_an_answer_that_takes_too_long_is_given_up_and_its_computation_ends(stub):
    with running(stub, timeout_s=0.3) as server:
        first = server.later({"texts": "wait"})
        assert stub.started.wait(20)
        soon(lambda: first)
        assert first[0].status_code == 504 and first[0].json() == {"detail": "There was no answer within 0.3 s."}
        soon(lambda: stub.gave_up == 1)
        assert server.client.post("/translate", json={"texts": "b"}).json() == {"translations": ["B"]}


def test_a_client_that_leaves_is_not_computed_for(server, stub):
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


def test_a_failing_model_is_a_500_without_its_secrets(server, caplog):
    response = server.client.post("/translate", json={"texts": ["a", "fail"]})
    assert response.status_code == 500
    assert response.json() == {"detail": "The model failed (RuntimeError); the server's log has the cause."}
    assert "secret of the house" in caplog.text
    assert server.client.post("/translate", json={"texts": "b"}).json() == {"translations": ["B"]}


def test_stopping_answers_what_is_computed_and_refuses_the_rest(server, stub):
    first = server.later({"texts": "wait"})
    assert stub.started.wait(20)
    second = server.later({"texts": ["a", "b"]})
    soon(lambda: server.batcher.waiting == 2)
    server.batcher.stop()
    soon(lambda: second)
    third = server.client.post("/translate", json={"texts": "c"})
    assert {second[0].status_code, third.status_code} == {503}
    assert third.json() == {"detail": "The server is stopping and accepts no more requests."}
    health = server.client.get("/health")
    assert health.status_code == 503 and health.json()["status"] == "stopping"
    stub.go.set()
    soon(lambda: first)
    assert first[0].json() == {"translations": ["WAIT"]}


def test_nothing_of_a_request_stays_behind(server, stub):
    def asked() -> None:
        # none that fails: pytest keeps what is logged, and with it the frames
        for body in ({"texts": "a"}, {"texts": "bad"}, {"texts": ["a", "a", "a"]}, {"texts": ["a", "a", "a", "a"]}):
            server.client.post("/translate", json=body)
        stub.started.clear()
        server.later({"texts": "wait"}, timeout=0.2)
        assert stub.started.wait(20)
        soon(lambda: server.batcher.computing == 0)

    def alive() -> int:
        gc.collect()
        return sum(type(kept) in (Item, Future) for kept in gc.get_objects())

    before = alive()
    for _ in range(5):
        asked()
    soon(lambda: alive() <= before, 5)


@pytest.mark.parametrize(
    "wrong", [{"max_queue": 0}, {"timeout_s": float("nan")}, {"timeout_s": 0.0}, {"max_expand_leaves": -1}]
)
def test_bounds_are_positive(wrong):
    (name,) = wrong
    with pytest.raises(ValueError, match=f"{name}=.* is not allowed: give at least"):
        Limits(**wrong)
