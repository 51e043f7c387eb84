import json

import pytest

pytest.importorskip("rdkit")

from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

from weft.routes import Route, write_routes
from weft.routes.preparation import Preparation, prepare
from weft.scripts import cli

SMALL = "d_model=32,encoder_layers=1,decoder_layers=1,encoder_ffn_dim=32,decoder_ffn_dim=32,max_target_positions=120"
QUICK = ["--config_overrides", SMALL, "--beams", "2", "--disable_tqdm", "true", "--use_cpu"]


def routes(*targets: str) -> list[Route]:
    return [Route(target, (Route("CC(=O)O"), Route("CCN"))) for target in targets]


@pytest.fixture
def files(tmp_path):
    write_routes(tmp_path / "train.jsonl.gz", routes("CCNC(C)=O", "CCN(C)C(C)=O", "CCC", "C" * 200))
    write_routes(tmp_path / "test.jsonl", routes("CCC", "CCCC"))
    return ["--train_file", str(tmp_path / "train.jsonl.gz"), "--test_file", str(tmp_path / "test.jsonl")]


def test_grows_trains_tests_and_leaves_a_folder_that_loads(tmp_path, capsys):
    folder = tmp_path / "model"
    arguments = ["--num_routes", "60", "--num_test_routes", "4", "--max_steps", "3", "--output_dir", str(folder)]
    assert cli.main(["train-routes", *arguments, *QUICK]) == 0
    results = json.loads((folder / "results.json").read_text())
    assert results["steps"] == 3 and results["exact_route"]["top-1"]["n"] == 4
    assert results["test_loss"] > 0 and 0 <= results["valid"] <= 1
    model, tokenizer = AutoModelForSeq2SeqLM.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
    assert model.config.num_condition_features == 1 and len(tokenizer) == 53
    assert model.generation_config.eos_token_id == 22 and model.generation_config.num_beams == 2
    shown = capsys.readouterr().out
    assert "top-1" in shown and str(folder) in shown


def test_files_are_read_and_what_does_not_fit_is_counted(files, tmp_path, capsys):
    arguments = [*files, "--preset", "dms-tiny", "--max_steps", "2", "--output_dir", str(tmp_path / "model")]
    assert cli.main(["train-routes", *arguments, *QUICK]) == 0
    shown = capsys.readouterr().out
    assert "4 training routes, 1 of them left out because their target is tested" in shown
    assert "1 of 3 routes left out" in shown and "2 training routes" in shown


def test_a_prepared_folder_is_trained_on(files, tmp_path, capsys):
    prepare([files[1]], tmp_path / "data", Preparation(starting_material="all", validation=0.0))
    before = sorted((tmp_path / "data").iterdir())
    arguments = ["--train_file", str(tmp_path / "data"), *files[2:], "--preset", "dms-tiny", "--max_steps", "2"]
    assert cli.main(["train-routes", *arguments, "--output_dir", str(tmp_path / "model"), *QUICK]) == 0
    shown = capsys.readouterr().out
    assert "6 training rows, 2 of them left out because their target is tested" in shown
    assert "4 training routes" in shown and sorted((tmp_path / "data").iterdir()) == before
    told = [*arguments, "--output_dir", str(tmp_path / "told"), "--with_starting_material", *QUICK]
    assert cli.main(["train-routes", *told]) == 0
    prepare([files[1]], tmp_path / "data", overwrite=True)
    assert cli.main(["train-routes", *told, "--overwrite_output_dir"]) == 1
    assert "has no starting materials" in capsys.readouterr().err


def test_routes_of_other_forms_are_trained_on(files, tmp_path, capsys):
    write_routes(tmp_path / "train.json", routes("CCNC(C)=O", "CCN(C)C(C)=O"), "aizynthfinder")
    arguments = ["--train_file", str(tmp_path / "train.json"), *files[2:], "--preset", "dms-tiny", "--max_steps", "1"]
    assert cli.main(["train-routes", *arguments, "--output_dir", str(tmp_path / "model"), *QUICK]) == 0
    assert "2 training routes, 0 of them left out" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--train_file", "routes.jsonl"], "--train_file and --test_file go together"),
        (["--train_file", "."], "is no folder of `weft prepare-routes`"),
        (["--preset", "modern-tiny"], "take one of the dms-* presets"),
        (["--preset", "dms-tinny"], "Did you mean `dms-tiny`?"),
        (["--num_route", "3"], "Did you mean `num_routes`?"),
    ],
)
def test_errors_are_one_line(words, message, tmp_path, capsys):
    assert cli.main(["train-routes", *words, "--output_dir", str(tmp_path / "model")]) == 1
    shown = capsys.readouterr().err
    assert message in shown and shown.count("\n") == 1
    assert not (tmp_path / "model").exists()


def test_a_folder_with_something_in_it_is_not_overwritten(tmp_path, capsys):
    (tmp_path / "results.json").write_text("mine")
    assert cli.main(["train-routes", "--output_dir", str(tmp_path)]) == 1
    assert "not empty" in capsys.readouterr().err and (tmp_path / "results.json").read_text() == "mine"
