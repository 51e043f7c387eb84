"""`weftformer compile`: which steps it compiles, what it prints, and what it refuses."""

from pathlib import Path

import pytest
import torch

from weftformer import WeftConfig, WeftForConditionalGeneration
from weftformer.modeling.decoding import compiled as decoding_compiled
from weftformer.modeling.decoding.compiled import CompiledStep, compiled_folder
from weftformer.scripts.cli import main

from ..models import TINY_CONFIG


@pytest.fixture
def folder(tmp_path) -> str:
    WeftForConditionalGeneration(WeftConfig(**TINY_CONFIG)).save_pretrained(tmp_path / "model")
    return str(tmp_path / "model")


@pytest.fixture
def rows(monkeypatch):
    """Write empty packages, and list the rows that they are for."""
    compiled = []

    def build(step, arguments, facts, folder):
        compiled.append(len(arguments[0]))
        file = folder / f"{len(compiled)}.pt2"
        file.touch()
        return file

    monkeypatch.setattr(decoding_compiled, "build", build)
    monkeypatch.setattr(decoding_compiled, "load", lambda package: running[-1].step.forward)
    running, call = [], CompiledStep.__call__
    monkeypatch.setattr(
        CompiledStep, "__call__", lambda self, arguments: running.append(self) or call(self, arguments)
    )
    return compiled


def test_a_step_for_each_number_of_rows(folder, rows, capsys):
    assert main(["compile", folder, "--beams", "1", "3", "--batch-size", "1", "2"]) == 0
    assert rows == [1, 2, 3, 6]
    printed = capsys.readouterr().out
    assert "3 beams, batch of 2: ready after" in printed and str(compiled_folder()) in printed


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--beams", "0"], "--beams must be at least 1"),
        (["--threads", "0"], "--threads must be at least 1"),
    ],
)
def test_wrong_numbers_are_refused(folder, rows, capsys, words, message):
    assert main(["compile", folder, *words]) == 1
    assert message in capsys.readouterr().err and not rows


def test_a_folder_that_is_none_is_named(tmp_path, capsys):
    assert main(["compile", str(tmp_path / "nowhere")]) == 1
    assert f"{Path(tmp_path / 'nowhere')}: there is no such folder" in capsys.readouterr().err


def test_the_number_of_threads_is_taken(folder, rows):
    main(["compile", folder, "--threads", "2"])
    assert torch.get_num_threads() == 2
