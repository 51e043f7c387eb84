"""Encoder and step as graphs: the same tokens as `generate`, run by torch itself and by onnxruntime."""

import math

import pytest

from weftformer.exporting import Exported, check_exportable, graphs, largest_difference, load_onnx, write_onnx

SPARSE = {"encoder_mlp_layer_types": "sparse", "decoder_mlp_layer_types": "sparse", "num_experts": 4}
GROUPED = {"num_key_value_heads": 2, "use_qk_norm": True}
POSITIONS = ("self_attention_position_type", "cross_attention_position_type")
# name: preset, fields
MODELS = {
    "post-norm": ("tiny", {}),
    "modern": ("modern-tiny", GROUPED),
    "conditioned": ("dms-flash-10m", {}),
    "rotary across": ("dms-tiny", {}),
    "sparse": ("modern-tiny", SPARSE),
    "noisy top-k": ("dms-flex-20m", {}),
    "additive": ("modern-tiny", dict.fromkeys(POSITIONS, "additive")),
    "bucketed": ("modern-tiny", dict.fromkeys(POSITIONS, "bucketed")),
    "relative": ("modern-tiny", dict.fromkeys(POSITIONS, "relative") | {"norm_type": "stdnorm"}),
}


def as_torch_runs_it(model) -> Exported:
    encoder, step = graphs(model)
    return Exported(model.config, lambda inputs: encoder(**inputs), lambda inputs: step(**inputs))


def check_tokens(model, exported: Exported, rows: int = 3, source: int = 9, new: int = 8) -> None:
    """Padded sources of different lengths, the first with a pad in its middle too."""
    inputs = graphs(model)[0].example(rows, source, seed=5)
    assert 0 in inputs["attention_mask"][0, :-1] and len(set(inputs["attention_mask"].sum(dim=1).tolist())) > 1
    given = {name: tensor for name, tensor in inputs.items() if name != "input_ids"}
    expected = model.generate(inputs["input_ids"], **given, max_new_tokens=new, do_sample=False)
    found = exported.greedy(inputs, new)
    assert found.tolist() == expected.tolist()
    assert len(set(found[:, 1:].flatten().tolist())) > 1  # else the comparison says little


@pytest.mark.parametrize("name", MODELS)
def test_graphs_write_what_generate_writes(small, name):
    preset, fields = MODELS[name]
    model = small(preset, **fields)
    check_tokens(model, as_torch_runs_it(model))


def test_a_difference_is_found(small):
    model, other = small("tiny"), small("tiny")
    assert largest_difference(model, as_torch_runs_it(other)) == 0.0
    other.model.decoder.layers[1].encoder_attn.v_proj.bias.data[3] += 0.01
    assert 1e-3 < largest_difference(model, as_torch_runs_it(other)) < 1.0
    other.lm_head.weight.data[7, 0] = math.nan
    assert largest_difference(model, as_torch_runs_it(other)) == math.inf
    assert largest_difference(model, as_torch_runs_it(small("tiny", decoder_layers=1))) == math.inf


def check_onnx(model, tmp_path) -> None:
    pytest.importorskip("onnxruntime")
    model.set_experts_implementation("eager")
    model.set_attn_implementation("eager")
    write_onnx(model, tmp_path)
    exported = load_onnx(tmp_path)
    assert largest_difference(model, exported) < 1e-4  # 1.5e-6 were seen
    check_tokens(model, exported)
    check_tokens(model, exported, rows=4, source=6, new=2)


@pytest.mark.integration
def test_an_exported_model_runs_without_its_own(small, tmp_path):
    # grouped heads: the export has more to prove of them than of any other attention
    check_onnx(small("modern-tiny", decoder_layers=1, **GROUPED), tmp_path)


def test_onnx_has_no_grouped_product(small, tmp_path):
    model = small("modern-tiny", **SPARSE)
    model.set_experts_implementation("grouped_mm")
    with pytest.raises(ValueError, match=r'no operator for experts_implementation="grouped_mm".*"eager"'):
        write_onnx(model, tmp_path)


@pytest.mark.parametrize(
    "fields, message",
    [
        (SPARSE | {"expert_capacity_factor": 1.5}, "factor=1.5 counts .*to None"),
        (SPARSE | {"router_type": "noisy_top_k", "router_noise": "always"}, 'router_noise="always" chooses.*"training"'),
        ({"rope_parameters": {"rope_type": "dynamic", "rope_theta": 1e4, "factor": 2.0}}, 'rope_type="dynamic".*"default"'),
    ],
)  # fmt: skip
def test_what_a_graph_cannot_hold_is_refused(small, fields, message):
    with pytest.raises(ValueError, match=message):
        check_exportable(small("modern-tiny", **fields).config)


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_every_kind_of_model(small, tmp_path, name):
    preset, fields = MODELS[name]
    check_onnx(small(preset, decoder_layers=1, **fields), tmp_path)
