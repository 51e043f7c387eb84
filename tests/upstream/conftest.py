"""transformers' tests for its own models, as the package `transformers_tests`.

They are in transformers' source distribution and not in its wheel. `make` unpacks them into the environment. Of the
folder `tests/` of transformers, that distribution has only the top-level files: the mixins of model tests and of
configurations, but not that of generation tests (`tests/generation/`). With a checkout of the same version of
transformers, that one runs, too: `TRANSFORMERS_TESTS=/path/to/transformers/tests make test`.
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

# Stand-ins for imports of the top-level files from sub-folders: mixins without tests, and common fields.
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
    """Add a package of a folder's modules under another name than the folder's, which is `tests`, as ours."""
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
    """Leave tests of a second or more, and all but one number type of the largest grid, to `make test-integration`."""
    name = item.name
    is_of_grid = name.startswith("test_eager_matches_sdpa_inference_") and "fp32" not in name
    if is_of_grid or name in ("test_bc_torch_dtype", "test_can_init_all_missing_weights"):
        item.add_marker(pytest.mark.integration)


def is_skipped_by(test_class: type[unittest.TestCase], name: str) -> bool:
    """Return whether a class skips a test or a part of it, by running it."""
    result = unittest.TestResult()
    test_class(name).run(result)
    return bool(result.skipped)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo):
    """Fail a test that Weft skips and its `reference` runs, because a reason to skip must be valid for both."""
    report = yield
    reference = getattr(getattr(item, "cls", None), "reference", None)
    if report.skipped and reference is not None and not is_skipped_by(reference, item.name):
        report.outcome = "failed"
        report.longrepr = f"Skipped, though {reference.__name__} runs it: {report.longrepr}"
    return report
