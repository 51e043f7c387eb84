"""Beside DirectMultiStep's own training: what both are given, and what is measured."""

import json

import pytest

from weftformer.benchmarks import compare_lightning
from weftformer.routes import generate_routes, write_routes
from weftformer.tokenization import build_route_tokenizer

pytest.importorskip("directmultistep")


@pytest.mark.integration
def test_sources_are_masked_as_directmultistep_does():
    tokenizer = build_route_tokenizer()
    carbon, pad, mask = tokenizer.convert_tokens_to_ids("C"), tokenizer.pad_token_id, tokenizer.mask_token_id
    collate = compare_lightning.masked_collator(tokenizer)
    batch = collate([{"input_ids": [carbon] * size, "labels": [carbon] * size} for size in (4000, 1000)])
    ids, labels = batch["input_ids"], batch["labels"]
    assert (ids[1, 1000:] == pad).all()
    hidden = (ids[0] == mask).float().mean()
    assert 0.03 < hidden < 0.07 and set(ids[0].tolist()) == {carbon, mask}
    assert set(labels.flatten().tolist()) == {carbon, -100}


@pytest.mark.integration
def test_speed_is_the_median_without_the_first_step():
    clock = compare_lightning.Clock(lambda step: 100)
    clock.seconds = [100.0, 1.0, 2.0, 4.0]
    assert clock.tokens_per_second == 50


@pytest.fixture
def files(tmp_path):
    routes = generate_routes(6, seed=0, max_depth=1)
    for name, part in (("train", routes[:4]), ("validation", routes[4:])):
        write_routes(tmp_path / f"{name}.jsonl", part)
    return ["--train", str(tmp_path / "train.jsonl"), "--validation", str(tmp_path / "validation.jsonl")]


@pytest.mark.integration
def test_more_steps_than_routes_are_refused(files):
    with pytest.raises(ValueError, match="5 steps need 10 routes, and there are 4"):
        compare_lightning.main([*files, "--steps", "5", "--batch-size", "2"])


@pytest.mark.slow
@pytest.mark.parametrize("preset", compare_lightning.PEERS)
def test_both_learn_the_same(files, tmp_path, preset):
    words = ["--steps", "2", "--batch-size", "2", "--warmup-steps", "1", "--json", str(tmp_path / "figures.json")]
    compare_lightning.main([*files, "--preset", preset, *words])
    figures = json.loads((tmp_path / "figures.json").read_text())
    losses = [figures[name]["validation_loss"] for name in ("Weft", "directmultistep, Lightning")]
    assert losses[0] == pytest.approx(losses[1], rel=0.05) and max(losses) < figures["loss_before"]
