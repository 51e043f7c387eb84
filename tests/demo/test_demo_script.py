"""`weftformer app`: the right models in the right tabs, or a one-line error with a remedy."""

import sys

import pytest

from weftformer.demo import LAUNCH
from weftformer.inference.tasks import RouteTask, TextTask
from weftformer.routes.shipped import MODEL, STOCK
from weftformer.scripts import app, cli
from weftformer.scripts.app import load_models


@pytest.fixture
def folders(text_task, untrained_folder, tmp_path):
    text_task.model.save_pretrained(tmp_path / "text")
    text_task.tokenizer.save_pretrained(tmp_path / "text")
    return untrained_folder, str(tmp_path / "text")


def test_both_kinds(folders):
    tasks = load_models(*folders)
    assert [type(task) for task in tasks] == [RouteTask, TextTask]
    assert load_models(None, folders[1])[0] is None


def test_the_wrong_kind(folders):
    routes, text = folders
    with pytest.raises(ValueError, match="writes texts: give it as --text-model"):
        load_models(text, None)
    with pytest.raises(ValueError, match="writes routes: give it as --model"):
        load_models(None, routes)
    with pytest.raises(ValueError, match="--stock is for a route model"):
        load_models(None, text, STOCK)


def test_without_a_model_that_of_the_package_is_shown(monkeypatch, capsys):
    asked = []
    monkeypatch.setattr(app, "load_models", lambda *names: asked.append(names) or 1 / 0)
    with pytest.raises(ZeroDivisionError):
        cli.main(["app"])
    assert asked == [(str(MODEL), None, STOCK, "auto")] and capsys.readouterr().err.startswith("Model: weft-routes")


def test_a_missing_extra(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "gradio", None)
    assert cli.main(["app", "--model", "somewhere"]) == 1
    assert capsys.readouterr().err == "weftformer app: error: This needs gradio: pip install 'weftformer[app]'.\n"


def test_arguments_reach_the_launch(monkeypatch, folders):
    import gradio

    launched = {}
    monkeypatch.setattr(gradio.Blocks, "launch", lambda self, **settings: launched.update(settings))
    cli.main(["app", "--model", folders[0], "--host", "0.0.0.0", "--port", "7123", "--share"])
    assert launched == {"server_name": "0.0.0.0", "server_port": 7123, "share": True, **LAUNCH}
