"""Code beside a model or a tokenizer does not run, even if standard input would consent."""

import io
import json
import sys

import pytest

from weftformer.scripts import cli

from ..models import tiny_text_model

COMMANDS = {
    "generate": ["generate", "--model", "FOLDER"],
    "plan": ["routes", "plan", "CCO", "--model", "FOLDER"],
    "export": ["export", "FOLDER", "out", "--format", "torch"],
    "upcycle": ["upcycle", "FOLDER", "out"],
    "train": ["train", "--model-name-or-path", "FOLDER", "--train-file", "pairs.csv", "--output-dir", "out"],
    "new model": ["train", "--tokenizer-name", "FOLDER", "--train-file", "pairs.csv", "--output-dir", "out"],
    "evaluate": ["evaluate", "pairs.csv", "--model", "FOLDER"],
    "routes": ["routes", "evaluate", "routes.json", "--model", "FOLDER"],
    "serve": ["serve", "--model", "FOLDER", "--port", "0"],
    "forward model": ["serve", "--forward-model", "FOLDER", "--port", "0"],
    "demo": ["demo", "--model", "FOLDER", "--output-dir", "out"],
}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The folder of a text model that has code in it."""
    model, tokenizer = tiny_text_model(["one two"])
    model.save_pretrained(tmp_path / "model")
    tokenizer.save_pretrained(tmp_path / "model")
    (tmp_path / "model" / "evil.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w').close()\n")
    (tmp_path / "pairs.csv").write_text("source,target\none,two\n")
    (tmp_path / "routes.json").write_text(json.dumps([{"smiles": "CCO", "children": [{"smiles": "CO"}]}]))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"y\n" * 20)))
    return tmp_path / "model"


def change(file, **values):
    file.write_text(json.dumps(json.loads(file.read_text()) | values))


FAST = ("generate", "plan", "upcycle", "new model", "serve")


@pytest.mark.parametrize(
    "command", [pytest.param(name, marks=() if name in FAST else pytest.mark.integration) for name in COMMANDS]
)
def test_no_command_runs_the_code_of_a_model(command, folder, capsys):
    change(folder / "config.json", model_type="evil", auto_map=dict.fromkeys(
        ("AutoConfig", "AutoModel", "AutoModelForSeq2SeqLM"), "evil.Evil"))  # fmt: skip
    change(folder / "tokenizer_config.json", tokenizer_class="Evil", auto_map={"AutoTokenizer": ["evil.Evil", None]})
    words = [word.replace("FOLDER", str(folder)) for word in COMMANDS[command]]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("builtins.input", lambda *told: "y")
        assert cli.main(words) == 1
    name = " ".join(words[: 2 if words[0] == "routes" else 1])
    assert capsys.readouterr().err.splitlines()[-1].startswith(f"weftformer {name}: error: ")
    assert not (folder.parent / "ran").exists()
