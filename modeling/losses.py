"""Cross-entropy over the labels that are not -100, from logits or in chunks of states, scores of texts, and the losses
of routers.

Shape suffixes: N tokens, D width, V vocabulary, E experts, K experts per token.
"""

from collections.abc import Iterator
from typing import Any

import torch
from torch import nn

from .checks import is_tracing
from .layers import at_least_float32
from .transformers_names import maybe_autocast


def counted_items(labels: torch.Tensor, num_items_in_batch: torch.Tensor | int | None = None) -> torch.Tensor:
    """Return the number of labels to divide a loss by, at least 1.

    It is `num_items_in_batch` if given, else the number of `labels` that are not -100.
    """
    count = labels.ne(-100).sum() if num_items_in_batch is None else torch.as_tensor(num_items_in_batch)
    return count.to(labels.device).clamp(min=1)


def cross_entropy(
    logits: torch.Tensor,
    labels: torch.Tensor,
    label_smoothing: float = 0.0,
    num_items_in_batch: torch.Tensor | int | None = None,
) -> torch.Tensor:
    """Return the mean negative log-likelihood of the labels that are not -100.

    Args:
        logits: logits of shape (..., V).
        labels: labels of shape (...), -100 for positions that do not count. If all are -100, loss and gradient are 0.
        label_smoothing: weight of the uniform distribution over V (Szegedy et al. 2016).
        num_items_in_batch: number of labels in all accumulated batches and processes, from the Trainer. The sum is
            divided by it instead of by the number of labels given here.
    """
    flat_N = labels.flatten().to(logits.device)  # the head of a large model may be on another one
    # a sum over many tokens is too imprecise in half precision
    logits_NV = logits.flatten(0, -2).to(at_least_float32(logits.dtype))
    total = nn.functional.cross_entropy(
        logits_NV, flat_N, ignore_index=-100, reduction="sum", label_smoothing=label_smoothing
    )
    return total / counted_items(labels, num_items_in_batch).to(total.device)


def token_scores(logits: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
    """Return the log-probabilities of ids (...), by logits of shape (..., V)."""
    return logits.float().log_softmax(dim=-1).gather(-1, ids[..., None])[..., 0]


def is_end(ids: torch.Tensor, ends: Any) -> torch.Tensor:
    """Return which ids end a text. `ends` are the ids of the end tokens, None if there are none."""
    return torch.isin(ids, torch.as_tensor(-1 if ends is None else ends, device=ids.device))


def text_scores(scores: torch.Tensor, ids: torch.Tensor, ends: Any) -> torch.Tensor:
    """Return the log-probability of each text (rows,) up to its first end token, by those of its tokens."""
    ends_NT = is_end(ids, ends).int()
    return scores.masked_fill(ends_NT.cumsum(dim=1) > ends_NT, 0.0).sum(dim=1)


# Number of logits in a chunk: a CPU is fastest if they fit into its cache, a GPU if the products are large.
_CHUNKS = {"cpu": 2**23}
_CHUNK = 2**24
# Number of chunks in a compiled graph, for every batch size.
_TRACED_CHUNKS = 8
# With a smaller vocabulary, the logits take little of the memory and the time.
_LARGE_VOCABULARY = 4096


def chunks_loss(lm_head: Any, requested: bool | None, training: bool) -> bool:
    """Return whether to compute the loss in chunks, without keeping logits.

    `requested` decides if it is not None. Otherwise return True where chunks save memory: in training, with a large
    vocabulary and a plain head.

    Raises:
        ValueError: `requested` is True and the head is not a plain linear layer.
    """
    weight = getattr(lm_head, "weight", None)
    # a head with an adapter or with sharded weights works only if the module itself is called
    is_plain = (
        type(lm_head) is nn.Linear
        and weight is not None
        and type(weight) is nn.Parameter
        and len(weight) == lm_head.out_features
    )
    if not is_plain:
        if requested:
            raise ValueError(
                f"chunked_loss=True needs a plain head, not a {type(lm_head).__name__} of {type(weight).__name__}."
            )
        return False
    return bool(training and lm_head.out_features >= _LARGE_VOCABULARY if requested is None else requested)


def chunked_cross_entropy(
    hidden_states: torch.Tensor,
    lm_head: nn.Linear,
    labels: torch.Tensor,
    label_smoothing: float = 0.0,
    num_items_in_batch: torch.Tensor | int | None = None,
) -> torch.Tensor:
    """Return [`cross_entropy`] of `lm_head(hidden_states)`, with the same gradients.

    The logits are computed in chunks. The gradients of a chunk are computed in the forward pass, right after its
    logits (Hsu et al. 2024, arXiv:2410.10989), so that the logits are not computed twice.

    Args:
        hidden_states: hidden states of shape (..., D).
        lm_head: the head.
        labels: labels of shape (...), -100 for positions that do not count.
        label_smoothing: as in [`cross_entropy`].
        num_items_in_batch: as in [`cross_entropy`].
    """
    weight_VD: torch.Tensor = lm_head.weight
    bias_V: torch.Tensor | None = lm_head.bias
    device = weight_VD.device
    hidden_ND, labels_N = hidden_states.flatten(0, -2).to(device), labels.flatten().to(device)
    if device.type != "meta" and torch.is_autocast_enabled(device.type):
        # once, not in every chunk; and products in place have no autocast
        dtype = torch.get_autocast_dtype(device.type)
        hidden_ND, weight_VD = hidden_ND.to(dtype), weight_VD.to(dtype)
        bias_V = None if bias_V is None else bias_V.to(dtype)
    if hidden_ND.device.type == "cpu" and not is_tracing():
        # other positions need no logits; other devices keep them, because selecting rows waits for the device
        counts = labels_N != -100
        hidden_ND, labels_N = hidden_ND[counts], labels_N[counts]
    with maybe_autocast(device.type, enabled=False):
        total = _ChunkedCrossEntropy.apply(hidden_ND, weight_VD, bias_V, labels_N, label_smoothing)
    return total / counted_items(labels, num_items_in_batch).to(total.device)


class _ChunkedCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, hidden_ND, weight_VD, bias_V, labels_N, smoothing: float) -> torch.Tensor:
        needs_hidden, needs_weight, needs_bias = ctx.needs_input_grad[:3]
        vocabulary, dtype = len(weight_VD), at_least_float32(weight_VD.dtype)
        total = torch.zeros((), dtype=dtype, device=hidden_ND.device)
        d_hidden = torch.empty_like(hidden_ND) if needs_hidden else None
        d_weight = torch.zeros_like(weight_VD, dtype=dtype) if needs_weight else None
        d_bias = torch.zeros_like(bias_V, dtype=dtype) if needs_bias else None
        for start, stop in _chunks(hidden_ND, vocabulary):
            labels = labels_N[start:stop]
            counts_N1 = (labels != -100)[:, None]
            states = hidden_ND[start:stop].masked_fill(~counts_N1, 0)
            log_probs = nn.functional.linear(states, weight_VD, bias_V).to(dtype).log_softmax(dim=-1)
            # not in place: torch 2.11 would compile a sum in place without its gradient
            total = total + (1 - smoothing) * nn.functional.nll_loss(log_probs, labels, reduction="sum")
            if smoothing:
                total = total - smoothing / vocabulary * (log_probs.sum(dim=-1, keepdim=True) * counts_N1).sum()
            # the gradient of the logits is softmax minus the smoothed target; labels of -100 are masked out below
            d_logits = log_probs.exp_()
            if smoothing:
                d_logits -= smoothing / vocabulary
            targets_N1 = labels[:, None].masked_fill(~counts_N1, 0)
            d_logits.scatter_add_(1, targets_N1, d_logits.new_full(targets_N1.shape, smoothing - 1))
            if d_bias is not None:
                d_bias += counts_N1[:, 0].to(dtype) @ d_logits
            if d_hidden is not None:
                d_hidden[start:stop] = d_logits.to(weight_VD.dtype) @ weight_VD * counts_N1
            if d_weight is not None:
                _add_product(d_weight, d_logits, states)
        ctx.save_for_backward(d_hidden, d_weight, d_bias)
        ctx.dtypes = hidden_ND.dtype, weight_VD.dtype, weight_VD.dtype
        return total

    @staticmethod
    def backward(ctx, d_total):
        # scaled in fp32, because the scale of a loss in fp16 is larger than the largest number of fp16
        gradients = (
            None if grad is None else (grad.to(d_total.dtype) * d_total).to(dtype)
            for grad, dtype in zip(ctx.saved_tensors, ctx.dtypes, strict=True)
        )
        return *gradients, None, None


def _chunks(hidden_ND: torch.Tensor, vocabulary: int) -> Iterator[tuple[int, int]]:
    """Return the start and the end of each chunk of tokens."""
    tokens = len(hidden_ND)
    if is_tracing():
        # the number of chunks is part of the graph and must not change with the batch, so some may be empty
        size = (tokens + _TRACED_CHUNKS - 1) // _TRACED_CHUNKS
        starts = [chunk * size for chunk in range(_TRACED_CHUNKS)]
    else:
        size = max(1, _CHUNKS.get(hidden_ND.device.type, _CHUNK) // vocabulary)
        starts = list(range(0, tokens, size))
    return ((start, start + size) for start in starts)


def _add_product(d_weight: torch.Tensor, d_logits: torch.Tensor, hidden: torch.Tensor) -> None:
    if hidden.dtype == d_weight.dtype:
        d_weight.addmm_(d_logits.t(), hidden)
    else:
        d_weight += d_logits.to(hidden.dtype).t() @ hidden


def expert_load(ids_NK: torch.Tensor, num_experts: int, non_pad_N: torch.Tensor | None = None) -> torch.Tensor:
    """Return the number of assignments per expert (E,) in fp32, without pads. Several layers may come first."""
    ones_NK = torch.ones_like(ids_NK, dtype=torch.float32)
    if non_pad_N is not None:
        ones_NK = ones_NK * non_pad_N[:, None]
    load_E = torch.zeros(*ids_NK.shape[:-2], num_experts, dtype=torch.float32, device=ids_NK.device)
    return load_E.scatter_add(-1, ids_NK.flatten(-2), ones_NK.flatten(-2))


def router_counts(ids_NK: torch.Tensor, num_experts: int, non_pad_N: torch.Tensor | None = None) -> torch.Tensor:
    """Return the number of assignments per expert and then the number of tokens, (E + 1,) in fp32, without pads."""
    load_E = expert_load(ids_NK, num_experts, non_pad_N)
    tokens = load_E.new_full((), ids_NK.shape[-2]) if non_pad_N is None else non_pad_N.sum().float()
    return torch.cat([load_E, tokens.expand(*load_E.shape[:-1], 1)], dim=-1)


def balance_loss(
    logits_NE: torch.Tensor,
    ids_NK: torch.Tensor,
    non_pad_N: torch.Tensor | None = None,
    counts: torch.Tensor | None = None,
) -> torch.Tensor:
    """Return E * sum over experts of (share of assignments * mean probability), which is 1 at perfect balance.

    This is eq. 4-6 of Fedus et al. 2021 (arXiv:2101.03961) for top-k. Pads are left out. Several layers with the same
    tokens, as a first dimension of logits, ids and counts, have one loss each.

    Args:
        logits_NE: the router's logits.
        ids_NK: the selected experts.
        non_pad_N: False for pads. None if there are none.
        counts: [`router_counts`] of several batches. The result is then this batch's summand of the loss over all of
            them (Qiu et al. 2025, arXiv:2501.11873), so that the loss does not depend on how they are split.
    """
    counts = router_counts(ids_NK, logits_NE.shape[-1], non_pad_N) if counts is None else counts
    load_E, tokens = counts[..., :-1], counts[..., -1].clamp(min=1)
    share_E = load_E / load_E.sum(dim=-1, keepdim=True).clamp(min=1)
    probs_NE = logits_NE.softmax(dim=-1)
    probs_E = (probs_NE if non_pad_N is None else probs_NE * non_pad_N[:, None]).sum(dim=-2)
    return logits_NE.shape[-1] * (share_E * probs_E).sum(dim=-1) / tokens


def router_z_loss(
    logits_NE: torch.Tensor, non_pad_N: torch.Tensor | None = None, counts: torch.Tensor | None = None
) -> torch.Tensor:
    """Return the mean of logsumexp(logits)^2 over the non-pad tokens, eq. 5 of Zoph et al. 2022 (arXiv:2202.08906).

    Args:
        logits_NE: the router's logits, of one layer or of several, as in [`balance_loss`].
        non_pad_N: False for pads. None if there are none.
        counts: as in [`balance_loss`].
    """
    squares_N = torch.logsumexp(logits_NE, dim=-1).square()
    total = (squares_N if non_pad_N is None else squares_N * non_pad_N).sum(dim=-1)
    if counts is not None:
        return total / counts[..., -1].clamp(min=1)
    return total / (logits_NE.shape[-2] if non_pad_N is None else non_pad_N.sum().clamp(min=1))
