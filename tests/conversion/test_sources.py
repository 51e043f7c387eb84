"""Peculiarities of single sources. `test_parity.py` compares outputs, gradients, weights and texts."""

import json

import pytest
import torch

from weftformer import WeftConfig
from weftformer.conversion import SOURCES, clean_keys, convert, export, read_source_config
from weftformer.conversion.tutorial import special_tokens

from .references import bart, largest_error, symm, t5, torch_transformer, tutorial
from .references.directmultistep import DENSE, SPARSE, both, build, preset_of, published, saved

in_float64 = pytest.mark.dtype(torch.float64)
pytestmark = pytest.mark.filterwarnings("ignore:path is deprecated")  # directmultistep's way to its own files


@torch.no_grad()
def assert_same(reference, conversion):
    assert largest_error(reference.found(conversion.build()), reference.expected()) <= reference.tolerance


# --- DirectMultiStep

DMS = SOURCES["dms"]
ALIKE = ("flex_20M", "explorer_19M")  # in every shape


@pytest.mark.parametrize("name", (*DENSE, *SPARSE))
def test_published_shapes_tell_the_preset(name):
    config, preset = published(name), preset_of(name)
    with torch.device("meta"):  # shapes alone, to have the published sizes in no time
        weights = build(config, "meta").state_dict()
    fields = WeftConfig.from_preset(preset).to_dict()
    if name in ALIKE:
        with pytest.raises(ValueError, match=r"dms-flex-20m and dms-explorer-19m.*`--preset`"):
            convert(weights, DMS)
    assert convert(weights, DMS, preset=preset if name in ALIKE else None).config.to_dict() == fields
    assert convert(weights, DMS, source_config=saved(config)).config.to_dict() == fields


@pytest.mark.parametrize(("field", "value"), [("ff_activation", "relu"), ("top_k", 1)])
def test_what_weft_has_once_has_to_agree_in_both_stacks(field, value):
    config = both(published("flex_20M"), hid_dim=64, n_layers=2)
    setattr(config.decoder, field, value)
    with pytest.raises(ValueError, match=field):
        convert(build(config).state_dict(), DMS, source_config=saved(config))


# --- symm-learning


@in_float64
@pytest.mark.parametrize("norm", ["layernorm", "rmsnorm"])
def test_the_kind_of_norm_is_seen_by_its_bias(norm):
    weights = symm.build(norm=norm, norm_first=False).state_dict()
    assert convert(weights, SOURCES["symm"], overrides=symm.HEAD_FIELDS).config.norm_type == norm


def test_tables_of_different_lengths_do_not_fit():
    attentions = [symm.attention("relative", distance=distance) for distance in (symm.DISTANCE, symm.DISTANCE + 1)]
    with pytest.raises(ValueError, match=r"encoder_attn\.relative_bias would have shape \(7,\)"):
        symm.reference("relative", "relative", attentions=attentions).converted()


# --- torch.nn.Transformer

TORCH = SOURCES["torch"]


def test_only_the_embeddings_are_new():
    weights = torch_transformer.build("transformer").state_dict()
    conversion = convert(weights, TORCH, overrides=symm.HEAD_FIELDS | {"vocab_size": 11})
    assert conversion.found.new == ["model.shared.weight"]
    first, second, third = (conversion.build(seed).shared.weight for seed in (0, 0, 1))
    assert first.shape == (11, symm.WIDTH) and torch.equal(first, second) and not torch.equal(first, third)


@pytest.mark.parametrize("shared", [False, True])
def test_embeddings_positions_and_head_around_it(shared):
    table, other, positions, head = (torch.randn(rows, symm.WIDTH) for rows in (11, 12, 30, 12))
    names = {"emb.weight": table} if shared else {"src.weight": table, "tgt.weight": other}
    renames = [("^core\\.", ""), ("^emb", "shared"), ("^src", "encoder.embed_tokens"), ("^tgt", "decoder.embed_tokens"),
               ("^pe$", "embed_positions.weight"), ("^out", "lm_head")]  # fmt: skip
    head = head[:11] if shared else head
    weights = {f"core.{key}": tensor for key, tensor in torch_transformer.build("transformer").state_dict().items()}
    weights |= names | {"pe": positions[:, None], "out.weight": head}
    conversion = convert(clean_keys(weights, renames), TORCH, overrides=symm.HEAD_FIELDS)
    config, model = conversion.config, conversion.build()
    assert type(model).__name__ == "WeftForConditionalGeneration" and conversion.found.new == []
    assert (config.vocab_size, config.target_vocab_size) == (11, 11 if shared else 12)
    assert (config.max_source_positions, config.max_target_positions, config.lm_head_bias) == (30, 30, False)
    for stack in (model.model.encoder, model.model.decoder):
        assert torch.equal(stack.embed_positions.weight, positions)
    assert torch.equal(model.lm_head.weight, head) and torch.equal(model.model.encoder.embed_tokens.weight, table)
    assert torch.equal(model.model.decoder.embed_tokens.weight, table if shared else other)


# --- transformers' BART family


@in_float64
@pytest.mark.parametrize("prefix", ["model.", ""], ids=["prefix", "as `BartModel` saves it"])
@torch.no_grad()
def test_a_file_without_the_bias_of_the_head(prefix):
    """transformers reads such files: the bias is zero."""
    reference = bart.reference("bart")
    reference.module.final_logits_bias.zero_()
    weights = {prefix + key: tensor for key, tensor in reference.module.model.state_dict().items()}
    assert_same(reference, reference.converted(weights))


NLLB_MOE = [
    {"router_bias": False},
    {"normalize_router_prob_before_dropping": True, "moe_token_dropout": 0.0},
    {"encoder_sparse_step": 0, "decoder_sparse_step": 3},
    {"num_experts": 5, "router_bias": False, "normalize_router_prob_before_dropping": True},
    {"batch_prioritized_routing": True},
    {"router_ignore_padding_tokens": True},
]


@in_float64
@pytest.mark.parametrize("fields", NLLB_MOE, ids=str)
def test_settings_of_nllb_moe(fields):
    reference = bart.reference("nllb-moe", **fields)
    assert_same(reference, reference.converted())


@pytest.mark.parametrize(
    ("family", "field", "value"),
    [("nllb-moe", "second_expert_policy", "random"), ("nllb-moe", "moe_eval_capacity_token_fraction", 0.25),
     ("nllb-moe", "moe_eval_capacity_token_fraction", -1.0), ("m2m100", "pad_token_id", 0)],
)  # fmt: skip
def test_what_weft_has_no_form_for_is_refused(family, field, value):
    """Experts drawn at random; tokens dropped in evaluation; positions that do not begin at 2, which is the pad's + 1."""
    with pytest.raises(ValueError, match=f"{field}={value!r}"):
        bart.reference(family, **{field: value}).converted()


# --- transformers' T5 family

T5 = SOURCES["t5"]


@in_float64
@pytest.mark.parametrize("filled", [True, False], ids=["defaults filled in", "as it is"])
def test_a_configuration_as_published(tmp_path, filled):
    """T5 1.1 and Flan-T5 say `tie_word_embeddings: false`, which transformers reads as: the output is not scaled."""
    reference = t5.reference("t5 1.1, own head")
    config = {"model_type": "t5"} | t5.SMALL | t5.V1_1
    config |= {"dense_act_fn": "gelu_new", "is_gated_act": True, "layer_norm_epsilon": 1e-6, "dropout_rate": 0.1,
               "pad_token_id": 0, "eos_token_id": 1}  # fmt: skip
    (tmp_path / "config.json").write_text(json.dumps(config), encoding="utf-8")
    source_config = read_source_config(tmp_path) if filled else config
    assert_same(reference, convert(reference.module.state_dict(), T5, source_config=source_config))


@in_float64
@pytest.mark.parametrize("stack", ["encoder", "decoder"])
def test_tensors_that_went_apart_are_refused_on_the_way_there_and_back(stack):
    reference = t5.reference("t5")
    weights, here = reference.module.state_dict(), reference.converted().build()
    copy = f"{stack}.embed_tokens.weight"
    with pytest.raises(ValueError, match=f"{copy} differs from shared.weight"):
        reference.converted(weights | {copy: weights[copy] + 1e-3})
    with torch.no_grad():
        getattr(here.model, stack).layers[1].self_attn.relative_bias.add_(1.0)
    message = f"{stack}.block.0.layer.0.SelfAttention.relative_attention_bias.weight is one tensor for all"
    with pytest.raises(ValueError, match=message):
        export(here, T5, reference.module.config.to_dict())


# --- the tutorial


@in_float64
def test_special_tokens_come_from_the_vocabularies():
    ids = {"pad_token_id": 17, "bos_token_id": 0, "decoder_start_token_id": 0, "eos_token_id": 28}
    assert special_tokens(tutorial.ENGLISH, tutorial.PERSIAN) == ids
    model = tutorial.CASES["added"]().converted().build()
    assert {name: getattr(model.config, name) for name in ids} == ids
    assert model.generation_config.pad_token_id == 27
    for name in ("<SOS>", "<PAD>", "<EOS>"):
        with pytest.raises(ValueError, match=f"target vocabulary has no {name}"):
            special_tokens(tutorial.ENGLISH, {key: i for key, i in tutorial.PERSIAN.items() if key != name})
