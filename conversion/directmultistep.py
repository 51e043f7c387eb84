"""DirectMultiStep 1.1.3 (Shee, Li, Morgunov and Batista 2024, arXiv:2405.13983; PyPI `directmultistep`).

A checkpoint is a plain `state_dict`, or a Lightning file that contains one under keys that begin with `model.`. All
seven published sizes convert, and the shapes of the weights show the size. Only `dms-flex-20m` and `dms-explorer-19m`
have the same shapes (the explorers have a step embedding that they never read), so the user must name one of the two.

Converted sparse sizes are deterministic and have no capacity limit. The published behaviour, with noise at inference
and dropped tokens, is `router_noise="always", expert_capacity_factor=1.0`. Weft does not have the experts' dropout
after their second linear layer, which acts in training only.

DirectMultiStep multiplies its embeddings by sqrt(hid_dim), rounded down because it is cast to the type of the token
ids. The published sizes have sqrt(256) = 16. For other widths, the conversion multiplies the tables once by the ratio
of the rounded to the exact factor.
"""

import math
from collections.abc import Mapping
from typing import Any

import torch

from ..configuration import WeftConfig
from ..configuration.presets import PRESETS, preset_fields
from ..tokenization import build_route_tokenizer
from .operations import TRANSPOSE, scale, stack_experts
from .shapes import VASWANI, count, first, has
from .source import HEADS, Fields, Source
from .table import Ignored, KeyRule, KeyTable, rename, renames

_ATTENTION = {"query": "q_proj", "key": "k_proj", "value": "v_proj", "projection": "out_proj"}
_FEED_FORWARD = {
    "fc_1": "up_proj",
    "fc_2": "down_proj",
    "router.topkroute_linear": "router.classifier",
    "router.noise_linear": "router.noise",
}
_STACKS = {
    "encoder": ({"attention": "self_attn"}, {"attn_ln": "self_attn_layer_norm", "ff_ln": "final_layer_norm"}),
    "decoder": (
        {"self_attn": "self_attn", "encoder_attn": "encoder_attn"},
        {
            "self_attn_ln": "self_attn_layer_norm",
            "enc_attn_ln": "encoder_attn_layer_norm",
            "ff_ln": "final_layer_norm",
        },
    ),
}


def _common(config: WeftConfig) -> list[KeyRule]:
    rounding = math.isqrt(config.d_model) / math.sqrt(config.d_model)
    there, here = "<stack>.layers.<layer>", "model.<stack>.layers.<layer>"
    rules = [
        rename(
            "<stack>.tok_embedding.weight",
            "model.<stack>.embed_tokens.weight",
            operation=scale(lambda heads: rounding),
        ),
        rename("<stack>.pos_embedding.weight", "model.<stack>.embed_positions.weight"),
        *renames(f"{there}.mlp", f"{here}.mlp", _FEED_FORWARD),
    ]
    for linear, name in (("0", "up_proj"), ("2", "down_proj")):
        expert = f"{there}.mlp.experts.<expert>.net.{linear}"
        rules.append(rename(f"{expert}.weight", f"{here}.mlp.experts.{name}", operation=stack_experts()))
        rules.append(rename(f"{expert}.bias", f"{here}.mlp.experts.{name}_bias", operation=stack_experts()))
    for stack, (attentions, norms) in _STACKS.items():
        there, here = f"{stack}.layers.<layer>", f"model.{stack}.layers.<layer>"
        rules += renames(there, here, norms)
        for theirs, ours in attentions.items():
            rules += renames(f"{there}.{theirs}", f"{here}.{ours}", _ATTENTION)
    return rules


def _zeros(weights: Mapping[str, torch.Tensor]) -> torch.Tensor:
    tokens = weights["encoder.tok_embedding.weight"]
    return tokens.new_zeros(1, tokens.shape[1])


def _table(config: WeftConfig, source_config: Mapping[str, Any]) -> KeyTable:
    steps = "encoder.step_embedding.weight"
    return [
        *_common(config),
        rename("decoder.fc_out.<part>", "lm_head.<part>"),
        rename(steps, "model.encoder.condition_proj.weight", operation=TRANSPOSE),
        Ignored(
            steps,
            "a model trained without steps never reads it",
            back=_zeros if source_config.get("encoder", {}).get("initiate_steps", True) else None,
        ),
    ]


def _shape_fields(weights: Mapping[str, torch.Tensor]) -> Fields:
    vocab_size, d_model = first(weights, "encoder.tok_embedding.weight").shape
    fields: Fields = {
        "vocab_size": vocab_size,
        "d_model": d_model,
        "max_source_positions": first(weights, "encoder.pos_embedding.weight").shape[0],
        "max_target_positions": first(weights, "decoder.pos_embedding.weight").shape[0],
        "attention_bias": has(weights, "encoder.layers.<layer>.attention.query.bias"),
    }
    for stack in ("encoder", "decoder"):
        layer = f"{stack}.layers.<layer>.mlp"
        fields[f"{stack}_layers"] = count(weights, f"{stack}.layers.<layer>.ff_ln.weight")
        first_linear = first(weights, f"{layer}.fc_1.weight", f"{layer}.experts.<expert>.net.0.weight")
        fields[f"{stack}_ffn_dim"] = first_linear.shape[0]
        experts = count(weights, f"{stack}.layers.0.mlp.experts.<expert>.net.0.weight", "expert")
        fields[f"{stack}_mlp_layer_types"] = "sparse" if experts else "dense"
        if experts:
            fields["num_experts"] = experts
    return fields


def _own_fields(source_config: Mapping[str, Any]) -> Fields:
    """Return the fields in DirectMultiStep's own configuration, a YAML file with `encoder` and `decoder`."""
    fields: Fields = {}
    for name in ("ff_activation", "top_k"):
        stacks = (source_config["encoder"], source_config["decoder"])
        values = {stack[name] for stack in stacks if name in stack}
        if len(values) > 1:
            raise ValueError(
                f"The stacks differ in {name} ({' and '.join(sorted(map(str, values)))}), but Weft has one value."
            )
    for stack in ("encoder", "decoder"):
        stack_config = source_config[stack]
        fields[f"{stack}_attention_heads"] = stack_config["n_heads"]
        fields |= dict.fromkeys(("dropout", "attention_dropout"), stack_config["dropout"])
        # the dropout between the two linear layers, which experts do not have
        fields["activation_dropout"] = 0.0 if "n_experts" in stack_config else stack_config["dropout"]
        fields |= {"activation_function": stack_config["ff_activation"], "pad_token_id": stack_config["pad_idx"]}
        fields |= {"bos_token_id": stack_config["start_idx"], "decoder_start_token_id": stack_config["start_idx"]}
        if "top_k" in stack_config:
            fields["num_experts_per_tok"] = stack_config["top_k"]
            fields["norm_topk_prob"] = True  # also for a single expert, whose router the labels do not train
    return fields | {"num_condition_features": int(source_config["encoder"]["include_steps"])}


def _fields(weights: Mapping[str, torch.Tensor], source_config: Mapping[str, Any]) -> Fields:
    shapes = _shape_fields(weights)
    recipe = preset_fields("dms-flex-20m" if "num_experts" in shapes else "dms-flash-10m")
    if "encoder" in source_config:
        return recipe | shapes | _own_fields(source_config)
    presets = [
        name
        for name in PRESETS
        if name.startswith("dms-") and shapes.items() <= WeftConfig.from_preset(name).to_dict().items()
    ]
    if len(presets) > 1:
        raise ValueError(
            f"These shapes are those of {' and '.join(presets)}, for other inputs: choose one by `--preset`."
        )
    if presets:
        return preset_fields(presets[0])
    return {name: value for name, value in recipe.items() if name not in HEADS} | shapes


SOURCE = Source(
    name="dms",
    title="DirectMultiStep",
    signature=(
        "encoder.tok_embedding.weight",
        "decoder.fc_out.weight",
        "decoder.layers.<layer>.encoder_attn.query.weight",
    ),
    fields=_fields,
    computes=lambda source_config: [
        VASWANI | {"position_embedding_type": "learned", "activation_function": name} for name in ("relu", "gelu")
    ],
    table=_table,
    # the length limit of DirectMultiStep's own searches
    generation=lambda source_config: {"max_length": 1074},
    tokenizer=lambda source_config: build_route_tokenizer(),
)
