"""`weftformer export`: output and files, and folders that are complete or absent."""

from weftformer import exporting
from weftformer.scripts.cli import main
from weftformer.tokenization import build_route_tokenizer


def test_what_differs_is_deleted(small, tmp_path, monkeypatch, capsys):
    folder = tmp_path / "model"
    small("dms-flash-10m", decoder_layers=1, num_condition_features=0).save_pretrained(folder)
    build_route_tokenizer().save_pretrained(folder)
    monkeypatch.setattr(exporting, "write_search", lambda model, staging: (staging / "search.pt2").touch())
    monkeypatch.setattr(exporting, "differing_outputs", lambda model, staging: 0.25)
    assert main(["export", str(folder), str(tmp_path / "out"), "--format", "search"]) == 1
    assert "deleted: share of texts that differ 2.5e-01" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == [folder]
