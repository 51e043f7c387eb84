"""How a Weft model is split over processes: plans in the words of transformers, and the styles that it lacks.

Queries, keys, values, `up` and `gate` are split by their outputs, the projections after them by their inputs, whose partial
results are summed: each process holds whole heads and a part of each feed-forward. Biases after a sum, norms, routers and
position tables stay whole on every process. Plans are for the whole family; a model keeps the rules that name something in
it ([`keep_own_rules`]). The model's classes know nothing of this file until [`install`] puts it there, so that their code
travels without it.
"""

import sys
from collections.abc import Callable
from contextlib import ExitStack, contextmanager
from itertools import chain
from typing import Any

import torch
from torch import nn
from transformers.distributed.tensor_parallel import (
    ALL_PARALLEL_STYLES,
    MoeExpertsParallel,
    TensorParallelLayer,
)
from transformers.integrations.tensor_parallel import replace_layer_number_by_wildcard

from ..configuration.configuration_weft import WeftConfig

_ATTENTION = {
    "q_proj": "colwise",
    "k_proj": "colwise",
    "v_proj": "colwise",
    # one norm for all heads, of which a process sees its own
    "q_norm": "weft_shared",
    "k_norm": "weft_shared",
    "out_proj": "rowwise",
}
_FEED_FORWARD = {"up_proj": "colwise", "gate_proj": "colwise", "down_proj": "rowwise"}
# In the 3-D parameters and 2-D biases of experts "rowwise" means the last dimension, "packed" gate and up side by side.
_EXPERTS = {
    "up_proj": "colwise",
    "up_proj_bias": "rowwise",
    "gate_up_proj": "packed_colwise",
    "gate_up_proj_bias": "packed_rowwise",
    "down_proj": "rowwise",
}

# The head is beside the stacks, which have plans of their own.
HEAD_TP_PLAN = {"lm_head": "colwise_gather_output"}
# Tensor parallelism of one stack.
STACK_TP_PLAN = {
    "embed_tokens": "embedding_rowwise",
    **{f"layers.*.{module}": "weft_relative_bias" for module in ("self_attn", "encoder_attn")},
    **{
        f"layers.*.{module}.{name}": _ATTENTION[name]
        for module in ("self_attn", "encoder_attn")
        for name in _ATTENTION
    },
    **{f"layers.*.mlp.{name}": style for name, style in _FEED_FORWARD.items()},
    **{f"layers.*.mlp.experts.{name}": style for name, style in _EXPERTS.items()},
    "layers.*.mlp.experts": "weft_experts",
}
# Expert parallelism: whole experts, biases and all, a part of them on each process.
STACK_EP_PLAN = {
    **{f"layers.*.mlp.experts.{name}": "grouped_gemm" for name in (*_EXPERTS, "down_proj_bias")},
    "layers.*.mlp.experts": "ep_dispatch_experts",
}
# FSDP2: a layer at a time. Tables and head, which may be one weight, stay together in the outermost group.
STACK_FSDP_PLAN = {"layers.*": "free_full_weight"}


class _Summed(torch.autograd.Function):
    """The tensor itself; its gradient is summed over the processes of a group."""

    @staticmethod
    def forward(ctx, tensor, group):
        ctx.group = group
        return tensor.view_as(tensor)

    @staticmethod
    def backward(ctx, gradient):
        gradient = gradient.contiguous()
        torch.distributed.all_reduce(gradient, group=ctx.group)
        return gradient, None


@contextmanager
def _replaced(module: nn.Module, name: str, change: Callable[[torch.Tensor], torch.Tensor]):
    """A parameter is another tensor within this context."""
    parameter = module._parameters.get(name)
    if parameter is None:
        yield
        return
    module._parameters[name] = change(parameter)  # type: ignore[assignment]
    try:
        yield
    finally:
        module._parameters[name] = parameter


class Shared(TensorParallelLayer):
    """A parameter that all processes hold and each uses for its own heads: gradients are summed.

    transformers' "replicated_with_grad_allreduce" sums what has been accumulated, so that of several accumulated batches the
    first counts twice and more.
    """

    name = "weight"

    def context_around_forward(self, module, mesh):
        return _replaced(module, self.name, lambda parameter: _Summed.apply(parameter, mesh.get_group()))


class RelativeBias(Shared):
    """The relative bias of an attention, if it has one: a column for each head goes with its head, one for all is shared."""

    name = "relative_bias"

    def shard_param(self, module, param, mesh):
        if module._parameters[param].ndim == 2:
            ALL_PARALLEL_STYLES["rowwise"].shard_param(module, param, mesh)

    def context_around_forward(self, module, mesh):
        if module.relative_bias is not None and module.relative_bias.ndim == 2:
            return _replaced(module, self.name, lambda parameter: parameter.to_local())  # type: ignore[attr-defined]
        return super().context_around_forward(module, mesh)


class BiasedExperts(MoeExpertsParallel):
    """Experts split by their width; what each adds after the sum, its last bias, is added by each process in part."""

    def context_around_forward(self, module, mesh):
        def share(bias):  # the value of a share, the gradient of the whole
            return bias + (bias / mesh.size() - bias).detach()

        stack = ExitStack()
        stack.enter_context(super().context_around_forward(module, mesh))
        stack.enter_context(_replaced(module, "down_proj_bias", share))
        return stack


if torch.distributed.is_available():
    from torch.distributed.fsdp import FSDPModule, register_fsdp_forward_method

    ALL_PARALLEL_STYLES.register("weft_experts", BiasedExperts())
    ALL_PARALLEL_STYLES.register("weft_shared", Shared())
    ALL_PARALLEL_STYLES.register("weft_relative_bias", RelativeBias())


def install(model_class: Any, stack_class: Any) -> None:
    """Give the classes of the models and of the stacks their plans.

    Args:
        model_class: `WeftPreTrainedModel`. stack_class: the subclass that encoder and decoder have in common.
    """
    model_class.parallelism = sys.modules[__name__]
    model_class._tp_plan = HEAD_TP_PLAN
    stack_class._tp_plan, stack_class._ep_plan = STACK_TP_PLAN, STACK_EP_PLAN
    stack_class._fsdp_plan = STACK_FSDP_PLAN


def keep_own_rules(model: Any) -> None:
    """Leave out of a model's plans the rules that name nothing in it."""
    named = chain(model.named_modules(), model.named_parameters())
    names = {replace_layer_number_by_wildcard(name) for name, _ in named}
    for kind in ("_tp_plan", "_ep_plan", "_fsdp_plan"):
        setattr(model, kind, {name: style for name, style in getattr(model, kind).items() if name in names})


def prepare_to_split(model: Any, sizes: Any) -> None:
    """Look at whether a model can be split as a `DistributedConfig` says, and make it ready.

    Raises:
        ValueError: see [`check_sizes`].
    """
    check_sizes(model.config, sizes)
    if data_parallel_size(sizes) > 1:
        # Else FSDP2 takes table and head for two weights, which they are until they are loaded, and from then on updates
        # one of them.
        model.tie_weights()


def check_sizes(config: WeftConfig, sizes: Any) -> None:
    """Refuse a `DistributedConfig` whose parts would not be whole heads, equal widths or whole experts.

    Raises:
        ValueError: naming the field, its value and what to do.
    """
    ep_size = getattr(sizes, "ep_size", 1)  # not in transformers 5.17
    if sizes.tp_size > 1:
        for name, value in _split_by_tensor_parallelism(config, ep_size > 1).items():
            if value % sizes.tp_size:
                raise ValueError(
                    f"tp_size={sizes.tp_size} does not divide {name}={value}, and a process would hold a part of a head or a "
                    "different width: choose a `tp_size` that divides it, or split by `fsdp_size`, which takes any model."
                )
        if data_parallel_size(sizes) > 1 and config.tie_word_embeddings:
            raise ValueError(
                f"tie_word_embeddings=True cannot be had with both tp_size={sizes.tp_size} and fsdp_size={sizes.fsdp_size}: "
                "FSDP2 would take the two halves of the tie for two weights. Use one of the two sizes, or a model whose "
                "head is not tied."
            )
    if ep_size <= 1:
        return
    if not config.has_sparse_layers:
        raise ValueError(
            f"ep_size={ep_size} needs experts, and this model has none (no sparse layer in `encoder_mlp_layer_types` "
            "or `decoder_mlp_layer_types`): use `tp_size` or `fsdp_size` alone."
        )
    if config.num_experts % ep_size:
        raise ValueError(f"ep_size={ep_size} does not divide num_experts={config.num_experts}: choose one that does.")
    if sizes.tp_size > 1 and config.activation_dropout > 0:
        # each process draws for the tokens of its own experts, and what all must draw alike would differ from then on
        raise ValueError(
            f"activation_dropout={config.activation_dropout} inside experts cannot be had with both tp_size={sizes.tp_size} "
            f"and ep_size={ep_size}: pass `activation_dropout=0.0` (it changes nothing at inference), or split the "
            "batch instead: `fsdp_size`."
        )


def data_parallel_size(sizes: Any) -> int:
    """Processes with batches of their own, of a `DistributedConfig`; transformers 5.17 knows no replicas."""
    return sizes.fsdp_size * getattr(sizes, "dp_replicate_size", 1)


def is_fully_sharded(model: Any) -> bool:
    """Whether FSDP2 (`fully_shard`) keeps this model's weights in parts."""
    return torch.distributed.is_available() and isinstance(model, FSDPModule)


def gather_for_generate(model: Any) -> None:
    """Let FSDP2 gather tables and head for `generate` too, which calls the encoder by itself; it does for `forward` only."""
    register_fsdp_forward_method(model, "generate")


def _split_by_tensor_parallelism(config: WeftConfig, has_whole_experts: bool) -> dict[str, int]:
    """What tensor parallelism divides by its size, by the field a person would look at."""
    parts = {}
    for stack in ("encoder", "decoder"):
        types = getattr(config, f"{stack}_mlp_layer_types")
        heads, key_value_heads, _ = config.stack_heads(is_decoder=stack == "decoder")
        parts[f"{stack}_attention_heads"] = heads
        if key_value_heads != heads:
            parts["num_key_value_heads"] = key_value_heads
        if "dense" in types or (not has_whole_experts and config.moe_intermediate_size is None):
            parts[f"{stack}_ffn_dim"] = getattr(config, f"{stack}_ffn_dim")
        if "sparse" in types and not has_whole_experts and config.moe_intermediate_size is not None:
            parts["moe_intermediate_size"] = config.moe_intermediate_size
    return parts
