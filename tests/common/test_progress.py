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
    times = iter([0.0, 10.0, 10.0, 10.0, 10.0])
    with Progress("training", 1_000_000, "bytes", done=500_000) as bar:  # by an earlier run
        bar.update(200_000)
    [line] = capsys.readouterr().err.splitlines()
    assert line == "training: 700,000 of 1,000,000 bytes, 200,000 of them in 10 s, 2e+04 a second, 15 s left"
