"""`weftformer export`: output and files, and folders that are complete or absent."""

import pytest

from weftformer import exporting
from weftformer.scripts.cli import main
from weftformer.tokenization import build_route_tokenizer


@pytest.fixture
def folder(small, tmp_path):
    small("dms-flash-10m", decoder_layers=1, num_condition_features=0).save_pretrained(tmp_path / "model")
    build_route_tokenizer().save_pretrained(tmp_path / "model")
    return tmp_path / "model"


def names(out) -> set[str]:
    return {file.name for file in out.iterdir()}


def test_what_differs_is_deleted(folder, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(exporting, "write_search", lambda model, staging: (staging / "search.pt2").touch())
    monkeypatch.setattr(exporting, "differing_texts", lambda model, staging: 0.25)
    assert main(["export", str(folder), str(tmp_path / "out"), "--format", "search"]) == 1
    assert (
        "differ from those of the original, so the export was deleted: share of texts that differ 2.5e-01"
        in capsys.readouterr().err
    )
    assert names(tmp_path) == {"model"}
