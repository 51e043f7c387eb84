"""Pushed code next year: what it takes from transformers, and what it does where a name has gone or is another."""

import ast
import inspect
import logging
import re
import runpy
import sys

import pytest
import torch
import transformers
from transformers import masking_utils
from transformers.dynamic_module_utils import get_class_from_dynamic_module

from weftformer import WeftConfig, WeftForConditionalGeneration
from weftformer.hub.export import flat_files
from weftformer.modeling import transformers_names

from ..models import TINY_CONFIG, tiny_model

REMEDY = re.escape('pip install "transformers>=5.17,<6"')
IDS = torch.tensor([[5, 6, 7, 8, 9], [9, 4, 3, 0, 0]])
PREFIX = torch.tensor([[1, 6, 7, 8], [1, 5, 5, 20]])


def test_internals_of_transformers_are_imported_in_one_file_alone():
    """Elsewhere: names of `transformers` itself, outputs, and the table of activations, which configurations name."""
    for file, text in flat_files().items():
        for node in ast.walk(ast.parse(text)):
            if not isinstance(node, ast.ImportFrom) or node.level or node.module.split(".")[0] != "transformers":
                continue
            names = {alias.name for alias in node.names}
            assert not [name for name in names if name.startswith("_")], file
            if node.module == "transformers":
                assert all(hasattr(transformers, name) for name in names), file
            elif file != "transformers_names.py":
                assert node.module in ("transformers.modeling_outputs", "transformers.activations"), (
                    file,
                    node.module,
                )


def test_without_a_needed_name_the_error_says_what_to_install(monkeypatch):
    monkeypatch.delattr(masking_utils, "create_causal_mask")
    with pytest.raises(ImportError, match=rf"create_causal_mask.*{REMEDY}.*pip install -U weftformer"):
        runpy.run_path(transformers_names.__file__)


def test_a_private_method_that_takes_other_parameters_is_left_to_transformers(caplog):
    class Theirs:
        def _prepare_generation_config(self, of_next_year):
            return "theirs"

        def _get_logits_processor(self, config, more=None):
            return "theirs"

    class Ours(Theirs):
        def _prepare_generation_config(self, generation_config):
            return "ours"

        def _get_logits_processor(self, config, **more):
            return "ours"

    fitted = transformers_names.fit_to_transformers(Ours)()
    assert fitted._prepare_generation_config(None) == "theirs" and fitted._get_logits_processor(None) == "ours"
    (warning,) = [message for message in caplog.messages if "_prepare_generation_config" in message]
    assert re.search(REMEDY, warning) and "_get_logits_processor" not in "".join(caplog.messages)


def forget_pushed_code() -> None:
    """Else the next is looked for where this was."""
    for name in [name for name in sys.modules if name.split(".")[0] == "transformers_modules"]:
        del sys.modules[name]


@pytest.fixture
def pushed(tmp_path, monkeypatch, caplog):
    """The class of pushed code, loaded beside the installed package; and its folder."""
    monkeypatch.setattr("transformers.dynamic_module_utils.HF_MODULES_CACHE", str(tmp_path / "modules"))
    monkeypatch.syspath_prepend(str(tmp_path / "modules"))
    forget_pushed_code()
    caplog.set_level(logging.INFO)
    folder = tmp_path / "model"
    tiny_model().save_pretrained(folder)
    found = get_class_from_dynamic_module("modeling_weft.WeftForConditionalGeneration", str(folder))
    assert found is not WeftForConditionalGeneration and found.__module__.startswith("transformers_modules.")
    yield found, folder
    forget_pushed_code()


def test_pushed_code_warns_where_the_package_refuses(pushed, caplog):
    model = pushed[0].from_pretrained(pushed[1])
    expected = model(input_ids=IDS, decoder_input_ids=PREFIX).logits
    for _ in range(2):
        assert torch.equal(model(input_ids=IDS, decoder_input_ids=PREFIX, of_next_year=1).logits, expected)
    (message,) = [message for message in caplog.messages if "of_next_year" in message]
    assert message == "forward got an unexpected keyword `of_next_year`, which nothing reads."
    with pytest.raises(ValueError, match="of_next_year"):
        WeftForConditionalGeneration.from_pretrained(pushed[1])(IDS, decoder_input_ids=PREFIX, of_next_year=1)
    config = pushed[0].config_class(**TINY_CONFIG, encoder_layer=3)
    assert type(config) is not WeftConfig and config.encoder_layers == 2
    assert "WeftConfig has no field `encoder_layer`. Did you mean `encoder_layers`?" in caplog.messages
    with pytest.raises(ValueError, match="no field `encoder_layer`"):
        WeftConfig(**TINY_CONFIG, encoder_layer=3)


def test_pushed_code_says_where_its_searches_are(pushed):
    message = r'custom_generate="sqrt_length" comes with the installed package.*pip install weftformer'
    with pytest.raises(ValueError, match=message):
        pushed[0].from_pretrained(pushed[1]).generate(
            IDS, custom_generate="sqrt_length", num_beams=2, max_new_tokens=3
        )


def test_pushed_code_says_once_that_the_package_is_installed(pushed, caplog, monkeypatch):
    def said() -> list[str]:
        return [message for message in caplog.messages if "import weftformer before loading" in message]

    pushed[0].from_pretrained(pushed[1])
    assert not said()  # it has been imported
    loading = inspect.getmodule(pushed[0].from_pretrained)
    loading._mention_package.cache_clear()
    monkeypatch.delitem(sys.modules, "weftformer")
    for _ in range(2):
        pushed[0].from_pretrained(pushed[1])
    assert len(said()) == 1
    loading._mention_package.cache_clear()
    monkeypatch.setattr(loading, "find_spec", lambda name: None)
    pushed[0].from_pretrained(pushed[1])
    assert len(said()) == 1
