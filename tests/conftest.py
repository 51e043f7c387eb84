"""What all tests share: how torch, garbage and warnings are handled, a tokenizer, and a browser."""

import gc
import itertools
import logging
import os
import random
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

# Small tests are fastest on one thread: two on busy cores wait for each other. The processes that tests start inherit
# it.
os.environ["OMP_NUM_THREADS"] = "1"
# Data sets are cached until the tests end, and never in the user's home.
os.environ["HF_DATASETS_CACHE"] = tempfile.mkdtemp(prefix="datasets-cache-")
# What imports make stays: collecting garbage among it only takes time. `pytest_collection_finish` begins again.
gc.disable()

import accelerate
import pytest
import torch

from weftformer.tokenization import build_route_tokenizer

NUMBERS = itertools.count()


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", "dtype(kind): what torch makes of numbers while the test runs, else torch.float32"
    )


class RefuseDeprecated(logging.Handler):
    """Raises what transformers logs about names that a later release removes, if Weft's own code uses one of them.

    `filterwarnings` does it for warnings.
    """

    def emit(self, record: logging.LogRecord) -> None:
        if "deprecated" not in record.getMessage():
            return
        frame: Any = sys._getframe()
        # overrides of `generate` and its parts pass on what their caller gives
        passes_on = (
            "logging",
            "transformers.",
            "functools",
            "contextlib",
            "torch.",
            "weftformer.modeling.generation",
            __name__,
        )
        while frame.f_globals["__name__"].startswith(passes_on):
            frame = frame.f_back
        if frame.f_globals["__name__"].startswith("weftformer."):
            raise DeprecationWarning(record.getMessage())


logging.getLogger("transformers").addHandler(RefuseDeprecated())
# Trainer collects garbage before and after each run, which takes longer than a small run, to free the memory of
# devices.
accelerate.utils.memory.gc = SimpleNamespace(collect=int)


def pytest_unconfigure() -> None:
    shutil.rmtree(os.environ["HF_DATASETS_CACHE"], ignore_errors=True)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with a long file: if it came last, other workers would wait for it."""
    items.sort(key=lambda item: "/upstream/" not in item.nodeid)


def pytest_collection_finish() -> None:
    """Exclude existing objects from every later garbage collection.

    These are about a million objects, of the libraries and of the collected tests.
    """
    gc.freeze()
    gc.set_threshold(700, 10, 50)  # old objects are few now, so that Python would visit all of them too often
    gc.enable()


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Report which tests were left out, and how to run them."""
    left_out = [name for name in ("integration", "slow") if f"not {name}" in config.option.markexpr]
    if left_out:
        commands = {"integration": "make test-integration", "slow": "make test-slow"}
        has = ", ".join(f"`{commands[name]}` has those marked {name}" for name in left_out)
        terminalreporter.write_line(f"Some tests were left out: {has}.")


@pytest.fixture(autouse=True)
def default_dtype(request: pytest.FixtureRequest) -> Any:
    """Set the default dtype to that of the closest mark, such as `@pytest.mark.dtype(torch.float64)`.

    Two ways to one result are compared in 64 bits. There, a difference of more than 1e-10 means another algorithm, on
    every processor. In 32 bits they differ by the rounding of the kernels, which depends on the processor and on the
    shapes. Tables of positions, and the scores that `generate` returns, are always in 32 bits.
    """
    mark = request.node.get_closest_marker("dtype")
    torch.set_default_dtype(mark.args[0] if mark else torch.float32)
    yield
    torch.set_default_dtype(torch.float32)


@pytest.fixture(autouse=True)
def compiled_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep compiled code out of the user's folder, in one that a test makes when it compiles."""
    monkeypatch.setenv("WEFT_COMPILED_FOLDER", f"{os.environ['HF_DATASETS_CACHE']}/compiled-{next(NUMBERS)}")


@pytest.fixture(autouse=True)
def one_thread() -> Any:
    """Reset the number of threads, which commands set for the whole process. The last bit of sums depends on it."""
    yield
    torch.set_num_threads(1)


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    """That of routes, with the published vocabulary."""
    return build_route_tokenizer()


def save_both(folder: Any, model: Any, tokenizer: Any) -> str:
    """Save both into a folder, and return its path."""
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)


def printed_elsewhere(
    code: str, *words: str | Path, folder: Path, python: str | Path = sys.executable, **environment: str
) -> str:
    """Return what a program prints in a process of its own, which shares no code of models with this one.

    It runs in `folder`, so that it imports no file beside the tests.
    """
    own = {"HF_MODULES_CACHE": str(folder / "modules"), "HF_HUB_OFFLINE": "1"} | environment
    done = subprocess.run(
        [python, "-c", code, *words],
        cwd=folder, env=os.environ | own, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


@pytest.fixture(scope="module")  # not longer: while playwright runs, nothing else may run an event loop here
def browser() -> Any:
    """Debian's chromium. Tests that need it are skipped if it is missing."""
    from playwright.sync_api import sync_playwright

    if (chromium := shutil.which("chromium")) is None:
        pytest.skip("needs the browser chromium: apt-get install chromium")
    with sync_playwright() as running:
        browser = running.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def open_page(browser) -> Any:
    """Opens an address, and checks afterwards that there were no errors and no requests to other addresses."""
    contexts, wrong, foreign = [], [], []

    def open_page(address: str) -> Any:
        context = browser.new_context()
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(60_000)
        page.on("console", lambda message: wrong.append(message.text) if message.type == "error" else None)
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on("response", lambda got: wrong.append(f"{got.status} {got.url}") if got.status >= 400 else None)
        own = (address, "data:", "blob:")
        page.on("request", lambda request: None if request.url.startswith(own) else foreign.append(request.url))
        page.goto(address)
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert wrong == foreign == []


def write_backwards(file: Path) -> Path:
    """Write fifty pairs to a csv: texts of four letters, and the same read backwards."""
    draw = random.Random(0)
    texts = ["".join(draw.choice("abcd") for _ in range(draw.randint(2, 9))) for _ in range(50)]
    file.write_text("source,target\n" + "".join(f"{text},{text[::-1]}\n" for text in texts))
    return file
