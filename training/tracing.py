"""The memory of a training step, from the model's own code: it runs on tensors that have shapes and no data.

torch's fake tensors go through the same operations as real ones, autograd included, and a mode notes when each of their
storages begins and ends. So what a layer keeps for its backward pass is never written down a second time as a formula.
"""

import warnings
import weakref
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from accelerate.utils import convert_outputs_to_fp32
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from ..configuration import WeftConfig
from ..modeling import WeftForConditionalGeneration
from ..modeling.moe import ExpertsBase, SparseFeedForward

GRADIENTS, ACTIVATIONS, BUFFERS = "gradients", "activations", "communication"
_aten = torch.ops.aten


@dataclass(frozen=True)
class Split:
    """
    How processes share a model and a batch.

    Args:
        ddp (`int`, *optional*, defaults to 1): whole copies of the model, each with its part of the batch (DDP).
        replicas (`int`, *optional*, defaults to 1): copies of a sharded model (`dp_replicate_size`).
        fsdp (`int`, *optional*): processes that share each weight and have a part of the batch each. None for no FSDP2.
        tensor (`int`, *optional*, defaults to 1): processes that share each layer and have the same part of the batch.
        experts (`int`, *optional*, defaults to 1): processes that share the experts.
    """

    ddp: int = 1
    replicas: int = 1
    fsdp: int | None = None
    tensor: int = 1
    experts: int = 1

    @property
    def processes(self) -> int:
        return self.batches * self.tensor

    @property
    def batches(self) -> int:
        """How many parts of a batch are trained on at once."""
        return self.ddp * self.replicas * (self.fsdp or 1)

    @property
    def expert_shards(self) -> int:
        """How many processes share the weights of one expert (`efsdp_size`)."""
        return (self.fsdp or 1) * self.tensor // self.experts


@dataclass(frozen=True)
class StepMemory:
    """
    Bytes that a process holds in a training step beside weights and optimizer.

    Args:
        at_peak (`dict[str, int]`): gradients, activations and communication buffers when their sum is largest.
        most (`dict[str, int]`): the most of each, at whatever time.
        saved (`int`): activations at the end of the forward pass, before the backward pass frees them.
    """

    at_peak: dict[str, int]
    most: dict[str, int]
    saved: int


class Timeline(TorchDispatchMode):
    """Follows the bytes of all storages that are made within it, by what they are for.

    Args:
        num_experts: into how many parts tokens fall where an expert looks for its own, which only values tell.
    """

    def __init__(self, num_experts: int = 1):
        super().__init__()
        self.num_experts = num_experts
        self.now: Counter[str] = Counter()
        self.most: Counter[str] = Counter()
        self.at_peak: Counter[str] = Counter()
        self._parts: dict[int, str | None] = {}

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        output = self._by_values(func, args)
        if output is None:
            output = func(*args, **(kwargs or {}))
        for tensor in torch.utils._pytree.tree_leaves(output):
            if isinstance(tensor, torch.Tensor):
                self._meet(tensor.untyped_storage(), ACTIVATIONS)
        return output

    def _by_values(self, func, args) -> torch.Tensor | None:
        """Return the result of an operation whose shape depends on values: no pads, and experts with equal loads."""
        if func is _aten.nonzero.default:
            (mask,) = args
            rows = mask.numel() if mask.ndim == 1 else -(-mask.numel() // self.num_experts)
            return mask.new_empty((rows, mask.ndim), dtype=torch.long)
        if func is _aten.index.Tensor:
            source, indices = args
            if len(indices) == 1 and indices[0].dtype == torch.bool:
                return source.new_empty((indices[0].numel(), *source.shape[indices[0].ndim :]))
        return None

    def ignore(self, tensors: Iterator[torch.Tensor]) -> None:
        """Leave these tensors out, which are counted elsewhere."""
        for tensor in tensors:
            self._meet(tensor.untyped_storage(), None)

    def move(self, tensor: torch.Tensor, part: str) -> None:
        """Count the storage of a tensor under another part."""
        storage = tensor.untyped_storage()
        old = self._parts.get(storage._cdata)
        if old is not None and old != part:
            self._parts[storage._cdata] = part
            self.now[old] -= storage.nbytes()
            self.add(part, storage.nbytes())

    def add(self, part: str, size: int) -> None:
        """Count bytes that no tensor here has. A negative number takes them away."""
        self.now[part] += size
        if size > 0:
            self.most[part] = max(self.most[part], self.now[part])
            if self.now.total() > self.at_peak.total():
                self.at_peak = self.now.copy()

    def _meet(self, storage: torch.UntypedStorage, part: str | None) -> None:
        key = storage._cdata
        if key in self._parts:
            return
        self._parts[key] = part
        weakref.finalize(storage, self._end, key, storage.nbytes())
        if part is not None:
            self.add(part, storage.nbytes())

    def _end(self, key: int, size: int) -> None:
        part = self._parts.pop(key)
        if part is not None:
            self.now[part] -= size


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

    Dropout of `nn.Dropout` keeps a byte for each number and not a float, RMSNorm of one dtype is a fused kernel, and
    attention with dropout needs no weights.
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


class _AllToAll(torch.autograd.Function):
    """Rows that are sent to other processes, for as many from them, in both directions."""

    @staticmethod
    def forward(ctx, rows):
        return torch.empty_like(rows)

    @staticmethod
    def backward(ctx, gradient):
        return torch.empty_like(gradient)


def _dispatching(experts: nn.Module, sizes: Split) -> Callable:
    """Return a `forward` that sends tokens to the processes of their experts, as transformers' `AllToAllEP`."""
    compute = experts.forward

    def forward(tokens_ND, ids_NK, weights_NK):
        tokens, top_k = len(tokens_ND), ids_NK.shape[-1]
        mine = -(-tokens // sizes.tensor)
        rows, ids, weights = tokens_ND[:mine], ids_NK[:mine], weights_NK[:mine]
        order = torch.argsort(ids.reshape(-1))
        received = _AllToAll.apply(rows[order // top_k])
        chosen = torch.zeros((len(received), 1), dtype=torch.long, device=received.device)
        returned = _AllToAll.apply(compute(received, chosen, torch.ones_like(chosen, dtype=received.dtype)))
        sorted_back = torch.empty_like(returned)
        sorted_back[order] = returned
        output = (sorted_back.view(mine, top_k, -1) * weights.unsqueeze(-1)).sum(dim=1)
        return output if sizes.tensor == 1 else torch.cat([output] * sizes.tensor)[:tokens]

    return forward


def local_config(config: WeftConfig, sizes: Split) -> WeftConfig:
    """Return the configuration of the part of each layer that a process of tensor parallelism holds."""
    if sizes.tensor == 1:
        return config
    if config.encoder_attention_heads != config.decoder_attention_heads:
        raise ValueError(
            f"tp_size={sizes.tensor} and different heads of the stacks (encoder_attention_heads="
            f"{config.encoder_attention_heads}, decoder_attention_heads={config.decoder_attention_heads}): no estimate is made "
            "of both together. Use fsdp_size."
        )
    parts: dict[str, Any] = {}
    _, groups, width = config.stack_heads(is_decoder=False)
    for stack in ("encoder", "decoder"):
        parts[f"{stack}_attention_heads"] = getattr(config, f"{stack}_attention_heads") // sizes.tensor
        parts[f"{stack}_ffn_dim"] = getattr(config, f"{stack}_ffn_dim") // sizes.tensor
    parts |= {"head_dim": width, "num_key_value_heads": groups // sizes.tensor}
    experts_width = config.moe_intermediate_size
    if experts_width is None and sizes.experts > 1:
        experts_width = config.encoder_ffn_dim
    if experts_width is not None:
        parts["moe_intermediate_size"] = experts_width if sizes.experts > 1 else experts_width // sizes.tensor
    parts["vocab_size"] = -(-config.vocab_size // sizes.tensor)
    has_two_tables = not config.share_encoder_decoder_embeddings
    parts["decoder_vocab_size"] = -(-config.target_vocab_size // sizes.tensor) if has_two_tables else None
    special = ("pad_token_id", "bos_token_id", "eos_token_id", "decoder_start_token_id")
    parts |= dict.fromkeys(special, 0)  # ids beyond a part of the vocabulary are another process's
    return WeftConfig.from_dict(config.to_dict() | parts)


def build_part(config: WeftConfig, sizes: Split) -> WeftForConditionalGeneration:
    """Return the part of a model that a process computes with, before FSDP2 shards its weights. Call it within a mode
    of fake tensors, or on the meta device."""
    part = local_config(config, sizes)
    model = WeftForConditionalGeneration(part)
    model.tie_weights()
    if sizes.experts == 1:
        return model
    for block in model.modules():
        if not isinstance(block, SparseFeedForward):
            continue
        experts: Any = block.experts
        for name, weight in list(experts.named_parameters(recurse=False)):
            setattr(experts, name, nn.Parameter(weight.new_empty(len(weight) // sizes.experts, *weight.shape[1:])))
        experts.num_experts //= sizes.experts
    return model


class Group:
    """Weights that FSDP2 gathers and frees together.

    Args:
        module: whose calls need them.
        weights: the weights.
        shards: the number of processes that share them.
    """

    def __init__(self, module: nn.Module, weights: list[nn.Parameter], shards: int):
        self.module, self.weights, self.shards = module, weights, shards
        self.full = sum(self._padded(weight) for weight in weights)
        self.local = self.full // shards
        self.is_gathered = self.is_prefetched = False

    def _padded(self, weight: nn.Parameter) -> int:
        """Return the bytes of a weight whose first dimension is filled up to equal shards."""
        rows = weight.shape[0] if weight.ndim else 1
        return -(-rows // self.shards) * self.shards * (weight.numel() // max(rows, 1)) * weight.element_size()


def groups_of(model: WeftForConditionalGeneration, sizes: Split) -> list[Group]:
    """Return the groups of FSDP2: experts of expert parallelism, each layer, and what is left, in this order."""
    left = {id(weight): weight for weight in model.parameters()}

    def group(module: nn.Module, shards: int) -> Group:
        return Group(module, [left.pop(id(p)) for p in module.parameters() if id(p) in left], shards)

    groups = []
    if sizes.experts > 1:
        blocks = [module for module in model.modules() if isinstance(module, ExpertsBase)]
        groups += [group(block, sizes.expert_shards) for block in blocks]
    shards = sizes.fsdp or 1
    layers = [*model.model.encoder.layers, *model.model.decoder.layers]
    return [*groups, *(group(layer, shards) for layer in layers), group(model, shards)]


class _FullSharding:
    """The buffers of FSDP2 over a step, as `torch.distributed.fsdp._fully_shard` makes and frees them.

    Gathering a group makes one buffer for the collective and one for the weights. The first of these stays until the next
    group is gathered. The backward pass gathers a group ahead. Gradients of whole weights are copied to one buffer, which stays
    until the next group has its own, and their shard is what is left.
    """

    def __init__(self, groups: list[Group], timeline: Timeline):
        self.groups, self.timeline, self.root = groups, timeline, groups[-1]
        self.order: list[Group] = []
        self.is_backward = False
        self.last_gathered = self.last_scattered = 0
        self.has_gradients = False
        for group in groups:
            group.module.register_forward_pre_hook(lambda *_, group=group: self._before_forward(group))
            group.module.register_forward_hook(lambda *_, group=group: self._after_forward(group))
            if group is not self.root:
                group.module.register_full_backward_pre_hook(lambda *_, group=group: self._before_backward(group))
                group.module.register_full_backward_hook(lambda *_, group=group: self._after_backward(group))

    def _add(self, size: int) -> None:
        self.timeline.add(BUFFERS, size)

    def _collective(self, group: Group) -> int:
        return group.full if group.shards > 1 else 0

    def _before_forward(self, group: Group) -> None:
        if self.is_backward or group.is_gathered:
            return
        self._add(self._collective(group))
        self._add(-self.last_gathered)
        self._add(group.full)
        self.last_gathered, group.is_gathered = self._collective(group), True

    def _after_forward(self, group: Group) -> None:
        if self.is_backward:
            return
        if group is self.root:
            self._add(-self.last_gathered)
            self.last_gathered = 0
            return
        self.order.append(group)
        self._add(-group.full)
        group.is_gathered = False

    def begin_backward(self) -> None:
        self.is_backward = True

    def _before_backward(self, group: Group) -> None:
        if group.is_gathered:
            return
        if not group.is_prefetched:
            self._add(self._collective(group))
        self._add(group.full)
        self._add(-self._collective(group))
        group.is_gathered, group.is_prefetched = True, False
        index = self.order.index(group)
        if index > 0:
            ahead = self.order[index - 1]
            if not ahead.is_gathered and not ahead.is_prefetched:
                self._add(self._collective(ahead))
                ahead.is_prefetched = True

    def _after_backward(self, group: Group) -> None:
        if group.is_gathered:
            self._add(-group.full)
            group.is_gathered = False
        self._add(-self.last_scattered)
        self.last_scattered = self._collective(group)
        self._add(self.last_scattered)
        if not self.has_gradients:
            self.timeline.add(GRADIENTS, group.local)
        for weight in group.weights:
            weight.grad = None

    def end_backward(self) -> None:
        self._after_backward(self.root)
        self._add(-self.last_scattered)
        self.last_scattered, self.has_gradients = 0, True
        self.is_backward = False
        self.order.clear()


@dataclass(frozen=True)
class Batch:
    """
    What a process computes at a time.

    Args:
        rows (`int`): pairs.
        source (`int`): tokens of each source, pads included.
        target (`int`): tokens of each target.
    """

    rows: int
    source: int
    target: int


@dataclass(frozen=True)
class Settings:
    """
    How a step is computed.

    Args:
        precision (`str`, *optional*, defaults to `"bf16"`): `"bf16"` computes in bf16 by autocast, with weights in fp32,
            as `--bf16`; `"fp32"` computes in fp32.
        gradient_checkpointing (`bool`, *optional*, defaults to `False`): layers are computed again in the backward pass.
        accumulates (`bool`, *optional*, defaults to `False`): the gradients of an earlier batch are there.
        loss_in_pieces (`bool`, *optional*, defaults to `True`): as the argument of `weftformer train`.
        is_cpu (`bool`, *optional*, defaults to `False`): torch's kernels of a CPU instead of a GPU's.
    """

    precision: str = "bf16"
    gradient_checkpointing: bool = False
    accumulates: bool = False
    loss_in_pieces: bool = True
    is_cpu: bool = False


def trace_step(config: WeftConfig, batch: Batch, sizes: Split, settings: Settings) -> StepMemory:
    """
    Return the bytes that a process holds over a training step, beside weights and optimizer.

    Args:
        config ([`WeftConfig`]): the whole model.
        batch ([`Batch`]): what this process computes at a time.
        sizes ([`Split`]): how processes share the model.
        settings ([`Settings`]): how it is computed.

    Returns:
        [`StepMemory`]
    """
    config = _without_lengths_in_frequencies(config)
    timeline = Timeline(config.num_experts)
    # what a GPU's kernels keep is simulated on fake tensors of a CPU: torch makes those of a GPU only where it has one
    kernels = _Kernels() if settings.is_cpu else _KernelsOfGpus()
    with warnings.catch_warnings(), FakeTensorMode(), ExitStack() as stack:
        warnings.simplefilter("ignore")  # what torch says of kernels is for those who train
        model = build_part(config, sizes).train()
        _prepare(model, config, sizes, settings, type(kernels))
        sharding = None
        timeline.ignore(iter([*model.parameters(), *model.buffers()]))
        for weight in model.parameters():
            weight.register_post_accumulate_grad_hook(lambda p: timeline.move(p.grad, GRADIENTS))
        if sizes.fsdp is not None:
            sharding = _FullSharding(groups_of(model, sizes), timeline)
        elif sizes.ddp > 1:  # its buckets hold all gradients once more, and stay
            timeline.add(BUFFERS, sum(weight.numel() * weight.element_size() for weight in model.parameters()))
        stack.enter_context(timeline)
        stack.enter_context(kernels)
        saved = 0
        for _ in range(1 + settings.accumulates):
            saved = _run(model, config, batch, settings, timeline, sharding)
    return StepMemory(dict(timeline.at_peak), dict(timeline.most), saved)


def _without_lengths_in_frequencies(config: WeftConfig) -> WeftConfig:
    """Return a configuration whose rotary frequencies do not ask how long a sequence is. They take no other memory."""
    rope = config.rope_parameters or {}
    if rope.get("rope_type") not in ("dynamic", "longrope"):
        return config
    kept = {name: rope[name] for name in ("rope_theta", "partial_rotary_factor") if name in rope}
    return WeftConfig.from_dict(config.to_dict() | {"rope_parameters": kept | {"rope_type": "default"}})


def _prepare(
    model: WeftForConditionalGeneration, config: WeftConfig, sizes: Split, settings: Settings, kernels: type[_Kernels]
) -> None:
    """Let a model run on tensors without data, with the collectives of its split."""
    for module in model.modules():
        if hasattr(module, "_has_checked_values"):
            module._has_checked_values = True
        if isinstance(module, ExpertsBase) and sizes.experts > 1:
            module.forward = _dispatching(module, sizes)  # type: ignore[method-assign]
    if settings.gradient_checkpointing:
        model.config.use_cache = model.model.decoder.config.use_cache = False
        # a mode of functions is off within a backward pass, which is called through it
        model.gradient_checkpointing_enable({"use_reentrant": False, "context_fn": lambda: (nullcontext(), kernels())})
    if sizes.tensor > 1:
        whole = config.target_vocab_size

        def gather(module, inputs, logits):
            return torch.cat([logits] * sizes.tensor, dim=-1)[..., :whole].contiguous()

        model.lm_head.register_forward_hook(gather)


def _run(model, config, batch: Batch, settings: Settings, timeline: Timeline, sharding: _FullSharding | None) -> int:
    """Run a forward and a backward pass. Return the activations between them."""
    forward = model
    if settings.precision == "bf16":
        forward = convert_outputs_to_fp32(torch.autocast("cpu", dtype=torch.bfloat16)(model.__call__))
    inputs = {
        "input_ids": torch.zeros(batch.rows, batch.source, dtype=torch.long),
        "attention_mask": torch.ones(batch.rows, batch.source, dtype=torch.long),
        "labels": torch.zeros(batch.rows, batch.target, dtype=torch.long),
    }
    if config.num_condition_features:
        inputs["condition_values"] = torch.ones(batch.rows, config.num_condition_features)
    output = forward(
        **inputs,
        num_items_in_batch=torch.ones((), dtype=torch.long),
        chunked_loss=None
        if settings.loss_in_pieces and model.lm_head.out_features == config.target_vocab_size
        else False,
    )
    saved = timeline.now[ACTIVATIONS]
    loss = output.loss
    if sharding is not None:
        sharding.begin_backward()
    loss.backward()
    if sharding is not None:
        sharding.end_backward()
    return saved
