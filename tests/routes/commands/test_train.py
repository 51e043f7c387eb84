import json

from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

from weftformer.routes import Route, RoutePlanner, write_routes
from weftformer.routes.chemistry.molecules import canonical_smiles
from weftformer.routes.training.preparation import Preparation, prepare
from weftformer.scripts import cli

SMALL = "d_model=32,encoder_layers=1,decoder_layers=1,encoder_ffn_dim=32,decoder_ffn_dim=32,max_target_positions=120"
QUICK = ["--config-overrides", SMALL, "--beams", "2", "--disable-tqdm", "true", "--use-cpu"]


def routes(*targets: str) -> list[Route]:
    return [Route(target, (Route("CC(=O)O"), Route("CCN"))) for target in targets]


def train(*words: str) -> int:
    return cli.main(["routes", "train", *words])


def prepared(tmp_path, train: list[Route], test: list[Route], **settings) -> list[str]:
    write_routes(tmp_path / "train.jsonl", train)
    write_routes(tmp_path / "test.jsonl", test)
    prepare([tmp_path / "train.jsonl"], tmp_path / "data", Preparation(**settings), workers=1)
    return ["--train-file", str(tmp_path / "data"), "--test-file", str(tmp_path / "test.jsonl")]


def test_trains_on_the_sample_tests_and_leaves_a_folder_that_loads(tmp_path, capsys):
    folder = tmp_path / "model"
    arguments = ["--num-routes", "60", "--num-test-routes", "4", "--max-steps", "3", "--output-dir", str(folder)]
    assert train(*arguments, *QUICK) == 0
    results = json.loads((folder / "results.json").read_text())
    assert results["steps"] == 3 and results["exact_route"]["top-1"]["n"] == 4
    assert results["test_loss"] > 0
    model, tokenizer = AutoModelForSeq2SeqLM.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
    assert model.config.num_condition_features == 1 and len(tokenizer) == model.config.vocab_size == 78
    assert model.generation_config.eos_token_id == 22 and model.generation_config.num_beams == 2
    shown = capsys.readouterr().out
    assert "top-1" in shown and str(folder) in shown
    planner = RoutePlanner.from_pretrained(folder)
    [plan] = planner.plan(["[18F]CC[2H]"], n_steps=1, beams=1, max_new_tokens=9, progress=False)
    assert plan.target == canonical_smiles("[18F]CC[2H]") and plan.target in plan.candidates[0].text


def test_a_trained_model_is_trained_on_and_learns_more_tokens(tmp_path, capsys):
    train_routes = routes("CCNC(C)=O", "CCN(C)C(C)=O", "CCC", "C" * 110)
    files = prepared(tmp_path, train_routes, routes("CCC", "CCCC"), starting_material="all")
    before = sorted((tmp_path / "data").iterdir())
    first, second = str(tmp_path / "first"), str(tmp_path / "second")
    words = [*files, "--max-steps", "1", "--output-dir"]
    assert train(*words, first, "--preset", "dms-tiny", "--vocabulary", "dms", *QUICK) == 0
    assert len(AutoTokenizer.from_pretrained(first)) == 53
    shown = capsys.readouterr().out
    assert "8 training rows, 2 left out because their target is in the test set" in shown
    assert "do not fit the model: 2 of 6 routes" in shown and "4 training routes" in shown
    assert sorted((tmp_path / "data").iterdir()) == before
    on = ["--model-name-or-path", first, "--config-overrides", "max_target_positions=100", *QUICK[2:]]
    on += ["--learning-rate", "0", "--with-starting-material"]  # the weights stay
    assert train(*words, second, *on) == 0
    old, new = (AutoModelForSeq2SeqLM.from_pretrained(folder) for folder in (first, second))
    assert new.config.max_target_positions == 100 and len(AutoTokenizer.from_pretrained(second)) == 78
    assert new.config.vocab_size == new.config.decoder_vocab_size == len(new.get_input_embeddings().weight) == 78
    for name, weight in old.state_dict().items():
        assert new.state_dict()[name][: len(weight)].equal(weight), name


TWO_STEPS = Route("CCNC(=O)COC", (Route("COCC(=O)O", (Route("COCC(=O)OC"), Route("O"))), Route("CCN")))


def test_aligned_texts_and_sub_routes(tmp_path, capsys):
    """The facts about the routes that a planner needs are in the generation settings, also of checkpoints."""
    train_routes = [TWO_STEPS, *routes("CCNC(C)=O", "CCC")]
    files = prepared(tmp_path, train_routes, routes("CCC"), aligned=3, sub_routes=True)
    words = [*files, "--preset", "dms-tiny", "--max-steps", "1", "--output-dir", str(tmp_path / "model"), *QUICK]
    words += ["--label-smoothing-factor", "0.1", "--save-strategy", "steps", "--save-steps", "1"]
    assert train(*words) == 0
    # three of each target: of the two routes, and of the acid that the first makes; the tested propane has two SMILES
    shown = capsys.readouterr().out
    assert "11 training rows, 2 left out" in shown and "9 training routes" in shown
    expected = {"steps": [1, 2], "aligned": 3, "sub_routes": True, "starting_material": False}
    expected |= {"sources": {"train.jsonl": 11}}
    for folder in (tmp_path / "model", tmp_path / "model" / "checkpoint-1"):
        model = AutoModelForSeq2SeqLM.from_pretrained(folder)
        assert model.generation_config.routes == expected
    results = json.loads((tmp_path / "model" / "results.json").read_text())
    assert results["train_loss"] > 0
    assert train(*words, "--resume-from-checkpoint", "true") == 0
    again = json.loads((tmp_path / "model" / "results.json").read_text())
    assert again["train_loss"] is None and again["test_loss"] == results["test_loss"]
    card = (tmp_path / "model" / "README.md").read_text()
    assert "Each intermediate of a route is also a target. 3 aligned texts of each route" in card


def test_a_target_that_cannot_be_planned_is_not_found_and_loses_no_results(tmp_path, capsys):
    test_routes = [*routes("CC[NH3+].[Cl-]", "CCCC"), Route("CCO")]
    files = prepared(tmp_path, routes("CCNC(C)=O", "CCN(C)C(C)=O"), test_routes)
    words = [*files, "--preset", "dms-tiny", "--max-steps", "1", "--output-dir", str(tmp_path / "model"), *QUICK]
    assert train(*words) == 0
    said = capsys.readouterr()
    assert "1 of 2 targets cannot be planned, the first: 'CC[NH3+].[Cl-]' is 2 molecules" in said.out
    assert "Left out: 1 route of" in said.err and "CCO is a single molecule" in said.err
    assert json.loads((tmp_path / "model" / "results.json").read_text())["exact_route"]["top-1"]["n"] == 2
