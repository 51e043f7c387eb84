"""Linear layers with weights in a layout for products with few rows, as in decoding on a CPU.

The BLAS library behind `torch.nn.functional.linear` is made for large products. oneDNN with weights in its own layout
takes a third to half of the time, unless the product is so small that the overhead of the call counts. Changing the
layout costs about as much as five products.
"""

import copy
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from weakref import WeakKeyDictionary

import torch
import xxhash
from torch import nn

from ..moe import ExpertsBase

# The number of weights times (rows + 2) from which oneDNN is faster. The 2 is there because BLAS takes longer for a
# single row than for one of several.
_SMALLEST = 450_000
# The number of rows that layouts are made for. These layouts are the fastest for any number of rows.
_ROWS = 8


class PackedLinear(nn.Module):
    """An `nn.Linear` for inference. Shape: (rows, in) to (rows, out)."""

    def __init__(self, linear: nn.Linear):
        super().__init__()
        self.weight, self.bias = linear.weight, linear.bias
        self.fewest = _SMALLEST / self.weight.numel() - 2
        self.register_buffer(
            "packed", torch.ops.mkldnn._reorder_linear_weight(linear.weight.detach(), _ROWS), persistent=False
        )

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        if len(states) < self.fewest:
            return nn.functional.linear(states, self.weight, self.bias)
        return torch.ops.mkldnn._linear_pointwise(states, self.packed, self.bias, "none", [], "")


# The types of attributes that a snapshot compares. A tuple is faster to check than a union.
_PLAIN = (bool, int, float, str)
# With more experts than this, their weights keep their layout, because a short text uses each expert too rarely.
_FEW_EXPERTS = 16
# With more rows than this, the implementations in transformers' registry are as fast as a loop over single experts.
_FEW_ROWS = 50


class FewTokenExperts(nn.Module):
    """Experts for inference on a few tokens: a loop over the selected experts. It is called like [`ExpertsBase`]."""

    def __init__(self, experts: ExpertsBase):
        super().__init__()
        self.experts = experts
        self.activate = experts._apply_gate if experts.has_gate else experts.act_fn
        names = ("gate_up_proj" if experts.has_gate else "up_proj", "down_proj")
        is_few = experts.num_experts <= _FEW_EXPERTS
        self.projections = [
            [packed(linear) if is_few else linear for linear in _linears(experts, name)] for name in names
        ]

    def forward(self, tokens_ND: torch.Tensor, ids_NK: torch.Tensor, weights_NK: torch.Tensor) -> torch.Tensor:
        if len(tokens_ND) > _FEW_ROWS:
            return self.experts(tokens_ND, ids_NK, weights_NK)
        assignments: dict[int, list[tuple[int, int]]] = {}
        for token, experts in enumerate(ids_NK.tolist()):
            for slot, expert in enumerate(experts):
                assignments.setdefault(expert, []).append((token, slot))
        output_ND = torch.zeros_like(tokens_ND)
        up, down = self.projections
        for expert, chosen in assignments.items():
            tokens, slots = (list(part) for part in zip(*chosen, strict=True))
            states = tokens_ND if len(tokens_ND) == 1 else tokens_ND[tokens]
            states = down[expert](self.activate(up[expert](states))) * weights_NK[tokens, slots, None]
            if len(tokens_ND) == 1:
                output_ND += states
            else:
                output_ND.index_add_(0, torch.tensor(tokens, device=states.device), states.to(output_ND.dtype))
        return output_ND


def _linears(experts: ExpertsBase, name: str) -> list[nn.Linear]:
    """Return a linear layer for each expert, with views of the weights."""
    weights, biases = getattr(experts, name), getattr(experts, f"{name}_bias") if experts.has_bias else None
    return [
        _linear(weight, None if biases is None else biases[expert].detach())
        for expert, weight in enumerate(weights.detach())
    ]


def _linear(weight: torch.Tensor, bias: torch.Tensor | None) -> nn.Linear:
    """Return a linear layer with the given weight and bias."""
    linear = nn.Linear(weight.shape[1], weight.shape[0], bias=False, device="meta")
    linear.weight = nn.Parameter(weight, requires_grad=False)
    if bias is not None:
        linear.bias = nn.Parameter(bias, requires_grad=False)
    return linear


def joined(parts: list[nn.Linear]) -> nn.Linear:
    """Return one linear layer whose output is the concatenated outputs of several."""
    biases: list[torch.Tensor] = [part.bias for part in parts]
    weight = torch.cat([part.weight.detach() for part in parts])
    return _linear(weight, None if biases[0] is None else torch.cat(biases).detach())


def can_pack(weight: torch.Tensor) -> bool:
    """Return whether oneDNN is available for these weights.

    For bfloat16 it needs instructions that not every CPU has.
    """
    is_there = torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_reorder_linear_weight")
    if not is_there or weight.device.type != "cpu":
        return False
    is_half = weight.dtype == torch.bfloat16 and torch.ops.mkldnn._is_mkldnn_bf16_supported()
    return weight.dtype == torch.float32 or is_half


def packed(module: nn.Module) -> nn.Module:
    """Return a copy of a module with packed linear layers and experts. All other parameters are shared."""
    if type(module) is nn.Linear:
        weight = module.weight
        # quantised weights have another type, though their dtype may be float32
        gains = type(weight) is nn.Parameter and weight.numel() * 100 >= _SMALLEST and can_pack(weight)
        return PackedLinear(module) if gains else module
    if isinstance(module, ExpertsBase):
        is_plain = type(module.down_proj) is nn.Parameter and module.down_proj.device.type == "cpu"
        return FewTokenExperts(module) if is_plain else module
    if not module._modules:
        # nothing to pack; and a copy of a rotary embedding would share the scaled frequencies, but not the length they
        # are for
        return module
    twin = copy.copy(module)
    twin.__dict__["_modules"] = {
        name: None if child is None else packed(child) for name, child in module._modules.items()
    }
    return twin


class Snapshot:
    """The state that modules compute with: hashes of tensors, the modules, and the numbers among their attributes.

    No cheaper check detects every change: version counters do not count writes through `.data`. A hash takes a third
    of the time of a token.

    Args:
        parts: the modules, whose own attributes are compared too.
        tensors: the tensors to compare.
        settings: other values to compare.
    """

    def __init__(self, parts: Sequence[nn.Module], tensors: Sequence[torch.Tensor], settings: Any = None):
        self.numbers, self.settings = numbers_of(parts), copy.deepcopy(settings)
        # not the parts themselves, which the snapshot must not keep in memory
        self.modules = [module for part in parts for module in list(part.modules())[1:]]
        self.hashes = hashes_of(tensors)

    def fits(self, parts: Sequence[nn.Module], tensors: Sequence[torch.Tensor], settings: Any = None) -> bool:
        """Return whether nothing has changed."""
        modules = [module for part in parts for module in list(part.modules())[1:]]
        return (
            len(modules) == len(self.modules)
            and all(one is other for one, other in zip(modules, self.modules, strict=True))
            and settings == self.settings
            and numbers_of(parts) == self.numbers
            and hashes_of(tensors) == self.hashes
        )


def hashes_of(tensors: Sequence[torch.Tensor]) -> list[tuple[torch.Size, torch.dtype, bytes]]:
    """Return the shape and type of each tensor and a hash of its values, computed in as many threads as torch has."""

    def hash_of(tensor: torch.Tensor) -> tuple[torch.Size, torch.dtype, bytes]:
        values = tensor.detach().contiguous().flatten().view(torch.uint8)
        return tensor.shape, tensor.dtype, xxhash.xxh3_128_digest(values.numpy().data)

    count = torch.get_num_threads()
    if count == 1:  # starting a thread takes longer than a small model's hashes
        return [hash_of(tensor) for tensor in tensors]
    with ThreadPoolExecutor(count) as threads:
        shares = list(threads.map(lambda first: [hash_of(tensor) for tensor in tensors[first::count]], range(count)))
    return [shares[place % count][place // count] for place in range(len(tensors))]


def numbers_of(parts: Sequence[nn.Module]) -> list[list[Any]]:
    """Return the numbers and names that each module has as attributes, such as `eps` of a norm, and its type."""
    return [
        [type(module).__name__]
        + [[name, value] for name, value in vars(module).items() if isinstance(value, _PLAIN) and name[0] != "_"]
        for part in parts
        for module in part.modules()
    ]


def joined_projections(decoder: Any) -> nn.ModuleList:
    """Return a linear layer for the queries, keys and values of each layer, without values if it has a table."""
    found = []
    for layer in decoder.layers:
        own = layer.self_attn
        has_table = own.position_table is not None
        found.append(joined([own.q_proj, own.k_proj] if has_table else [own.q_proj, own.k_proj, own.v_proj]))
    return nn.ModuleList(found)


# A decoder for a few rows, its head, and the joined projections of its self-attention.
Layout = tuple[nn.Module, nn.Module, nn.Module]
# The layout of each decoder, with a snapshot of the weights that it was made from.
_LAYOUTS: WeakKeyDictionary[nn.Module, tuple[Snapshot, Layout]] = WeakKeyDictionary()


def prepared(decoder: nn.Module, head: nn.Module) -> Layout:
    """Return a layout of the weights of a decoder and its head, which is kept until they change."""
    parts = (decoder, head)
    weights = list(_laid_out(*parts))
    kept = _LAYOUTS.get(decoder)
    if kept is None or not kept[0].fits(parts, weights):
        layout = packed(decoder), packed(head), packed(joined_projections(decoder))
        kept = _LAYOUTS[decoder] = Snapshot(parts, weights), layout
    return kept[1]


def _laid_out(*parts: nn.Module) -> Iterator[torch.Tensor]:
    """Yield the parameters that a layout copies. It shares all others with the model."""
    for module in nn.ModuleList(parts).modules():
        if isinstance(module, nn.Linear | ExpertsBase):
            yield from module.parameters(recurse=False)
