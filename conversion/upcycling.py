"""Sparse upcycling: makes a sparse model from a dense one, with copies of its feed-forwards as experts."""

import copy
from typing import Any

import torch
from torch import nn

from ..configuration.fields import TRAINING_FIELDS
from ..modeling import WeftPreTrainedModel
from ..modeling.checks import check_merged

_LAYER_TYPES = {"encoder_mlp_layer_types", "decoder_mlp_layer_types"}


def upcycle(
    model: WeftPreTrainedModel,
    num_experts: int = 8,
    num_experts_per_tok: int = 2,
    *,
    every: int | None = None,
    seed: int = 0,
    **fields,
) -> WeftPreTrainedModel:
    """Make a sparse model from a dense one, in which all experts of a layer are copies of the dense feed-forward
    (Komatsuzaki et al. 2022, arXiv:2212.05055).

    The weights of a token's experts sum to one, and no token is dropped. So before its first training step, the sparse
    model gives the same outputs as the dense model, with any router weights. With a single expert for each token, the
    weight is the expert's probability, or the router could not learn. The routers then begin with probabilities near
    `1 / num_experts`, and the experts with outputs `num_experts` times as large, so that the outputs are nearly the
    same.

    Args:
        model: a model with dense layers only. It is not changed.
        num_experts: the number of experts in each sparse layer.
        num_experts_per_tok: the number of experts that each token is sent to.
        every: every Nth layer of both stacks becomes sparse. Defaults to 2, or 1 in a stack of one layer.
        seed: the seed of the routers' initial weights.
        **fields: fields of [`WeftConfig`] that affect training or the router, such as `router_aux_loss_coef`; or
            `encoder_mlp_layer_types` and `decoder_mlp_layer_types`, in place of `every`.

    Returns:
        The sparse model, of the class of `model`.

    Raises:
        ValueError: the model is of another family, it has an adapter or a sparse layer already, no layer would be
            sparse, or the fields would change the outputs.
    """
    check_merged(model)
    # by its fields, because code that travels with weights has the family's classes in a module of its own
    if not hasattr(getattr(model, "config", None), "has_sparse_layers"):
        raise ValueError(f"The model is a {type(model).__name__}, not a Weft model.")
    if model.config.has_sparse_layers:
        raise ValueError("This model has sparse layers already: upcycling starts from a dense one.")
    base = (
        model.config.to_dict()
        | _layer_types(model.config, every)
        | {
            "num_experts": num_experts,
            "num_experts_per_tok": num_experts_per_tok,
            "norm_topk_prob": num_experts_per_tok > 1,
            "expert_capacity_factor": None,
            "moe_intermediate_size": None,
        }
    )
    config = type(model.config)(**(base | fields))
    changes_of_fields = [name for name in fields if fields[name] != base.get(name) and not name.startswith("router_")]
    if others := [name for name in changes_of_fields if name not in TRAINING_FIELDS | _LAYER_TYPES]:
        raise ValueError(f"{', '.join(others)} would make the sparse model differ from the dense one from the start.")
    if not config.has_sparse_layers:
        raise ValueError("No layer would be sparse: name at least one in the layer types (--every N).")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        sparse = (
            type(model)
            ._from_config(config, dtype=model.dtype, attn_implementation=model.config._attn_implementation)
            .to(model.device)
        )
    sparse.load_state_dict(model.state_dict(), strict=False)
    for name, block in sparse.named_modules():
        if hasattr(block, "experts") and hasattr(block, "router"):
            dense = model.get_submodule(name)
            if not all(hasattr(dense, projection) for projection in ("up_proj", "gate_proj", "down_proj")):
                raise ValueError(f"{name} is a {type(dense).__name__}, which cannot be copied into experts.")
            _copy(dense, block)
    if model.can_generate():
        sparse.generation_config = copy.deepcopy(model.generation_config)
    return sparse.train(model.training)


@torch.no_grad()
def _copy(dense: Any, block: Any) -> None:
    """Make every expert a copy of the dense feed-forward."""
    up: list[nn.Linear] = [dense.up_proj] if dense.gate_proj is None else [dense.gate_proj, dense.up_proj]
    first = "up_proj" if dense.gate_proj is None else "gate_up_proj"
    for name, linears in ((first, up), ("down_proj", [dense.down_proj])):
        getattr(block.experts, name).copy_(torch.cat([linear.weight for linear in linears]))
        if linears[0].bias is not None:
            getattr(block.experts, f"{name}_bias").copy_(torch.cat([linear.bias for linear in linears]))
    if not block.router.renormalise:  # the weight of a single expert is its probability
        block.router.classifier.weight.mul_(0.01)
        for name, parameter in block.experts.named_parameters(recurse=False):
            if name.startswith("down_proj"):
                parameter.mul_(block.router.num_experts)


def _layer_types(config: Any, every: int | None) -> dict[str, list[str]]:
    """Return the layer types of a model in which every Nth layer of both stacks is sparse."""
    if every is not None and every < 1:
        raise ValueError(f"every={every} is not allowed: give at least 1.")
    types = dict[str, list[str]]()
    for stack in ("encoder", "decoder"):
        numbers = range(1, getattr(config, f"{stack}_layers") + 1)
        step = every or min(2, len(numbers))
        types[f"{stack}_mlp_layer_types"] = ["dense" if number % step else "sparse" for number in numbers]
    return types
