"""Losses of the model: cross-entropy over real tokens, and the two that keep a router balanced and small.

Shape suffixes: N tokens (all rows, flattened), E experts, K experts of a token, V vocabulary.
"""

import torch
from torch import nn


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
    # fp32: a sum over many tokens in half precision loses what the mean is about
    total = nn.functional.cross_entropy(
        logits.flatten(0, -2).float(), flat_N, ignore_index=-100, reduction="sum", label_smoothing=label_smoothing
    )
    return total / counted_items(labels, num_items_in_batch).to(total.device)


def expert_load(ids_NK: torch.Tensor, num_experts: int, real_N: torch.Tensor | None = None) -> torch.Tensor:
    """Assignments per expert (E,) in fp32, tokens that are not real (pads) left out."""
    ones_NK = torch.ones_like(ids_NK, dtype=torch.float32)
    if real_N is not None:
        ones_NK = ones_NK * real_N[:, None]
    load_E = torch.zeros(num_experts, dtype=torch.float32, device=ids_NK.device)
    return load_E.scatter_add(0, ids_NK.flatten(), ones_NK.flatten())


def _mean_over_real(values: torch.Tensor, real_N: torch.Tensor | None) -> torch.Tensor:
    """Mean over the first dimension of the rows that are real; 0 when none is."""
    if real_N is None:
        return values.mean(dim=0)
    real_N = real_N.to(values.dtype)
    shape = (-1,) + (1,) * (values.ndim - 1)
    return (values * real_N.view(shape)).sum(dim=0) / real_N.sum().clamp(min=1)


def balance_loss(logits_NE: torch.Tensor, ids_NK: torch.Tensor, real_N: torch.Tensor | None = None) -> torch.Tensor:
    """E * sum over experts of (share of assignments * mean probability), 1 at perfect balance.

    Eq. 4-6 of Fedus et al. 2021 (arXiv:2101.03961) for top-k; tokens that are not real (pads) are left out.
    """
    load_E = expert_load(ids_NK, logits_NE.shape[-1], real_N)
    share_E = load_E / load_E.sum().clamp(min=1)
    return logits_NE.shape[-1] * (share_E * _mean_over_real(logits_NE.softmax(dim=-1), real_N)).sum()


def router_z_loss(logits_NE: torch.Tensor, real_N: torch.Tensor | None = None) -> torch.Tensor:
    """Mean of logsumexp(logits)^2, eq. 5 of Zoph et al. 2022 (arXiv:2202.08906); pads left out."""
    return _mean_over_real(torch.logsumexp(logits_NE, dim=-1).square(), real_N)
