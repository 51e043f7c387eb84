"""Planning beside DirectMultiStep's own `generate_routes`: the same weights give the same ranked texts."""

import argparse
import json

import pytest

pytest.importorskip("rdkit")
pytest.importorskip("directmultistep")

from weftformer.benchmarks import decoding as benchmark
from weftformer.benchmarks import planning as benchmark_routes
from weftformer.routes import write_routes


@pytest.fixture
def peer(monkeypatch):
    """Their model in the size of `published_planner`."""
    from directmultistep.model import ModelFactory

    config = ModelFactory.from_preset("flash_10M", device="cpu", compile_model=False).config
    for part, layers in ((config.encoder, 1), (config.decoder, 2)):
        part.hid_dim, part.n_layers = 64, layers
    monkeypatch.setattr(
        benchmark_routes, "directmultistep",
        lambda preset: ModelFactory(config, device="cpu", compile_model=False).create_model().eval(),
    )  # fmt: skip


@pytest.mark.integration
def test_ranked_texts_are_those_of_generate_routes(published_planner, known, peer, tmp_path):
    folder, file = tmp_path / "model", tmp_path / "routes.jsonl"
    published_planner.model.save_pretrained(folder)
    published_planner.tokenizer.save_pretrained(folder)
    write_routes(file, known[1:3])
    case = benchmark_routes.RoutesCase("planning", beams=3, model=str(folder), routes=str(file))
    contenders = list(case.contenders(compiled=False))
    texts = contenders[0].run()
    for text, route in zip(texts, known[1:3], strict=True):
        assert route.to_string() == text.splitlines()[0] and len(text.splitlines()) > 1
    arguments = argparse.Namespace(runs=1, warm_ups=1, peer_runs=1, only=["Weft"])
    rows = benchmark.compare(case, contenders, arguments)
    assert [row["agreement"] for row in rows] == ["", "same texts", "not compared"]
    assert rows[1]["speed"].endswith("s a target") and str(tmp_path) not in json.dumps(rows)
