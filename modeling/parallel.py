"""Splits a Weft model over processes: its parallel plans, and the parallel styles that transformers lacks.

The query, key, value, `up` and `gate` projections are split by their outputs. The projections after them are split by
their inputs, and their partial results are summed. Each process therefore has whole heads and a part of each
feed-forward. Biases after a sum, norms, routers and position tables are whole on every process. A plan has the rules
of the whole family, and a model keeps those that match something in it ([`keep_own_rules`]). The model classes do not
import this file. [`install`] attaches it to them, so that the code that travels with weights needs no copy of it.
"""

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from itertools import chain
from typing import Any

import torch
import transformers
from torch import nn
from transformers.distributed import DistributedConfig
from transformers.distributed.tensor_parallel import (
    ALL_PARALLEL_STYLES,
    MoeExpertsParallel,
    TensorParallelLayer,
)
from transformers.integrations.tensor_parallel import replace_layer_number_by_wildcard

from ..configuration.configuration_weft import WeftConfig
from .moe import ExpertsBase

_ATTENTION = {
    "": "weft_relative_bias",
    ".q_proj": "colwise",
    ".k_proj": "colwise",
    ".v_proj": "colwise",
    # all heads share one norm, and each process applies it to its own heads
    ".q_norm": "weft_shared",
    ".k_norm": "weft_shared",
    ".out_proj": "rowwise",
}
_FEED_FORWARD = {"up_proj": "colwise", "gate_proj": "colwise", "down_proj": "rowwise"}
# In the 3-D parameters and 2-D biases of experts, "rowwise" splits the last dimension. "packed" means that gate and up
# are side by side in one parameter.
_EXPERTS = {
    "up_proj": "colwise",
    "up_proj_bias": "rowwise",
    "gate_up_proj": "packed_colwise",
    "gate_up_proj_bias": "packed_rowwise",
    "down_proj": "rowwise",
}

# The plan of the head and of a table that the stacks share. The two stacks have their own plans.
MODEL_TP_PLAN = {"lm_head": "colwise_gather_output", "shared": "embedding_rowwise"}
# Tensor parallelism of one stack: the encoder or the decoder.
STACK_TP_PLAN = {
    "embed_tokens": "embedding_rowwise",
    **{f"layers.*.self_attn{name}": style for name, style in _ATTENTION.items()},
    **{f"layers.*.encoder_attn{name}": style for name, style in _ATTENTION.items()},
    **{f"layers.*.mlp.{name}": style for name, style in _FEED_FORWARD.items()},
    **{f"layers.*.mlp.experts.{name}": style for name, style in _EXPERTS.items()},
    "layers.*.mlp.experts": "weft_experts",
}
# Expert parallelism: each process has some of the experts, each with all of its weights and biases.
STACK_EP_PLAN = {
    **{f"layers.*.mlp.experts.{name}": "grouped_gemm" for name in (*_EXPERTS, "down_proj_bias")},
    "layers.*.mlp.experts": "ep_dispatch_experts",
}
# FSDP2: each layer is a group. Embedding tables and head, which may be one weight, are together in the outermost
# group.
STACK_FSDP_PLAN = {"layers.*": "free_full_weight"}


class _Summed(torch.autograd.Function):
    """Returns the tensor unchanged, and sums its gradient over the processes of a group."""

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
    """Replace a parameter, if it exists, by `change(parameter)` within this context."""
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
    """A parameter that is whole on all processes, and that each process uses for its own heads.

    Its gradients are summed.

    transformers' "replicated_with_grad_allreduce" sums the accumulated gradient. With several accumulated batches, it
    would count the first batches more than once.
    """

    name = "weight"

    def context_around_forward(self, module, mesh):
        return _replaced(module, self.name, lambda parameter: _Summed.apply(parameter, mesh.get_group()))


class RelativeBias(Shared):
    """The relative bias of an attention, if it has one.

    A bias with a column per head is split like the heads. A bias for all heads is shared.
    """

    name = "relative_bias"

    def shard_param(self, module, param, mesh):
        if module._parameters[param].ndim == 2:
            ALL_PARALLEL_STYLES["rowwise"].shard_param(module, param, mesh)

    def context_around_forward(self, module, mesh):
        if module.relative_bias is not None and module.relative_bias.ndim == 2:
            return _replaced(module, self.name, lambda parameter: parameter.to_local())  # type: ignore[attr-defined]
        return super().context_around_forward(module, mesh)


class BiasedExperts(MoeExpertsParallel):
    """Experts that are split by their width.

    Each process adds its share of the last bias, which comes after the sum.
    """

    def context_around_forward(self, module, mesh):
        def share(bias):  # its value is a share of the bias, its gradient that of the whole bias
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
    """Set the plans on the classes of the models and of the stacks.

    Args:
        model_class: `WeftPreTrainedModel`.
        stack_class: `WeftStack`, the base class of encoder and decoder.
    """
    model_class.parallelism = sys.modules[__name__]
    model_class._tp_plan = MODEL_TP_PLAN
    stack_class._tp_plan, stack_class._ep_plan = STACK_TP_PLAN, STACK_EP_PLAN
    stack_class._fsdp_plan = STACK_FSDP_PLAN


def keep_own_rules(model: Any) -> None:
    """Remove the rules that match nothing in a model from its plans."""
    named = chain(model.named_modules(), model.named_parameters())
    names = {replace_layer_number_by_wildcard(name) for name, _ in named}
    for kind in ("_tp_plan", "_ep_plan", "_fsdp_plan"):
        setattr(model, kind, {name: style for name, style in getattr(model, kind).items() if name in names})


def prepare_to_split(model: Any, sizes: Any) -> None:
    """Check that a model can be split by a `DistributedConfig`, and prepare the model.

    Raises:
        ValueError: see [`check_sizes`].
    """
    check_sizes(model.config, sizes)
    if data_parallel_size(sizes) > 1:
        # Until weights are loaded, embedding table and head are two weights. If FSDP2 saw two, it would update only
        # one of them from then on.
        model.tie_weights()


def average_expert_gradients(model: Any, sizes: Any) -> None:
    """Divide the gradients of experts that FSDP2 does not shard by the number of batches, once.

    If one process of a node has an expert whole, the mesh that would shard it has one process. FSDP2 of torch 2.13
    then divides gradients of 64 and 16 bits twice by the factor that transformers sets.
    """
    if sizes.ep_size <= 1 or sizes.efsdp_size != 1:
        return
    batches = data_parallel_size(sizes)
    for module in model.modules():
        if isinstance(module, ExpertsBase) and is_fully_sharded(module):
            module.set_gradient_divide_factor(1.0)  # type: ignore[operator]
            # after the sum over copies of the model, if there are any, and before gradients are accumulated
            module.set_all_reduce_hook(lambda gradient: gradient.div_(batches))  # type: ignore[operator]


def check_release() -> None:
    """Check that this transformers can split a model over processes with FSDP2 and by experts.

    Raises:
        ValueError: it cannot.
    """
    if not hasattr(DistributedConfig, "dp_replicate_size"):
        raise ValueError(
            f"Splitting a model over processes needs transformers 5.23 or later, and this is {transformers.__version__}: "
            "pip install -U transformers."
        )


def check_sizes(config: WeftConfig, sizes: Any) -> None:
    """Check that a `DistributedConfig` splits a model into whole heads, equal widths and whole experts.

    Raises:
        ValueError: it does not. The message names the field, its value and what to do.
    """
    check_release()
    ep_size = sizes.ep_size
    if sizes.tp_size > 1:
        for name, value in _split_by_tensor_parallelism(config, ep_size > 1).items():
            if value % sizes.tp_size:
                raise ValueError(
                    f"tp_size={sizes.tp_size} does not divide {name}={value}: a process would hold a part of a head or a "
                    "different width. Choose a `tp_size` that divides it, or split by `fsdp_size`, which takes any model."
                )
        fields = [
            name for name in ("tie_word_embeddings", "share_encoder_decoder_embeddings") if getattr(config, name)
        ]
        if data_parallel_size(sizes) > 1 and fields:
            raise ValueError(
                f"{fields[0]}=True does not work with both tp_size={sizes.tp_size} and fsdp_size={sizes.fsdp_size}: FSDP2 would "
                "treat one table as several weights. Use one of the two sizes, or a model with both fields False."
            )
    if ep_size <= 1:
        return
    if not config.has_sparse_layers:
        raise ValueError(
            f"ep_size={ep_size} needs experts, but this model has none (no sparse layer in `encoder_mlp_layer_types` "
            "or `decoder_mlp_layer_types`): use `tp_size` or `fsdp_size` alone."
        )
    if config.num_experts % ep_size:
        raise ValueError(f"ep_size={ep_size} does not divide num_experts={config.num_experts}: choose one that does.")
    if sizes.tp_size > 1 and config.activation_dropout > 0:
        # each process would draw random numbers for the tokens of its own experts, and later draws, which must be the
        # same on all processes, would differ
        raise ValueError(
            f"activation_dropout={config.activation_dropout} inside experts does not work with both tp_size={sizes.tp_size} "
            f"and ep_size={ep_size}: pass `activation_dropout=0.0` (it changes nothing at inference), or split the batch "
            "with `fsdp_size` instead."
        )


def data_parallel_size(sizes: Any) -> int:
    """Return the number of parts of a batch that a `DistributedConfig` trains at once."""
    return sizes.fsdp_size * sizes.dp_replicate_size


def is_fully_sharded(model: Any) -> bool:
    """Return whether FSDP2 (`fully_shard`) has sharded this model's weights."""
    return torch.distributed.is_available() and isinstance(model, FSDPModule)


@contextmanager
def undivided_tables(model: Any) -> Iterator[None]:
    """Hide the embeddings of a model from accelerate while it shards the model.

    It would shard the module of the shared table and the head apart from the modules of the stacks, which have the same
    weight. torch 2.13 refuses that, and earlier releases would train two weights. All of them stay with the model.
    """
    names = ("get_input_embeddings", "get_output_embeddings")
    vars(model).update(dict.fromkeys(names, lambda: None))
    try:
        yield
    finally:
        for name in names:
            del vars(model)[name]


def gather_for_generate(model: Any) -> None:
    """Let FSDP2 gather the embedding tables and the head for `generate` too.

    By default it gathers them for the model's `forward` only, but `generate` calls the encoder on its own.
    """
    register_fsdp_forward_method(model, "generate")


def _split_by_tensor_parallelism(config: WeftConfig, has_whole_experts: bool) -> dict[str, int]:
    """Return the numbers that `tp_size` must divide, by the names of their configuration fields."""
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
