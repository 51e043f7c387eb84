"""`weftformer serve` as a process of its own, under load and stopped by a signal."""

import asyncio
import re
import sys
import threading
from pathlib import Path

import httpx
import pytest

pytest.importorskip("rdkit")

import weftformer
from weftformer import WeftConfig, WeftForConditionalGeneration
from weftformer.benchmarks.serve_load import TARGETS, load, request_bodies, served
from weftformer.scripts import cli
from weftformer.tokenization import train_tokenizer

from .conftest import soon

ROOT = Path(weftformer.__file__).resolve().parent


@pytest.mark.integration
def test_under_load_no_answer_is_lost_and_a_signal_ends_it_in_order(planner, tmp_path):
    planner.model.save_pretrained(tmp_path)
    planner.tokenizer.save_pretrained(tmp_path)
    statuses: list[int] = []
    with served(str(tmp_path), "--max-batch-size", "8", "--timeout-s", "60") as (url, process):
        bodies = request_bodies("/plan", TARGETS[:6], beams=2, max_new_tokens=12)
        figures = asyncio.run(load(url, process, bodies, clients=20, seconds=3, warm_up=1))
        assert figures.answers > 20 and figures.lost == {}, str(figures)
        assert len(figures.memory) == 3 and figures.memory[2] - figures.memory[0] < 50
        health = url.replace("/plan", "/health")
        assert httpx.get(health, trust_env=False).json()["waiting"] == 0

        def ask() -> None:
            body = {"targets": [TARGETS[0]] * 20, "beams": 10, "grammar": False}
            statuses.append(httpx.post(url, json=body, timeout=60, trust_env=False).status_code)

        threads = [threading.Thread(target=ask) for _ in range(3)]
        for thread in threads:
            thread.start()
        soon(lambda: httpx.get(health, trust_env=False).json()["waiting"] > 40)
    # the signal came while a batch was computed: `served` checks how the process ended, and its log
    for thread in threads:
        thread.join(60)
    assert statuses == [503, 503, 503]  # none of them was computed as a whole


def test_a_missing_extra_is_one_line(monkeypatch, capsys, tmp_path):
    for name in [name for name in sys.modules if name.startswith("weftformer.serving")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "fastapi", None)
    assert cli.main(["serve", "--model", str(tmp_path)]) == 1
    assert (
        "weftformer serve: error: Serving needs fastapi: pip install 'weftformer[serve]'." in capsys.readouterr().err
    )


@pytest.mark.integration
def test_a_forward_model_beside_the_model(planner, tmp_path):
    tokenizer = train_tokenizer(TARGETS, vocab_size=300)
    size = {"d_model": 48, "encoder_layers": 1, "decoder_layers": 1, "encoder_ffn_dim": 32, "decoder_ffn_dim": 32}
    forward = WeftForConditionalGeneration(WeftConfig.from_preset("modern-tiny", vocab_size=len(tokenizer), **size))
    for name, model, its_tokenizer in (
        ("routes", planner.model, planner.tokenizer),
        ("forward", forward, tokenizer),
    ):
        model.save_pretrained(tmp_path / name)
        its_tokenizer.save_pretrained(tmp_path / name)
    options = ["--forward-model", str(tmp_path / "forward"), "--max-time-limit", "30"]
    with served(str(tmp_path / "routes"), *options) as (url, _):
        body = {"targets": TARGETS[0], "n_steps": 1, "beams": 2, "time_limit": 30}
        (plan,) = httpx.post(url, json=body, timeout=60, trust_env=False).json()["plans"]
        # it was not trained, so it predicts none of them
        assert {one["feasibility"] for one in plan["candidates"] if one["route"]} == {0.0}
        assert httpx.post(url, json=body | {"time_limit": 31}, trust_env=False).status_code == 422


def test_a_forward_model_that_is_not_there_is_one_line(capsys, untrained_folder):
    arguments = ["--model", untrained_folder, "--port", "0", "--forward-model", "/nope"]
    assert cli.main(["serve", *arguments]) == 1
    assert "weftformer serve: error: --forward-model /nope: there is no such folder." in capsys.readouterr().err


def test_settings_that_do_not_fit_are_one_line(capsys, tmp_path):
    assert cli.main(["serve", "--model", str(tmp_path), "--max-queue", "0"]) == 1
    assert "max_queue=0 is not allowed: give at least 1." in capsys.readouterr().err


def test_importing_weft_imports_no_server():
    below = ("configuration", "conversion", "hub", "modeling", "routes", "tokenization", "training")
    files = [path for room in below for path in (ROOT / room).glob("*.py")]
    files += [ROOT / "__init__.py", ROOT / "scripts" / "cli.py", ROOT / "scripts" / "serve.py"]
    # at the beginning of a line: inside a function it waits until that is called
    servers = re.compile(r"^(import|from) (fastapi|starlette|uvicorn|(weftformer)?\.+serving)", re.MULTILINE)
    assert [path.name for path in files if servers.search(path.read_text(encoding="utf-8"))] == []
    assert servers.search((ROOT / "serving" / "limits.py").read_text(encoding="utf-8"))
