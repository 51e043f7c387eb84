"""A forward model that knows a few reactions by heart says which reactions of a route make the round trip."""

import json

import pytest

pytest.importorskip("rdkit")

from weftformer.routes import Plan, Route, write_routes
from weftformer.routes.data.forward_pairs import reactions_of
from weftformer.routes.scoring import round_trip
from weftformer.routes.scoring.round_trip import ForwardModel
from weftformer.scripts import cli

AMIDE = Route("CC(=O)NCc1ccccc1", (Route("CC(=O)O"), Route("NCc1ccccc1")))
ESTER = Route("CCOC(C)=O", (Route("CC(=O)O"), Route("CCO")))
SULFONAMIDE = Route("CCNS(C)(=O)=O", (Route("CCN"), Route("CS(=O)(=O)Cl")))
# acetic acid and ethanol do not give this
WRONG = Route("CCCCCCOC", (Route("CC(=O)O"), Route("CCO")))


@pytest.fixture(scope="module")
def forward(tmp_path_factory):
    """Trained as the documentation says, only shorter."""
    folder = tmp_path_factory.mktemp("forward")
    write_routes(folder / "routes.jsonl", [AMIDE, ESTER, SULFONAMIDE])
    files = [str(folder / "routes.jsonl"), "--output-file", str(folder / "pairs.csv"), "--no-progress"]
    assert cli.main(["routes", "prepare-reactions", *files]) == 0
    size = "d_model=48,encoder_layers=1,decoder_layers=1,encoder_ffn_dim=64,decoder_ffn_dim=64"
    arguments = ["--train-file", folder / "pairs.csv", "--source-column", "reactants", "--target-column", "product",
                 "--tokenizer-vocab-size", 270, "--preset", "modern-tiny", "--config-overrides", size, "--max-steps", 120,
                 "--per-device-train-batch-size", 3, "--learning-rate", 4e-3, "--warmup-steps", 5, "--validation-split", 0,
                 "--output-dir", folder / "model", "--use-cpu"]  # fmt: skip
    assert cli.main(["train", *map(str, arguments)]) == 0
    return ForwardModel.from_pretrained(folder / "model", beams=3, batch_size=2)


@pytest.mark.integration
def test_known_reactions_come_back_and_wrong_ones_do_not(forward):
    reactions = [next(reactions_of(route)) for route in (AMIDE, ESTER, SULFONAMIDE, WRONG)]
    assert forward.ranks(reactions) == [1, 1, 1, None]


@pytest.mark.integration
def test_a_route_has_the_share_of_its_reactions(forward):
    half = Route("CC(=O)NCc1ccccc1", (Route("CC(=O)O"), Route("NCc1ccccc1", (Route("CCO"), Route("CC(=O)O")))))
    found = forward.feasibility([ESTER, half, Route("CCO"), Route("CCO", (Route("C1CC"),))])
    assert found == [1.0, 0.5, None, None]


@pytest.mark.integration
def test_the_order_of_reactants_and_the_batch_make_no_difference(forward):
    turned = Route(ESTER.smiles, ESTER.children[::-1])
    assert forward.feasibility([turned]) == forward.feasibility([ESTER]) == [1.0]
    alone = ForwardModel(forward.model, forward.tokenizer, beams=3, batch_size=1)
    asked = [("CC(=O)O", "CCO"), ("CC(=O)O", "NCc1ccccc1")]
    assert alone.predict(asked)[0][0] == forward.predict(asked)[0][0] == "CCOC(C)=O"


def test_the_oldest_predictions_are_forgotten(monkeypatch):
    asked = []

    class Stub(ForwardModel):
        def __init__(self):
            self.batch_size, self._known = 2, {}

        def _predict(self, batch):
            asked.append(batch)
            return [["C"] for _ in batch]

    forward = Stub()
    monkeypatch.setattr(round_trip, "KNOWN", 2)
    reactants = [("C",), ("CC",), ("CCC",)]
    assert forward.predict(reactants) == [["C"]] * 3  # also those that are forgotten afterwards
    assert forward.predict(reactants) == [["C"]] * 3
    assert asked == [[("C",), ("CC",)], [("CCC",)], [("C",)]]


@pytest.mark.integration
def test_the_command_says_which_reactions_come_back(forward, planner, tmp_path, capsys):
    for name, one in (("routes", planner), ("forward", forward)):
        one.model.save_pretrained(tmp_path / name)
        one.tokenizer.save_pretrained(tmp_path / name)
    arguments = ["--model", str(tmp_path / "routes"), "--forward-model", str(tmp_path / "forward"), "--steps", "1"]
    out = tmp_path / "plans.json"
    assert cli.main(["routes", "plan", AMIDE.smiles, *arguments, "--beams", "2", "--json", str(out)]) == 0
    assert ", round trip of 1 of 1 reactions" in capsys.readouterr().out
    (plan,) = map(Plan.from_dict, json.loads(out.read_text()))
    assert plan.distinct[0].feasibility == 1.0
    assert cli.main(["routes", "plan", AMIDE.smiles, *arguments[:2], "--forward-model", "/nope"]) == 1
    assert "--forward-model /nope: there is no such folder." in capsys.readouterr().err
