"""Compiled steps: when a compiled step is kept, loaded and compiled again."""

import copy
from pathlib import Path

import pytest
import torch

import weftformer
from weftformer.modeling.decoding import compiled
from weftformer.modeling.decoding.compiled import CompiledStep, compiled_folder
from weftformer.modeling.decoding.dispatch import decode_step


def test_one_program_serves_all_lengths(build, source, monkeypatch):
    shapes = []

    def package(self, shape, arguments):
        shapes.append(shape)
        return compiled.exported(self.step, arguments).module()

    monkeypatch.setattr(CompiledStep, "_package", package)
    model, request = build("rotary across"), {"max_new_tokens": 24, "min_new_tokens": 24}
    expected = [model.generate(ids, **request) for ids in (source, source[:, :-1])]
    weftformer.fast_decoding(model)
    found = [model.generate(ids, **request) for ids in (source, source[:, :-1])]
    assert all(torch.equal(ids, other) for ids, other in zip(found, expected, strict=True))
    assert len(shapes) == 1


@pytest.fixture
def builds(monkeypatch):
    """Write a file instead of a package, run the step itself, and list the files that were written."""
    written, running, call = [], [], CompiledStep.__call__

    def compile_(program, package_path, inductor_configs):
        inductor_configs["of its own"] = True  # as torch does
        Path(package_path).write_bytes(b"code")
        written.append(package_path)

    def called(self, arguments):
        running.append(self)
        return call(self, arguments)

    monkeypatch.setattr(torch._inductor, "aoti_compile_and_package", compile_)
    monkeypatch.setattr(
        torch._inductor, "aoti_load_package", lambda package: lambda *given: running[-1].step.forward(*given)
    )
    monkeypatch.setattr(compiled, "exported", lambda step, arguments: None)
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


def test_equal_models_share_a_package_until_it_is_removed(builds, answer, monkeypatch):
    first = answer()
    assert torch.equal(answer(), first) and len(builds) == 1
    monkeypatch.setattr(compiled, "MAX_PACKAGES", 2)
    for beams in (2, 1, 3):
        answer(num_beams=beams)
    assert len(builds) == 3 and len(list(compiled_folder().glob("*.pt2"))) == 2
    answer()  # used after the package for two beams
    assert len(builds) == 3
    answer(num_beams=2)
    assert len(builds) == 4


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
def test_changed_model_is_compiled_again(build, builds, answer, change):
    """Buffers that no checkpoint has, and numbers of modules, are constants of the code as weights are."""
    answer()
    answer(change)
    assert len(builds) == 2
    model = weftformer.fast_decoding(build("rotary"))  # the same in one process, on a step that is there
    before = decode_step(model)
    model.model.encoder.layers[0].mlp.up_proj.weight.data.mul_(2.0)
    assert decode_step(model) is before
    twin = weftformer.fast_decoding(copy.deepcopy(model))
    change(model)
    after = decode_step(model)
    assert after is not before and decode_step(model) is after and decode_step(twin) is not after


def test_other_threads_versions_and_processors_are_compiled_again(builds, answer, monkeypatch):
    answer()
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    answer()
    monkeypatch.setattr(torch, "__version__", "9.9.9")
    answer()
    monkeypatch.setattr(compiled, "_processor", lambda: ["another"])
    answer()
    assert len(builds) == 4


def test_failed_compilation_leaves_no_package(answer, monkeypatch):
    def fails(program, package_path, inductor_configs):
        Path(package_path).write_bytes(b"half")
        raise RuntimeError("no compiler")

    monkeypatch.setattr(compiled, "exported", lambda step, arguments: None)
    monkeypatch.setattr(torch._inductor, "aoti_compile_and_package", fails)
    with pytest.raises(RuntimeError, match="no compiler"):
        answer()
    assert not any(compiled_folder().glob("*.pt2"))


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda model: model.train(), "training mode"),
        (
            lambda model: setattr(model.model.decoder.rotary_embedding, "rope_type", "dynamic"),
            "change with the length",
        ),
    ],
)
def test_models_that_cannot_be_compiled_are_refused(build, change, reason):
    model = build("rotary")
    change(model)
    with pytest.raises(ValueError, match=reason):
        weftformer.fast_decoding(model)


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "beams"), [("rotary across", 1), ("bucketed", 3), ("sparse", 3)])
def test_real_packages_are_loaded_again(build, source, monkeypatch, kind, beams):
    model, request = build(kind, torch.float32), {"max_new_tokens": 24, "min_new_tokens": 24, "num_beams": beams}
    expected = model.generate(source, **request)
    assert torch.equal(weftformer.fast_decoding(model).generate(source, **request), expected)
    monkeypatch.setattr(compiled, "_build", None)
    twin = weftformer.fast_decoding(build(kind, torch.float32))
    assert torch.equal(twin.generate(source, **request), expected)
