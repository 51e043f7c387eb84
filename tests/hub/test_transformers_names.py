"""Other versions of transformers: names that are missing, and keywords and fields that this release does not know."""

import importlib
import json
import logging
import sys

import pytest
import torch
import transformers
from transformers.dynamic_module_utils import get_class_from_dynamic_module

from weftformer import WeftForConditionalGeneration
from weftformer.configuration import version
from weftformer.modeling import checks, transformers_names

from ..models import IDS, LABELS, TARGET, TINY_CONFIG, tiny_model

REMEDY = 'pip install "transformers>=5.17,<6"'


def test_without_a_needed_name_the_error_says_what_to_install(monkeypatch):
    monkeypatch.delattr("transformers.utils.generic.maybe_autocast")
    with pytest.raises(ImportError, match=r"does not fit this model .*maybe_autocast.*pip install") as error:
        importlib.reload(transformers_names)
    assert REMEDY in str(error.value)


def test_a_later_release_may_pass_keywords_of_its_own(monkeypatch, caplog):
    transformers.logging.enable_propagation()
    caplog.set_level(logging.WARNING)
    model = tiny_model(random=True)
    monkeypatch.setattr(checks, "IS_LATER_RELEASE", False)
    with pytest.raises(ValueError, match="unexpected keyword `of_2027`"):
        model(input_ids=IDS, labels=LABELS, of_2027=1)
    with pytest.raises(ValueError, match="attention_masc"):
        model.generate(IDS, attention_masc=IDS != 0, max_new_tokens=2)
    monkeypatch.setattr(checks, "IS_LATER_RELEASE", True)
    for _ in range(2):
        assert torch.equal(
            model(input_ids=IDS, labels=LABELS, of_2027=1).loss, model(input_ids=IDS, labels=LABELS).loss
        )
    assert len([message for message in caplog.messages if "`of_2027`" in message]) == 1


def test_keywords_of_a_later_release_do_not_break_a_compiled_graph(monkeypatch):
    monkeypatch.setattr(checks, "IS_LATER_RELEASE", True)

    @torch.compile(backend="eager", fullgraph=True)
    def number_of_keywords(one, **kwargs):
        checks.check_kwargs(kwargs, WeftForConditionalGeneration.forward, "forward")
        return one * len(kwargs)

    assert number_of_keywords(torch.ones(()), use_cache=True, of_2027=1) == 1


def forget_pushed_code() -> None:
    """Unload pushed code. Otherwise, the next code is looked up in the old place."""
    for name in [name for name in sys.modules if name.split(".")[0] == "transformers_modules"]:
        del sys.modules[name]


@pytest.fixture
def pushed(tmp_path, monkeypatch, caplog):
    """The class of pushed code, loaded in addition to the installed package, and its folder."""
    monkeypatch.setattr("transformers.dynamic_module_utils.HF_MODULES_CACHE", str(tmp_path / "modules"))
    monkeypatch.syspath_prepend(str(tmp_path / "modules"))
    forget_pushed_code()
    caplog.set_level(logging.INFO)
    folder = tmp_path / "model"
    tiny_model(init_std=0.3, decoder_mlp_layer_types=["sparse", "dense"], num_experts=4).save_pretrained(folder)
    found = get_class_from_dynamic_module("modeling_weft.WeftForConditionalGeneration", str(folder))
    assert found is not WeftForConditionalGeneration and found.__module__.startswith("transformers_modules.")
    yield found, folder
    forget_pushed_code()


def test_pushed_code_refuses_a_later_format(pushed):
    config_class, file = pushed[0].config_class, pushed[1] / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"weft_format": version.FORMAT + 1}))
    with pytest.raises(ValueError, match="pip install -U weftformer"):
        config_class.from_pretrained(file.parent)


def test_pushed_code_warns_of_a_keyword_or_field_that_it_does_not_know(pushed, caplog):
    model = pushed[0].from_pretrained(pushed[1])
    expected = model(input_ids=IDS, decoder_input_ids=TARGET).logits
    for _ in range(2):
        assert torch.equal(model(input_ids=IDS, decoder_input_ids=TARGET, of_next_year=1).logits, expected)
    assert pushed[0].config_class(**TINY_CONFIG, encoder_layer=3).encoder_layers == 2
    for word in ("`of_next_year`", "`encoder_layer`"):
        assert len([message for message in caplog.messages if word in message]) == 1
    with pytest.raises(ValueError, match="of_next_year"):
        WeftForConditionalGeneration.from_pretrained(pushed[1])(IDS, decoder_input_ids=TARGET, of_next_year=1)
