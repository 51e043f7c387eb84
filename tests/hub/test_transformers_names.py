"""Pushed code next year: what it asks of transformers, and what it does where a name has gone or is another."""

import ast
import inspect
import json
import logging
import os
import subprocess
import sys

import pytest
import torch
import transformers
from safetensors.torch import save_file
from transformers import GenerationMixin, PreTrainedConfig, PreTrainedModel
from transformers.dynamic_module_utils import get_class_from_dynamic_module

from weftformer import WeftConfig, WeftForConditionalGeneration
from weftformer.hub.export import flat_files
from weftformer.modeling import modeling_weft, transformers_names
from weftformer.modeling.generation import WeftGenerationMixin

from ..models import TINY_CONFIG

SIZE = TINY_CONFIG | {
    "encoder_layers": 1,
    "init_std": 0.3,
    "decoder_mlp_layer_types": ["sparse", "dense"],
    "num_experts": 4,
}
IDS = torch.tensor([[5, 6, 7, 8, 9], [9, 4, 3, 0, 0]])
PREFIX = torch.tensor([[1, 6, 7, 8], [1, 5, 5, 20]])
REMEDY = 'pip install "transformers>=5.17,<6"'

# Switches that transformers reads: without one it takes the cautious way.
SWITCHES = [
    "_can_compile_fullgraph",
    "_keys_to_ignore_on_load_unexpected",
    "_no_split_modules",
    "_skip_keys_device_placement",
    "_supports_flash_attn",
    "_supports_flex_attn",
    "_supports_sdpa",
]


def asked_for() -> dict[str, str]:
    """The names that the file of names looks up: module by name, and how it asks for each."""
    calls = [node for node in ast.walk(ast.parse(flat_files()["transformers_names.py"])) if isinstance(node, ast.Call)]
    found = {}
    for call in calls:
        kind = getattr(call.func, "id", "")
        if kind in ("_needed", "_optional", "_find") and isinstance(call.args[1], ast.Constant):
            found[f"{call.args[0].value}.{call.args[1].value}"] = kind
    return found


@pytest.mark.integration
def test_all_else_that_is_imported_is_public():
    """Names of `transformers` itself, outputs, and the table of activations, which configurations name."""
    for file, text in flat_files().items():
        for node in ast.walk(ast.parse(text)):
            if not isinstance(node, ast.ImportFrom) or node.level or node.module.split(".")[0] != "transformers":
                continue
            names = {alias.name for alias in node.names}
            assert not [name for name in names if name.startswith("_")], file
            if node.module == "transformers":
                assert names <= set(dir(transformers)), file
            else:
                assert node.module in ("transformers.modeling_outputs", "transformers.activations"), (
                    file,
                    node.module,
                )


def test_the_file_of_names_knows_every_private_method_that_is_replaced():
    bodies = [
        node for text in flat_files().values() for node in ast.walk(ast.parse(text)) if isinstance(node, ast.ClassDef)
    ]
    ours = {each for body in bodies for each in body.body}
    methods = {each.name for each in ours if isinstance(each, ast.FunctionDef) and not each.name.startswith("__")}
    methods.add("_can_set_experts_implementation")  # by an object that knows the model
    theirs = {*dir(GenerationMixin), *dir(PreTrainedModel)} - {*dir(torch.nn.Module)}
    public = {
        "_get_files_timestamps",  # of configurations, see below
        "compute_transition_scores",
        "from_pretrained",
        "generate",
        "get_expanded_tied_weights_keys",
        "get_input_embeddings",
        "prepare_inputs_for_generation",
        "save_pretrained",
        "set_input_embeddings",
    }
    assert (methods & theirs) - public == set(transformers_names.REPLACED_METHODS)
    # what a configuration replaces takes any parameters, and adds to what it finds
    private = {name for name in methods & {*dir(PreTrainedConfig)} if name.startswith("_")}
    assert private == {"_get_files_timestamps"}
    targets = {
        name.id
        for each in ours
        if isinstance(each, (ast.Assign, ast.AnnAssign))
        for target in (each.targets if isinstance(each, ast.Assign) else [each.target])
        for name in ast.walk(target)
        if isinstance(name, ast.Name)
    }
    needed = {name for _, name in transformers_names.NEEDED_ATTRIBUTES}
    switches = {name for name in targets if name.startswith("_")} - {
        "_can_set_experts_implementation",
        "_has_checked_values",
    }
    assert switches - needed == set(SWITCHES)


def test_no_other_private_name_of_transformers_is_read():
    """Of attributes that begin with an underscore; those of the model's own classes are its own affair."""
    files = {name: ast.parse(text) for name, text in flat_files().items()}
    own = {
        node.name if isinstance(node, ast.FunctionDef) else getattr(node, "id", None) or getattr(node, "attr", None)
        for tree in files.values()
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef)
        or (isinstance(node, (ast.Name, ast.Attribute)) and isinstance(node.ctx, ast.Store))
    }
    known = {*transformers_names.RESIZING, *(name for _, name in transformers_names.NEEDED_ATTRIBUTES)}
    for file, tree in files.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and node.attr.startswith("_") and not node.attr.startswith("__"):
                assert node.attr in own | known, f"{file}: {node.attr}"


def test_the_installed_transformers_has_every_name(caplog):
    for name in asked_for():
        assert transformers_names._find(*name.rsplit(".", 1), ()) is not None, name
    assert set(transformers_names.REPLACED_METHODS) <= {
        *vars(WeftGenerationMixin),
        *vars(modeling_weft.WeftPreTrainedModel),
    }
    assert "resize_token_embeddings" not in vars(modeling_weft.WeftPreTrainedModel)


SCRIPT = """
import gc, importlib, json, logging, os, sys, types

# a copy of a process has none of its threads
os.environ["OMP_NUM_THREADS"] = "1"

class Blind:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == "weftformer":
            raise ModuleNotFoundError("No module named 'weftformer'")

sys.meta_path.insert(0, Blind())
import torch
import transformers
from safetensors.torch import load_file
from transformers import AutoModelForSeq2SeqLM, BartConfig, BartForConditionalGeneration, GenerationMixin, PreTrainedModel

folder, cases = sys.argv[1], json.loads(sys.argv[2])
# all that is imported on the way is imported once, before the process is copied for each case
tiny = dict(vocab_size=31, d_model=16, encoder_layers=1, decoder_layers=1, encoder_ffn_dim=16, decoder_ffn_dim=16,
    encoder_attention_heads=2, decoder_attention_heads=2, max_position_embeddings=16)
BartForConditionalGeneration(BartConfig(**tiny)).generate(torch.tensor([[5, 6]]), num_beams=2, max_new_tokens=2)
importlib.import_module("transformers.conversion_mapping").get_checkpoint_conversion_mapping("bart")
expected = load_file(f"{folder}/expected.safetensors")


def gone(name):
    module, _, name = f"transformers.{name}".rpartition(".")
    module = importlib.import_module(module)
    exec(f"from {module.__name__} import {name}")
    for table in (getattr(module, "_class_to_module", {}), getattr(module, "_modules", set())):
        table.pop(name, None) if isinstance(table, dict) else table.discard(name)
    vars(module).pop(name, None)
    if f"{module.__name__}.{name}" in sys.modules:
        sys.modules[f"{module.__name__}.{name}"] = None


def renamed(old):
    "Everywhere in transformers: who calls it calls the new name."
    new = f"{old}_of_next_year"

    def follow(value):
        if isinstance(value, types.CodeType):
            names = tuple(new if name == old else name for name in value.co_names)
            return value.replace(co_names=names, co_consts=tuple(map(follow, value.co_consts)))
        return new if isinstance(value, str) and value == old else value

    found = 0
    for thing in gc.get_objects():
        if not isinstance(thing, (types.FunctionType, type)) or not str(thing.__module__).startswith("transformers."):
            continue
        if isinstance(thing, types.FunctionType):
            thing.__code__ = follow(thing.__code__)
        elif old in vars(thing):
            setattr(thing, new, vars(thing)[old])
            delattr(thing, old)
            found += 1
    assert found, old
    modes = importlib.import_module("transformers.generation.utils").GENERATION_MODES_MAPPING
    modes.update({mode: follow(method) for mode, method in modes.items()})


def changed(name):
    "The method takes parameters of other names."
    owner = next(one for one in (*GenerationMixin.__mro__, *PreTrainedModel.__mro__) if name in vars(one))
    method = vars(owner)[name]

    def other(self, *given, **more):
        return getattr(method, "__func__", method)(self, *given, **more)

    setattr(owner, name, classmethod(other) if isinstance(method, classmethod) else other)


class Kept(logging.Handler):
    def __init__(self):
        super().__init__(logging.WARNING)
        self.messages = []
        logging.getLogger().addHandler(self)

    def emit(self, record):
        if record.name.startswith("transformers_modules"):
            self.messages.append(record.getMessage())


@torch.no_grad()
def outcome(change, names):
    kept = Kept()
    try:
        for name in names:
            globals()[change](name)
        model = AutoModelForSeq2SeqLM.from_pretrained(folder, trust_remote_code=True).eval()
        assert type(model).__module__.startswith("transformers_modules."), type(model)
        ids, prefix = expected["ids"], expected["prefix"]
        logits = model(input_ids=ids, decoder_input_ids=prefix).logits
        torch.testing.assert_close(logits, expected["logits"], rtol=1e-5, atol=1e-5)
        for beams in (1, 3):
            text = model.generate(ids, num_beams=beams, min_new_tokens=6, max_new_tokens=6)
            assert torch.equal(text, expected[f"beams{beams}"])
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}", "warnings": kept.messages}
    try:
        size = model.resize_token_embeddings(40).num_embeddings
    except Exception as error:
        size = f"{type(error).__name__}: {error}"
    return {"warnings": kept.messages, "resized": size}


found = []
for change, names in cases:
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(write, json.dumps(outcome(change, names)).encode())
        os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        found.append(json.loads(pipe.read() or "null"))
    os.waitpid(child, 0)
print("FOUND" + json.dumps(found))
"""


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory) -> dict:
    """What pushed code does in a transformers of next year, by what is other there; each in a copy of one process."""
    folder = tmp_path_factory.mktemp("pushed")
    torch.manual_seed(0)
    model = WeftForConditionalGeneration(WeftConfig(**SIZE)).eval()
    model.save_pretrained(folder)
    with torch.no_grad():
        expected = {"ids": IDS, "prefix": PREFIX, "logits": model(input_ids=IDS, decoder_input_ids=PREFIX).logits}
        for beams in (1, 3):
            text = model.generate(IDS, num_beams=beams, min_new_tokens=6, max_new_tokens=6)
            expected[f"beams{beams}"] = text.contiguous()
    save_file(expected, folder / "expected.safetensors")
    cases = CASES
    script = folder / "script.py"
    script.write_text(SCRIPT)
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    environment |= {"HF_MODULES_CACHE": str(folder / "modules"), "HF_HUB_OFFLINE": "1"}
    done = subprocess.run(
        [sys.executable, str(script), str(folder), json.dumps(cases)],
        cwd=folder, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout.partition("FOUND")[2])
    return {(change, *names): one for (change, names), one in zip(cases, found, strict=True)}


METHODS = transformers_names.REPLACED_METHODS
CASES = [
    ("gone", []),
    *(("gone", [name]) for name in [*asked_for(), "initialization"]),
    *(("renamed", [name]) for name in METHODS),
    *(("renamed", [name]) for _, name in transformers_names.NEEDED_ATTRIBUTES if name not in METHODS),
    *(("renamed", [name]) for name in transformers_names.RESIZING if name not in METHODS),
    ("renamed", SWITCHES),
    ("changed", [name for name in METHODS if name != "_init_weights"]),
    ("changed", ["_init_weights"]),
]


@pytest.mark.integration
def test_nothing_is_left_out_of_todays(outcomes):
    assert outcomes[("gone",)] == {"warnings": [], "resized": 40}


@pytest.mark.integration
@pytest.mark.parametrize("name", sorted(name for name, kind in asked_for().items() if kind == "_needed"))
def test_without_a_needed_name_the_error_says_what_to_install(name, outcomes):
    found = outcomes[("gone", name)]
    assert found["error"].startswith("ImportError: transformers ") and f"has no `{name}`" in found["error"], found
    assert REMEDY in found["error"] and "pip install -U weftformer" in found["error"]


@pytest.mark.integration
@pytest.mark.parametrize("name", sorted(name for name, kind in asked_for().items() if kind == "_optional"))
def test_without_an_optional_name_one_warning_says_what_is_other(name, outcomes):
    found = outcomes[("gone", name)]
    assert "error" not in found and found["resized"] == 40, found
    (warning,) = found["warnings"]
    assert f"has no `{name}`" in warning and REMEDY in warning


@pytest.mark.integration
@pytest.mark.parametrize("name", ["utils.TransformersKwargs", "utils.generic.maybe_autocast", "initialization"])
def test_without_what_has_a_plain_stand_in_nothing_is_other(name, outcomes):
    assert outcomes[("gone", name)] == {"warnings": [], "resized": 40}


@pytest.mark.integration
@pytest.mark.parametrize(
    "name", [name for name in METHODS if name not in ("_init_weights", "_resize_token_embeddings")]
)
def test_a_replaced_method_that_is_gone_is_left_to_transformers(name, outcomes):
    found = outcomes[("renamed", name)]
    assert "error" not in found and found["resized"] == 40, found
    (warning,) = found["warnings"]
    assert f"has no `{name}`" in warning and "is not used" in warning and REMEDY in warning


@pytest.mark.integration
@pytest.mark.parametrize("name", transformers_names.RESIZING)
def test_without_what_resizing_calls_it_is_refused(name, outcomes):
    found = outcomes[("renamed", name)]
    assert found["resized"].startswith("ImportError: ") and "resize its vocabulary" in found["resized"], found
    assert REMEDY in found["resized"]
    (warning,) = found["warnings"]
    assert "resize_token_embeddings" in warning


@pytest.mark.integration
@pytest.mark.parametrize("name", [name for _, name in transformers_names.NEEDED_ATTRIBUTES])
def test_without_a_needed_attribute_the_error_says_what_to_install(name, outcomes):
    error = outcomes[("renamed", name)]["error"]
    assert error.startswith("ImportError: ") and f"{name}`" in error and REMEDY in error


@pytest.mark.integration
def test_without_the_switches_it_computes_the_same(outcomes):
    assert outcomes[("renamed", *SWITCHES)] == {"warnings": [], "resized": 40}


@pytest.mark.integration
def test_methods_with_other_parameters_are_left_to_transformers(outcomes):
    names = [name for name in METHODS if name != "_init_weights"]
    found = outcomes[("changed", *names)]
    assert "error" not in found, found
    # those that look at no parameters of theirs may stay
    blind = {
        "_get_candidate_generator",
        "_get_logits_processor",
        "_prepare_generation_config",
        "_can_set_attn_implementation",
        "_can_set_experts_implementation",
    }
    assert all(f"`{name}`" in "".join(found["warnings"]) for name in set(names) - blind), found
    assert REMEDY in outcomes[("changed", "_init_weights")]["error"]


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
    WeftForConditionalGeneration(WeftConfig(**SIZE)).save_pretrained(folder)
    found = get_class_from_dynamic_module("modeling_weft.WeftForConditionalGeneration", str(folder))
    assert found is not WeftForConditionalGeneration and found.__module__.startswith("transformers_modules.")
    yield found, folder
    forget_pushed_code()


def test_pushed_code_warns_of_a_keyword_that_it_does_not_know(pushed, caplog):
    model = pushed[0].from_pretrained(pushed[1])
    expected = model(input_ids=IDS, decoder_input_ids=PREFIX).logits
    for _ in range(2):
        assert torch.equal(model(input_ids=IDS, decoder_input_ids=PREFIX, of_next_year=1).logits, expected)
    (message,) = [record.getMessage() for record in caplog.records if "of_next_year" in record.getMessage()]
    assert message == "forward got an unexpected keyword `of_next_year`, which nothing reads."
    with pytest.raises(ValueError, match="of_next_year"):
        WeftForConditionalGeneration.from_pretrained(pushed[1])(IDS, decoder_input_ids=PREFIX, of_next_year=1)


def test_pushed_code_warns_of_a_field_that_it_does_not_know(pushed, caplog):
    config_class = pushed[0].config_class
    assert config_class is not WeftConfig
    config = config_class(**SIZE, encoder_layer=3)
    assert config.encoder_layers == 1
    assert "WeftConfig has no field `encoder_layer`. Did you mean `encoder_layers`?" in caplog.messages
    with pytest.raises(ValueError, match="no field `encoder_layer`"):
        WeftConfig(**SIZE, encoder_layer=3)
    with pytest.raises(ValueError, match="setting of generation"):
        WeftConfig(**SIZE, max_new_tokens=3)


def test_pushed_code_says_where_its_searches_are(pushed):
    model = pushed[0].from_pretrained(pushed[1])
    with pytest.raises(
        ValueError, match=r'custom_generate="sqrt_length" comes with the installed package.*pip install weftformer'
    ):
        model.generate(IDS, custom_generate="sqrt_length", num_beams=2, max_new_tokens=3)


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
