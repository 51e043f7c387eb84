"""Reading files, and the keys that a table finds in them: matched, left out, new, missing, unexpected and wrong ones."""

import json

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from transformers import BartConfig, MarianConfig

from weftformer import WeftConfig
from weftformer.conversion import SOURCES, clean_keys, detect, read_source_config, read_weights
from weftformer.conversion.operations import split, stack_experts
from weftformer.conversion.table import Ignored, rename, to_weft
from weftformer.modeling import loading

WEIGHTS = {"a.weight": torch.arange(4.0), "b.bias": torch.ones(2)}


def same(weights, expected=WEIGHTS):
    return set(weights) == set(expected) and all(torch.equal(weights[key], expected[key]) for key in expected)


@pytest.mark.parametrize("suffix", [".pt", ".pth", ".bin", ".ckpt"])
@pytest.mark.parametrize("nest", [None, "state_dict", "model_state_dict", "model"])
def test_state_dicts_alone_and_among_other_things(tmp_path, suffix, nest):
    file = tmp_path / f"weights{suffix}"
    torch.save(WEIGHTS if nest is None else {nest: WEIGHTS, "epoch": 3, "optimizer": {"state": {}}}, file)
    assert same(read_weights(file))
    assert same(read_weights(tmp_path))


def test_a_lightning_file_loses_its_prefix(tmp_path):
    torch.save({"state_dict": {f"model.{key}": tensor for key, tensor in WEIGHTS.items()}}, tmp_path / "last.ckpt")
    assert same(read_weights(tmp_path / "last.ckpt"))
    # but not where it may be a name of the model's own
    torch.save({f"model.{key}": tensor for key, tensor in WEIGHTS.items()}, tmp_path / "own.pt")
    assert set(read_weights(tmp_path / "own.pt")) == {"model.a.weight", "model.b.bias"}


def test_safetensors_and_arrays(tmp_path):
    save_file(WEIGHTS, tmp_path / "model.safetensors")
    assert same(read_weights(tmp_path)) and same(read_weights(tmp_path / "model.safetensors"))
    np.savez(tmp_path / "params.npz", **{"net/~/output/w": np.ones((2, 3)), "net/~/output/b": np.ones(3)})
    assert {key: tuple(tensor.shape) for key, tensor in read_weights(tmp_path / "params.npz").items()} == {
        "output/w": (2, 3), "output/b": (3,)}  # fmt: skip


def test_shards_are_read_together(tmp_path):
    torch.save({"a.weight": WEIGHTS["a.weight"]}, tmp_path / "pytorch_model-00001-of-00002.bin")
    torch.save({"b.bias": WEIGHTS["b.bias"]}, tmp_path / "pytorch_model-00002-of-00002.bin")
    assert same(read_weights(tmp_path))
    torch.save(WEIGHTS, tmp_path / "pytorch_model-00003-of-00003.bin")
    with pytest.raises(ValueError, match=r"a\.weight is in more than one file"):
        read_weights(tmp_path)


class Evil:
    def __reduce__(self):
        return print, ("the pickle ran",)


def test_code_is_not_unpickled(tmp_path, capsys):
    torch.save({"state_dict": WEIGHTS, "trainer": Evil()}, tmp_path / "evil.ckpt")
    with pytest.raises(
        ValueError,
        match=r"evil\.ckpt contains more than tensors \(a .*print\).*could run arbitrary code.*does not load it",
    ):
        read_weights(tmp_path / "evil.ckpt")
    np.savez(tmp_path / "evil.npz", a=np.array([Evil()], dtype=object))
    with pytest.raises(ValueError, match=r"evil\.npz"):
        read_weights(tmp_path / "evil.npz")
    assert "the pickle ran" not in capsys.readouterr().out


def test_damaged_files_are_named(tmp_path):
    torch.save(WEIGHTS, tmp_path / "whole.pt")
    (tmp_path / "short.pt").write_bytes((tmp_path / "whole.pt").read_bytes()[:500])
    (tmp_path / "empty.bin").touch()
    (tmp_path / "text.ckpt").write_text("not weights")
    (tmp_path / "text.safetensors").write_text("not weights")
    for name in ("short.pt", "empty.bin", "text.ckpt", "text.safetensors"):
        with pytest.raises(ValueError, match=rf"{name} is damaged, or its content does not match its file") as error:
            read_weights(tmp_path / name)
        assert "weights_only" not in str(error.value)  # torch's advice to load it without care


@pytest.mark.parametrize("length", [10, 2000])
def test_files_with_more_tensors_than_models_are_refused(tmp_path, monkeypatch, length):
    monkeypatch.setattr(loading, "_MOST_TENSORS", 100)
    monkeypatch.setattr(loading, "_MOST_BYTES", 100_000)
    weights = {f"a{number}".ljust(length, "b"): torch.zeros(1) for number in range(101)}
    for name in ("a.pt", "a.bin", "a.safetensors", "model.safetensors"):
        (save_file if name.endswith("safetensors") else lambda *given: torch.save(*given))(weights, tmp_path / name)
    np.savez(tmp_path / "a.npz", **{name: tensor.numpy() for name, tensor in weights.items()})
    for name in ("a.pt", "a.bin", "a.safetensors", "a.npz", "."):
        with pytest.raises(ValueError, match="has more than 100 tensors: it is not a file of weights"):
            read_weights(tmp_path / name)
    with pytest.raises(ValueError, match=r"model\.safetensors has more than 100 tensors"):
        loading.check_weights_files(tmp_path)
    weights.popitem()
    save_file({name[:4]: tensor.clone() for name, tensor in weights.items()}, tmp_path / "model.safetensors")
    assert len(read_weights(tmp_path)) == 100


def test_source_configurations(tmp_path):
    assert read_source_config(tmp_path) == {}
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "bart", "d_model": 32}))
    config = read_source_config(tmp_path)
    assert config["d_model"] == 32 and config["encoder_layers"] == BartConfig().encoder_layers  # defaults filled in
    (tmp_path / "own.yaml").write_text("encoder: {n_heads: 4}\n")
    assert read_source_config(tmp_path / "own.yaml") == {"encoder": {"n_heads": 4}}


def test_keys_are_cleaned():
    weights = {"module._orig_mod.encoder.a": torch.ones(1), "_orig_mod.decoder.module.b": torch.ones(1)}
    assert list(clean_keys(weights)) == ["encoder.a", "decoder.b"]
    assert list(clean_keys(weights, [("^encoder", "enc"), (r"\.(\w)$", r".x.\1")])) == ["enc.x.a", "decoder.x.b"]
    with pytest.raises(ValueError, match="Two keys become 'x'"):
        clean_keys(weights, [(".*[ab]$", "x")])
    with pytest.raises(ValueError, match="is not a regular expression"):
        clean_keys(weights, [("(", "x")])


def test_sources_are_told_by_their_keys_or_their_configuration():
    assert (
        detect({"encoder.layers.0.linear1.weight": torch.ones(1), "encoder.layers.0.self_attn.in_proj_weight": 0})
        is (SOURCES["torch"])
    )
    assert detect({}, MarianConfig().to_dict()) is SOURCES["bart"]
    with pytest.raises(ValueError, match=r"No source has keys such as a\.weight, b\.bias: choose one of torch"):
        detect(WEIGHTS)


# --- tables

CONFIG = WeftConfig(d_model=8, encoder_attention_heads=2, decoder_attention_heads=2)


def run(weights, table, shapes, new=()):
    return to_weft(
        {key: torch.full(shape, float(index)) for index, (key, shape) in enumerate(weights.items())},
        table, CONFIG, {key: torch.Size(shape) for key, shape in shapes.items()}, new,
    )  # fmt: skip


def test_a_complete_table():
    table = [
        rename("in.<layer>.<part>", "q.<layer>.<part>", "k.<layer>.<part>", operation=split(2)),
        rename("expert<expert>.<layer>", "experts.<layer>", operation=stack_experts()),
        rename("bias", "layers.<layer>.bias"),
        Ignored("counter", "counts steps"),
    ]
    experts = {"expert10.0": (3,), "expert9.0": (3,)}
    weights = experts | {"in.0.weight": (4, 2), "in.0.bias": (4,), "bias": (5,), "counter": ()}
    shapes = {
        "q.0.weight": (2, 2), "k.0.weight": (2, 2), "q.0.bias": (2,), "k.0.bias": (2,), "experts.0": (2, 3),
        "layers.0.bias": (5,), "layers.1.bias": (5,), "router": (2,),
    }  # fmt: skip
    found = run(weights, table, shapes, new=["router"])
    assert found.fits and set(found.weights) == set(shapes) - {"router"}
    # numbers are numbers: 9 comes before 10
    assert found.weights["experts.0"][:, 0].tolist() == [1.0, 0.0]
    assert found.new == ["router"] and found.left == [("counter", "counts steps")]
    text = found.describe()
    assert "matched          5" in text and "counter: counts steps" in text and "missing          0" in text


def test_what_does_not_fit_is_named():
    table = [rename("a.<layer>", "b.<layer>"), rename("c", "d"), rename("fused", "q", "k", operation=split(2))]
    found = run(
        {"a.0": (2,), "a.7": (2,), "x": (1,), "fused": (6,)},
        table,
        {"b.0": (3,), "b.1": (2,), "d": (1,), "q": (3,), "k": (3,)},
    )
    assert not found.fits
    assert found.missing == ["a.1 (for b.1)", "c (for d)"]
    assert found.unexpected == ["a.7", "x"]
    assert found.wrong == ["b.0 would have shape (2,) from a.0 (2,), but the configuration requires (3,)"]


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_values_that_are_not_finite_are_named(value):
    weights = {"a": torch.ones(2), "b": torch.tensor([1.0, value])}
    found = to_weft(weights, [rename("a", "c"), rename("b", "d")], CONFIG, {"c": (2,), "d": (2,)})
    assert found.wrong == ["b has values that are NaN or infinite"]
