"""`weftformer serve`: its options, and a separate process under load, stopped by a signal."""

from types import SimpleNamespace

import pytest

pytest.importorskip("rdkit")

from fastapi.testclient import TestClient

from weftformer.scripts import cli, serve
from weftformer.serving.connections import Server

from .conftest import StubTask, reset_loggers


@pytest.fixture
def servers(monkeypatch):
    """The servers that would run."""
    started: list[Server] = []
    monkeypatch.setattr(Server, "run", lambda self, sockets: started.append(self))
    yield started
    reset_loggers()


LOOPBACK = ("localhost", "LOCALHOST:8000", "127.0.0.1:8000", "[::1]:8000", "[::1]")
STRANGE = ("evil.example", "localhost.evil.example", "evil.localhost", "127.0.0.2", "::1", "[::2]", "localhost:x", "")


@pytest.mark.parametrize(
    ("words", "key", "allowed", "refused"),
    [
        ("", "", LOOPBACK, STRANGE),
        ("--host localhost", "", LOOPBACK, STRANGE),
        ("--host ::1", "", LOOPBACK, STRANGE),
        ("--host 127.0.0.3", "", (*LOOPBACK, "127.0.0.3:8000"), STRANGE),
        ("--allowed-host A.example --allowed-host *.b.example", "", (*LOOPBACK, "a.example:443", "c.B.example"),
         ("b.example", *STRANGE)),
        ("--allowed-host [::5]", "", (*LOOPBACK, "[::5]:80"), STRANGE),
        ("--allowed-host *", "", (*LOOPBACK, *STRANGE), ()),
        ("", "key", (*LOOPBACK, *STRANGE), ()),
        ("--allowed-host a.example", "key", ("a.example",), (*LOOPBACK, *STRANGE)),
        ("--host 0.0.0.0", "", (*LOOPBACK, *STRANGE), ()),
        ("--host 0.0.0.0 --allowed-host a.example", "", ("a.example",), (*LOOPBACK, *STRANGE)),
    ],
)  # fmt: skip
def test_a_server_for_this_machine_answers_its_own_names(servers, monkeypatch, words, key, allowed, refused):
    monkeypatch.setattr("weftformer.serving.app.load_task", lambda *_, **__: StubTask())
    monkeypatch.setattr(serve, "check_model", lambda _: None)
    monkeypatch.setattr(serve, "parts_of_extensions", lambda _: {})
    address = {"localhost": "127.0.0.1"}
    listen = lambda host, port: SimpleNamespace(getsockname=lambda: (address.get(host, host), port))  # noqa: E731
    monkeypatch.setattr(serve, "_listen", listen)
    monkeypatch.setenv("WEFT_API_KEY", key)
    assert cli.main(["serve", "--model", "stub", *words.split()]) == 0
    with TestClient(servers[0].config.app) as client:
        for host, status in [*((host, 200) for host in allowed), *((host, 400) for host in refused)]:
            answer = client.get("/health", headers={"host": host})
            assert answer.status_code == status, (host, answer.text)
        if refused:
            assert "not allowed" in answer.json()["detail"]


@pytest.mark.parametrize("name", ["a*b", "localhost:8000", "http://a", "::1"])
def test_names_of_hosts_are_checked(name, capsys):
    assert cli.main(["serve", "--port", "0", "--allowed-host", name]) == 1
    assert f"--allowed-host {name} is not a host name" in capsys.readouterr().err
