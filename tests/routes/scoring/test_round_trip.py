"""A forward model that knows a few reactions by heart predicts their products, and no others."""

import json

import pytest

from weftformer.routes import Candidate, Plan, Route, write_routes
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
    files = [str(folder / "routes.jsonl"), "--output-dir", str(folder / "rows"), "--no-progress", "--workers", "1"]
    assert cli.main(["routes", "prepare", "--forward", *files]) == 0
    size = "d_model=48,encoder_layers=1,decoder_layers=1,encoder_ffn_dim=64,decoder_ffn_dim=64"
    arguments = ["--train-file", folder / "rows", "--tokenizer-vocab-size", 270, "--preset", "modern-tiny", "--config-overrides", size, "--max-steps", 120,
                 "--per-device-train-batch-size", 3, "--learning-rate", 4e-3, "--warmup-steps", 5, "--validation-split", 0,
                 "--output-dir", folder / "model", "--use-cpu"]  # fmt: skip
    assert cli.main(["train", *map(str, arguments)]) == 0
    return ForwardModel.from_pretrained(folder / "model", beams=3, batch_size=2)


def reactions(*routes):
    return [(route.smiles, tuple(sorted(route.leaves()))) for route in routes]


@pytest.mark.integration
def test_known_reactions_come_back_and_wrong_ones_do_not(forward, monkeypatch):
    alone = ForwardModel(forward.model, forward.tokenizer, beams=3, batch_size=1)
    for one in (forward, alone):
        assert one.ranks(reactions(AMIDE, ESTER, SULFONAMIDE, WRONG)) == [1, 1, 1, 0]
    assert forward.ranks([("CCO", ("C1CC",))]) == [None]
    monkeypatch.setattr(forward.model.config, "max_source_positions", 1)
    assert forward.ranks([("CCCCN", ("CCO",))]) == [None]  # too long


@pytest.mark.integration
def test_a_plan_has_the_rank_of_each_step(forward):
    half = Route("CC(=O)NCc1ccccc1", (Route("CC(=O)O"), Route("NCc1ccccc1", (Route("CCO"), Route("CC(=O)O")))))
    candidates = [
        Candidate("", -1.0, 2, half),
        Candidate("", -2.0, None, None, "no route"),
        Candidate("", -3.0, 0, Route("CCO")),
    ]
    found = forward.with_forward_ranks(Plan(half.smiles, candidates)).candidates
    assert found[0].forward_ranks == (0, 1)  # the amine is made first
    assert [one.feasibility for one in found] == [0.5, None, None]
    assert Candidate.from_dict(json.loads(json.dumps(found[0].to_dict()))) == found[0]
