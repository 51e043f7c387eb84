"""No expert dies with either way of balancing, and some do without."""

import json

import pytest

from weftformer.benchmarks import expert_balance as script


def test_the_task_is_what_it_says():
    seen = set()
    for pair in script.make_pairs(50, seed=0):
        (task, *source), (*target, end) = pair["input_ids"], pair["labels"]
        letters = [token - 7 for token in source]
        expected = [letters, letters[::-1], [(letter + 5) % 24 for letter in letters], sorted(letters)][task - 3]
        assert [token - 7 for token in target] == expected and end == 2 and min(letters) >= 0
        seen.add(task)
    assert seen == {3, 4, 5, 6}
    batch = script.collate(script.make_pairs(4, seed=0))
    assert (batch["labels"] == -100).any() and not (batch["labels"] == 0).any() and (batch["input_ids"] == 0).any()


def test_too_few_steps_are_refused():
    with pytest.raises(ValueError, match="--steps must be at least 15"):
        script.main(["--steps", "3"])


@pytest.mark.slow
def test_experts_die_without_balancing_alone(tmp_path, capsys):
    pytest.importorskip("matplotlib")
    script.main(["--json", str(tmp_path / "figures.json"), "--picture", str(tmp_path / "experts.svg")])
    rows = {row["method"]: row for row in json.loads((tmp_path / "figures.json").read_text())["rows"]}
    dead = {method: sum(layer["dead"] for layer in row["layers"].values()) for method, row in rows.items()}
    assert dead.pop("no balancing") > 0 and set(dead.values()) == {0} and len(dead) == 3
    for row in rows.values():
        assert all(sum(layer["load"]) == pytest.approx(8) for layer in row["layers"].values())
    assert "| no balancing |" in capsys.readouterr().out
    assert (tmp_path / "experts.svg").read_text().count("<image") == 17
