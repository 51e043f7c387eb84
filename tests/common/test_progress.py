"""Progress in a file: lines every few seconds, and the last count."""

import sys
import time

import pytest

from weftformer.common import progress
from weftformer.common.progress import Progress


def test_a_line_every_few_seconds_and_one_at_the_end(capsys, monkeypatch):
    with Progress("reading", 3, "lines") as bar:
        bar.update(3)
    assert capsys.readouterr().err == ""  # it took no time
    monkeypatch.setattr(progress, "SECONDS", 0.05)
    with Progress("training", 1_000, "bytes", done=500) as bar:
        time.sleep(0.06)
        bar.update(200)
        bar.print("a result")
        bar.update(100)
    with Progress("reading", None, "lines") as bar:
        time.sleep(0.06)
        bar.update(5)
    out, err = capsys.readouterr()
    assert out == "a result\n" and "\r" not in err
    assert list(dict.fromkeys(line.split(",")[0] for line in err.splitlines())) == [
        "training: 700 of 1000 bytes",
        "training: 800 of 1000 bytes",
        "reading: 5 lines",
    ]
    assert "left" not in err.splitlines()[-1]


def test_long_stages_are_named_when_they_begin(capsys, monkeypatch):
    with Progress("compiling", 2, "parts") as bar:
        bar.begin("encoder")
        bar.begin("search")
    lines = [line.split(",")[0] for line in capsys.readouterr().err.splitlines()]
    assert lines == ["compiling encoder: 0 of 2 parts", "compiling search: 1 of 2 parts"]

    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    monkeypatch.setattr(progress, "sleep", lambda seconds: time.sleep(0.01))
    with Progress("compiling", 2, "parts") as bar:
        bar.begin("encoder")
        time.sleep(0.1)
        assert capsys.readouterr().err.count("compiling encoder:") > 2  # its time goes on


@pytest.mark.parametrize("is_terminal", [False, True])
def test_the_rate_has_one_unit(capsys, monkeypatch, is_terminal):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: is_terminal, raising=False)
    with Progress("training", 3, "steps") as bar:
        for elapsed in (100, 0.1):
            assert " steps/s" in bar.format_meter(**bar.format_dict | {"n": 1, "elapsed": elapsed})
