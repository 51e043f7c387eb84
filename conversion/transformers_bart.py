"""transformers' own BART family: BART, mBART, Pegasus, Marian, M2M100 and dense NLLB, and NLLB-MoE.

All of them are read from a folder with a `config.json`. Their keys differ little, so they share one table. The Weft
model differs from the originals in these points:

- BART and mBART never read the first two rows of their position tables. Weft does not have these rows.
- `final_logits_bias` becomes the bias of the head.
- Pegasus and Marian have a frozen table of sines and cosines. Weft computes these, or reads a table that was trained.
- In Weft the embedding of the pad token is trained through the inputs. In the originals it is not.
- M2M100 and NLLB count positions of non-pad tokens only. Weft counts pads too, which matters only if pads are before
  or between the tokens of a source.
- NLLB-MoE: transformers 5.23 reads the mask of its router as numbers of experts, so every token goes to experts 0 and
  1. Weft computes the published model: each token goes to its two best experts, without a capacity limit, as in the
  model's own setting for inference. The factor `1 - moe_token_dropout` on the output of the experts is multiplied into
  their last layer. Weft does not have this dropout itself, which acts in training.
"""

from collections.abc import Mapping
from typing import Any

import torch

from ..configuration import WeftConfig
from ..configuration.fields import LAYERS
from .operations import DROP_FIRST_AXIS, skip_rows, stack_experts
from .source import NO_ATTENTION_POSITIONS, Fields, Source, base_model_part
from .table import Ignored, KeyRule, KeyTable, rename, renames

_PRE_NORM = {"norm_first": True, "final_norm": True}
_POST_NORM = {"norm_first": False, "final_norm": False}
_LEARNED = {"position_embedding_type": "learned", "normalize_embedding": True}
_SINES = {"position_embedding_type": "sinusoidal", "sinusoidal_layout": "concatenated"}
_FAIRSEQ = {"position_embedding_type": "sinusoidal", "sinusoidal_layout": "fairseq"}
# The fields of all of them that follow from their code.
_ALL = NO_ATTENTION_POSITIONS | {"norm_type": "layernorm", "norm_eps": 1e-5, "is_gated_act": False}
# The fields of each `model_type` that follow from its code, and that its configuration does not have.
_FAMILIES: dict[str, Fields] = {
    "bart": _POST_NORM | _LEARNED,
    "mbart": _PRE_NORM | _LEARNED,
    "marian": _POST_NORM | _SINES,
    "pegasus": _PRE_NORM | _SINES,
    "m2m_100": _PRE_NORM | _FAIRSEQ,
    "nllb-moe": _PRE_NORM | _FAIRSEQ,
}
_TABLES_OF_SINES = ("marian", "pegasus")
_ROUTING: Fields = {"num_experts_per_tok": 2, "norm_topk_prob": True}
SAME_NAME = (
    "d_model", "encoder_layers", "decoder_layers", "encoder_attention_heads", "decoder_attention_heads",
    "encoder_ffn_dim", "decoder_ffn_dim", "activation_function", "dropout", "attention_dropout", "activation_dropout",
    "init_std", "scale_embedding", "vocab_size", "pad_token_id", "bos_token_id", "eos_token_id",
    "decoder_start_token_id", "use_cache",
)  # fmt: skip


def _fields(weights: Mapping[str, torch.Tensor], source_config: Mapping[str, Any]) -> Fields:
    family = source_config["model_type"]
    fields = {name: source_config[name] for name in SAME_NAME if name in source_config}
    # None if the configuration has none: Weft's default would be another token
    bos, start = source_config.get("bos_token_id"), source_config.get("decoder_start_token_id")
    # transformers' `generate` starts with the bos too
    fields |= {"bos_token_id": bos, "decoder_start_token_id": bos if start is None else start}
    is_shared = _shares_embeddings(weights, source_config)
    fields |= _FAMILIES[family] | {
        "decoder_vocab_size": None if is_shared else source_config.get("decoder_vocab_size"),
        "share_encoder_decoder_embeddings": is_shared,
        "lm_head_bias": "final_logits_bias" in weights,  # some files do not have it
        "tie_word_embeddings": source_config.get("tie_word_embeddings", True),
        "max_source_positions": source_config["max_position_embeddings"],
        "max_target_positions": source_config["max_position_embeddings"],
        "starts_with_last_token": family == "mbart",
        **_ALL,
        **dict.fromkeys(("mlp_bias", "attention_bias", "attention_out_bias"), True),
    }
    if fields.get("sinusoidal_layout") == "fairseq" and source_config["pad_token_id"] != 1:
        raise ValueError(
            f"pad_token_id={source_config['pad_token_id']!r} is not supported: only 1 is, from which positions count."
        )
    if family in _TABLES_OF_SINES:
        tables = [weights.get(f"model.{stack}.embed_positions.weight") for stack in ("encoder", "decoder")]
        if not all(table is None or _has_sines(table) for table in tables):
            fields["position_embedding_type"] = "learned"
    if family == "nllb-moe":
        fields |= _sparse_fields(source_config)
    return fields


def _has_sines(table: torch.Tensor) -> bool:
    """Return whether a table has the sines and cosines of Marian and Pegasus, rounded to 32 bits or fewer."""
    rows, width = table.shape
    steps = torch.arange(0, width, 2, dtype=torch.float64)
    angles = torch.arange(rows, dtype=torch.float64)[:, None] / 10000 ** (steps / width)
    rounding = 2 * max(torch.finfo(dtype).eps for dtype in (table.dtype, torch.float32))
    sines = torch.cat((angles.sin(), angles.cos()), dim=1)[:, :width]
    return torch.allclose(table.double().cpu(), sines, rtol=0, atol=rounding)


def _shares_embeddings(weights: Mapping[str, torch.Tensor], source_config: Mapping[str, Any]) -> bool:
    """Return whether the stacks have one embedding table.

    Without tied embeddings, each stack has its own table, but files of older versions of transformers have equal ones.
    """
    shared = weights.get("model.shared.weight")
    if shared is None or source_config.get("tie_word_embeddings", True):
        return source_config.get("share_encoder_decoder_embeddings", True)
    tables = [weights.get(f"model.{stack}.embed_tokens.weight", shared) for stack in ("encoder", "decoder")]
    return all(torch.equal(table, shared) for table in tables)


def _sparse_fields(source_config: Mapping[str, Any]) -> Fields:
    if source_config["second_expert_policy"] != "all":
        raise ValueError(
            f'second_expert_policy={source_config["second_expert_policy"]!r} is random: only "all" is supported.'
        )
    if source_config["moe_eval_capacity_token_fraction"] < 1.0:
        raise ValueError(
            f"moe_eval_capacity_token_fraction={source_config['moe_eval_capacity_token_fraction']!r} drops tokens: "
            "only 1.0 is supported."
        )
    fields: Fields = {}
    for stack in ("encoder", "decoder"):
        layers, step = source_config[f"{stack}_layers"], source_config[f"{stack}_sparse_step"]
        LAYERS.check(f"{stack}_layers", layers)
        fields[f"{stack}_mlp_layer_types"] = [
            "sparse" if step > 0 and layer % step == 0 else "dense" for layer in range(1, layers + 1)
        ]
    return (
        fields
        | _ROUTING
        | {
            "num_experts": source_config["num_experts"],
            "router_bias": source_config["router_bias"],
            "router_aux_loss_coef": source_config["router_aux_loss_coef"],
            "router_z_loss_coef": source_config["router_z_loss_coef"],
        }
    )


def _embeddings(config: WeftConfig) -> KeyTable:
    """Return the entries for the embedding tables. A file may have all copies of a shared table, or only one."""
    table = "model.shared.weight" if config.share_encoder_decoder_embeddings else "model.decoder.embed_tokens.weight"
    copies = "repeats the shared table"
    entries: list[KeyRule | Ignored] = []
    if config.share_encoder_decoder_embeddings:
        entries += [
            rename("model.shared.weight", "model.shared.weight"),
            Ignored("model.encoder.embed_tokens.weight", copies, same_as="model.shared.weight"),
            Ignored("model.decoder.embed_tokens.weight", copies, same_as="model.shared.weight"),
        ]
    else:
        entries.append(rename("model.<stack>.embed_tokens.weight", "model.<stack>.embed_tokens.weight"))
        entries.append(Ignored("model.shared.weight", "never read"))
    if config.tie_word_embeddings:
        entries.append(Ignored("lm_head.weight", copies, same_as=table))
    else:
        entries.append(rename("lm_head.weight", "lm_head.weight"))
    return [*entries, rename("final_logits_bias", "lm_head.bias", operation=DROP_FIRST_AXIS)]


def _experts(source_config: Mapping[str, Any]) -> KeyTable:
    share = 1.0 - source_config.get("moe_token_dropout", 0.0)
    layer = "model.<stack>.layers.<layer>"
    there, here = f"{layer}.ffn.experts.expert_<expert>", f"{layer}.mlp.experts"
    operation = stack_experts(share)
    return [
        rename(f"{layer}.ffn.router.classifier.<part>", f"{layer}.mlp.router.classifier.<part>"),
        rename(f"{there}.fc1.weight", f"{here}.up_proj", operation=stack_experts()),
        rename(f"{there}.fc1.bias", f"{here}.up_proj_bias", operation=stack_experts()),
        rename(f"{there}.fc2.weight", f"{here}.down_proj", operation=operation),
        rename(f"{there}.fc2.bias", f"{here}.down_proj_bias", operation=operation),
    ]


def _table(config: WeftConfig, source_config: Mapping[str, Any]) -> KeyTable:
    layer = "model.<stack>.layers.<layer>"
    family = source_config.get("model_type")
    is_sparse_family = family == "nllb-moe"
    feed_forward, norm, cross = ("ffn.", "ff_layer_norm", "cross_attention") if is_sparse_family else (
        "", "final_layer_norm", "encoder_attn")  # fmt: skip
    positions = "model.<stack>.embed_positions.weight"
    rules = [
        *_embeddings(config),
        rename(positions, positions, operation=skip_rows(0 if family in _TABLES_OF_SINES else 2)),
        Ignored(positions, "sines and cosines, computed"),
        Ignored("model.<stack>.embed_positions.weights", "sines and cosines, computed"),
        *renames("model.<stack>", "model.<stack>", {name: name for name in ("layernorm_embedding", "layer_norm")}),
        *renames(layer, f"{layer}.mlp", {f"{feed_forward}fc1": "up_proj", f"{feed_forward}fc2": "down_proj"}),
        *renames(layer, layer, {norm: "final_layer_norm"}),
    ]
    for theirs, ours in (("self_attn", "self_attn"), (cross, "encoder_attn")):
        linears = {name: name for name in ("q_proj", "k_proj", "v_proj", "out_proj")}
        rules += [
            *renames(f"{layer}.{theirs}", f"{layer}.{ours}", linears),
            *renames(layer, layer, {f"{theirs}_layer_norm": f"{ours}_layer_norm"}),
        ]
    return [*rules, *_experts(source_config)] if is_sparse_family else rules


def _computes(source_config: Mapping[str, Any]) -> list[Fields]:
    family = source_config.get("model_type")
    if family == "nllb-moe":
        return [_ALL | _FAMILIES[family] | _ROUTING | {"router_type": "linear", "expert_capacity_factor": None}]
    return [_ALL | fields for name, fields in _FAMILIES.items() if family in (None, name)]


def _generation(source_config: Mapping[str, Any]) -> Fields:
    names = ("forced_bos_token_id", "forced_eos_token_id")
    return {name: source_config[name] for name in names if source_config.get(name) is not None}


SOURCE = Source(
    name="bart",
    title="transformers' BART family (BART, mBART, Pegasus, Marian, M2M100, NLLB, NLLB-MoE)",
    signature=(
        "model.<stack>.layers.<layer>.self_attn.q_proj.weight",
        "model.<stack>.layers.<layer>.self_attn_layer_norm.weight",
    ),
    fields=_fields,
    table=_table,
    model_types=tuple(_FAMILIES),
    part=base_model_part,
    generation=_generation,
    computes=_computes,
    training=(
        "Training differs: the bias of the head (final_logits_bias) and the embedding of the pad token are trained."
    ),
)
