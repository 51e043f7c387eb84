"""PEFT's own tests of adapters for encoder-decoders, on Weft as on BART."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from transformers import BartConfig, BartForConditionalGeneration

from weftformer import WeftConfig, WeftForConditionalGeneration

peft = pytest.importorskip("peft")
TESTS = Path(sys.prefix) / "share" / f"peft-tests-{peft.__version__}"
TOKENS = {"pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2, "decoder_start_token_id": 2}
SIZES = {"vocab_size": 1000, "d_model": 16, **TOKENS}
SIZES |= {f"{stack}_{size}": value for stack in ("encoder", "decoder") for size, value in
          {"layers": 2, "attention_heads": 4, "ffn_dim": 32}.items()}  # fmt: skip
MODELS = {
    "bart": lambda: BartForConditionalGeneration(BartConfig(**SIZES)),
    "weft": lambda: WeftForConditionalGeneration(WeftConfig(**SIZES, attention_bias=True)),
}
# PEFT has no public way to add the target modules of another family. Of diffusers its tests need a name only.
CONFTEST = """
import sys
from types import SimpleNamespace
import peft.utils.constants
import weftformer
sys.modules["diffusers"] = SimpleNamespace(StableDiffusionPipeline=None)
for modules in vars(peft.utils.constants).values():
    if isinstance(modules, dict) and "bart" in modules:
        modules["weft"] = modules["bart"]
"""


def failures(name: str, tmp_path: Path, selection: str) -> set[str]:
    """Return the names of PEFT's tests that fail for a tiny random model."""
    if not (TESTS / "__init__.py").exists():
        pytest.skip("PEFT's tests are in its source distribution: `make` unpacks those of the pinned version")
    torch.manual_seed(0)
    MODELS[name]().save_pretrained(tmp_path / name)
    package = tmp_path / f"tests_of_{name}" / "peft_tests"
    package.mkdir(parents=True)
    for file in TESTS.glob("*.py"):
        models = r"(?s)^(PEFT_ENCODER_DECODER_MODELS_TO_TEST = )\[.*?\]"
        text = re.sub(models, rf"\1[{str(tmp_path / name)!r}]", file.read_text(encoding="utf-8"), flags=re.MULTILINE)
        (package / file.name).write_text(text, encoding="utf-8")
    (package.parent / "conftest.py").write_text(CONFTEST)
    words = ["-m", "pytest", "-q", "-rf", "-n", "0", "-p", "no:cacheprovider", "-W", "ignore", "-k", selection,
             "peft_tests"]  # fmt: skip
    environment = os.environ | {"HF_HUB_OFFLINE": "1"}
    run = subprocess.run([sys.executable, *words], cwd=package.parent, env=environment, capture_output=True, text=True)
    assert re.search(r"\d passed|\d failed", run.stdout), run.stdout[-3000:] + run.stderr[-3000:]
    return {line.split("::")[-1].split(" - ")[0].replace(str(tmp_path / name), "MODEL") for line in
            run.stdout.splitlines() if line.startswith("FAILED")}  # fmt: skip


@pytest.mark.parametrize(
    "selection",
    [
        pytest.param("test_generate_pos or test_merge_layers or get_base_model", marks=pytest.mark.integration),
        pytest.param("test", marks=pytest.mark.slow),
    ],
    ids=["main", "all"],
)
def test_adapters_that_work_for_bart_work_for_weft(selection, tmp_path):
    failed = failures("weft", tmp_path, selection)
    kinds = {*re.findall(r"\w+Config(?=-)|^test_\w+$", "\n".join(failed), flags=re.MULTILINE)}
    if failed:
        assert failed <= failures("bart", tmp_path, f"({selection}) and ({' or '.join(kinds)})")
