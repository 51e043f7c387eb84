"""Every field of the configuration has an effect.

Each row of the table is one field: the other fields that it needs to have an effect, its changed value, and the check
of this effect. Only this one field differs between the two models of a check.
"""

import copy
import dataclasses
import inspect
import typing

import pytest
import torch
from transformers import Seq2SeqTrainingArguments

from weftformer import WeftConfig, WeftForConditionalGeneration
from weftformer.configuration.fields import TRAINING_FIELDS
from weftformer.training import WeftTrainer

from ..models import IDS, LABELS, SPARSE


def call(model, **given):
    features = model.config.num_condition_features
    if features:
        given["condition_values"] = torch.arange(2.0 * features).view(2, features)
    torch.manual_seed(0)
    return model(input_ids=IDS, labels=LABELS, **given)


def shapes_of(model):
    return {name: tuple(parameter.shape) for name, parameter in model.named_parameters()}


def shapes(base, changed):
    """Check that parameters or their shapes differ, and that both models run."""
    assert shapes_of(base) != shapes_of(changed)
    for model in (base, changed):
        assert call(model).loss.isfinite()


def logits(base, changed):
    """Check that the same parameters give other logits."""
    assert shapes_of(base) == shapes_of(changed)
    assert (call(base).logits - call(changed).logits).abs().max() > 1e-3


def training(base, changed):
    """Check that logits are the same in evaluation, and others in training."""
    assert torch.equal(call(base).logits, call(changed).logits)
    assert (call(base.train()).logits - call(changed.train()).logits).abs().max() > 1e-2


def loss(base, changed):
    """Check that logits are the same, and that the loss differs in training."""
    first, second = call(base.train()), call(changed.train())
    assert torch.equal(first.logits, second.logits)
    assert abs(first.loss - second.loss) > 1e-4
    assert call(base.eval()).loss == call(changed.eval()).loss


def bias_update(base, changed):
    """Check that the routing bias changes by another step."""
    moved = []
    for model in (base, changed):
        call(model.train())
        for router in model.routers():
            router.update_selection_bias()
        moved.append(model.routers()[0].selection_bias.abs().max().item())
    assert moved == pytest.approx([0.1, 0.2])


def router_outputs(base, changed):
    assert call(base).decoder_router_logits is None and call(base).encoder_router_logits is None
    assert len(call(changed).encoder_router_logits) == len(call(changed).decoder_router_logits) == 2


def initial_spread(base, changed):
    for name, parameter in WeftForConditionalGeneration(changed.config).named_parameters():
        if parameter.ndim > 1:
            assert parameter.std().item() == pytest.approx(0.7, rel=0.2), name
    for name, parameter in WeftForConditionalGeneration(base.config).named_parameters():
        if parameter.ndim > 1:
            assert parameter.std() < 0.5, name


def refused(base, changed_fields):
    with pytest.raises(ValueError, match="every Weft model is an encoder-decoder"):
        WeftConfig(**changed_fields)


def cache_returned(base, changed):
    def cache(model):
        return model(input_ids=IDS, decoder_input_ids=LABELS.clamp(min=0)).cache

    assert cache(base) is not None and cache(changed) is None


def first_token(base, changed):
    """Check the token from which the decoder starts in generation."""
    for model, start in ((base, 1), (changed, 5)):
        settings = {"max_new_tokens": 2, "do_sample": False}
        assert model.generate(IDS, **settings)[:, 0].tolist() == [start] * 2


def shifted_labels(base, changed):
    first_token(base, changed)
    for model, start in ((base, 1), (changed, 5)):
        assert model.prepare_decoder_input_ids_from_labels(LABELS)[:, 0].tolist() == [start] * 2
    assert (call(base).logits - call(changed).logits).abs().max() > 1e-3


def last_token_first(base, changed):
    for model, start in ((base, [1, 1]), (changed, [7, 11])):
        assert model.prepare_decoder_input_ids_from_labels(LABELS)[:, 0].tolist() == start


def last_token(base, changed):
    """Check that generation ends at the tokens of the field."""
    for model, end in ((base, 2), (changed, [4, 6])):
        ends = end if isinstance(end, list) else [end]
        for token in ends:
            bias = {"sequence_bias": [[[token], 100.0]]}
            assert model.generate(IDS, max_new_tokens=4, do_sample=False, **bias).tolist() == [[1, token]] * 2
        free = {"sequence_bias": [[[9], 100.0]]}
        assert model.generate(IDS, max_new_tokens=4, do_sample=False, **free).shape[1] == 5


def mask_read(base, changed):
    """Check that a missing mask is derived from the pads, in all layers and losses."""
    logits(base, changed)
    found, expected = call(changed), call(base, attention_mask=IDS.ne(0))
    for name in ("logits", "aux_loss", "z_loss"):
        assert torch.equal(found[name], expected[name])


def pads_hidden(base, changed):
    """Check that a missing mask is derived from this id, which replaces labels that do not count."""
    logits(base, changed)
    for model, pad in ((base, 0), (changed, 6)):
        hidden = call(model).logits
        assert torch.equal(hidden, call(model, attention_mask=IDS.ne(pad)).logits)
        labels = torch.tensor([[7, -100, 8]])
        assert model.prepare_decoder_input_ids_from_labels(labels).tolist() == [[1, 7, pad]]


LEARNED = {"position_embedding_type": "learned"}
FREE = {"self_attention_position_type": "none"}

TABLE = {
    "vocab_size": ({}, 31, shapes),
    "decoder_vocab_size": ({"share_encoder_decoder_embeddings": False}, 35, shapes),
    "share_encoder_decoder_embeddings": ({}, False, shapes),
    "tie_word_embeddings": ({}, False, shapes),
    "scale_embedding": ({}, True, logits),
    "normalize_embedding": ({}, True, shapes),
    "lm_head_bias": ({}, True, shapes),
    "d_model": ({}, 24, shapes),
    "encoder_layers": ({}, 3, shapes),
    "decoder_layers": ({}, 1, shapes),
    "encoder_attention_heads": (FREE, 2, logits),
    "decoder_attention_heads": (FREE, 8, logits),
    "num_key_value_heads": ({}, 2, shapes),
    "head_dim": ({}, 6, shapes),
    "encoder_ffn_dim": ({}, 21, shapes),
    "decoder_ffn_dim": ({}, 25, shapes),
    "activation_function": ({}, "relu", logits),
    "is_gated_act": ({}, False, shapes),
    "mlp_bias": ({}, True, shapes),
    "attention_bias": ({}, True, shapes),
    "attention_out_bias": ({}, True, shapes),
    "use_qk_norm": ({}, True, shapes),
    "norm_type": ({"norm_bias": False}, "stdnorm", logits),
    "norm_eps": ({}, 0.5, logits),
    "norm_bias": ({"norm_type": "layernorm"}, False, shapes),
    "norm_first": ({"final_norm": True}, False, logits),
    "final_norm": ({}, False, shapes),
    "position_embedding_type": ({}, "sinusoidal", logits),
    "sinusoidal_layout": ({"position_embedding_type": "sinusoidal"}, "concatenated", logits),
    "max_source_positions": (LEARNED, 20, shapes),
    "max_target_positions": (LEARNED, 20, shapes),
    "self_attention_position_type": ({}, "none", logits),
    "cross_attention_position_type": ({}, "rotary", logits),
    "rope_parameters": ({}, {"rope_type": "default", "rope_theta": 20.0}, logits),
    "relative_attention_num_buckets": ({"self_attention_position_type": "bucketed"}, 20, shapes),
    "relative_attention_max_distance": ({"self_attention_position_type": "relative"}, 2, shapes),
    "dropout": ({}, 0.5, training),
    "attention_dropout": ({}, 0.5, training),
    "activation_dropout": (SPARSE, 0.5, training),  # of experts; `test_layers.py` has that of dense layers
    "encoder_mlp_layer_types": ({}, ["dense", "sparse"], shapes),
    "decoder_mlp_layer_types": ({}, "sparse", shapes),
    "num_experts": (SPARSE, 5, shapes),
    "num_experts_per_tok": (SPARSE, 1, logits),
    "moe_intermediate_size": (SPARSE, 7, shapes),
    "norm_topk_prob": (SPARSE, False, logits),
    "router_type": (SPARSE, "noisy_top_k", shapes),
    "router_bias": (SPARSE, True, shapes),
    "router_noise": (SPARSE | {"router_type": "noisy_top_k"}, "always", logits),
    "expert_capacity_factor": (SPARSE, 0.5, logits),
    "router_bias_update_rate": (SPARSE | {"router_bias_update_rate": 0.1}, 0.2, bias_update),
    "router_aux_loss_coef": (SPARSE, 0.5, loss),
    "router_z_loss_coef": (SPARSE, 0.5, loss),
    "output_router_logits": (SPARSE, True, router_outputs),
    "num_condition_features": ({}, 2, shapes),
    "init_std": ({}, 0.7, initial_spread),
    "is_encoder_decoder": ({}, False, refused),
    "use_cache": ({}, False, cache_returned),
    "pad_token_id": ({"infer_attention_mask": True}, 6, pads_hidden),
    "infer_attention_mask": (SPARSE, True, mask_read),
    "bos_token_id": ({"decoder_start_token_id": None}, 5, first_token),
    "eos_token_id": ({}, [4, 6], last_token),
    "decoder_start_token_id": ({}, 5, shifted_labels),
    "starts_with_last_token": ({}, True, last_token_first),
}


def own_fields():
    """Return the fields that WeftConfig defines, also those of transformers with another default."""
    hints = inspect.get_annotations(WeftConfig)
    known = {field.name for field in dataclasses.fields(WeftConfig)}
    return {name for name, hint in hints.items() if name in known and typing.get_origin(hint) is not typing.ClassVar}


def test_table_has_a_row_for_every_field():
    assert own_fields() == set(TABLE)


@pytest.mark.parametrize("field", TABLE)
def test_changed_field_changes_the_model(build, field):
    overrides, value, check = TABLE[field]
    base = build(**overrides)
    assert getattr(base.config, field) != value
    check(base, {field: value} if check is refused else build(**(overrides | {field: value})))


# fields that each call of a model reads
EDITABLE = {
    "tie_word_embeddings", "dropout", "attention_dropout", "activation_dropout", "router_aux_loss_coef", "router_z_loss_coef",
    "output_router_logits", "init_std", "use_cache", "pad_token_id", "infer_attention_mask", "eos_token_id",
    "decoder_start_token_id",
}  # fmt: skip


def losses(model):
    return [call(model.train(mode)).loss.item() for mode in (False, True)]


# without the head, which may be its user's own, and the field that only `generate` reads
@pytest.mark.parametrize("field", sorted({*TABLE} - {"lm_head_bias", "bos_token_id"}))
def test_edited_field_is_in_effect_or_refused(build, tmp_path, field):
    overrides, value, _ = TABLE[field]
    model = build(**overrides)
    setattr(model.config, field, copy.deepcopy(value))
    if field in EDITABLE:
        model.save_pretrained(tmp_path)
        assert losses(model) == pytest.approx(losses(WeftForConditionalGeneration.from_pretrained(tmp_path)))
        return
    with pytest.raises(ValueError, match=field):
        model.save_pretrained(tmp_path)
    assert not any(tmp_path.iterdir())


def test_kinds_of_layers_are_those_of_the_model(build, tmp_path):
    model = build(encoder_mlp_layer_types=["dense", "sparse"])
    model.config.encoder_mlp_layer_types[0] = "sparse"
    with pytest.raises(ValueError, match=r"encoder_mlp_layer_types=\['sparse', 'sparse'\]"):  # before a training, too
        WeftTrainer(model, Seq2SeqTrainingArguments(tmp_path, report_to="none"))
    model.model.encoder.layers = model.model.encoder.layers[1:]
    with pytest.raises(ValueError, match="encoder_layers=2, but the model has 1"):
        model.save_pretrained(tmp_path)
    model.config.encoder_layers, model.config.encoder_mlp_layer_types = 1, ["sparse"]
    model.save_pretrained(tmp_path)
    # sums may be in another order, because loaded weights have other addresses
    assert losses(model) == pytest.approx(losses(WeftForConditionalGeneration.from_pretrained(tmp_path)), rel=1e-5)


# changes that leave modules out, and the table's own
LEFT_OUT = [
    ("encoder_layers", 1), ("decoder_layers", 1), ("norm_bias", False), ("final_norm", False), ("mlp_bias", False),
    ("attention_bias", False), ("attention_out_bias", False), ("use_qk_norm", False), ("router_bias", False),
    ("router_type", "linear"), ("router_bias_update_rate", None), ("router_bias_update_rate", 0.0), ("lm_head_bias", False),
    ("normalize_embedding", False), ("num_condition_features", 0), ("encoder_mlp_layer_types", "dense"),
    ("position_embedding_type", "none"), ("self_attention_position_type", "none"), ("tie_word_embeddings", True),
    ("share_encoder_decoder_embeddings", True),
]  # fmt: skip
EVERYTHING = SPARSE | LEARNED | {
    "norm_type": "layernorm", "router_bias": True, "router_type": "noisy_top_k", "router_bias_update_rate": 0.1,
    "mlp_bias": True, "attention_bias": True, "attention_out_bias": True, "use_qk_norm": True, "lm_head_bias": True,
    "normalize_embedding": True, "num_condition_features": 2, "self_attention_position_type": "relative",
    "tie_word_embeddings": False, "share_encoder_decoder_embeddings": False,
}  # fmt: skip


@pytest.mark.parametrize(("field", "value"), [*LEFT_OUT, *((name, row[1]) for name, row in TABLE.items())])
def test_no_field_drops_weights_at_loading(build, field, value, tmp_path):
    model = build(**EVERYTHING)
    with torch.no_grad():
        for tensor in model.state_dict().values():
            tensor.normal_()
    model.save_pretrained(tmp_path)
    try:
        other = WeftForConditionalGeneration.from_pretrained(tmp_path, **{field: value})
    except ValueError:
        assert field not in TRAINING_FIELDS or value is None
        return
    weights = other.state_dict()
    for name, tensor in model.state_dict().items():
        assert torch.equal(weights[name], tensor), name
