"""Progress in a file: lines every few seconds, and the last count."""

from weftformer.common import progress
from weftformer.common.progress import Progress


def test_a_line_every_few_seconds_and_one_at_the_end(capsys, monkeypatch):
    times = iter([0.0, 4.0, 11.0, 11.0, 11.0, 12.0, 13.0])
    monkeypatch.setattr(progress.time, "monotonic", lambda: next(times))
    with Progress("reading", 3_000, "lines") as bar:
        bar.update(1_000)
        assert capsys.readouterr().err == ""
        bar.update(1_000)
        assert capsys.readouterr().err.startswith("reading: 2,000 of 3,000 lines, 11 s, ")
        bar.update()
        assert capsys.readouterr().err == ""
    assert capsys.readouterr().err.startswith("reading: 2,001 of 3,000 lines, 13 s, ")


def test_what_was_done_before_does_not_count_as_speed(capsys, monkeypatch):
    times = iter([0.0, 10.0, 10.0, 10.0, 10.0])
    monkeypatch.setattr(progress.time, "monotonic", lambda: next(times))
    Progress("training", 100, "steps", done=50).update(20)
    assert capsys.readouterr().err == "training: 70 of 100 steps, 10 s, 2 a second\n"


def test_large_numbers_are_scaled_if_asked(capsys):
    with Progress("preparing", 3_000_000, "bytes", is_scaled=True) as bar:
        bar.update(1_500_000)
    assert "preparing: 1.50M of 3.00M bytes" in capsys.readouterr().err


def test_nothing_is_shown_if_it_is_not_wanted(capsys):
    with Progress("reading", 3, "lines", is_shown=False) as bar:
        bar.update(3)
    assert capsys.readouterr().err == ""


def test_what_is_printed_meanwhile_stands_alone_on_stdout(capsys, monkeypatch):
    with Progress("planning", 2, "targets", is_shown=False) as bar:
        bar.print("first")
    monkeypatch.setattr(progress.sys.stderr, "isatty", lambda: True, raising=False)
    with Progress("planning", 2, "targets") as bar:
        bar.print("second")
        bar.update(2)
    out, err = capsys.readouterr()
    assert out == "first\nsecond\n" and "planning" in err and "second" not in err
