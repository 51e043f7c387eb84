"""Figures are checked before the work, and are whole and the same for the same data."""

import importlib.util

import pytest

from weftformer.common.figures import check_figure, new_figure, save_figure


def test_what_cannot_be_drawn_is_said_before(tmp_path, monkeypatch):
    with pytest.raises(ValueError, match=r"--plot .*a\.txt: the name must end in \.svg"):
        monkeypatch.setattr(importlib.util, "find_spec", lambda name: True)
        check_figure(tmp_path / "a.txt", "--plot")
    with pytest.raises(ValueError, match=r"--picture .*: there is no folder .*none"):
        check_figure(tmp_path / "none" / "a.PNG", "--picture")
    check_figure(str(tmp_path / "a.pdf"), "--plot")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ValueError, match=r"--plot needs matplotlib: pip install weftformer\[benchmark\]"):
        check_figure(tmp_path / "a.svg", "--plot")


@pytest.mark.parametrize("ending", ["svg", "png", "pdf"])
def test_a_figure_is_written_whole_and_the_same(ending, tmp_path, monkeypatch):
    pytest.importorskip("matplotlib")
    file = tmp_path / f"figure.{ending}"

    def drawn(epoch):
        monkeypatch.setenv("SOURCE_DATE_EPOCH", epoch)  # the time, for matplotlib
        figure = new_figure(3, 2)
        figure.subplots().plot([1, 2], [3, 4])
        save_figure(figure, file)
        return file.read_bytes()

    first = drawn("0")
    assert first == drawn("1000000000") and len(first) > 2000

    figure = new_figure(3, 2)

    def cut(path, **settings):
        path.write_text("half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(figure, "savefig", cut)
    with pytest.raises(OSError, match="No space"):
        save_figure(figure, file)
    assert file.read_bytes() == first and list(tmp_path.iterdir()) == [file]
