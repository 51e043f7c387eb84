"""Cross-entropy over the labels that count: from logits, or straight from hidden states, in pieces.

Shape suffixes: N tokens, D width, V vocabulary.
"""

from collections.abc import Iterator
from typing import Any

import torch
from torch import nn

from .checks import is_tracing
from .layers import at_least_float32


def counted_items(labels: torch.Tensor, num_items_in_batch: torch.Tensor | int | None = None) -> torch.Tensor:
    """The labels that a loss is divided by: those of all accumulated batches if given, else those of `labels`; never 0."""
    count = labels.ne(-100).sum() if num_items_in_batch is None else torch.as_tensor(num_items_in_batch)
    return count.to(labels.device).clamp(min=1)


def cross_entropy(
    logits: torch.Tensor,
    labels: torch.Tensor,
    label_smoothing: float = 0.0,
    num_items_in_batch: torch.Tensor | int | None = None,
) -> torch.Tensor:
    """Mean negative log-likelihood of the labels that are not -100.

    Args:
        logits: (..., V). labels: (...), -100 where a position does not count; all -100 gives 0 with gradient 0.
        label_smoothing: weight of the uniform distribution over V (Szegedy et al. 2016).
        num_items_in_batch: divide by this instead of by the labels seen here: the labels of all accumulated
            batches and processes, which the Trainer passes.
    """
    flat_N = labels.flatten()
    # a sum over many tokens in half precision loses what the mean is about
    logits_NV = logits.flatten(0, -2).to(at_least_float32(logits.dtype))
    total = nn.functional.cross_entropy(
        logits_NV, flat_N, ignore_index=-100, reduction="sum", label_smoothing=label_smoothing
    )
    return total / counted_items(labels, num_items_in_batch).to(total.device)


# Logits held at a time: a CPU is fastest when they stay in its cache, a GPU with large products.
_CHUNKS = {"cpu": 2**23}
_CHUNK = 2**24
# How many chunks a compiled graph has, whatever the batch.
_TRACED_CHUNKS = 8
# With smaller vocabularies the logits dominate neither memory nor time.
_LARGE_VOCABULARY = 4096


def skips_logits(lm_head: Any, asked: bool | None, training: bool) -> bool:
    """Whether the loss is to be computed without keeping logits; `asked` decides, else whether it is worth while."""
    weight = getattr(lm_head, "weight", None)
    # adapters, sharded and gathered weights want their module to be called
    is_plain = type(lm_head) is nn.Linear and type(weight) is nn.Parameter and len(weight) == lm_head.out_features
    if not is_plain:
        if asked:
            raise ValueError(
                f"skip_logits=True needs a plain linear head: this one is a {type(lm_head).__name__} with weights of type "
                f"{type(weight).__name__} (an adapter, or sharded). Leave `skip_logits` out."
            )
        return False
    return bool(training and lm_head.out_features >= _LARGE_VOCABULARY if asked is None else asked)


def fused_cross_entropy(
    hidden_states: torch.Tensor,
    lm_head: nn.Linear,
    labels: torch.Tensor,
    label_smoothing: float = 0.0,
    num_items_in_batch: torch.Tensor | int | None = None,
) -> torch.Tensor:
    """[`cross_entropy`] of `lm_head(hidden_states)`, with the same gradients.

    Gradients of a chunk are taken as soon as its logits are there (Hsu et al. 2024, arXiv:2410.10989), so that nothing is
    computed twice.

    Args:
        hidden_states: (..., D). labels: (...), -100 where a position does not count.
    """
    hidden_ND, labels_N = hidden_states.flatten(0, -2), labels.flatten()
    if hidden_ND.device.type == "cpu" and not is_tracing():
        # the others need no product; on other devices to pick the labels that count is to wait for their number
        counts = labels_N != -100
        hidden_ND, labels_N = hidden_ND[counts], labels_N[counts]
    total = _FusedCrossEntropy.apply(hidden_ND, lm_head.weight, lm_head.bias, labels_N, label_smoothing)
    return total / counted_items(labels, num_items_in_batch).to(total.device)


class _FusedCrossEntropy(torch.autograd.Function):
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
            hidden = hidden_ND[start:stop].masked_fill(~counts_N1, 0)
            log_probs = nn.functional.linear(hidden, weight_VD, bias_V).to(dtype).log_softmax(dim=-1)
            total += (1 - smoothing) * nn.functional.nll_loss(log_probs, labels, reduction="sum")
            if smoothing:
                total -= smoothing / vocabulary * (log_probs.sum(dim=-1, keepdim=True) * counts_N1).sum()
            # the gradient of the logits: softmax minus the smoothed target; rows that do not count fall out below
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
                _add_product(d_weight, d_logits, hidden)
        ctx.save_for_backward(d_hidden, d_weight, d_bias)
        ctx.dtype = weight_VD.dtype
        return total

    @staticmethod
    def backward(ctx, d_total):
        d_hidden, d_weight, d_bias = ctx.saved_tensors
        by = [None if grad is None else grad * d_total.to(grad.dtype) for grad in (d_hidden, d_weight, d_bias)]
        return by[0], *(None if grad is None else grad.to(ctx.dtype) for grad in by[1:]), None, None


def _chunks(hidden_ND: torch.Tensor, vocabulary: int) -> Iterator[tuple[int, int]]:
    """Where each chunk of rows starts and stops."""
    tokens = len(hidden_ND)
    if is_tracing():
        # how many there are is a part of the graph and must not change with the batch: some may be empty
        rows = (tokens + _TRACED_CHUNKS - 1) // _TRACED_CHUNKS
        starts = [chunk * rows for chunk in range(_TRACED_CHUNKS)]
    else:
        rows = max(1, _CHUNKS.get(hidden_ND.device.type, _CHUNK) // vocabulary)
        starts = list(range(0, tokens, rows))
    return ((start, start + rows) for start in starts)


def _add_product(d_weight: torch.Tensor, d_logits: torch.Tensor, hidden: torch.Tensor) -> None:
    if hidden.dtype == d_weight.dtype:
        d_weight.addmm_(d_logits.t(), hidden)
    else:
        d_weight += d_logits.to(hidden.dtype).t() @ hidden
