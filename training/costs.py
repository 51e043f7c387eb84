"""What a model costs before anybody pays for it: parameters, memory, operations, time, energy, and the same for decoding.

Memory comes from the model's own code on tensors without data (`tracing.py`). Operations are those of the matrix
products, counted from the shapes. Time is what arithmetic, memory and links allow at best, each by itself.
"""

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode

from ..configuration import WeftConfig
from ..hub import facts
from ..modeling import WeftForConditionalGeneration
from ..modeling.parallel import check_sizes
from .building import read_distributed_config
from .devices import Device, find_device
from .parsing import parse_overrides
from .tracing import ACTIVATIONS, BUFFERS, GRADIENTS, Batch, Group, Settings, Split, build_part, groups_of, trace_step

# Bytes of a number. Weights, gradients and Adam's two moments are in fp32, in training with bf16 too.
_BYTES = {"fp32": 4, "bf16": 2}
_FP32 = 4
_MOMENTS = 2
# Adam reads weight, gradient and two moments, and writes all but the gradient.
_ADAM_TRAFFIC = 7
_DAY = 86_400
_LENGTH = 512  # of a source and of a target that are not given, as T5 was trained on

# The model FLOPs utilisation of Llama 3 405B on 8,192 to 16,384 H100 was 38 to 43 % in bf16 (arXiv:2407.21783, table 4).
UTILIZATION = 0.4
# Power of a data centre over that of its computers, as Google published it for 2021. The mean of large data centres was 1.57
# (Uptime Institute's survey of 2021).
PUE = 1.1
# Part of a device's memory that decoding may take: the default of vLLM's `gpu_memory_utilization`.
MEMORY_SHARE = 0.9


@dataclass(frozen=True)
class Workload:
    """
    What is trained and decoded, and how.

    Args:
        tokens_per_batch (`int`, *optional*, defaults to 65536): tokens of an optimizer step, of all processes, source and
            target together, pads included. It is rounded up to whole pairs on each process.
        source_length (`int`, *optional*): tokens of each source. Defaults to 512, or to the model's `max_source_positions`
            where that is less.
        target_length (`int`, *optional*): tokens of each target, likewise.
        tokens (`float`, *optional*): tokens of the whole training, source and target together.
        precision (`str`, *optional*): `"bf16"` (autocast, with weights in fp32, as `--bf16`) or `"fp32"`. Defaults to bf16
            where the device has it.
        gradient_checkpointing (`bool`, *optional*, defaults to `False`): as the Trainer's.
        gradient_accumulation_steps (`int`, *optional*, defaults to 1): batches of each process in an optimizer step.
        loss_in_pieces (`bool`, *optional*, defaults to `True`): as in `weftformer train`.
        num_processes (`int`, *optional*): processes with a whole copy of the model each (DDP), where there is no
            `distributed_config`. Beside one, it must be their product.
        distributed_config (`str` or `dict`, *optional*): sizes as `weftformer train --distributed-config` takes them.
        num_beams (`int`, *optional*, defaults to 5): beams of a search.
        utilization (`float`, *optional*, defaults to 0.4): share of the peak that arithmetic reaches.
        pue (`float`, *optional*, defaults to 1.1): power of the data centre over that of the devices.

    Raises:
        ValueError: a number is out of range.
    """

    tokens_per_batch: int = 65_536
    source_length: int | None = None
    target_length: int | None = None
    tokens: float | None = None
    precision: str | None = None
    gradient_checkpointing: bool = False
    gradient_accumulation_steps: int = 1
    loss_in_pieces: bool = True
    num_processes: int | None = None
    distributed_config: str | dict[str, Any] | None = None
    num_beams: int = 5
    utilization: float = UTILIZATION
    pue: float = PUE

    def __post_init__(self):
        for name in (
            "tokens_per_batch", "source_length", "target_length", "gradient_accumulation_steps", "num_processes", "num_beams",
        ):  # fmt: skip
            value = getattr(self, name)
            if value is not None and (not isinstance(value, int) or value < 1):
                raise ValueError(f"{name}={value} is not allowed: give a whole number of at least 1.")
        if self.tokens is not None and not 0 < self.tokens < math.inf:
            raise ValueError(f"tokens={self.tokens} is not allowed: give a number above 0.")
        if not 0 < self.utilization <= 1:
            raise ValueError(
                f"utilization={self.utilization} is not allowed: give a share of the peak, above 0 and at most 1."
            )
        if not 1 <= self.pue < math.inf:
            raise ValueError(f"pue={self.pue} is not allowed: give at least 1, which is the devices alone.")
        if self.precision not in (None, *_BYTES):
            raise ValueError(f"precision={self.precision!r} is not allowed: choose one of {', '.join(_BYTES)}.")

    def with_lengths(self, config: WeftConfig) -> "Workload":
        """Return this workload with the lengths of a pair.

        Raises:
            ValueError: they are beyond the model's table of positions.
        """
        lengths = {}
        for side in ("source", "target"):
            given, rows = getattr(self, f"{side}_length"), getattr(config, f"max_{side}_positions")
            if config.has_position_table and given is not None and given > rows:
                raise ValueError(
                    f"{side}_length={given} is more than the model's position table has rows (max_{side}_positions={rows}): "
                    f"give at most {rows}."
                )
            lengths[f"{side}_length"] = min(_LENGTH, rows) if given is None else given
        return replace(self, **lengths)

    @property
    def lengths(self) -> tuple[int, int]:
        """Tokens of a source and of a target."""
        assert self.source_length is not None and self.target_length is not None
        return self.source_length, self.target_length


@dataclass(frozen=True)
class Parameters:
    """
    The parameters of a model, each weight once.

    Args:
        total (`int`): all of them.
        active (`int`): those that a token meets: all but the experts that are not its own.
        parts (`dict[str, int]`): embeddings, head (0 where it is tied), attention, feed_forward (shared experts too),
            experts, routers and norms.
    """

    total: int
    active: int
    parts: dict[str, int]


@dataclass(frozen=True)
class Memory:
    """
    Bytes of one process in training.

    Args:
        weights, gradients, optimizer, activations, communication (`int`): the most of each part. Activations are what the
            backward pass and the loss need; communication is what is gathered or sent of weights and gradients.
        peak (`int`): the most of all parts at a time, which is less than their sum.
        at_peak (`dict[str, int]`): the parts at that time.
        device (`int`): what the device has. Its driver, fragments and the buffers of libraries come on top of the peak.
    """

    weights: int
    gradients: int
    optimizer: int
    activations: int
    communication: int
    peak: int
    at_peak: dict[str, int]
    device: int


@dataclass(frozen=True)
class Operations:
    """
    Floating-point operations of matrix products, two for each multiplication with its sum.

    Args:
        forward (`float`): of a forward pass, for a token of a pair (source and target together).
        training (`float`): of a token in training: three forward passes, four with gradient checkpointing.
        experts (`float`): the part of `training` that routed experts have.
        parts (`dict[str, float]`): `forward` of encoder, decoder and head.
    """

    forward: float
    training: float
    experts: float
    parts: dict[str, float]


@dataclass(frozen=True)
class Time:
    """
    Seconds of an optimizer step by each bound, and what follows.

    Args:
        arithmetic (`float`): seconds of the products, at the assumed utilisation.
        bandwidth (`float`): seconds in which weights, gradients, optimizer and activations pass through memory once each
            time they must.
        communication (`float`, *optional*): seconds of collectives without overlap. None if the links are not known.
        sent (`int`): bytes that a process sends in a step.
        step (`float`): the largest of the three: all overlap.
        bound (`str`): which one it is.
        tokens_per_second (`float`): of all processes.
        days, device_hours, kilowatt_hours (`float`, *optional*): of the whole training, where its tokens are given; energy
            is that of the devices at full power, times the PUE.
    """

    arithmetic: float
    bandwidth: float
    communication: float | None
    sent: int
    step: float
    bound: str
    tokens_per_second: float
    days: float | None = None
    device_hours: float | None = None
    kilowatt_hours: float | None = None


@dataclass(frozen=True)
class Decoding:
    """
    Decoding on one device. A row is a sequence, or one beam of it.

    Args:
        weights (`int`): bytes of all weights.
        bytes_per_token (`int`): bytes that pass through memory for a token of one row: weights that it meets, and the cache
            half-way through the target.
        cache_per_row (`int`): bytes of keys and values of a row at its longest: of the target, and of the source, which
            `generate` keeps once for each beam.
        rows (`int`): rows that fit beside the weights, into 90 % of the memory.
        sequences (`int`): searches with `num_beams` that fit.
        operations_per_token (`float`): of a token, half-way through the target.
        tokens_per_second (`float`): the most of one search, written text: one token of all its beams at a time.
        most_tokens_per_second (`float`): the same of all searches that fit.
        bound (`str`): what binds that: `"bandwidth"` or `"arithmetic"`, the latter at its full peak.
    """

    weights: int
    bytes_per_token: int
    cache_per_row: int
    rows: int
    sequences: int
    operations_per_token: float
    tokens_per_second: float
    most_tokens_per_second: float
    bound: str


@dataclass(frozen=True)
class Estimate:
    """
    What [`estimate`] returns.

    Args:
        device ([`Device`]): the device.
        precision (`str`): what is computed in.
        processes (`int`): how many there are.
        rows (`int`): pairs in a batch of one process.
        tokens_per_step (`int`): tokens of an optimizer step, in whole pairs.
        parameters ([`Parameters`]), memory ([`Memory`]), operations ([`Operations`]), time ([`Time`]), decoding
            ([`Decoding`]): the figures.
        workload ([`Workload`]): what was asked.
    """

    device: Device
    precision: str
    processes: int
    rows: int
    tokens_per_step: int
    parameters: Parameters
    memory: Memory
    operations: Operations
    time: Time
    decoding: Decoding
    workload: Workload = field(repr=False)

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
            What is trained and decoded, and how.
        device ([`Device`] or `str`, *optional*, defaults to `"h100"`):
            What it runs on: a `Device`, or what [`find_device`] takes.

    Returns:
        [`Estimate`]

    Raises:
        ValueError: the sizes do not fit the model or each other, lengths are beyond a table of positions, or the device is
            not known. The message names the argument.

    Example:

    ```python
    >>> from weftformer import WeftConfig
    >>> from weftformer.training import Workload, estimate

    >>> workload = Workload(tokens_per_batch=8192, source_length=64, target_length=64)
    >>> cost = estimate(WeftConfig.from_preset("modern-tiny"), workload)
    >>> cost.parameters.total
    4635840
    ```
    """
    workload = (workload or Workload()).with_lengths(config)
    device = find_device(device) if isinstance(device, str) else device
    precision = workload.precision or ("fp32" if device.bf16_flops is None else "bf16")
    device.peak(precision)
    sizes = split_of(config, workload, device)
    pair = sum(workload.lengths)
    rows = -(-workload.tokens_per_batch // (pair * sizes.batches * workload.gradient_accumulation_steps))
    batch = Batch(rows, *workload.lengths)
    settings = Settings(
        precision=precision,
        gradient_checkpointing=workload.gradient_checkpointing,
        accumulates=workload.gradient_accumulation_steps > 1,
        loss_in_pieces=workload.loss_in_pieces,
        is_cpu=device.is_cpu,
    )
    traced = trace_step(config, batch, sizes, settings)
    with FakeTensorMode():
        part = build_part(config, sizes)
        groups, buffers = groups_of(part, sizes), _bytes(part.buffers())
    memory = _memory(groups, buffers, sizes, traced, device)
    operations = count_operations(config, workload)
    return Estimate(
        device=device,
        precision=precision,
        processes=sizes.processes,
        rows=rows,
        tokens_per_step=rows * pair * sizes.batches * workload.gradient_accumulation_steps,
        parameters=count_parameters(config),
        memory=memory,
        operations=operations,
        time=_Step(config, workload, device, sizes, batch, precision).time(groups, memory, traced.saved, operations),
        decoding=_decoding(config, workload, device, precision),
        workload=workload,
    )


def split_of(config: WeftConfig, workload: Workload, device: Device) -> Split:
    """Return how processes share the model.

    Raises:
        ValueError: as `weftformer train` refuses it: there is no such size, or it does not fit the model.
    """
    sizes = read_distributed_config(workload.distributed_config)
    if sizes is None:
        return Split(ddp=workload.num_processes or 1)
    unknown = [key for key in _keys(workload.distributed_config) if not key.endswith("_size")]
    if unknown:
        raise ValueError(f"distributed_config {unknown[0]}: an estimate knows sizes only, and the family's own plans.")
    replicas, experts = getattr(sizes, "dp_replicate_size", 1), getattr(sizes, "ep_size", 1)
    if device.is_cpu and sizes.tp_size > 1:
        raise ValueError(
            f"distributed_config tp_size={sizes.tp_size}: accelerate, which the Trainer runs on, does tensor parallelism on "
            "GPUs only: use fsdp_size (with ep_size for experts)."
        )
    check_sizes(config, sizes)
    is_sharded = replicas * sizes.fsdp_size > 1
    split = Split(
        replicas=replicas if is_sharded else 1,
        fsdp=sizes.fsdp_size if is_sharded else None,
        tensor=sizes.tp_size,
        experts=experts,
    )
    if workload.num_processes not in (None, split.processes):
        raise ValueError(
            f"distributed_config is for {split.processes} processes (dp_replicate_size={replicas} x fsdp_size="
            f"{sizes.fsdp_size} x tp_size={sizes.tp_size}), and num_processes is {workload.num_processes}: leave it out."
        )
    return split


def _keys(given: str | dict[str, Any] | None) -> Iterable[str]:
    return parse_overrides(given, "distributed_config")


def _bytes(tensors: Iterable[torch.Tensor]) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


# -- parameters ------------------------------------------------------------------------------------------------------

_PARTS = (
    (".mlp.experts.", "experts"),
    (".mlp.router.", "routers"),
    (".mlp.", "feed_forward"),
    ("_attn.", "attention"),
    ("lm_head.", "head"),
    ("embed", "embeddings"),
    ("shared.", "embeddings"),
    ("condition_proj.", "embeddings"),
)


def _part_of(name: str) -> str:
    if "layernorm_embedding" in name:
        return "norms"
    return next((part for text, part in _PARTS if text in name), "norms")


def count_parameters(config: WeftConfig) -> Parameters:
    """Return the parameters of the real modules, which are built without data."""
    with FakeTensorMode():
        model = WeftForConditionalGeneration(config)
        model.tie_weights()
    parts = Counter(dict.fromkeys(dict.fromkeys([part for _, part in _PARTS] + ["norms"]), 0))
    for name, weight in model.named_parameters():
        parts[_part_of(name)] += weight.numel()
    return Parameters(*facts.count_parameters(config), dict(parts))


# -- operations ------------------------------------------------------------------------------------------------------


def _attention(config: WeftConfig, is_decoder: bool, queries: int, keys: int, projected_keys: int) -> int:
    """Return the operations of an attention: its projections, scores and weighted sums, hidden scores included."""
    heads, groups, width = config.stack_heads(is_decoder)
    model = config.d_model
    projections = 2 * queries * model * heads * width * 2 + 2 * projected_keys * model * groups * width * 2
    return projections + 2 * queries * keys * heads * width * 2


def _feed_forward(config: WeftConfig, is_decoder: bool, layer: int) -> tuple[int, int]:
    """Return the operations for a token: of what every token meets, and of its experts."""
    ffn = config.decoder_ffn_dim if is_decoder else config.encoder_ffn_dim
    types = config.decoder_mlp_layer_types if is_decoder else config.encoder_mlp_layer_types
    assert types is not None
    matrices = 3 if config.is_gated_act else 2
    if types[layer] == "dense":
        return 2 * config.d_model * ffn * matrices, 0
    width = config.moe_intermediate_size or ffn
    router = 2 * config.d_model * config.num_experts * (2 if config.router_type == "noisy_top_k" else 1)
    expert = 2 * config.d_model * width * matrices
    return router, config.num_experts_per_tok * expert


def count_operations(config: WeftConfig, workload: Workload) -> Operations:
    """Return the operations of a token, of a pair's mean. Attention is counted whole, the hidden half of a causal one too."""
    source, target = workload.lengths
    encoder = decoder = experts = 0
    for layer in range(config.encoder_layers):
        common, own = _feed_forward(config, False, layer)
        encoder += _attention(config, False, source, source, source) + source * (common + own)
        experts += source * own
    for layer in range(config.decoder_layers):
        common, own = _feed_forward(config, True, layer)
        decoder += _attention(config, True, target, target, target) + _attention(config, True, target, source, source)
        decoder += target * (common + own)
        experts += target * own
    encoder += 2 * config.num_condition_features * config.d_model
    head = 2 * target * config.d_model * config.target_vocab_size
    forward = encoder + decoder + head
    again = encoder + decoder if workload.gradient_checkpointing else 0
    passes = 4 if workload.gradient_checkpointing else 3
    pair = source + target
    parts = {"encoder": encoder / pair, "decoder": decoder / pair, "head": head / pair}
    return Operations(forward / pair, (3 * forward + again) / pair, passes * experts / pair, parts)


# -- memory ----------------------------------------------------------------------------------------------------------


def _memory(groups: list[Group], buffers: int, sizes: Split, traced, device: Device) -> Memory:
    weights = (
        sum(group.local for group in groups) if sizes.fsdp else _bytes(w for group in groups for w in group.weights)
    )
    optimizer, gradients = _MOMENTS * weights, weights
    held = {"weights": weights + buffers, "optimizer": optimizer}
    parts = (GRADIENTS, ACTIVATIONS, BUFFERS)
    passes = held | {part: traced.at_peak.get(part, 0) for part in parts}
    # the optimizer changes weights in place, when no activation is left
    kept = traced.most.get(BUFFERS, 0) if sizes.ddp > 1 else 0
    step = held | {GRADIENTS: gradients, ACTIVATIONS: 0, BUFFERS: kept}
    at_peak = max(passes, step, key=lambda times: sum(times.values()))
    return Memory(
        weights=weights + buffers,
        gradients=gradients,
        optimizer=optimizer,
        activations=traced.most.get(ACTIVATIONS, 0),
        communication=traced.most.get(BUFFERS, 0),
        peak=sum(at_peak.values()),
        at_peak=at_peak,
        device=int(device.memory),
    )


# -- time ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Step:
    """The time of an optimizer step."""

    config: WeftConfig
    workload: Workload
    device: Device
    sizes: Split
    batch: Batch
    precision: str

    def time(self, groups: list[Group], memory: Memory, saved: int, operations: Operations) -> Time:
        micro_batches, device = self.workload.gradient_accumulation_steps, self.device
        tokens = self.batch.rows * sum(self.workload.lengths) * micro_batches
        speed = device.peak(self.precision) * self.workload.utilization
        arithmetic = tokens * operations.training / speed / self.sizes.tensor
        whole = sum(_bytes(group.weights) for group in groups)
        read = whole // _FP32 * _BYTES[self.precision]
        traffic = micro_batches * (2 * read + whole + 2 * saved) + _ADAM_TRAFFIC * memory.gradients
        bandwidth = traffic / device.bandwidth
        sent = self._sent(groups)
        links = [(size, device.link_between(processes)) for size, processes in sent if size]
        communication = (
            None if any(link is None for _, link in links) else sum(size / link for size, link in links if link)
        )
        bounds = {"arithmetic": arithmetic, "bandwidth": bandwidth, "communication": communication or 0.0}
        bound = max(bounds, key=lambda name: bounds[name])
        step = bounds[bound]
        per_second = tokens * self.sizes.batches / step
        result = Time(
            arithmetic=arithmetic,
            bandwidth=bandwidth,
            communication=communication,
            sent=round(sum(size for size, _ in sent)),
            step=step,
            bound=bound,
            tokens_per_second=per_second,
        )
        if self.workload.tokens is None:
            return result
        seconds = self.workload.tokens / per_second
        hours = seconds / 3600 * self.sizes.processes
        energy = hours * device.watts / 1000 * self.workload.pue if device.watts else None
        return Time(**asdict(result) | {"days": seconds / _DAY, "device_hours": hours, "kilowatt_hours": energy})

    def _sent(self, groups: list[Group]) -> list[tuple[float, int]]:
        """Return the bytes that a process sends in each kind of collective, with the number of processes it spans."""
        sizes, config = self.sizes, self.config
        micro_batches = self.workload.gradient_accumulation_steps
        sent: list[tuple[float, int]] = []
        if sizes.fsdp:
            for index, group in enumerate(groups):
                # layers are gathered for each pass, what is around them once; gradients are scattered
                times = 2 if index == len(groups) - 1 else 3
                sent.append((micro_batches * times * group.full * (1 - 1 / group.shards), group.shards * sizes.tensor))
                sent.append((micro_batches * 2 * group.local * (1 - 1 / sizes.replicas), sizes.processes))
        elif sizes.ddp > 1:
            sent.append((2 * sum(_bytes(group.weights) for group in groups) * (1 - 1 / sizes.ddp), sizes.ddp))
        sources, targets = (micro_batches * self.batch.rows * n for n in (self.batch.source, self.batch.target))
        passes = 3 if self.workload.gradient_checkpointing else 2
        if sizes.experts > 1:  # to the experts and back; states between layers are in fp32
            rows = sources * _sparse(config.encoder_mlp_layer_types) + targets * _sparse(
                config.decoder_mlp_layer_types
            )
            routed = rows * config.num_experts_per_tok / sizes.tensor * config.d_model * _FP32
            sent.append((2 * passes * routed * (1 - 1 / sizes.experts), sizes.experts))
        if sizes.tensor > 1:  # a sum after each attention and each feed-forward, and the logits
            sums = 2 * sources * config.encoder_layers + 3 * targets * config.decoder_layers
            width = _BYTES[self.precision]
            logits = targets * config.target_vocab_size
            summed = passes * 2 * sums * config.d_model + logits
            sent.append((summed * width * (1 - 1 / sizes.tensor), sizes.tensor))
        return sent


def _sparse(types: list[str] | str | None) -> int:
    assert isinstance(types, list)
    return types.count("sparse")


# -- decoding --------------------------------------------------------------------------------------------------------


def _decoding(config: WeftConfig, workload: Workload, device: Device, precision: str) -> Decoding:
    width, (source, target) = _BYTES[precision], workload.lengths
    with FakeTensorMode():
        model = WeftForConditionalGeneration(config)
        model.tie_weights()
    weights = sum(weight.numel() for weight in model.parameters()) * width
    common, experts = _read_each_token(model, config)
    heads, groups, head_dim = config.stack_heads(is_decoder=True)
    per_position = 2 * config.decoder_layers * groups * head_dim * width
    cache = (source + target) * per_position
    mean_cache = (source + target / 2) * per_position

    def traffic(rows: int) -> float:
        touched = 1 - (1 - config.num_experts_per_tok / config.num_experts) ** rows
        return (common + experts * touched) * width + rows * mean_cache

    active = common + experts * config.num_experts_per_tok / config.num_experts
    operations = 2 * active + 2 * 2 * config.decoder_layers * heads * head_dim * (source + target / 2)
    rows = max(0, int((MEMORY_SHARE * device.memory - weights) // cache))
    sequences = rows // workload.num_beams

    def tokens_per_second(searches: int) -> tuple[float, str]:
        count = searches * workload.num_beams
        times = {
            "bandwidth": traffic(count) / device.bandwidth,
            "arithmetic": count * operations / device.peak(precision),
        }
        bound = max(times, key=lambda name: times[name])
        return searches / times[bound], bound

    most, bound = tokens_per_second(sequences) if sequences else (0.0, "memory")
    return Decoding(
        weights=weights,
        bytes_per_token=round(traffic(1)),
        cache_per_row=cache,
        rows=rows,
        sequences=sequences,
        operations_per_token=operations,
        tokens_per_second=tokens_per_second(1)[0] if sequences else 0.0,
        most_tokens_per_second=most,
        bound=bound,
    )


def _read_each_token(model: nn.Module, config: WeftConfig) -> tuple[int, int]:
    """Return the weights that a decoding step reads: those of every token, and all routed experts of the decoder.

    Keys and values of the source are projected once. Of the embedding table, only the head reads all.
    """
    common = config.d_model * config.target_vocab_size
    experts = 0
    for name, weight in model.named_parameters():
        if ".decoder.layers." not in name or ".encoder_attn.k_proj." in name or ".encoder_attn.v_proj." in name:
            continue
        if ".mlp.experts." in name:
            experts += weight.numel()
        else:
            common += weight.numel()
    return common, experts
