"""The precision benchmark: each precision plans the same targets, and the rows say what was kept and what was saved."""

import json
from importlib.util import find_spec

import pytest
import torch

pytest.importorskip("rdkit")

from weftformer import WeftConfig, WeftForConditionalGeneration
from weftformer.benchmarks import precision as benchmark
from weftformer.routes import Route
from weftformer.routes.plans import Candidate, Plan
from weftformer.scripts.cli import run_script
from weftformer.tokenization import build_route_tokenizer

ESTER = Route("CCOC(C)=O", (Route("CC(=O)O"), Route("CCO")))
TURNED = Route("CCOC(C)=O", (Route("CCO"), Route("CC(=O)O")))
CHLORIDE = Route("CCOC(C)=O", (Route("CC(=O)Cl"), Route("CCO")))
AMIDE = Route("CNC(C)=O", (Route("CC(=O)O"), Route("CN")))

needs_torchao = pytest.mark.skipif(find_spec("torchao") is None, reason="int8 is torchao's, which is not installed")


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> str:
    folder = tmp_path_factory.mktemp("model")
    torch.manual_seed(0)
    config = WeftConfig.from_preset(
        "dms-tiny", d_model=16, encoder_layers=1, decoder_layers=1, encoder_ffn_dim=16, decoder_ffn_dim=16,
        max_target_positions=120,
    )  # fmt: skip
    WeftForConditionalGeneration(config).save_pretrained(folder)
    build_route_tokenizer().save_pretrained(folder)
    return str(folder)


@pytest.fixture(autouse=True)
def held_out(monkeypatch):
    """Three routes instead of the 400 that take a minute to grow."""
    monkeypatch.setattr(benchmark, "load_routes", lambda arguments, seed: ([], [ESTER, AMIDE, ESTER]))


def plan(*routes: Route | None) -> Plan:
    return Plan("CCOC(C)=O", [Candidate("", -1.0, 1, route) for route in routes])


def test_best_routes_are_compared_without_the_order_of_reactants_and_past_what_is_no_route():
    first = [plan(ESTER, CHLORIDE), plan(ESTER), plan(None, ESTER), plan(None)]
    assert benchmark.share_of_same(first, first) == 1
    other = [plan(TURNED), plan(CHLORIDE, ESTER), plan(ESTER, None), plan(CHLORIDE)]
    assert benchmark.share_of_same(first, other) == 0.5


def test_each_precision_has_a_row(folder):
    rows = benchmark.precision_rows(folder, 2, beams=5, precisions=["float32", "bfloat16"])
    assert [row["precision"] for row in rows] == ["float32", "bfloat16"]
    assert rows[0]["same_best_route"] == 1 and 0 <= rows[1]["same_best_route"] <= 1
    parameters = WeftForConditionalGeneration.from_pretrained(folder).num_parameters()
    assert [row["weight_bytes"] for row in rows] == [4 * parameters, 2 * parameters]
    for row in rows:
        assert row["fast_path"] and row["seconds_per_target"] > 0
        assert {rank: share["n"] for rank, share in row["exact_route"].items()} == {"top-1": 2, "top-5": 2}


def test_models_are_in_the_precision_they_are_said_to_be(folder):
    for name, dtype in (("float32", torch.float32), ("bfloat16", torch.bfloat16)):
        parameters = benchmark.load_planner(folder, name).model.parameters()
        assert {parameter.dtype for parameter in parameters} == {dtype}


@needs_torchao
def test_int8_counts_bytes_and_takes_the_plain_path(folder):
    rows = benchmark.precision_rows(folder, 1, beams=2, precisions=["float32", "int8"])
    assert rows[0]["fast_path"] and not rows[1]["fast_path"]
    model = WeftForConditionalGeneration.from_pretrained(folder)
    linear = [module for name, module in model.named_modules() if benchmark.quantizable(module, name)]
    weights = sum(module.weight.numel() for module in linear)
    # a number of 8 bits for one of 32, and for each output a scale of 32 bits and a zero point of 8; what the head
    # shared with the embedding is then there twice
    per_output = 5 * sum(module.out_features for module in linear)
    shared = 4 * model.lm_head.weight.numel()
    assert rows[1]["weight_bytes"] == rows[0]["weight_bytes"] - 3 * weights + per_output + shared


@needs_torchao
def test_int8_is_the_arithmetic_of_its_rounded_weights(folder):
    quantised, plain = (benchmark.load_planner(folder, name).model for name in ("int8", "float32"))
    inputs = {"input_ids": torch.arange(4, 24)[None], "decoder_input_ids": torch.arange(3, 20)[None],
              "condition_values": torch.tensor([[2.0]])}  # fmt: skip
    with torch.no_grad():
        before = plain(**inputs).logits
        twins = dict(quantised.named_modules())
        for name, module in plain.named_modules():
            if benchmark.quantizable(module, name):
                module.weight = torch.nn.Parameter(twins[name].weight.dequantize())
        torch.testing.assert_close(quantised(**inputs).logits, plain(**inputs).logits, rtol=1e-5, atol=1e-5)
        assert not torch.allclose(before, plain(**inputs).logits, rtol=1e-4, atol=1e-4)


def test_the_command_prints_and_writes(folder, tmp_path, capsys):
    file = tmp_path / "figures.json"
    arguments = ["--model", folder, "--targets", "2", "--beams", "1", "--threads", "1", "--json", str(file)]
    assert run_script("precision", benchmark.main, [*arguments, "--precisions", "bfloat16", "float32"]) == 0
    report = json.loads(file.read_text())
    assert [row["precision"] for row in report["rows"]] == ["bfloat16", "float32"]
    assert report["machine"]["threads"] == 1 and "dtype" not in report["machine"]
    header, _, *lines = capsys.readouterr().out.strip().splitlines()
    assert "top-1 | same best route as bfloat16" in header
    assert len(lines) == 2 and {line.count("|") for line in lines} == {header.count("|")}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--targets", "401"], "--targets must be 1 to 400: got 401"),
        (["--beams", "0"], "--beams must be at least 1"),
        (["--model", "no/such/folder"], "no/such/folder"),
    ],
)
def test_mistakes_are_named(words, message, folder, capsys):
    words = ["--model", folder, "--precisions", "float32", *words]
    assert run_script("precision", benchmark.main, words) == 1
    assert message in capsys.readouterr().err


def test_missing_torchao_is_named(folder, monkeypatch):
    monkeypatch.setattr(benchmark, "find_spec", lambda name: None)
    with pytest.raises(ValueError, match=r"pip install weftformer\[benchmark\]"):
        benchmark.precision_rows(folder, 1, beams=1)
