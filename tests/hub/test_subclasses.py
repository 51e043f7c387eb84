"""Subclasses of the model: they are built by class attributes, saved with their code, and loaded elsewhere."""

import copy
import json
import os
from importlib import import_module

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch.nn.utils import prune
from transformers import AutoModel, AutoModelForSeq2SeqLM, AutoTokenizer

from weftformer import WeftConfig, WeftForConditionalGeneration, register_preset
from weftformer.configuration import PRESETS
from weftformer.conversion import SOURCES, export, upcycle
from weftformer.exporting import write_search
from weftformer.modeling.attention import SelfAttention
from weftformer.modeling.modeling_weft import WeftDecoder, WeftDecoderLayer
from weftformer.scripts.cli import main
from weftformer.tokenization import train_tokenizer
from weftformer.training import ModelArguments, WeftTrainer, WeftTrainingArguments, average_checkpoints
from weftformer.training.building import build_config

from ..conftest import printed_elsewhere, save_both
from ..models import IDS, TARGET, TINY_CONFIG, randomized

GATES = """
import torch
from torch import nn


class Gate(nn.Linear):
    def forward(self, states):
        return torch.sigmoid(super().forward(states)) * states
"""
MODEL = """
from weftformer import (
    WeftConfig,
    WeftForConditionalGeneration as Base,
)
from weftformer.modeling.attention import SelfAttention

from {gates} import Gate


class {name}Config(WeftConfig):
    model_type = "{name}-weft"
    is_strong: bool = True


class {name}Attention(SelfAttention):
    def __init__(self, config, layer_idx, is_decoder):
        super().__init__(config, layer_idx, is_decoder)
        self.gate = Gate(config.d_model, config.d_model)

    def forward(self, hidden_states, *args, **kwargs):
        output, weights = super().forward(hidden_states, *args, **kwargs)
        return self.gate(output), weights


class {name}Weft(Base):
    self_attention_class = {name}Attention


class {name}OwnConfigWeft({name}Weft):
    config_class = {name}Config
"""

ELSEWHERE = """
import sys

if sys.argv[3] == "without":
    sys.modules["weftformer"] = None
else:
    import weftformer
from safetensors.torch import load_file, save_file
from transformers import AutoModelForSeq2SeqLM

folder, inputs = sys.argv[1:3]
model = AutoModelForSeq2SeqLM.from_pretrained(folder, trust_remote_code=True, dropout=0.25).eval()
assert type(model).__module__.startswith("transformers_modules."), type(model)
assert model.config.dropout == 0.25
inputs = load_file(inputs)
scores = model(input_ids=inputs["ids"], decoder_input_ids=inputs["target"]).logits
tokens = model.generate(inputs["ids"], max_new_tokens=6)
save_file({"logits": scores.detach(), "tokens": tokens}, folder + "/found.safetensors")
model.save_pretrained(folder + "/again")
print(type(model).__name__, type(model.config).__name__)
"""


@pytest.fixture
def files(tmp_path, monkeypatch):
    """Write modules beside each other and import the first. Their names are new in each test."""
    monkeypatch.syspath_prepend(tmp_path)

    def write(text=MODEL, *, gates="{own}_gates", name="Gated", **others):
        own = f"module_{os.urandom(4).hex()}"
        gates = gates.format(own=own)
        (tmp_path / f"{gates}.py").write_text(GATES)
        for stem, other in others.items():
            (tmp_path / f"{stem}.py").write_text(other)
        (tmp_path / f"{own}.py").write_text(text.format(gates=gates, name=name))
        return __import__(own)

    return write


@pytest.mark.parametrize("source", ["{package}.common.blocks", "..common.blocks"])
def test_code_in_other_folders_of_a_package_travels(source, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    package = f"package_{os.urandom(4).hex()}"
    for folder, file, text in (("common", "blocks", GATES), ("models", "gated", MODEL)):
        (tmp_path / package / folder).mkdir(parents=True)
        text = text.replace("from {gates} import", f"from {source.format(package=package)} import")
        (tmp_path / package / folder / f"{file}.py").write_text(text.format(name="Gated"))
    kind = import_module(f"{package}.models.gated").GatedWeft
    monkeypatch.setattr(kind, "_auto_class", None)
    kind.register_for_auto_class("AutoModelForSeq2SeqLM")
    model = randomized(kind(WeftConfig(**TINY_CONFIG)).eval())
    model.save_pretrained(tmp_path / "saved")
    assert kind.is_remote_code() and "is_remote_code" not in vars(model)
    loaded = AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "saved", trust_remote_code=True).eval()
    assert torch.equal(loaded(input_ids=IDS, labels=IDS).logits, model(input_ids=IDS, labels=IDS).logits)


def auto_map(folder):
    return json.loads((folder / "config.json").read_text())["auto_map"]


@pytest.mark.parametrize(
    ("kind", "weft"),
    [
        pytest.param(kind, weft, marks=() if (kind, weft) == ("GatedWeft", "with") else pytest.mark.integration)
        for kind in ("GatedWeft", "GatedOwnConfigWeft")
        for weft in ("with", "without")
    ],
)
def test_subclass_is_the_same_elsewhere(files, tmp_path, kind, weft):
    module = files()
    model_class = getattr(module, kind)
    model_class.register_for_auto_class("AutoModelForSeq2SeqLM")
    fields = {"is_strong": False} if kind == "GatedOwnConfigWeft" else {}
    model = randomized(model_class(model_class.config_class(**TINY_CONFIG, **fields))).eval()
    folder = tmp_path / "saved"
    model.save_pretrained(folder)
    config_name = f"{module.__name__}.GatedConfig" if fields else "modeling_weft.WeftConfig"
    assert auto_map(folder) == {"AutoConfig": config_name, "AutoModelForSeq2SeqLM": f"{module.__name__}.{kind}"}
    assert json.loads((folder / "config.json").read_text()).get("is_strong") == (False if fields else None)
    # the same text, but for its imports
    text = (folder / f"{module.__name__}.py").read_text()
    names = "(\n    WeftConfig,\n    WeftForConditionalGeneration as Base,\n)"
    assert f"from .modeling_weft import {names}\nfrom .modeling_weft import SelfAttention\n" in text
    assert (folder / f"{module.__name__}_gates.py").read_text() == GATES

    inputs = tmp_path / "inputs.safetensors"
    save_file({"ids": IDS, "target": TARGET}, inputs)
    (elsewhere := tmp_path / "elsewhere").mkdir()
    printed = printed_elsewhere(ELSEWHERE, folder, inputs, weft, folder=elsewhere)
    assert printed.split() == [kind, "GatedConfig" if fields else "WeftConfig"]
    found = load_file(folder / "found.safetensors")
    with torch.no_grad():
        expected = model(input_ids=IDS, decoder_input_ids=TARGET).logits
    torch.testing.assert_close(found["logits"], expected, rtol=1e-4, atol=1e-4)
    assert torch.equal(found["tokens"], model.generate(IDS, max_new_tokens=6))
    code = [{path.name: path.read_text() for path in place.glob("*.py")} for place in (folder, folder / "again")]
    assert code[0] == code[1] and auto_map(folder) == auto_map(folder / "again")


def test_family_does_not_load_a_subclass(files, tmp_path):
    """A subclass with the weights of its parent would compute something else, without a message."""
    module = files(MODEL + "\n\nclass Scaled(Base):\n    def forward(self, *args, **kwargs):\n"
                   "        output = super().forward(*args, **kwargs)\n        output.logits = 2 * output.logits\n"
                   "        return output\n")  # fmt: skip
    module.Scaled(WeftConfig(**TINY_CONFIG)).save_pretrained(tmp_path / "saved")
    for load in (AutoModelForSeq2SeqLM, AutoModel, WeftForConditionalGeneration):
        with pytest.raises(ValueError, match=r"saved by the subclass Scaled.*trust_remote_code=True"):
            load.from_pretrained(tmp_path / "saved")
    kept = WeftForConditionalGeneration.from_pretrained(tmp_path / "saved", allow_missing_weights=True)
    assert type(module.Scaled.from_pretrained(tmp_path / "saved")) is module.Scaled
    kept.save_pretrained(tmp_path / "plain")
    assert auto_map(tmp_path / "plain")["AutoModelForSeq2SeqLM"] == "modeling_weft.WeftForConditionalGeneration"


REFUSED = {
    "imports a package": ("import weftformer\n" + MODEL, {}, 'has "import weftformer"'),
    "imports training": ("from weftformer.training import WeftTrainer\n" + MODEL, {}, "training.* does not travel"),
    "imports a module": ("import beside\n" + MODEL, {"beside": ""}, 'has "import beside"'),
    "has the name of Weft's file": (MODEL, {"gates": "modeling_weft"}, r"two files are named modeling_weft\.py"),
    "is local": (
        MODEL + "\n\ndef build():\n    class Local(Base): ...\n    return Local\n\n\nGatedWeft = build()\n", {},
        "Local cannot be saved with its code: it is defined inside a function"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_code_that_cannot_travel_is_refused(files, tmp_path, case):
    text, options, words = REFUSED[case]
    model_class = files(text, **options).GatedWeft
    model = model_class(WeftConfig(**TINY_CONFIG))
    model.save_pretrained(tmp_path / "unregistered")  # with a warning
    assert auto_map(tmp_path / "unregistered") == {"AutoConfig": "modeling_weft.WeftConfig"}
    model_class.register_for_auto_class("AutoModelForSeq2SeqLM")
    with pytest.raises(ValueError, match=words):
        model.save_pretrained(tmp_path / "saved")
    assert not (tmp_path / "saved").exists()
    with pytest.raises(ValueError, match=words):
        WeftTrainer(model, WeftTrainingArguments(str(tmp_path), use_cpu=True))


TOKENIZER = """
from transformers import PreTrainedTokenizerFast


class UpperTokenizer(PreTrainedTokenizerFast):
    def _encode_plus(self, text, *args, **kwargs):
        return super()._encode_plus(text.upper(), *args, **kwargs)
"""


def test_tokenizer_of_ones_own_travels_beside_the_model(files, tmp_path, monkeypatch):
    kind = files(TOKENIZER).UpperTokenizer
    kind.register_for_auto_class("AutoTokenizer")
    folder, trained = tmp_path / "saved", train_tokenizer(["abc", "ABC"], vocab_size=300)
    tokenizer = kind(tokenizer_object=trained.backend_tokenizer, pad_token=trained.pad_token)
    save_both(folder, WeftForConditionalGeneration(WeftConfig(**TINY_CONFIG)), tokenizer)
    monkeypatch.setattr("transformers.dynamic_module_utils.HF_MODULES_CACHE", str(tmp_path / "modules"))
    found = AutoTokenizer.from_pretrained(folder, trust_remote_code=True)
    assert type(found) is not kind and type(found).__name__ == "UpperTokenizer"
    assert found("abc").input_ids == tokenizer("abc").input_ids == trained("ABC").input_ids


def test_one_class_attribute_reaches_every_layer():
    class Attention(SelfAttention):
        pass

    class Layer(WeftDecoderLayer):
        pass

    class Norm(torch.nn.LayerNorm):
        def __init__(self, config):
            super().__init__(config.d_model)

    class Decoder(WeftDecoder):
        norm_class = Norm  # closer than that of the model

    class Changed(WeftForConditionalGeneration):
        self_attention_class = Attention
        decoder_layer_class = Layer
        decoder_class = Decoder
        norm_class = torch.nn.Identity

    model = Changed(WeftConfig(**TINY_CONFIG))
    encoder, decoder = model.model.encoder, model.model.decoder
    assert {type(layer.self_attn) for stack in (encoder, decoder) for layer in stack.layers} == {Attention}
    assert {type(layer) for layer in decoder.layers} == {Layer} and type(decoder) is Decoder
    assert type(decoder.layers[0].self_attn_layer_norm) is Norm
    assert type(encoder.layers[0].self_attn_layer_norm) is torch.nn.Identity
    assert "Layer" in model._no_split_modules and "WeftDecoderLayer" not in model._no_split_modules
    assert model.generate(IDS, max_new_tokens=4).shape[0] == len(IDS)
    with pytest.raises(ValueError, match="self_attention_class"):
        encoder.save_pretrained("never-written")


@pytest.fixture
def subclass(files, tmp_path, monkeypatch):
    """Return a model of a subclass with a field and a layer of its own, saved in `run/checkpoint-1` with a tokenizer."""
    monkeypatch.chdir(tmp_path)
    module = files(name="Doored")
    module.DooredConfig.register_for_auto_class()
    module.DooredOwnConfigWeft.register_for_auto_class("AutoModelForSeq2SeqLM")
    tokenizer = train_tokenizer(["abc def"], vocab_size=300)
    special = {name: getattr(tokenizer, name) for name in ("pad_token_id", "bos_token_id", "eos_token_id")}
    special |= {"decoder_start_token_id": tokenizer.bos_token_id, "vocab_size": len(tokenizer), "is_strong": False}
    model = randomized(module.DooredOwnConfigWeft(module.DooredConfig(**TINY_CONFIG | special)).eval())
    model.generation_config.max_length = 5
    save_both(tmp_path / "run" / "checkpoint-1", model, tokenizer)
    return model


def test_functions_take_the_class_of_a_model(subclass, tmp_path):
    sparse = upcycle(subclass, 4)
    assert type(sparse) is type(subclass) and sparse.config.is_strong is False
    inputs = {"input_ids": IDS, "decoder_input_ids": TARGET}
    torch.testing.assert_close(sparse(**inputs).logits, subclass(**inputs).logits)
    mean = average_checkpoints("run", trust_remote_code=True).eval()
    torch.testing.assert_close(mean(**inputs).logits, subclass(**inputs).logits)
    with pytest.raises(ValueError, match="--trust-remote-code"):
        average_checkpoints("run")
    for source in ("bart", "torch"):
        with pytest.raises(ValueError, match="DooredOwnConfigWeft"):
            export(subclass, SOURCES[source])
    with pytest.raises(ValueError, match="there is a DooredAttention"):
        write_search(subclass, tmp_path)
    prune.l1_unstructured(subclass.model.encoder.layers[0].self_attn.gate, "weight", amount=0.5)
    assert torch.equal(*(subclass.generate(IDS, use_cache=use_cache) for use_cache in (True, False)))


def test_adapters_and_the_server_take_a_subclass(subclass, tmp_path):
    load_task = pytest.importorskip("weftformer.serving.app", reason="needs fastapi", exc_type=ImportError).load_task
    peft = pytest.importorskip("peft")
    folder, inputs = tmp_path / "run" / "checkpoint-1", {"input_ids": IDS, "decoder_input_ids": TARGET}
    settings = peft.LoraConfig(task_type="SEQ_2_SEQ_LM", target_modules=["q_proj"], init_lora_weights=False)
    adapted = peft.get_peft_model(copy.deepcopy(subclass), settings).eval()
    expected = adapted(**inputs).logits
    assert not torch.allclose(expected, subclass(**inputs).logits)
    adapted.save_pretrained(tmp_path / "adapter")
    loaded = peft.PeftModel.from_pretrained(subclass, tmp_path / "adapter").eval()
    torch.testing.assert_close(loaded(**inputs).logits, expected)
    merged = adapted.merge_and_unload()
    assert type(merged) is type(subclass)
    torch.testing.assert_close(merged(**inputs).logits, expected)
    with pytest.raises(ValueError, match="--trust-remote-code"):
        load_task(str(folder))
    assert load_task(str(folder), trust_remote_code=True)


@pytest.mark.parametrize(
    "command", ["generate abc --model FOLDER", "upcycle FOLDER sparse --experts 2", "compile FOLDER",
                "export FOLDER out --format ctranslate2", "export FOLDER out --format search",
                "evaluate pairs.csv --model FOLDER",
                "train --model-name-or-path FOLDER --train-file pairs.csv --output-dir out --max-steps 1 --validation-split 0"]
)  # fmt: skip
def test_commands_run_the_code_of_a_folder_on_request_only(command, subclass, tmp_path, capsys):
    if command.endswith("ctranslate2"):
        pytest.importorskip("ctranslate2")
    (tmp_path / "pairs.csv").write_text("source,target\nabc,def\n")
    words = command.replace("FOLDER", str(tmp_path / "run" / "checkpoint-1")).split()
    assert main(words) == 1
    assert "--trust-remote-code" in capsys.readouterr().err
    code, error = main([*words, "--trust-remote-code"]), capsys.readouterr().err
    # a compiled search and CTranslate2 do not know the code
    assert code == (words[0] in ("compile", "export")), error
    assert code == 0 or any(words in error for words in ("is not Weft's own", "other outputs")), error


@pytest.mark.parametrize("name", ["decoder_layer_class", "cross_attention_class", "decoder_class"])
def test_encoder_of_a_model_with_another_decoder_is_saved_as_an_encoder(name, tmp_path):
    part = type("Other", (getattr(WeftForConditionalGeneration, name),), {})
    model = type("Own", (WeftForConditionalGeneration,), {name: part})(WeftConfig(**TINY_CONFIG)).eval()
    model.get_encoder().save_pretrained(tmp_path)
    states = [encoder(IDS).last_hidden_state for encoder in (model.get_encoder(), AutoModel.from_pretrained(tmp_path))]
    assert torch.equal(*states)
    if name != "decoder_class":
        with pytest.raises(ValueError, match=name):
            model.get_decoder().save_pretrained(tmp_path)


class WindowedConfig(WeftConfig):
    model_type = "windowed-weft"
    window: int = 4


def test_fields_of_a_subclass_have_the_types_of_their_annotations():
    assert WindowedConfig(**TINY_CONFIG, window=5).window == 5
    for value in (4.5, "5", None, True):
        with pytest.raises(ValueError, match=r"window=.*give an integer"):
            WindowedConfig(**TINY_CONFIG, window=value)

    class Untyped(WeftConfig):
        model_type = "untyped-weft"
        window = 4

    class Smaller(WeftConfig):
        d_model: int = 16
        rate: float | None = None

    with pytest.raises(ValueError, match=r"Untyped has no field `window`\. Give it a type: `window: int"):
        Untyped(window=5)
    assert Smaller(rate=1).rate == 1
    with pytest.raises(ValueError, match="d_model=0"):
        Smaller(d_model=0)


@pytest.fixture
def presets():
    """Remove what a test registers."""
    before = dict(PRESETS)
    yield
    PRESETS.clear()
    PRESETS.update(before)


def test_preset_of_another_configuration_is_trained_with_it(presets):
    register_preset("windowed", {"d_model": 16, "window": 3}, WindowedConfig)
    tokenizer = train_tokenizer(["a b"], vocab_size=270)
    for config, window in (
        (WeftConfig.from_preset("windowed"), 3),
        (build_config(ModelArguments(preset="windowed"), tokenizer), 3),
        (build_config(ModelArguments(preset="windowed", config_overrides="window=5"), tokenizer), 5),
    ):
        assert type(config) is WindowedConfig and (config.window, config.d_model) == (window, 16)
    with pytest.raises(ValueError, match="'windowed'"):
        register_preset("windowed", {"d_model": 16, "window": 3}, type("Other", (WindowedConfig,), {}))


def test_registered_preset(presets):
    for _ in range(2):  # a notebook may run a cell twice
        register_preset("of-this-test", {"d_model": 16, "encoder_layers": 1, "decoder_layers": 1})
    assert WeftConfig.from_preset("of-this-test", vocab_size=20).d_model == 16
    with pytest.raises(ValueError, match="'of-this-test' with other fields already"):
        register_preset("of-this-test", {"d_model": 32})
    with pytest.raises(ValueError, match="d_modle"):
        register_preset("of-another", {"d_modle": 32})
    assert "of-another" not in PRESETS
