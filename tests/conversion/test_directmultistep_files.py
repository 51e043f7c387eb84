"""What a file of DirectMultiStep 1.1.3 holds, read off its keys and shapes; the way back; files that do not fit."""

import re

import pytest
import torch

from weftformer import WeftConfig
from weftformer.conversion import SOURCES, clean_keys, convert, export

from .references.directmultistep import DENSE, SPARSE, STEPS, both, build, preset_of, published, saved

DMS = SOURCES["dms"]
ALIKE = ("flex_20M", "explorer_19M")  # in every shape
HEADS = dict.fromkeys(("encoder_attention_heads", "decoder_attention_heads"), 8)
# the package's way to its own files
pytestmark = pytest.mark.filterwarnings("ignore:path is deprecated")


def two_layers(name):
    """The recipe at a small size."""
    return both(published(name), hid_dim=64, n_layers=2)


def shapes(config):
    """Weights that are shapes alone: the published sizes in no time."""
    with torch.device("meta"):
        return build(config, "meta").state_dict()


@pytest.mark.parametrize("name", (*DENSE, *SPARSE))
def test_published_shapes_tell_the_preset(name):
    config, preset = published(name), preset_of(name)
    weights, fields = shapes(config), WeftConfig.from_preset(preset).to_dict()
    if name in ALIKE:
        with pytest.raises(ValueError, match=r"dms-flex-20m and of dms-explorer-19m.*`--preset`"):
            convert(weights, DMS)
    else:
        assert convert(weights, DMS).config.to_dict() == fields
    assert convert(weights, DMS, preset=preset).config.to_dict() == fields
    assert convert(weights, DMS, source_config=saved(config)).config.to_dict() == fields


def test_flash_10m_from_its_weights_alone():
    weights = build(published("flash_10M")).state_dict()
    model = convert(weights, DMS).build()
    said = model.generation_config
    assert (said.decoder_start_token_id, said.eos_token_id, said.pad_token_id, said.max_length) == (0, 22, 52, 1074)
    back = export(model, DMS)
    assert back.keys() == weights.keys()
    assert all(torch.equal(back[key], tensor) for key, tensor in weights.items())


def test_the_way_back_keeps_the_dtype():
    config = two_layers("explorer_19M")
    weights = {key: tensor.bfloat16() for key, tensor in build(config).state_dict().items()}
    back = export(convert(weights, DMS, source_config=saved(config)).build(), DMS)
    assert {tensor.dtype for tensor in back.values()} == {torch.bfloat16}


def test_the_way_back_to_a_model_without_step_embedding():
    config = two_layers("explorer_19M")
    config.encoder.initiate_steps = False
    weights, own = build(config).state_dict(), saved(config)
    assert STEPS not in weights
    assert export(convert(weights, DMS, source_config=own).build(), DMS, own).keys() == weights.keys()


def test_heads_of_other_sizes_have_to_be_given():
    weights = build(two_layers("flash_10M")).state_dict()
    with pytest.raises(ValueError, match=r"encoder_attention_heads and decoder_attention_heads.*`--heads N`"):
        convert(weights, DMS)
    config = convert(weights, DMS, overrides=HEADS).config
    assert config.to_dict() == convert(weights, DMS, source_config=saved(two_layers("flash_10M"))).config.to_dict()


@pytest.mark.parametrize("fields", [{"ff_activation": "relu"}, {"top_k": 1}], ids=str)
def test_what_weft_has_once_has_to_agree_in_both_stacks(fields):
    config = two_layers("flex_20M")
    ((name, value),) = fields.items()
    setattr(config.decoder, name, value)
    with pytest.raises(ValueError, match=name):
        convert(build(config).state_dict(), DMS, source_config=saved(config))


@pytest.fixture(scope="module", params=["flash_10M", "flex_20M"])
def fitting(request):
    """Weights of one layer a stack, and a function that converts them changed, with all sizes given."""
    config = two_layers(request.param)
    config.encoder.n_layers = config.decoder.n_layers = 1
    sizes = {"d_model": 64} | {
        f"{s}_{k}": v for s in ("encoder", "decoder") for k, v in (("layers", 1), ("ffn_dim", 192))
    }

    def convert_changed(weights):
        return convert(weights, DMS, preset=preset_of(request.param), overrides=sizes)

    weights = build(config).state_dict()
    assert convert_changed(weights).found.fits
    return weights, convert_changed


def test_each_missing_key_is_named(fitting):
    weights, convert_changed = fitting
    for key in weights:
        # an expert by how many are left of three
        said = r"would be \(2,.*it is \(3," if ".experts." in key else re.escape(key)
        with pytest.raises(ValueError, match=said):
            convert_changed({name: tensor for name, tensor in weights.items() if name != key})


def test_each_wrong_shape_is_named(fitting):
    weights, convert_changed = fitting
    for key, tensor in weights.items():
        longer = torch.cat([tensor, tensor[:1]])
        with pytest.raises(ValueError) as raised:
            convert_changed(weights | {key: longer})
        # Weft holds the steps' vector as a column
        wanted = tensor.T if key == STEPS else tensor
        for said in (key, str(tuple(longer.shape)), str(tuple(wanted.shape))):
            assert said in str(raised.value), (key, str(raised.value)[-400:])


@pytest.mark.parametrize("key", ["encoder.layers.1.ff_ln.weight", "encoder.type_embedding.weight",
                                 "encoder.layers.0.attention.query.bias", "decoder.layers.0.mlp.experts.3.net.0.weight",
                                 "decoder.layers.0.self_attn.rotary.weight"])  # fmt: skip
def test_an_unexpected_key_is_named(fitting, key):
    weights, convert_changed = fitting
    with pytest.raises(ValueError, match=re.escape(key)):
        convert_changed(weights | {key: torch.zeros(192, 64)})


@pytest.mark.parametrize("key", ["encoder.tok_embedding.weight", "encoder.pos_embedding.weight",
                                 "decoder.pos_embedding.weight", "encoder.layers.0.mlp.fc_1.weight"])  # fmt: skip
@pytest.mark.parametrize("shape", [(), (64,), (1, 53, 64)], ids=str)
def test_a_shape_that_tells_nothing_is_named(key, shape):
    config = two_layers("flash_10M")
    weights = shapes(config) | {key: torch.zeros(shape, device="meta")}
    with pytest.raises(ValueError, match=re.escape(key) + ".*" + re.escape(str(shape))):
        convert(weights, DMS, source_config=saved(config))


@pytest.mark.parametrize("wrapper", ["_orig_mod.", "module.", "module._orig_mod.", "_orig_mod.module."])
def test_what_wrappers_leave_before_keys_goes(wrapper):
    config = two_layers("flex_20M")
    weights = shapes(config)
    around = {wrapper + key: tensor for key, tensor in weights.items()}
    inside = {re.sub(r"^(encoder|decoder)\.", rf"\1.{wrapper}", key): tensor for key, tensor in weights.items()}
    for wrapped in (around, inside):
        assert clean_keys(wrapped) == weights
        assert convert(clean_keys(wrapped), DMS, source_config=saved(config)).found.fits
    with pytest.raises(ValueError, match=r"Two keys become 'decoder\.fc_out\.bias'"):
        clean_keys(weights | {wrapper + "decoder.fc_out.bias": weights["decoder.fc_out.bias"]})
