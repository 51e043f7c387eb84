"""Losses: torch's own where there is one, literal values where there is none."""

import math

import pytest
import torch

from weftformer.modeling.losses import cross_entropy
from weftformer.modeling.moe import balance_loss, router_counts, router_z_loss

from ..models import assert_same_gradients

pytestmark = pytest.mark.dtype(torch.float64)


def draw(seed=0):
    generator = torch.Generator().manual_seed(seed)
    logits = (torch.randn(3, 5, 11, generator=generator) * 2).requires_grad_()
    labels = torch.randint(0, 11, (3, 5), generator=generator)
    labels[0, 3:] = labels[2, 1] = -100
    return logits, labels


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.9])
def test_cross_entropy_equals_torch(smoothing):
    logits, labels = draw()
    loss = cross_entropy(logits, labels, smoothing)
    expected = torch.nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten(), label_smoothing=smoothing)
    assert_same_gradients(loss, expected, [logits])


# probabilities 0.5/0.25/0.25, 0.2/0.6/0.2, 0.1/0.1/0.8
LOGITS = torch.tensor([[0.5, 0.25, 0.25], [0.2, 0.6, 0.2], [0.1, 0.1, 0.8]], dtype=torch.float64).log()
TOP = torch.tensor([[0, 1], [1, 0], [2, 0]])


def test_balance_loss_by_hand_and_without_pads():
    # shares 3/6, 2/6, 1/6; mean probabilities 0.8/3, 0.95/3, 1.25/3
    expected = 3 * (3 / 6 * 0.8 / 3 + 2 / 6 * 0.95 / 3 + 1 / 6 * 1.25 / 3)
    assert math.isclose(balance_loss(LOGITS, TOP).item(), expected, rel_tol=1e-6)
    real = torch.tensor([True, True, False])
    expected = 3 * (2 / 4 * 0.7 / 2 + 2 / 4 * 0.85 / 2)
    assert math.isclose(balance_loss(LOGITS, TOP, real).item(), expected, rel_tol=1e-6)


def test_z_loss_by_hand_and_without_pads():
    logits = torch.tensor([[0.0, 0.0], [3.0, 3.0], [1.0, -1.0]])
    terms = [math.log(2) ** 2, (3 + math.log(2)) ** 2, math.log(math.e + 1 / math.e) ** 2]
    assert math.isclose(router_z_loss(logits).item(), sum(terms) / 3, rel_tol=1e-6)
    real = torch.tensor([True, False, True])
    assert math.isclose(router_z_loss(logits, real).item(), (terms[0] + terms[2]) / 2, rel_tol=1e-6)


@pytest.mark.parametrize("masked", [False, True])
def test_router_losses_of_parts_sum_to_the_whole(masked):
    """Loss and gradients: each part needs no more than the counts of all."""
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(12, 4, generator=generator).requires_grad_()
    ids = logits.topk(2).indices
    real = torch.rand(12, generator=generator) > 0.4 if masked else None
    parts = [(logits[rows], ids[rows], None if real is None else real[rows]) for rows in (slice(0, 3), slice(3, 12))]
    counts = [router_counts(part[1], 4, part[2]) for part in parts]
    total = sum(counts)
    for whole, summands in (
        (balance_loss(logits, ids, real), [balance_loss(*part, total) for part in parts]),
        (router_z_loss(logits, real), [router_z_loss(part[0], part[2], total) for part in parts]),
    ):
        assert_same_gradients(sum(summands), whole, [logits])
    own = sum(balance_loss(*part) for part in parts) / 2
    assert abs(own - balance_loss(logits, ids, real)) > 1e-3
