"""The tests that transformers holds its own models to, as the package `transformers_tests`.

They are in transformers' source distribution and not in its wheel; `make` unpacks them into the environment. Of transformers'
folder `tests/` that distribution has only the files at the top: the mixin of model tests and the one of configurations, not
the mixin of generation tests (`tests/generation/`). Who has a checkout of the same version of transformers runs that one too:
`TRANSFORMERS_TESTS=/path/to/transformers/tests make test`.
"""

import importlib
import os
import sys
import unittest
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType

import pytest
import transformers

UNPACKED = Path(sys.prefix) / "share" / f"transformers-tests-{transformers.__version__}"
FOLDER = Path(os.environ.get("TRANSFORMERS_TESTS", UNPACKED))

# What the files at the top import from folders below: mixins without tests, and fields that every configuration has.
STAND_INS = {
    "exporters.test_export": {"ExportTesterMixin": type("ExportTesterMixin", (), {})},
    "generation.test_utils": {"GenerationTesterMixin": type("GenerationTesterMixin", (), {})},
    "utils.test_configuration_utils": {
        "config_common_kwargs": {
            "return_dict": False, "output_hidden_states": True, "dtype": "float16", "chunk_size_feed_forward": 3,
            "architectures": ["WeftModel"], "id2label": {0: "one"}, "label2id": {"one": 0}, "problem_type": "regression",
        }
    },
}  # fmt: skip

MARKERS = (
    "generate", "timeout", "order", "torch_compile_test", "torch_export_test", "onnx_export_test",
    "executorch_export_test", "flash_attn_test", "flash_attn_3_test", "flash_attn_4_test", "all_flash_attn_test",
    "accelerate_tests",
)  # fmt: skip


def add_package(name: str, folder: Path) -> None:
    """A package of a folder's modules under a name that is not the folder's: theirs is `tests`, as ours is."""
    package = ModuleType(name)
    package.__spec__ = ModuleSpec(name, None, is_package=True)
    package.__path__ = [str(folder)]
    sys.modules[name] = package


def add_transformers_tests() -> None:
    add_package("transformers_tests", FOLDER)
    for name, values in STAND_INS.items():
        room, _, module = name.partition(".")
        add_package(f"transformers_tests.{room}", FOLDER / room)
        # that of the configurations also tests the Hub, with modules from outside the folder
        if room == "utils" or not (FOLDER / room / f"{module}.py").exists():
            stand_in = ModuleType(f"transformers_tests.{name}")
            vars(stand_in).update(values)
            sys.modules[stand_in.__name__] = stand_in
        else:  # they also call each other `tests`
            sys.modules[f"tests.{name}"] = importlib.import_module(f"transformers_tests.{name}")


def pytest_configure(config: pytest.Config) -> None:
    for name in MARKERS:
        config.addinivalue_line("markers", f"{name}: a mark of transformers' own tests")
    add_transformers_tests()


def pytest_itemcollected(item: pytest.Item) -> None:
    """Leave to `make test-integration` what takes a second and more, and all but one kind of number of the largest grid."""
    name = item.name
    is_of_grid = name.startswith("test_eager_matches_sdpa_inference_") and "fp32" not in name
    if is_of_grid or name in ("test_bc_torch_dtype", "test_can_init_all_missing_weights"):
        item.add_marker(pytest.mark.integration)


def is_skipped_by(test_class: type[unittest.TestCase], name: str) -> bool:
    """Whether a class skips a test, or one of its parts; it is run to see that."""
    result = unittest.TestResult()
    test_class(name).run(result)
    return bool(result.skipped)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo):
    """A test that Weft skips and its `reference` runs is a failure: a reason to skip must hold for both."""
    report = yield
    reference = getattr(getattr(item, "cls", None), "reference", None)
    if report.skipped and reference is not None and not is_skipped_by(reference, item.name):
        report.outcome = "failed"
        report.longrepr = f"Skipped, though {reference.__name__} runs it: {report.longrepr}"
    return report
