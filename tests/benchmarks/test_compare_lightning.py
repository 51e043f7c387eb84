"""Beside DirectMultiStep's own training: what both are given, and what is measured."""

import json

import pytest
import torch

from weftformer.benchmarks import compare_lightning
from weftformer.routes import sample_routes, write_routes
from weftformer.routes.planning.planner import RoutePlanner
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
    routes = sample_routes(6)
    for name, part in (("train", routes[:4]), ("validation", routes[4:])):
        write_routes(tmp_path / f"{name}.jsonl", part)
    return ["--train", str(tmp_path / "train.jsonl"), "--validation", str(tmp_path / "validation.jsonl")]


@pytest.mark.integration
def test_more_steps_than_routes_are_refused(files):
    with pytest.raises(ValueError, match="5 steps need 10 routes, and there are 4"):
        compare_lightning.main([*files, "--steps", "5", "--batch-size", "2"])
    with pytest.raises(ValueError, match="--batch-size 5 is more than the 4 training routes"):
        compare_lightning.main([*files, "--minutes", "1", "--batch-size", "5"])


@pytest.mark.integration
def test_the_schedule_of_a_time_is_that_of_its_steps_stretched(monkeypatch):
    clock = compare_lightning.Clock(lambda step: 1)
    now = [0.0]
    monkeypatch.setattr(compare_lightning.time, "perf_counter", lambda: now[0])

    def factor(minutes):
        arguments = compare_lightning.build_parser().parse_args(
            ["--train", "a", "--validation", "b", "--steps", "100", "--warmup-steps", "10", "--minutes", str(minutes)]
        )
        comparison = object.__new__(compare_lightning.Comparison)
        comparison.arguments = arguments
        return comparison.schedule(clock)(0), comparison.is_over(clock)

    assert factor(2) == (0.1, False)  # a tenth of the warm-up, as if one step were taken
    clock.start()
    now[0] = 6.0
    assert factor(2) == (pytest.approx(0.6), False)  # 5 of 100
    now[0] = 64.8
    assert factor(2) == (pytest.approx(0.5), False)  # the middle of the cosine, 54 + 1 of 100
    clock.step()
    now[0] = 120.0
    assert clock.seconds == [64.8] and factor(2) == (0.1, True)


@pytest.mark.slow
@pytest.mark.parametrize("preset", compare_lightning.PEERS)
def test_both_learn_the_same(files, tmp_path, preset):
    words = ["--steps", "2", "--batch-size", "2", "--warmup-steps", "1", "--json", str(tmp_path / "figures.json")]
    compare_lightning.main([*files, "--preset", preset, *words])
    figures = json.loads((tmp_path / "figures.json").read_text())
    losses = [figures[name]["validation_loss"] for name in ("Weft", "directmultistep, Lightning")]
    assert losses[0] == pytest.approx(losses[1], rel=0.05) and max(losses) < figures["loss_before"]


def test_the_tokens_of_later_epochs_are_those_of_the_first():
    comparison = object.__new__(compare_lightning.Comparison)
    comparison.arguments = compare_lightning.build_parser().parse_args(
        ["--train", "a", "--validation", "b", "--batch-size", "2"]
    )
    comparison.lengths = [1, 2, 3, 4]
    clock = comparison.clock()
    clock.seconds = [1.0] * 3
    assert [clock.tokens_of(step) for step in range(3)] == [3, 7, 3] and clock.tokens == 13


@pytest.mark.slow
def test_both_train_for_the_same_time_and_are_kept(files, tmp_path, monkeypatch):
    rates: dict[str, list[float]] = {}
    step = torch.optim.AdamW.step

    def recording(self, *args, **kwargs):
        rates.setdefault(current[0], []).append(self.param_groups[0]["lr"])
        found = step(self, *args, **kwargs)  # which computes the gradients, in Lightning
        parameters = self.param_groups[0]["params"]
        assert max(float(one.grad.abs().max()) for one in parameters if one.grad is not None) <= 1.0  # clipped
        return found

    monkeypatch.setattr(torch.optim.AdamW, "step", recording)
    current = [""]
    for name in ("weft", "lightning"):
        method = getattr(compare_lightning.Comparison, name)
        monkeypatch.setattr(
            compare_lightning.Comparison, name,
            lambda self, name=name, method=method: (current.__setitem__(0, name), method(self))[1],
        )  # fmt: skip
    words = ["--batch-size", "2", "--minutes", "0.05", "--json", str(tmp_path / "figures.json"),
             "--save", str(tmp_path)]  # fmt: skip
    compare_lightning.main([*files, *words])
    assert rates["weft"][0] == rates["lightning"][0] == pytest.approx(3e-4 / 10)
    figures = json.loads((tmp_path / "figures.json").read_text())
    assert figures["arguments"]["minutes"] == 0.05 and figures["arguments"]["batch_size"] == 2
    for title, name in (("Weft", "weft"), ("directmultistep, Lightning", "lightning")):
        found = figures[title]
        assert found["seconds"] >= 3 and found["target_tokens"] > 0 and found["steps"] == len(rates[name])
        planner = RoutePlanner.from_pretrained(tmp_path / name)
        loss = compare_lightning.Comparison(
            compare_lightning.build_parser().parse_args([*files, "--batch-size", "2", "--minutes", "1"])
        ).loss(planner.model)
        assert loss == pytest.approx(found["validation_loss"], rel=1e-5)
