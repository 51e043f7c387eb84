"""A later transformers that passes keywords, adds fields and changes methods that this release does not know."""

import json
import logging
from pathlib import Path

import pytest
import torch
import transformers
from transformers import Seq2SeqTrainingArguments, Trainer

from weftformer import WeftConfig, WeftForConditionalGeneration
from weftformer.modeling import transformers_names

from ..models import tiny_model

GENERATION = "transformers.generation.utils"


@pytest.fixture(scope="module")
def saved(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("next_release") / "model"
    tiny_model(random=True, dropout=0.0, decoder_mlp_layer_types=["sparse", "dense"], num_experts=4).save_pretrained(
        folder
    )
    return folder


IDS, LABELS = torch.tensor([[5, 6, 7, 8, 9], [9, 4, 3, 0, 0]]), torch.tensor([[6, 7, 8, 2], [5, 2, -100, -100]])


@pytest.fixture
def dropped(monkeypatch, caplog):
    """The messages about names that are dropped, none of which has been told yet."""
    monkeypatch.setattr(transformers_names, "_dropped", set())
    transformers.logging.enable_propagation()
    caplog.set_level(logging.WARNING)
    return lambda: [message for message in caplog.messages if "which this model does not know" in message]


def as_transformers(code: str, module: str):
    """Return the function `call` of a module of transformers that has this code."""
    scope = {"__name__": module}
    exec(code, scope)
    return scope["call"]


@pytest.mark.parametrize("module", [GENERATION, "transformers.trainer"])
def test_the_nearest_caller_tells_a_keyword_of_transformers_from_a_typo(dropped, module):
    model = tiny_model(random=True)
    code = "def call(model, **given):\n    return model(**given, of_next_year=1, inputs_of_next_year=2)"
    call = as_transformers(code, module)
    for _ in range(2):
        call(model, input_ids=IDS, labels=LABELS)
    version = transformers.__version__
    assert dropped() == [
        f"transformers {version} passes `{name}`, which this model does not know: it is ignored."
        for name in ("of_next_year", "inputs_of_next_year")
    ]
    for part in (model, model.model):
        with pytest.raises(
            ValueError, match=r"unexpected keyword `decoder_input_idz`. Did you mean `decoder_input_ids`\?"
        ):
            part(input_ids=IDS, decoder_input_ids=LABELS.clamp(min=0), decoder_input_idz=LABELS)


def test_a_typo_in_generate_is_an_error(dropped):
    with pytest.raises(ValueError, match="attention_masc"):
        tiny_model().generate(IDS, attention_masc=IDS != 0, max_new_tokens=2)
    assert not dropped()


@pytest.mark.parametrize("evaluates", [False, True])
def test_a_column_of_the_users_batch_is_an_error(tmp_path, dropped, evaluates):
    rows = [{"input_ids": IDS[row], "labels": LABELS[row], "attention_masc": IDS[row]} for row in range(2)]
    arguments = Seq2SeqTrainingArguments(
        str(tmp_path), max_steps=1, report_to=[], use_cpu=True, save_strategy="no", remove_unused_columns=False
    )
    trainer = Trainer(tiny_model(), arguments, train_dataset=rows, eval_dataset=rows)
    with pytest.raises(ValueError, match=r"unexpected keyword `attention_masc`. Did you mean `attention_mask`\?"):
        trainer.evaluate() if evaluates else trainer.train()
    assert not dropped()


def test_a_field_that_transformers_adds_to_a_file_is_dropped_and_a_typo_is_an_error(saved, caplog):
    transformers.logging.enable_propagation()
    file = saved / "config.json"
    before = file.read_text()
    try:
        file.write_text(json.dumps(json.loads(before) | {"of_next_year": 1}))
        config = WeftConfig.from_pretrained(saved)
    finally:
        file.write_text(before)
    assert not hasattr(config, "of_next_year") and config.num_experts == 4
    assert "The configuration file has an unknown field, which is ignored: `of_next_year`." in caplog.messages
    with pytest.raises(ValueError, match=r"no field `of_next_year`"):
        WeftConfig(of_next_year=1)


def test_with_other_methods_of_transformers_the_plain_path_is_taken(monkeypatch):
    """A later transformers may call them in another way."""
    dispatch = WeftForConditionalGeneration.fast_path
    assert dispatch.changed_method() is None
    monkeypatch.setattr(dispatch, "_METHODS", {"_sample": ("input_ids",)})
    dispatch.changed_method.cache_clear()
    try:
        model = tiny_model()
        assert (
            dispatch.reason_against_request(model, model.generation_config, {}, None)
            == "transformers has another `_sample`"
        )
    finally:
        monkeypatch.undo()
        dispatch.changed_method.cache_clear()
