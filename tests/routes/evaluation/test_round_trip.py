"""A forward model that knows a few reactions by heart predicts their products, and no others."""

import pytest

from weftformer.routes import Route, write_routes
from weftformer.routes.evaluation.round_trip import ForwardModel
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
