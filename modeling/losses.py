"""Losses of the model: cross-entropy over real tokens, and the two that keep a router balanced and small.

Shape suffixes: N tokens (all rows, flattened), E experts, K experts of a token, V vocabulary.
"""

import torch
from torch import nn

from .precision import at_least_float32


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


def expert_load(ids_NK: torch.Tensor, num_experts: int, real_N: torch.Tensor | None = None) -> torch.Tensor:
    """Assignments per expert (E,) in fp32, tokens that are not real (pads) left out."""
    ones_NK = torch.ones_like(ids_NK, dtype=torch.float32)
    if real_N is not None:
        ones_NK = ones_NK * real_N[:, None]
    load_E = torch.zeros(num_experts, dtype=torch.float32, device=ids_NK.device)
    return load_E.scatter_add(0, ids_NK.flatten(), ones_NK.flatten())


def router_counts(ids_NK: torch.Tensor, num_experts: int, real_N: torch.Tensor | None = None) -> torch.Tensor:
    """Assignments per expert and, last, the tokens they are of, (E + 1,) in fp32; pads left out."""
    tokens = ids_NK.new_tensor(len(ids_NK)) if real_N is None else real_N.sum()
    return torch.cat([expert_load(ids_NK, num_experts, real_N), tokens.float()[None]])


def _sum_over_real(values: torch.Tensor, real_N: torch.Tensor | None) -> torch.Tensor:
    """Sum over the first dimension of the rows that are real."""
    if real_N is None:
        return values.sum(dim=0)
    return (values * real_N.to(values.dtype).view((-1,) + (1,) * (values.ndim - 1))).sum(dim=0)


def balance_loss(
    logits_NE: torch.Tensor,
    ids_NK: torch.Tensor,
    real_N: torch.Tensor | None = None,
    counts: torch.Tensor | None = None,
) -> torch.Tensor:
    """E * sum over experts of (share of assignments * mean probability), 1 at perfect balance.

    Eq. 4-6 of Fedus et al. 2021 (arXiv:2101.03961) for top-k; tokens that are not real (pads) are left out.

    Args:
        logits_NE, ids_NK, real_N: what the router scored and chose, and which tokens are real.
        counts: [`router_counts`] of several batches; the result is then this batch's summand of the loss over all of
            them (Qiu et al. 2025, arXiv:2501.11873), so that it does not matter how they are split.
    """
    counts = router_counts(ids_NK, logits_NE.shape[-1], real_N) if counts is None else counts
    load_E, tokens = counts[:-1], counts[-1].clamp(min=1)
    share_E = load_E / load_E.sum().clamp(min=1)
    return logits_NE.shape[-1] * (share_E * _sum_over_real(logits_NE.softmax(dim=-1), real_N)).sum() / tokens


def router_z_loss(
    logits_NE: torch.Tensor, real_N: torch.Tensor | None = None, counts: torch.Tensor | None = None
) -> torch.Tensor:
    """Mean of logsumexp(logits)^2, eq. 5 of Zoph et al. 2022 (arXiv:2202.08906); pads left out.

    Args:
        logits_NE, real_N: what the router scored, and which tokens are real.
        counts: as in [`balance_loss`].
    """
    total = _sum_over_real(torch.logsumexp(logits_NE, dim=-1).square(), real_N)
    if counts is not None:
        return total / counts[-1].clamp(min=1)
    return total / (len(logits_NE) if real_N is None else real_N.sum().clamp(min=1))
