"""A later transformers that passes keywords, adds fields and changes methods that this release does not know."""

import logging

import pytest
import torch
import transformers

from weftformer.modeling import transformers_names

from ..models import tiny_model

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


@pytest.mark.parametrize("module", ["transformers.generation.utils", "transformers.trainer"])
def test_the_nearest_caller_tells_a_keyword_of_transformers_from_a_typo(dropped, module):
    model = tiny_model(random=True)
    call = as_transformers("def call(model, **given):\n    return model(**given, of_next_year=1, more=2)", module)
    for _ in range(2):
        call(model, input_ids=IDS, labels=LABELS)
    assert len(dropped()) == 2 and "`of_next_year`" in dropped()[0] and "`more`" in dropped()[1]
    with pytest.raises(ValueError, match=r"unexpected keyword `decoder_input_idz`"):
        model.model(input_ids=IDS, decoder_input_ids=LABELS.clamp(min=0), decoder_input_idz=LABELS)
    with pytest.raises(ValueError, match="attention_masc"):
        model.generate(IDS, attention_masc=IDS != 0, max_new_tokens=2)
    assert len(dropped()) == 2
