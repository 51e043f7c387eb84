"""Compiled steps: when a compiled step is kept, loaded and compiled again."""

import copy

import pytest
import torch

import weftformer
from weftformer.modeling.decoding import compiled
from weftformer.modeling.decoding.compiled import CompiledStep, compiled_folder
from weftformer.modeling.decoding.dispatch import decode_step


@pytest.fixture
def builds(monkeypatch):
    """Write a file instead of a package, run the step itself, and list the files that were written."""
    written, running, call = [], [], CompiledStep.__call__

    def compile_(program, package_path, inductor_configs):
        inductor_configs["of its own"] = True  # as torch does
        package_path.write(b"code")
        written.append(package_path)

    def called(self, arguments):
        running.append(self)
        return call(self, arguments)

    monkeypatch.setattr(torch._inductor, "aoti_compile_and_package", compile_)
    monkeypatch.setattr(compiled, "Package", lambda file: lambda *given: running[-1].step.forward(*given))
    monkeypatch.setattr(compiled, "exported", lambda step, arguments: None)
    monkeypatch.setattr(compiled, "described_inputs", lambda program: [])
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


CHANGES = {
    "frequencies": lambda model: model.model.decoder.rotary_embedding.inv_freq.mul_(1.5),
    "eps": lambda model: setattr(model.model.decoder.layers[0].final_layer_norm, "eps", 0.5),
    "one bit": lambda model: model.model.decoder.layers[1].encoder_attn.q_proj.weight.data.view(torch.int64)[0].bitwise_xor_(1),
    "order": lambda model: model.lm_head.weight.data.copy_(model.lm_head.weight.data.flip(0).clone()),
    # which is no weight of the decoder, nor of a head of its own
    "table": lambda model: model.model.shared.weight.data.mul_(2.0),
}  # fmt: skip


@pytest.mark.parametrize("change", CHANGES)
def test_changed_model_is_compiled_again(build, builds, answer, change):
    """Buffers that no checkpoint has, and numbers of modules, are constants of the code as weights are."""
    change = CHANGES[change]
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


def test_models_that_cannot_be_compiled_are_refused(build):
    with pytest.raises(ValueError, match="training mode"):
        weftformer.fast_decoding(build("rotary").train())
    growing = build("rotary", rope_parameters={"rope_type": "dynamic", "factor": 2.0})
    with pytest.raises(ValueError, match="change with the length"):
        weftformer.fast_decoding(growing)


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "beams"), [("rotary across", 1), ("bucketed", 3), ("sparse", 3)])
def test_real_packages_are_loaded_again(build, source, monkeypatch, kind, beams):
    model, request = build(kind, torch.float32), {"max_new_tokens": 24, "min_new_tokens": 24, "num_beams": beams}
    expected = model.generate(source, **request)
    assert torch.equal(weftformer.fast_decoding(model).generate(source, **request), expected)
    monkeypatch.setattr(compiled, "write_package", None)
    twin = weftformer.fast_decoding(build(kind, torch.float32))
    assert torch.equal(twin.generate(source, **request), expected)
