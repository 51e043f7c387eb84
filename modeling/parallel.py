"""Splits a Weft model over processes by the plans of its classes: checks, and the styles that transformers lacks.

The plans split the query, key, value, `up` and `gate` projections by their outputs. The projections after them are
split by their inputs, and their partial results are summed. Each process therefore has whole heads and a part of each
feed-forward. Biases after a sum, norms, routers and position tables are whole on every process.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain
from typing import Any

import torch
import transformers
from torch import nn
from transformers.distributed import DistributedConfig
from transformers.distributed.tensor_parallel import ALL_PARALLEL_STYLES, MoeExpertsParallel, TensorParallelLayer
from transformers.integrations.tensor_parallel import replace_layer_number_by_wildcard

from ..configuration.configuration_weft import WeftConfig
from .moe import ExpertsBase


@contextmanager
def _local_parameters(module: nn.Module, share: float = 1.0) -> Iterator[None]:
    """Replace the parameters of a module by their parts on this process.

    Of parameters that are whole on all processes, each process has a `share`, and their gradients are summed.
    transformers' "replicated_with_grad_allreduce" sums the accumulated gradient, and so counts the first of several
    accumulated batches more than once.
    """
    registered: dict[str, Any] = module._parameters
    parameters = {name: value for name, value in registered.items() if isinstance(value, DTensor)}
    for name, parameter in parameters.items():
        if parameter.placements == (Replicate(),):
            # a partial gradient is summed on its way back through `redistribute`
            whole_weight = parameter.redistribute(placements=[Replicate()])
            registered[name] = whole_weight.to_local(grad_placements=[Partial()]) * share
        else:
            registered[name] = parameter.to_local()
    try:
        yield
    finally:
        registered.update(parameters)


def _distribute(module: nn.Module, name: str, mesh: Any, placement: Any) -> None:
    part = distribute_tensor(getattr(module, name), mesh, [placement], src_data_rank=None)
    module._parameters[name] = nn.Parameter(part)


class HeadParameters(TensorParallelLayer):
    """Parameters that each process uses for its own heads. A table with a column per head is split like the heads."""

    def shard_param(self, module, param, mesh):
        _distribute(module, param, mesh, Shard(1) if module._parameters[param].ndim == 2 else Replicate())

    def context_around_forward(self, module, mesh):
        return _local_parameters(module)


class BiasedExperts(MoeExpertsParallel):
    """Experts that are split by their width.

    Each process adds its share of the last bias, which comes after the sum.
    """

    def shard_param(self, module, param, mesh):
        _distribute(module, param, mesh, Replicate())

    def context_around_forward(self, module, mesh):
        return _local_parameters(module, share=1 / mesh.size())


if torch.distributed.is_available():
    from torch.distributed.fsdp import FSDPModule, register_fsdp_forward_method
    from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor

    ALL_PARALLEL_STYLES.register("weft_experts", BiasedExperts())
    ALL_PARALLEL_STYLES.register("weft_heads", HeadParameters())


def keep_own_rules(model: Any) -> None:
    """Remove the rules that match nothing in a model from its plans, which have the rules of the whole family."""
    names_and_parts = chain(model.named_modules(), model.named_parameters())
    names = {replace_layer_number_by_wildcard(name) for name, _ in names_and_parts}
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
            f"Splitting a model needs transformers 5.23, not {transformers.__version__}: pip install -U transformers."
        )


def check_sizes(config: WeftConfig, sizes: Any) -> None:
    """Check that a `DistributedConfig` splits a model into whole heads, equal widths and whole experts.

    Raises:
        ValueError: it does not. The message names the field, its value and what to do.
    """
    check_release()
    tp_size, ep_size, fsdp_size = sizes.tp_size, sizes.ep_size, sizes.fsdp_size
    attention = ("encoder_attention_heads", "decoder_attention_heads", "num_key_value_heads")
    for name in (*attention, "encoder_ffn_dim", "decoder_ffn_dim", "moe_intermediate_size"):
        if (value := getattr(config, name)) is not None and value % tp_size:
            raise ValueError(
                f"tp_size={tp_size} does not divide {name}={value}: choose one that does, or use `fsdp_size`."
            )
    fields = [name for name in ("tie_word_embeddings", "share_encoder_decoder_embeddings") if getattr(config, name)]
    if tp_size > 1 and data_parallel_size(sizes) > 1 and fields:
        raise ValueError(
            f"{fields[0]}=True does not work with tp_size={tp_size} and fsdp_size={fsdp_size}: use one of the sizes."
        )
    if ep_size > 1 and config.has_sparse_layers and config.num_experts % ep_size:
        raise ValueError(f"ep_size={ep_size} does not divide num_experts={config.num_experts}: choose one that does.")
    if tp_size > 1 and ep_size > 1 and config.activation_dropout > 0:
        # each process would draw random numbers for the tokens of its own experts, and later draws, which must be the
        # same on all processes, would differ
        raise ValueError(
            f"activation_dropout={config.activation_dropout} in experts does not work with tp_size and ep_size: "
            "pass 0.0, or use `fsdp_size`."
        )


def data_parallel_size(sizes: Any) -> int:
    """Return the number of parts of a batch that a `DistributedConfig` trains at once."""
    return sizes.fsdp_size * sizes.dp_replicate_size


def is_fully_sharded(model: Any) -> bool:
    """Return whether FSDP2 (`fully_shard`) has sharded this model's weights."""
    return torch.distributed.is_available() and isinstance(model, FSDPModule)


def gather_for_generate(model: Any) -> None:
    """Let FSDP2 gather the embedding tables and the head for `generate` too.

    By default it gathers them for the model's `forward` only, but `generate` calls the encoder on its own.
    """
    register_fsdp_forward_method(model, "generate")
