"""`--dtype` of each command that loads a model."""

import pytest
import torch

pytest.importorskip("rdkit")
pytest.importorskip("fastapi")

from weftformer.routes import Route, write_routes
from weftformer.scripts import cli
from weftformer.serving import app as serving_app
from weftformer.serving import tasks

from ..conftest import save_both
from ..models import tiny_text_model

COMMANDS = {
    "generate": ["generate", "one two", "--model", "TEXTS"],
    "evaluate": ["evaluate", "pairs.csv", "--model", "TEXTS"],
    "serve": ["serve", "--model", "TEXTS", "--port", "0"],
    "routes plan": ["routes", "plan", "CCO", "--model", "ROUTES"],
    "routes evaluate": ["routes", "evaluate", "routes.jsonl", "--model", "ROUTES"],
}


@pytest.fixture(scope="module")
def text_folder(tmp_path_factory):
    return save_both(tmp_path_factory.mktemp("texts"), *tiny_text_model(["one two three"]))


@pytest.mark.parametrize("command", COMMANDS)
def test_weights_have_the_given_dtype(command, text_folder, planner_folder, tmp_path, monkeypatch, capsys):
    seen = []

    def stop(model, *rest):
        seen.append(model.dtype)
        raise ValueError("seen enough")

    for module in (tasks, serving_app):
        monkeypatch.setattr(module, "move_to", stop)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pairs.csv").write_text("source,target\none,two\n")
    write_routes(tmp_path / "routes.jsonl", [Route("CCN", (Route("CCO"), Route("N")))])
    words = [{"TEXTS": text_folder, "ROUTES": planner_folder}.get(word, word) for word in COMMANDS[command]]
    for given in ([], ["--dtype", "bfloat16"], ["--dtype", "float16"]):
        assert cli.main([*words, *given]) == 1 and "seen enough" in capsys.readouterr().err
    assert seen == [torch.float32, torch.bfloat16, torch.float16]
