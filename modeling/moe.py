"""The sparse feed-forward: a router, experts as 3-D parameters, and a block of both.

Shape suffixes: N tokens (all batch rows, flattened), D model width, F expert width, E experts, K experts per token, S
tokens of one expert.
"""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import torch
from torch import nn

from ..configuration.configuration_weft import WeftConfig
from .bias_updates import update_after_steps
from .checks import has_values, is_tracing
from .layers import Float32Buffers, Float32Linear, dropout
from .recorders import Recorded
from .transformers_names import (
    ACT2FN,
    ALL_EXPERTS_FUNCTIONS,
    functorch_level,
    maybe_autocast,
    use_experts_implementation,
)


class Router(Recorded, Float32Buffers):
    """Chooses the experts of each token and their weights, in fp32 whatever the model's dtype.

    The scores of the experts are the softmax of the logits. The weights are the scores of the chosen experts. They are
    divided by their sum if `norm_topk_prob` is set.

    With `router_bias_update_rate` each expert has a bias that enters the choice of experts, but not their weights. The
    bias is moved against the load after each step of the optimizer that trains the router (Wang et al. 2024,
    arXiv:2408.15664). A frozen router keeps its bias, and so does a rate of 0.
    """

    selection_bias: torch.Tensor | None
    expert_load: torch.Tensor | None

    def __init__(self, config: WeftConfig):
        super().__init__()
        self.num_experts = config.num_experts
        self.top_k = config.num_experts_per_tok
        self.renormalise = config.norm_topk_prob
        self.capacity_factor = config.expert_capacity_factor
        self.update_rate = config.router_bias_update_rate
        self.classifier = Float32Linear(config.d_model, config.num_experts, bias=config.router_bias)
        has_bias = self.update_rate is not None
        zeros = torch.zeros(config.num_experts, dtype=torch.float32)
        self.register_buffer("selection_bias", zeros if has_bias else None)
        self.register_buffer("expert_load", zeros.clone() if has_bias else None, persistent=False)
        self._register_for_updates()

    def __setstate__(self, state: dict[str, Any]) -> None:
        # a copied or unpickled router must be registered too
        super().__setstate__(state)
        self._register_for_updates()

    def _register_for_updates(self) -> None:
        if self.update_rate:
            update_after_steps(self)

    def remove_bias(self) -> None:
        """Remove the bias, as without `router_bias_update_rate`."""
        self.update_rate = self.selection_bias = self.expert_load = None

    def _logits(self, tokens_ND: torch.Tensor) -> torch.Tensor:
        return self.classifier(tokens_ND)

    def forward(self, tokens_ND: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Return logits (N, E) and weights (N, K) in fp32, and the ids of the selected experts (N, K)."""
        with maybe_autocast(tokens_ND.device.type, enabled=False):
            logits_NE = self._logits(tokens_ND)
            scores_NE, ids_NK = self.choose(logits_NE)
            weights_NK = scores_NE.gather(-1, ids_NK)
            if self.renormalise:
                # the experts that a bias has chosen may all have a score of 0
                weights_NK = weights_NK / weights_NK.sum(dim=-1, keepdim=True).clamp(min=1e-20)
            if self.capacity_factor is not None:
                weights_NK = self._drop_over_capacity(weights_NK, ids_NK, self.capacity_factor)
        return logits_NE, weights_NK, ids_NK

    def choose(self, logits_NE: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the scores of the experts (N, E), and the ids of those selected (N, K), best first."""
        scores_NE = logits_NE.softmax(dim=-1)
        biased_NE = scores_NE if self.selection_bias is None else scores_NE + self.selection_bias
        return scores_NE, biased_NE.topk(self.top_k, dim=-1).indices

    def _drop_over_capacity(self, weights_NK: torch.Tensor, ids_NK: torch.Tensor, factor: float) -> torch.Tensor:
        """Return the weights with 0 for each token that an expert has no capacity for.

        Earlier tokens of the batch have priority, and pads count, as in DirectMultiStep.
        """
        # the place of each token in the queues of its experts, counted from 1
        counts_NE = (ids_NK[..., None] == torch.arange(self.num_experts, device=ids_NK.device)).sum(dim=1)
        queue_number_NK = counts_NE.cumsum(dim=0).gather(-1, ids_NK)
        return weights_NK.masked_fill(queue_number_NK > int(ids_NK.numel() / self.num_experts * factor), 0.0)

    @torch.no_grad()
    def count_load(self, load_E: torch.Tensor) -> None:
        """Add this batch's tokens per expert to the load that the next update of the bias reads."""
        # a transform of `torch.func` may not change a buffer
        may_count = is_tracing() or functorch_level() is None
        if may_count and self.expert_load is not None and self.classifier.weight.requires_grad:
            self.expert_load += load_E.to(self.expert_load.device)

    @torch.no_grad()
    def update_selection_bias(self) -> None:
        """Add rate * sign(mean load - load) to the bias, with the loads of all processes, and set the load to 0."""
        if self.selection_bias is None or self.expert_load is None or not self.update_rate:
            return
        if torch.distributed.is_available() and torch.distributed.is_initialized():
            torch.distributed.all_reduce(self.expert_load)
        self.selection_bias += self.update_rate * torch.sign(self.expert_load.mean() - self.expert_load)
        self.expert_load.zero_()


class NoisyTopKRouter(Router):
    """A router that adds N(0, 1) * softplus(noise(x)) to the logits (Shazeer et al. 2017, arXiv:1701.06538).

    It does so in training only, because noise at inference gives different outputs for the same input.
    `router_noise="always"` reproduces the published behaviour of DirectMultiStep.
    """

    def __init__(self, config: WeftConfig):
        super().__init__(config)
        self.noise = Float32Linear(config.d_model, config.num_experts, bias=config.router_bias)
        self.always = config.router_noise == "always"

    def _logits(self, tokens_ND: torch.Tensor) -> torch.Tensor:
        logits_NE = super()._logits(tokens_ND)
        if not (self.training or self.always):
            return logits_NE
        scale_NE = nn.functional.softplus(self.noise(tokens_ND))
        return logits_NE + torch.randn_like(logits_NE) * scale_NE


class ExpertsBase(nn.Module):
    """All experts of a layer, with one parameter for each projection.

    The `forward` of this class is the reference: the tests compare every other implementation with its loop.
    """

    has_gate: bool
    has_bias: bool
    down_proj: nn.Parameter

    def __init__(self, config: WeftConfig, ffn_dim: int):
        super().__init__()
        self.config = config
        self.num_experts = config.num_experts
        up_dim, name = (2 * ffn_dim, "gate_up_proj") if config.is_gated_act else (ffn_dim, "up_proj")
        shapes = {name: (up_dim, config.d_model), "down_proj": (config.d_model, ffn_dim)}
        for key, shape in shapes.items():
            self.register_parameter(key, nn.Parameter(torch.empty(config.num_experts, *shape)))
            if config.mlp_bias:
                self.register_parameter(f"{key}_bias", nn.Parameter(torch.empty(config.num_experts, shape[0])))
        # dropout is part of the activation, the only thing between the projections that every implementation calls
        self.activation = ACT2FN[config.activation_function]

    def act_fn(self, up: torch.Tensor) -> torch.Tensor:
        return dropout(self.activation(up), self.config.activation_dropout, self.training)

    def _apply_gate(self, gate_up: torch.Tensor) -> torch.Tensor:
        gate, up = gate_up.chunk(2, dim=-1)
        return dropout(self.activation(gate) * up, self.config.activation_dropout, self.training)

    def _weights_by_expert(self) -> Iterator[tuple[torch.Tensor | None, ...]]:
        """Yield the up projection, its bias, the down projection and its bias of each expert."""

        def split(name: str) -> Sequence[torch.Tensor | None]:
            # the gradient of one `unbind` is one tensor; that of each `weight[expert]` would be as large as all
            # experts
            return getattr(self, name).unbind() if hasattr(self, name) else [None] * self.num_experts

        up = "gate_up_proj" if self.has_gate else "up_proj"
        return zip(split(up), split(f"{up}_bias"), split("down_proj"), split("down_proj_bias"), strict=True)

    def _expert(self, tokens_SD: torch.Tensor, up, up_bias, down, down_bias) -> torch.Tensor:
        states_SF = nn.functional.linear(tokens_SD, up, up_bias)
        states_SF = self._apply_gate(states_SF) if self.has_gate else self.act_fn(states_SF)
        return nn.functional.linear(states_SF, down, down_bias)

    def forward(self, tokens_ND: torch.Tensor, ids_NK: torch.Tensor, weights_NK: torch.Tensor) -> torch.Tensor:
        output_ND = torch.zeros_like(tokens_ND)
        # the id `num_experts` matches no expert: pads have it, and in expert parallelism experts of other processes
        for expert, projections in enumerate(self._weights_by_expert()):
            token_S, slot_S = torch.where(ids_NK == expert)
            states_SD = self._expert(tokens_ND[token_S], *projections) * weights_NK[token_S, slot_S, None]
            output_ND.index_add_(0, token_S, states_SD.to(output_ND.dtype))
        return output_ND

    def forward_sorted(self, tokens_ND: torch.Tensor, ids_NK: torch.Tensor, weights_NK: torch.Tensor) -> torch.Tensor:
        """Return the output of `forward`, with the tokens of an expert side by side."""
        ids_S, order_S = ids_NK.flatten().sort(stable=True)
        *counts_E, pads = ids_S.bincount(minlength=self.num_experts + 1).tolist()
        order_S = order_S[: len(order_S) - pads]
        token_S = order_S // ids_NK.shape[1]
        # the gradient of `index_select` is a sum of rows; that of an index adds one number at a time
        states = [
            self._expert(tokens_ND.index_select(0, rows_S), *projections)
            for rows_S, projections in zip(token_S.split(counts_E), self._weights_by_expert(), strict=True)
        ]
        states_SD = torch.cat(states) * weights_NK.flatten().index_select(0, order_S)[:, None]
        return torch.zeros_like(tokens_ND).index_add_(0, token_S, states_SD.to(tokens_ND.dtype))


class _InDtype:
    """The same experts, with their weights in another dtype."""

    def __init__(self, experts: ExpertsBase, dtype: torch.dtype):
        self.experts, self.dtype = experts, dtype

    def __getattr__(self, name: str) -> Any:
        value = getattr(self.experts, name)
        return value.to(self.dtype) if isinstance(value, torch.Tensor) else value


# The rows per expert from which one product for each expert pays on a CPU.
_SORTED_ROWS = 64


@use_experts_implementation
class RegisteredExperts(ExpertsBase):
    """Experts whose `forward` is the implementation in transformers' registry."""


class Experts(RegisteredExperts):
    """The experts of a layer, with four additions to transformers' "grouped_mm".

    - The loop computes float64 weights, for which torch has no grouped products. transformers checks an implementation
      when it is set, but the weights may become float64 later.
    - Under autocast, experts compute in its dtype, as linear layers do. torch's grouped products have no autocast, and
      transformers computes them in the dtype of the weights.
    - In training on a CPU, products of many rows are computed expert by expert. torch's grouped products do the same
      there, but gather the bias of each row, and sum its gradient one number at a time.
    - "batched_mm" computes a step of decoding on an accelerator, as in transformers' `generate`. It is faster for few
      tokens, and unlike grouped products in fp32 it can be captured in a CUDA graph. transformers would set it in the
      configuration for the time of the loop, where concurrent calls would read it.
    """

    def __init__(self, config: WeftConfig, ffn_dim: int):
        super().__init__(config, ffn_dim)
        # transformers' decorator sets them for a whole class
        self.has_gate, self.has_bias = config.is_gated_act, config.mlp_bias

    def forward(self, tokens_ND: torch.Tensor, *args, is_step: bool = False, **kwargs) -> torch.Tensor:
        experts: Any = self
        if getattr(self.config, "_experts_implementation", None) == "grouped_mm":
            device = tokens_ND.device.type
            if is_step:
                return ALL_EXPERTS_FUNCTIONS["batched_mm"](self, tokens_ND, *args, **kwargs)
            if self.down_proj.dtype == torch.float64:
                return ExpertsBase.forward(self, tokens_ND, *args, **kwargs)
            has_many = args[0].numel() >= _SORTED_ROWS * self.num_experts
            if device == "cpu" and torch.is_grad_enabled() and has_many and has_values():
                return self.forward_sorted(tokens_ND, *args, **kwargs)
            if device != "meta" and torch.is_autocast_enabled(device):
                experts = _InDtype(self, torch.get_autocast_dtype(device))
        return RegisteredExperts.forward(experts, tokens_ND, *args, **kwargs)


# Implementations that compute no row for an id of `num_experts`, or discard the row ("batched_mm").
_WITHOUT_PADS = (None, "eager", "batched_mm", "grouped_mm")


class SparseFeedForward(nn.Module):
    """A router and its experts, with the signature and the shapes of the dense feed-forward.

    Pads are left out before tokens are sent to experts: the experts compute no rows for them, and their output is 0.
    With a limited capacity, pads count like other tokens, as in DirectMultiStep.
    """

    def __init__(self, config: WeftConfig, ffn_dim: int):
        super().__init__()
        width = config.moe_intermediate_size or ffn_dim
        self.router = (NoisyTopKRouter if config.router_type == "noisy_top_k" else Router)(config)
        experts: Any = Experts(config, width)
        # otherwise transformers' implementations do not look for ids of `num_experts`, which pads have
        experts._is_expert_parallel = True
        self.experts = experts

    def forward(self, hidden_states: torch.Tensor, token_mask: torch.Tensor | None = None) -> torch.Tensor:
        """Map states (..., D) to states (..., D).

        `token_mask` (...) is False for pads, whose output is 0. It is None if there are no pads.
        """
        tokens_ND = hidden_states.flatten(0, -2)
        non_pad_N = None if token_mask is None else token_mask.flatten().bool()
        _, weights_NK, ids_NK = self.router(tokens_ND)
        if self.router.capacity_factor is not None:  # pads take up capacity, as published
            non_pad_N = None
        dispatch = self.experts if non_pad_N is None else partial(self._without_pads, non_pad_N)
        # a new token of each row, on a device where that takes another implementation
        is_step = (hidden_states.ndim == 2 or hidden_states.shape[1] == 1) and hidden_states.device.type != "cpu"
        is_own = isinstance(self._base_experts, ExpertsBase) and "forward" not in vars(self._base_experts)
        step = {"is_step": True} if is_step and is_own and not torch.is_grad_enabled() else {}
        return dispatch(tokens_ND, ids_NK, weights_NK.to(tokens_ND.dtype), **step).view_as(hidden_states)

    @property
    def _base_experts(self) -> Any:
        """The experts themselves, also if an adapter (PEFT) wraps them."""
        experts: Any = self.experts
        return experts.get_base_layer() if hasattr(experts, "get_base_layer") else experts

    def _without_pads(
        self, non_pad_N: torch.Tensor, tokens_ND: torch.Tensor, ids_NK: torch.Tensor, weights_NK: torch.Tensor, **step
    ) -> torch.Tensor:
        """Return the experts' output (N, D), computed for all tokens except pads."""
        experts, num_experts = self._base_experts, self.router.num_experts
        if experts.num_experts != num_experts:
            # Expert parallelism sends each row to the process of its expert, so an id of no expert would break it. It
            # waits for the device in any case, to learn how many rows to send.
            rows = non_pad_N.nonzero()[:, 0]
            output = self.experts(tokens_ND[rows], ids_NK[rows], weights_NK[rows], **step)
            return torch.zeros_like(tokens_ND).index_copy(0, rows, output)
        implementation = getattr(experts.config, "_experts_implementation", None)  # as the experts look it up
        if isinstance(experts, ExpertsBase) and implementation in _WITHOUT_PADS:
            # the shapes do not depend on the number of pads, so nothing waits for the device and no graph breaks
            is_pad_N1 = ~non_pad_N[:, None]
            ids_NK, weights_NK = ids_NK.masked_fill(is_pad_N1, num_experts), weights_NK.masked_fill(is_pad_N1, 0.0)
        return self.experts(tokens_ND, ids_NK, weights_NK, **step)
