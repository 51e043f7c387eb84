"""A later transformers that passes, renames and leaves out what no release has so far.

Its source is today's, changed while it is imported ([`CHANGES`]), in processes of their own.
"""

import json
import logging
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import transformers
from safetensors.torch import load_file
from transformers import Seq2SeqTrainingArguments, Trainer

from weftformer import WeftConfig, WeftForConditionalGeneration
from weftformer.modeling import transformers_names
from weftformer.modeling.transformers_names import CACHE

from ..models import tiny_model

GENERATION, OUTPUTS = "transformers.generation.utils", "transformers.modeling_outputs"
MODEL = "transformers.modeling_utils"
# For each kind of change: the module, the pattern, and what takes its place.
CHANGES = {
    "keywords and methods": [
        (GENERATION, r"\(\*\*(model_inputs|encoder_kwargs)(, return_dict=True)?\)", r"(**\1, of_next_year=1)"),
        ("transformers.trainer", r"outputs = model\(\*\*inputs\)", "outputs = model(**inputs, of_next_year=1)"),
        (GENERATION, r"\bis_first_iteration=is_first_iteration,", ""),
        ("transformers.configuration_utils", r"config = cls\(\*\*config_dict\)", "config = cls(**config_dict, of_next_year=1)"),
        (GENERATION, r"\b_update_finished_beams\b", "_update_ended_beams"),
        (GENERATION, r"\b_get_candidate_generator\b", "_candidate_generator_of_next_year"),
        # other parameters, and another name of one that the model reads
        (
            GENERATION,
            r'def _validate_generation_mode\(\s*self: "GenerativePreTrainedModel", generation_mode, generation_config,',
            "def _validate_generation_mode(self, of_next_year, generation_mode, generation_config,",
        ),
        (GENERATION, r"self\._validate_generation_mode\(", "self._validate_generation_mode(1, "),
        (GENERATION, r"def _optimize_model_for_decode\(self[^)]*\)", "def _optimize_model_for_decode(self, of_next_year)"),
        (GENERATION, r"self\._optimize_model_for_decode\(\)", "self._optimize_model_for_decode(1)"),
        (MODEL, r"def (_grouped_mm_can_dispatch)\((\w+)[^)]*\)", r"def \1(\2, of_next_year=1)"),
        (MODEL, r"self\._grouped_mm_can_dispatch\(\)", "self._grouped_mm_can_dispatch(of_next_year=1)"),
        (GENERATION, r"\bbatch_size: int,\s*max_cache_length: int,", "rows: int, max_cache_length: int,"),
        (GENERATION, r"(?<=cache_batch_size = )(.*)\bbatch_size$", r"\1rows"),
        (GENERATION, r"(?<!def )(_prepare_cache_for_generation\([^)]*)\bbatch_size\b", r"\1rows=batch_size"),
        (GENERATION, r"(rows=batch_size), max_cache_length", r"\1, max_cache_length=max_cache_length"),
        (OUTPUTS, r"\bencoder_last_hidden_state\b", "source_states"),
    ],
    "cache": [
        (module, rf"(?<!batching\.)\b{CACHE}\b", "kv_cache")
        for module in (GENERATION, OUTPUTS, "transformers.masking_utils", "transformers.modeling_layers",
                       "transformers.generation.candidate_generator")
    ],
}  # fmt: skip

SCRIPT = """
import json, re, sys
from importlib.machinery import PathFinder, SourceFileLoader

changes, folder, out = json.loads(sys.argv[1]), sys.argv[2], sys.argv[3]

class Later(SourceFileLoader):
    def get_code(self, name):
        text = self.get_data(self.path).decode()
        for module, pattern, new in changes:
            if module == name:
                text, found = re.subn(pattern, new, text, flags=re.MULTILINE)
                assert found, (module, pattern)
        return compile(text, self.path, "exec")

class Finder:
    def find_spec(self, name, path=None, target=None):
        if name not in {module for module, *_ in changes}:
            return None
        spec = PathFinder.find_spec(name, path)
        spec.loader = Later(name, spec.origin)
        return spec

sys.meta_path.insert(0, Finder())

import logging
import torch, transformers
from safetensors.torch import save_file
from transformers import AutoModelForSeq2SeqLM, Seq2SeqTrainer, Seq2SeqTrainingArguments
from transformers.dynamic_module_utils import get_class_from_dynamic_module
import weftformer

warnings = []
transformers.logging.enable_propagation()
logging.getLogger().addHandler(handler := logging.Handler())
handler.emit = lambda record: warnings.append(record.getMessage())
foreign = get_class_from_dynamic_module("modeling_weft.WeftForConditionalGeneration", folder)
ids, labels = torch.tensor([[5, 6, 7, 8, 9], [9, 4, 3, 0, 0]]), torch.tensor([[6, 7, 8, 2], [5, 2, -100, -100]])
found = {}
for name, kind in (("package", AutoModelForSeq2SeqLM), ("foreign", foreign)):
    model = kind.from_pretrained(folder)
    assert type(model).__module__.startswith({"package": "weftformer.", "foreign": "transformers_modules."}[name])
    with torch.no_grad():
        found[f"{name} forward"] = model(input_ids=ids, labels=labels).logits
    length = {"min_new_tokens": 6, "max_new_tokens": 6}
    for mode, settings in {
        "greedy": {}, "beams": {"num_beams": 3}, "sample": {"do_sample": True}, "static": {"cache_implementation": "static"},
        "plain": {"cache_implementation": "dynamic"}, "plain beams": {"cache_implementation": "dynamic", "num_beams": 3},
    }.items():
        torch.manual_seed(0)
        output = model.generate(ids, **length, **settings, return_dict_in_generate=True)
        found[f"{name} {mode}"] = output.sequences
        assert output.cache is output.past_key_values and output.cache.get_seq_length() == 6
    found[f"{name} continued"] = model.generate(ids, decoder_input_ids=output.sequences[:, :4], **length)
    model.save_pretrained(f"{out}/{name}")
    again = kind.from_pretrained(f"{out}/{name}")
    assert all(torch.equal(one, other) for one, other in zip(model.parameters(), again.parameters(), strict=True))
    arguments = Seq2SeqTrainingArguments(
        f"{out}/run", max_steps=1, report_to=[], use_cpu=True, save_strategy="no", disable_tqdm=True,
        per_device_train_batch_size=2, lr_scheduler_type="constant",
    )
    rows = [{"input_ids": ids[row], "labels": labels[row]} for row in range(2)]
    torch.manual_seed(0)
    trainer = Seq2SeqTrainer(model, arguments, train_dataset=rows, eval_dataset=rows)
    found[f"{name} loss"] = torch.tensor(trainer.train().training_loss)
    found[f"{name} loss afterwards"] = torch.tensor(trainer.evaluate()["eval_loss"])
save_file({name: value.contiguous() for name, value in found.items()}, f"{out}/found.safetensors")
print(json.dumps([warning for warning in warnings if "of_next_year" in warning]))
"""


@pytest.fixture(scope="module")
def saved(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("next_release") / "model"
    tiny_model(random=True, dropout=0.0, decoder_mlp_layer_types=["sparse", "dense"], num_experts=4).save_pretrained(
        folder
    )
    return folder


def core(folder: Path, changes: list) -> tuple[dict[str, torch.Tensor], list[str]]:
    """Run what a model is for, with a changed transformers. Return its results, and the warnings of unknown names."""
    out = folder.parent / str(len(changes))
    out.mkdir(exist_ok=True)
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, json.dumps(changes), str(folder), str(out)],
        env=os.environ | {"HF_MODULES_CACHE": str(out / "modules"), "HF_HUB_OFFLINE": "1"},
        stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-4000:]
    return load_file(out / "found.safetensors"), json.loads(done.stdout.splitlines()[-1])


@pytest.fixture(scope="module")
def today(saved) -> dict[str, torch.Tensor]:
    found, warnings = core(saved, [])
    assert not warnings
    return found


@pytest.mark.versions
@pytest.mark.integration
@pytest.mark.parametrize("kind", CHANGES)
def test_the_core_of_a_model_works_with_a_later_transformers(saved, today, kind):
    found, warnings = core(saved, CHANGES[kind])
    for name, expected in today.items():
        torch.testing.assert_close(found[name], expected, rtol=1e-4, atol=1e-4, msg=name)
    told = [warning for warning in warnings if "passes `of_next_year`, which" in warning]
    # once in the package, and once in the code beside the weights
    assert len(told) == (2 if "keywords" in kind else 0)


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
