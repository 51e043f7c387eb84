"""What a model costs before anybody pays for it: parameters, memory, operations, time, and the memory of decoding.

The model's own code runs on tensors that have shapes and no data, forward and backward. torch's trackers count the memory
(`MemTracker`, and `FSDPMemTracker` with the collectives of FSDP2) and the operations (`FlopCounterMode`).
"""

import copy
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass
from typing import Any

import torch
from accelerate.utils import convert_outputs_to_fp32
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.distributed._tools.fsdp2_mem_tracker import FSDPMemTracker
from torch.distributed._tools.mem_tracker import MemTracker
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode
from torch.testing._internal.distributed.fake_pg import FakeStore
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

from ..common.overrides import parse_overrides
from ..configuration import WeftConfig
from ..hub.facts import count_parameters
from ..modeling import WeftForConditionalGeneration
from ..training.building import read_distributed_config
from .devices import Device, find_device
from .workload import Workload

_BYTES = {"fp32": 4, "bf16": 2}
_LENGTH = 512  # of a source and of a target that are not given, as T5 was trained on
# Part of a device's memory that decoding may take: the default of vLLM's `gpu_memory_utilization`.
_MEMORY_SHARE = 0.9
# What torch's trackers call the parts of memory.
_PARTS = {
    "weights": ("Parameter", "Buffer", "Sharded Param"),
    "gradients": ("Gradient", "Sharded Grad"),
    "activations": ("Activation", "Temp", "Inputs"),
    "communication": ("Unsharded Param", "Unsharded Grad", "All Gather", "Reduce Scatter"),
}


@dataclass(frozen=True)
class Memory:
    """
    Bytes of one process in training, at the peak.

    Args:
        weights (`int`): weights and buffers, in fp32.
        gradients (`int`): gradients, which may not exist yet at the peak.
        optimizer (`int`): Adam's two moments.
        activations (`int`): what the backward pass and the loss need.
        communication (`int`): what is gathered or sent of weights and gradients: buckets of DDP, buffers of FSDP2.
        peak (`int`): their sum. The device's driver, fragments and the buffers of libraries come on top of it.
    """

    weights: int
    gradients: int
    optimizer: int
    activations: int
    communication: int
    peak: int


@dataclass(frozen=True)
class Time:
    """
    Seconds of an optimizer step at the assumed utilisation of the device's peak, and figures that follow from them.

    Args:
        step (`float`): seconds of a step.
        tokens_per_second (`float`): of all processes.
        days, device_hours (`float`, *optional*): of the whole training, if its tokens are given.
    """

    step: float
    tokens_per_second: float
    days: float | None = None
    device_hours: float | None = None


@dataclass(frozen=True)
class Decoding:
    """
    Decoding on one device. A row is a sequence, or one beam of it.

    Args:
        weights (`int`): bytes of all weights.
        cache_per_row (`int`): bytes of keys and values of a row at its longest: of the target, and of the source, which
            `generate` keeps once for each beam.
        rows (`int`): rows that fit beside the weights, into 90 % of the memory.
        sequences (`int`): searches with `num_beams` that fit.
    """

    weights: int
    cache_per_row: int
    rows: int
    sequences: int


@dataclass(frozen=True)
class Estimate:
    """
    What [`estimate`] returns.

    Args:
        device ([`Device`]): the device.
        workload ([`Workload`]): the workload.
        precision (`str`): the precision of the computation.
        processes (`int`): the number of processes.
        rows (`int`): pairs in a batch of one process.
        tokens_per_step (`int`): tokens of an optimizer step, in whole pairs.
        parameters (`int`): parameters, each weight once.
        active_parameters (`int`): those that a token meets: all but the experts that are not its own.
        operations (`float`): floating-point operations of matrix products for a token in training (source and target
            together), two for each multiplication with its sum.
        memory ([`Memory`]), time ([`Time`]), decoding ([`Decoding`]): the figures.
    """

    device: Device
    workload: Workload
    precision: str
    processes: int
    rows: int
    tokens_per_step: int
    parameters: int
    active_parameters: int
    operations: float
    memory: Memory
    time: Time
    decoding: Decoding

    def to_dict(self) -> dict[str, Any]:
        """Return all numbers, as JSON takes them."""
        return asdict(self)


def estimate(config: WeftConfig, workload: Workload | None = None, device: Device | str = "h100") -> Estimate:
    """
    Estimate what a model costs to train and to decode with.

    Args:
        config ([`WeftConfig`]):
            The model.
        workload ([`Workload`], *optional*):
            What is trained and decoded, and how. Defaults to `Workload()`.
        device ([`Device`] or `str`, *optional*, defaults to `"h100"`):
            What it runs on: a `Device`, or what [`find_device`] takes.

    Returns:
        [`Estimate`]

    Raises:
        ValueError: the sizes do not fit each other, lengths are beyond a table of positions, or the device is not known.
            The message names the argument.

    Example:

    ```python
    >>> from weftformer import WeftConfig
    >>> from weftformer.estimation import Workload, estimate

    >>> workload = Workload(tokens_per_batch=8192, source_length=64, target_length=64)
    >>> cost = estimate(WeftConfig.from_preset("modern-tiny"), workload)
    >>> cost.parameters
    4635840
    ```
    """
    workload = workload or Workload()
    device = find_device(device) if isinstance(device, str) else device
    precision = workload.precision or ("fp32" if device.bf16_flops is None else "bf16")
    peak = device.peak(precision)
    lengths = pair_lengths(config, workload)
    processes, shards = split_of(workload)
    pair, accumulated = sum(lengths), workload.gradient_accumulation_steps
    rows = -(-workload.tokens_per_batch // (pair * processes * accumulated))
    try:
        total, active = count_parameters(config)
        operations = count_operations(config, lengths, workload.gradient_checkpointing)
        memory = _memory(config, workload, (rows, *lengths), shards, processes, precision, device.is_cpu)
    except RuntimeError as error:
        if "overflow" not in str(error):
            raise
        sizes = config.to_dict() | {"source_length": lengths[0], "target_length": lengths[1]}
        size, name = max((value, name) for name, value in sizes.items() if type(value) is int)
        raise ValueError(f"{name}={size} is not allowed: a tensor would be larger than torch can count.") from error
    seconds = rows * accumulated * pair * operations / (peak * workload.utilization)
    tokens = rows * pair * processes * accumulated
    return Estimate(
        device=device,
        workload=workload,
        precision=precision,
        processes=processes,
        rows=rows,
        tokens_per_step=tokens,
        parameters=total,
        active_parameters=active,
        operations=operations,
        memory=memory,
        time=_time(workload, seconds, tokens, processes),
        decoding=_decoding(config, workload, lengths, device, precision, total),
    )


def pair_lengths(config: WeftConfig, workload: Workload) -> tuple[int, int]:
    """Return the tokens of a source and of a target.

    Raises:
        ValueError: they are beyond the model's table of positions.
    """
    lengths = []
    for side in ("source", "target"):
        given, rows = getattr(workload, f"{side}_length"), getattr(config, f"max_{side}_positions")
        if config.has_position_table and given is not None and given > rows:
            raise ValueError(
                f"{side}_length={given} is more than the model's position table has rows (max_{side}_positions={rows}): "
                f"give at most {rows}."
            )
        lengths.append(min(_LENGTH, rows) if given is None else given)
    return lengths[0], lengths[1]


def split_of(workload: Workload) -> tuple[int, int | None]:
    """Return the number of processes, and how many of them share the weights by FSDP2 (None for DDP).

    Raises:
        ValueError: there is no such size, no estimate is made of it, or the numbers of processes differ.
    """
    sizes = read_distributed_config(workload.distributed_config)
    if sizes is None:
        return workload.num_processes or 1, None
    for name, value in parse_overrides(workload.distributed_config, "distributed_config").items():
        if name not in ("fsdp_size", "dp_replicate_size") and str(value) != "1":
            raise ValueError(
                f"distributed_config {name}={value}: an estimate is made of fsdp_size and dp_replicate_size alone. Leave it out."
            )
    replicas = sizes.dp_replicate_size
    processes = replicas * sizes.fsdp_size
    if workload.num_processes not in (None, processes):
        raise ValueError(
            f"distributed_config is for {processes} processes (dp_replicate_size={replicas} x fsdp_size={sizes.fsdp_size}), "
            f"and num_processes is {workload.num_processes}: leave it out."
        )
    return processes, sizes.fsdp_size if processes > 1 else None


def count_operations(config: WeftConfig, lengths: tuple[int, int], gradient_checkpointing: bool = False) -> float:
    """Return the operations that a token of a pair takes in training, as torch counts them for one pair."""
    experts = {"experts_implementation": "batched_mm"} if config.has_sparse_layers else {}
    with _without_data():
        model = _build(config, gradient_checkpointing, nullcontext, attn_implementation="eager", **experts)
        with FlopCounterMode(display=False) as counter, _Values():
            _loss(model, (1, *lengths), chunked_loss=False).backward()
    return counter.get_total_flops() / sum(lengths)


def _memory(
    config: WeftConfig, workload: Workload, shape: tuple[int, int, int], shards: int | None, processes: int,
    precision: str, is_cpu: bool,
) -> Memory:  # fmt: skip
    kernels = _Kernels if is_cpu else _KernelsOfGpus
    with _fake_mesh(shards) as mesh, _without_data():
        model = _build(config, workload.gradient_checkpointing, kernels)
        tracker = MemTracker()
        if mesh is None:
            tracker.track_external(model)
        else:
            for layer in [*model.model.encoder.layers, *model.model.decoder.layers]:
                fully_shard(layer, mesh=mesh)
            fully_shard(model, mesh=mesh)
            tracker = FSDPMemTracker(model)
            tracker.track_inputs(())
        with tracker, _Values(config.num_experts), kernels():
            for _ in range(min(workload.gradient_accumulation_steps, 2)):
                chunked_loss = None if workload.chunked_loss else False
                _loss(model, shape, chunked_loss, is_bf16=precision == "bf16").backward()
                tracker.reset_mod_stats()  # which cannot follow a module twice; the peak stays
        found = {part.value: size for part, size in _on_cpu(tracker.get_tracker_snapshot("peak")).items()}
    passes = {name: sum(found.get(part, 0) for part in parts) for name, parts in _PARTS.items()}
    gradients = passes["weights"] - found.get("Buffer", 0)
    # the buckets of DDP hold all gradients once more, and stay
    passes["communication"] += gradients if mesh is None and processes > 1 else 0
    # the optimizer changes weights in place, when no activation is left
    step = passes | {"gradients": gradients, "activations": 0}
    step["communication"] *= mesh is None
    most = max(passes, step, key=lambda parts: sum(parts.values())) | {"optimizer": 2 * gradients}
    return Memory(**most, peak=sum(most.values()))


def _on_cpu(snapshot: dict[torch.device, dict[Any, int]]) -> dict[Any, int]:
    return {part: size for part, size in snapshot[torch.device("cpu")].items() if part != "Total"}


def _time(workload: Workload, seconds: float, tokens: int, processes: int) -> Time:
    per_second = tokens / seconds
    if workload.tokens is None:
        return Time(seconds, per_second)
    hours = workload.tokens / per_second / 3600
    return Time(seconds, per_second, hours / 24, hours * processes)


def _decoding(
    config: WeftConfig, workload: Workload, lengths: tuple[int, int], device: Device, precision: str, parameters: int
) -> Decoding:
    width = _BYTES[precision]
    _, groups, head_dim = config.stack_heads(is_decoder=True)
    cache = sum(lengths) * 2 * config.decoder_layers * groups * head_dim * width
    rows = max(0, int((_MEMORY_SHARE * device.memory - parameters * width) // cache))
    return Decoding(parameters * width, cache, rows, rows // workload.num_beams)


# -- a step without data ---------------------------------------------------------------------------------------------


@contextmanager
def _without_data() -> Iterator[None]:
    """Tensors have shapes and no data."""
    with warnings.catch_warnings(), FakeTensorMode(allow_non_fake_inputs=True):
        warnings.simplefilter("ignore")  # torch's warnings about kernels concern training
        yield


@contextmanager
def _fake_mesh(shards: int | None) -> Iterator[DeviceMesh | None]:
    """Yield a mesh of so many processes, none of which exists."""
    if shards is None:
        yield None
        return
    if torch.distributed.is_initialized():
        raise ValueError(
            "An estimate of FSDP2 simulates its processes: call it where torch.distributed is not initialized."
        )
    torch.distributed.init_process_group("fake", store=FakeStore(), rank=0, world_size=shards)
    try:
        yield init_device_mesh("cpu", (shards,))
    finally:
        torch.distributed.destroy_process_group()


def _without_lengths_in_frequencies(config: WeftConfig) -> WeftConfig:
    """Return a configuration whose rotary frequencies do not depend on the length of a sequence. They take the same memory."""
    rope = config.rope_parameters or {}
    if rope.get("rope_type") not in ("dynamic", "longrope"):
        return config
    kept = {name: rope[name] for name in ("rope_theta", "partial_rotary_factor") if name in rope}
    return WeftConfig.from_dict(config.to_dict() | {"rope_parameters": kept | {"rope_type": "default"}})


def _build(config: WeftConfig, gradient_checkpointing: bool, kernels: Any, **implementations: str) -> Any:
    config = _without_lengths_in_frequencies(copy.deepcopy(config))  # which takes the names of the implementations
    model = WeftForConditionalGeneration._from_config(config, **implementations).train()
    for module in model.modules():
        if hasattr(module, "_has_checked_values"):
            module._has_checked_values = True
    if gradient_checkpointing:
        model.config.use_cache = model.model.decoder.config.use_cache = False
        # a mode of functions is off within a backward pass, which is called through it
        model.gradient_checkpointing_enable({"use_reentrant": False, "context_fn": lambda: (nullcontext(), kernels())})
    return model


def _loss(model: Any, shape: tuple[int, int, int], chunked_loss: bool | None, is_bf16: bool = False) -> torch.Tensor:
    rows, source, target = shape
    inputs = {
        "input_ids": torch.zeros(rows, source, dtype=torch.long),
        "attention_mask": torch.ones(rows, source, dtype=torch.long),
        "labels": torch.zeros(rows, target, dtype=torch.long),
    }
    if model.config.num_condition_features:
        inputs["condition_values"] = torch.ones(rows, model.config.num_condition_features)
    forward = (
        convert_outputs_to_fp32(torch.autocast("cpu", dtype=torch.bfloat16)(model.__call__)) if is_bf16 else model
    )
    return forward(**inputs, num_items_in_batch=torch.ones((), dtype=torch.long), chunked_loss=chunked_loss).loss


class _Values(TorchDispatchMode):
    """Makes results whose shape depends on values: nothing is a pad, and experts have equal loads."""

    def __init__(self, num_experts: int = 1):
        super().__init__()
        self.num_experts = num_experts

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func is torch.ops.aten.nonzero.default:
            (mask,) = args
            rows = mask.numel() if mask.ndim == 1 else -(-mask.numel() // self.num_experts)  # of each expert in turn
            return mask.new_empty((rows, mask.ndim), dtype=torch.long)
        if func is torch.ops.aten.index.Tensor:
            source, indices = args
            if len(indices) == 1 and indices[0].dtype == torch.bool:
                return source.new_empty((indices[0].numel(), *source.shape[indices[0].ndim :]))
        return func(*args, **(kwargs or {}))


class _FusedRMSNorm(torch.autograd.Function):
    """What the fused kernel of GPUs keeps: its input and a number for each row."""

    @staticmethod
    def forward(ctx, states, weight):
        ctx.save_for_backward(states, weight, states.new_empty(states.shape[:-1], dtype=torch.float32))
        return torch.empty_like(states)

    @staticmethod
    def backward(ctx, gradient):
        states, weight, _ = ctx.saved_tensors
        return torch.empty_like(states), torch.empty_like(weight)


class _GroupedMM(torch.autograd.Function):
    """A grouped product, which torch's fake tensors know in bf16 only. It keeps both factors."""

    @staticmethod
    def forward(ctx, rows, weights):
        ctx.save_for_backward(rows, weights)
        return rows.new_empty(len(rows), weights.shape[-1])

    @staticmethod
    def backward(ctx, gradient):
        return tuple(torch.empty_like(factor) for factor in ctx.saved_tensors)


class _Kernels(TorchFunctionMode):
    """Computes grouped products without data."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        if func in (F.grouped_mm, torch._grouped_mm):
            return _GroupedMM.apply(*args[:2])
        return func(*args, **(kwargs or {}))


class _KernelsOfGpus(_Kernels):
    """Keeps for the backward pass what torch keeps on a GPU, where that differs from a CPU.

    torch makes fake tensors of a GPU only where it has one. Dropout of `nn.Dropout` keeps a byte for each number and not a
    float, RMSNorm of one dtype is a fused kernel, and attention with dropout needs no weights.
    """

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = dict(kwargs or {})
        if func is F.dropout:
            return _dropout(*args, **kwargs)
        if func is F.rms_norm:
            states, weight = args[0], args[2] if len(args) > 2 else kwargs.get("weight")
            if weight is not None and weight.dtype == states.dtype:
                return _FusedRMSNorm.apply(states, weight)
        if func is F.scaled_dot_product_attention:
            kwargs["dropout_p"] = 0.0
        return super().__torch_function__(func, types, args, kwargs)


def _dropout(input: torch.Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> torch.Tensor:
    return torch.native_dropout(input, p, True)[0] if training and p > 0 else input
