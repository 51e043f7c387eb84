"""Compiled steps: the same tokens for every kind of model, and when a compiled step is kept and reused."""

import copy
import os
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
from filelock import FileLock

import weftformer
from weftformer.modeling.decoding import compiled
from weftformer.modeling.decoding.compiled import CompiledStep, compiled_folder
from weftformer.modeling.decoding.dispatch import decode_step

PLENTY = {"max_new_tokens": 24, "min_new_tokens": 24}


@pytest.fixture
def exported(monkeypatch):
    """Run the exported program of a step instead of compiled code, and list the requested shapes."""
    shapes = []

    def package(self, shape, arguments):
        shapes.append(shape)
        return compiled.exported(self.step, arguments).module()

    monkeypatch.setattr(CompiledStep, "_package", package)
    return shapes


@pytest.mark.parametrize(("kind", "beams"), [("learned", 1), ("bucketed", 3)])
def test_one_program_serves_all_lengths(build, source, exported, kind, beams):
    model = build(kind)
    request = PLENTY | {"num_beams": beams}
    if model.config.num_condition_features:
        request["condition_values"] = torch.ones(4, 1)
    expected = [model.generate(ids, **request) for ids in (source, source[:, :-1])]
    weftformer.fast_decoding(model)
    found = [model.generate(ids, **request) for ids in (source, source[:, :-1])]
    assert all(torch.equal(one, other) for one, other in zip(found, expected, strict=True))
    assert len(set(exported)) == 1


@pytest.fixture
def builds(monkeypatch):
    """Write a file instead of a package, run the step itself, and list the files that were written."""
    written = []

    def compile_(program, package_path, inductor_configs):
        inductor_configs["of its own"] = True  # as torch does
        Path(package_path).write_bytes(b"code")
        written.append(package_path)

    monkeypatch.setattr(torch._inductor, "aoti_compile_and_package", compile_)
    monkeypatch.setattr(compiled, "exported", lambda step, arguments: None)
    monkeypatch.setattr(compiled, "load", lambda package: lambda *given: running[-1].step.forward(*given))
    running, call = [], CompiledStep.__call__

    def called(self, arguments):
        running.append(self)
        return call(self, arguments)

    monkeypatch.setattr(CompiledStep, "__call__", called)
    return written


@pytest.fixture
def answer(build, source):
    def of(change=lambda model: None, **request):
        model = build("rotary")
        change(model)
        weftformer.fast_decoding(model)
        return model.generate(source, **{"max_new_tokens": 6, "min_new_tokens": 6, **request})

    return of


def test_a_later_process_compiles_nothing(builds, answer):
    first = answer()
    assert len(builds) == 1
    assert torch.equal(answer(), first) and len(builds) == 1  # another model object with the same weights
    answer(num_beams=2)
    assert len(builds) == 2


def _faster_rotation(model):
    model.model.decoder.rotary_embedding.inv_freq.mul_(1.5)


def _another_eps(model):
    model.model.decoder.layers[0].final_layer_norm.eps = 0.5


def _another_scale(model):
    model.model.decoder.layers[1].encoder_attn.scaling = 2.0


def _one_bit(model):
    model.model.decoder.layers[1].encoder_attn.q_proj.weight.data.view(torch.int64)[0, 0] ^= 1


def _turned_head(model):
    model.lm_head.weight.data.copy_(model.lm_head.weight.data.flip(0).clone())


def _another_table(model):
    """Which is no weight of the decoder, nor of a head of its own."""
    model.model.shared.weight.data.mul_(2.0)


CHANGES = [_faster_rotation, _another_eps, _another_scale, _one_bit, _turned_head, _another_table]


@pytest.mark.parametrize("change", CHANGES)
def test_another_model_is_compiled_anew(build, builds, answer, source, change):
    """Buffers that no checkpoint has, and numbers of modules, are constants of the code as weights are."""
    answer()
    answer(change)
    assert len(builds) == 2
    model = weftformer.fast_decoding(build("rotary"))  # the same in one process, on a step that is there
    before = decode_step(model)
    assert decode_step(model) is before
    model.model.encoder.layers[0].mlp.up_proj.weight.data.mul_(2.0)
    assert decode_step(model) is before
    twin = weftformer.fast_decoding(copy.deepcopy(model))
    change(model)
    after = decode_step(model)
    assert after is not before and decode_step(model) is after and decode_step(twin) is not after


def test_another_number_of_threads_or_version_is_compiled_anew(builds, answer, monkeypatch):
    answer()
    monkeypatch.setattr(torch, "get_num_threads", lambda: 77)
    answer()
    monkeypatch.setattr(torch, "__version__", "9.9.9")
    answer()
    monkeypatch.setattr(compiled, "_processor", lambda: ["another"])
    answer()
    assert len(builds) == 4


@pytest.mark.parametrize("file", ["*.pt2", "*.json"])
def test_a_file_that_was_changed_is_not_loaded(builds, answer, file):
    answer()
    (found,) = compiled_folder().glob(file)
    found.write_text("{}")
    answer()
    assert len(builds) == 2
    answer()
    assert len(builds) == 2  # it was written again


@pytest.mark.skipif(not hasattr(os, "getuid"), reason="needs file permissions as Unix has them")
@pytest.mark.parametrize("open_", ["compiled", "."])
def test_a_package_that_others_may_have_planted_is_not_loaded(builds, answer, tmp_path, open_):
    answer()
    tmp_path.joinpath(open_).chmod(0o777)
    answer()
    answer()
    assert len(builds) == 3 and len(list(compiled_folder().glob("*.pt2"))) == 1
    tmp_path.joinpath(open_).chmod(0o700)
    answer()
    assert len(builds) == 3


def test_a_folder_that_cannot_be_made_is_not_used(builds, answer, tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setenv("WEFT_COMPILED_FOLDER", str(tmp_path / "file" / "compiled"))
    answer()
    assert len(builds) == 1


def test_packages_that_were_not_used_make_room(builds, answer, monkeypatch):
    monkeypatch.setattr(compiled, "_MOST_BYTES", 2 * len(b"code"))
    for beams in (1, 2, 1, 3):
        answer(num_beams=beams)
    assert len(builds) == 3 and len(list(compiled_folder().glob("*.pt2"))) == 2
    answer()
    assert len(builds) == 3
    answer(num_beams=2)
    assert len(builds) == 4


def test_threads_compile_one_after_the_other(build, builds, source, monkeypatch):
    busy, compile_, stderr = threading.Lock(), torch._inductor.aoti_compile_and_package, sys.stderr

    def slow(program, **settings):
        assert busy.acquire(blocking=False) and sys.stderr is stderr
        time.sleep(0.1)
        compile_(program, **settings)
        busy.release()

    monkeypatch.setattr(torch._inductor, "aoti_compile_and_package", slow)
    model = weftformer.fast_decoding(build("rotary"))
    with ThreadPoolExecutor(3) as threads:
        requests = [threads.submit(model.generate, source, max_new_tokens=4, num_beams=beams) for beams in (1, 2, 1)]
    assert torch.equal(requests[0].result(), requests[2].result()) and len(builds) == 2


def test_a_process_waits_for_the_package_of_another(builds, answer, tmp_path):
    answer()  # what another process makes, and has not yet put in its place
    packages = {file: file.read_bytes() for file in compiled_folder().glob("*.*")}
    for file in packages:
        file.unlink()
    with ThreadPoolExecutor(1) as threads:
        with FileLock(compiled_folder() / "lock"):
            request = threads.submit(answer)
            time.sleep(0.3)
            assert not request.done()
            for file, content in packages.items():
                file.write_bytes(content)
        request.result()
    assert len(builds) == 1


def test_a_failed_compilation_leaves_nothing(answer, monkeypatch):
    def fails(program, package_path, inductor_configs):
        Path(package_path).write_bytes(b"half")
        raise RuntimeError("no compiler")

    monkeypatch.setattr(compiled, "exported", lambda step, arguments: None)
    monkeypatch.setattr(torch._inductor, "aoti_compile_and_package", fails)
    with pytest.raises(RuntimeError, match="no compiler"):
        answer()
    assert not any(compiled_folder().glob("*.*"))


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "beams"), [("rotary across", 1), ("bucketed", 3), ("sparse", 3)])
def test_real_packages_are_loaded_again(build, source, monkeypatch, kind, beams):
    model, request = build(kind, torch.float32), PLENTY | {"num_beams": beams}
    expected = model.generate(source, **request)
    assert torch.equal(weftformer.fast_decoding(model).generate(source, **request), expected)

    def never(*given):
        raise AssertionError("compiled again")

    monkeypatch.setattr(compiled, "build", never)
    twin = weftformer.fast_decoding(build(kind, torch.float32))
    assert torch.equal(twin.generate(source, **request), expected)
