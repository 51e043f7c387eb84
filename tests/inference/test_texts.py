"""Texts of a loaded model: settings, scores, and pools that inputs join and leave."""

import pytest

from weftformer.inference import TextTask, search

from ..models import tiny_text_model

TEXTS = ["one two three", "two", "three one four one five nine two six", "six six", "", "nine five"]


@pytest.fixture(scope="module")
def text_task():
    return TextTask(*tiny_text_model(TEXTS))


@pytest.mark.parametrize("in_batches", [False, True])
def test_a_pool_whose_inputs_all_left_has_nothing_to_do(text_task, monkeypatch, in_batches):
    if in_batches:
        monkeypatch.setattr(search, "reason_against", lambda model, **settings: "in batches")
    pool, (input,) = text_task.open_pool(1, lambda: None), text_task.inputs(["one"])
    pool.add("one", input)
    assert in_batches or pool.step() == []
    pool.remove("one")
    assert len(pool) == 0 and pool.step() == []


def test_settings_and_ends_are_those_saved_with_the_model():
    task = TextTask(*tiny_text_model(TEXTS))
    saved = task.model.generation_config
    saved.max_new_tokens = 7
    assert task.settings(None, None).max_new_tokens == 7 and task.settings(None, 3).max_new_tokens == 3
    saved.eos_token_id = task.model.config.eos_token_id = None
    ((output,),) = task.generate(task.inputs(["one two"], max_new_tokens=4), with_scores=True)
    assert output.is_cut and output.score < 0
