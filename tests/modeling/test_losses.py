"""Losses against torch's own, literal values, and the loss in chunks against the one that has all logits in memory."""

import math

import pytest
import torch
from torch import nn

from weftformer.modeling import losses
from weftformer.modeling.losses import (
    balance_loss,
    chunked_cross_entropy,
    counted_items,
    cross_entropy,
    router_counts,
    router_z_loss,
)

from ..models import assert_same_gradients, tiny_model

pytestmark = pytest.mark.dtype(torch.float64)


# probabilities 0.5/0.25/0.25, 0.2/0.6/0.2, 0.1/0.1/0.8
LOGITS = torch.tensor([[0.5, 0.25, 0.25], [0.2, 0.6, 0.2], [0.1, 0.1, 0.8]], dtype=torch.float64).log()
TOP = torch.tensor([[0, 1], [1, 0], [2, 0]])


def test_router_losses_by_hand_and_without_pads():
    # shares 3/6, 2/6, 1/6; mean probabilities 0.8/3, 0.95/3, 1.25/3
    expected = 3 * (3 / 6 * 0.8 / 3 + 2 / 6 * 0.95 / 3 + 1 / 6 * 1.25 / 3)
    assert balance_loss(LOGITS, TOP).item() == pytest.approx(expected)
    expected = 3 * (2 / 4 * 0.7 / 2 + 2 / 4 * 0.85 / 2)
    assert balance_loss(LOGITS, TOP, torch.tensor([True, True, False])).item() == pytest.approx(expected)
    logits = torch.tensor([[0.0, 0.0], [3.0, 3.0], [1.0, -1.0]])
    terms = [math.log(2) ** 2, (3 + math.log(2)) ** 2, math.log(math.e + 1 / math.e) ** 2]
    assert router_z_loss(logits).item() == pytest.approx(sum(terms) / 3)
    assert router_z_loss(logits, torch.tensor([True, False, True])).item() == pytest.approx((terms[0] + terms[2]) / 2)


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


# --- in chunks


@pytest.fixture
def few_rows(monkeypatch):
    monkeypatch.setattr(losses, "_CHUNKS", {"cpu": 64})  # three tokens at a time


def problem(bias=True, dtype=torch.float64):
    torch.manual_seed(0)
    head = nn.Linear(8, 20, bias=bias, dtype=dtype)
    hidden = torch.randn(2, 7, 8, dtype=dtype, requires_grad=True)
    labels = torch.randint(0, 20, (2, 7))
    labels[0, 4:] = -100
    return hidden, head, labels


def gradients(loss, hidden, head):
    return torch.autograd.grad(loss, [hidden, *head.parameters()])


@pytest.mark.parametrize(("smoothing", "bias", "items"), [(0.0, True, None), (0.2, False, 5), (0.9, True, None)])
def test_whole_and_chunked_loss_equal_torch(few_rows, smoothing, bias, items):
    hidden, head, labels = problem(bias)
    logits_and_labels = head(hidden).flatten(0, 1), labels.flatten()
    total = nn.functional.cross_entropy(*logits_and_labels, label_smoothing=smoothing, reduction="sum")
    for loss in (
        cross_entropy(head(hidden), labels, smoothing, items),
        chunked_cross_entropy(hidden, head, labels, smoothing, items),
    ):
        assert_same_gradients(3 * loss, 3 * total / (items or 11), [hidden, *head.parameters()])


def test_labels_of_minus_100_and_frozen_parts_get_no_gradient(few_rows):
    hidden, head, labels = problem()
    loss = chunked_cross_entropy(hidden, head, torch.full_like(labels, -100))
    assert loss == 0 and all(not grad.any() for grad in gradients(loss, hidden, head))
    chunked_cross_entropy(hidden, head.requires_grad_(False), labels).backward()
    assert hidden.grad.any() and head.weight.grad is None


SIZES = {"d_model": 8, "encoder_layers": 1, "decoder_layers": 1, "encoder_ffn_dim": 16, "decoder_ffn_dim": 16}


def large(vocab_size=4_096, **fields):
    return tiny_model(vocab_size=vocab_size, dropout=0.0, **SIZES, **fields)


BATCH = {"input_ids": torch.tensor([[5, 6, 7]]), "labels": torch.tensor([[8, 9, -100]])}


@pytest.mark.parametrize("tied", [True, False])
def test_training_with_a_large_vocabulary_keeps_no_logits(tied):
    model = large(tie_word_embeddings=tied).train()
    output, plain = (model(**BATCH, smoothing=0.1, chunked_loss=chunked) for chunked in (True, False))
    assert output.logits is None and plain.logits.shape == (1, 3, 4_096)
    assert_same_gradients(output.loss, plain.loss, list(model.parameters()))


@pytest.mark.parametrize(("smoothing", "bias"), [(0.0, True), (0.2, False)])
@pytest.mark.parametrize("where", ["another device", "a graph"])
def test_devices_and_graphs_equal_plain_loss(few_rows, monkeypatch, smoothing, bias, where):
    """They do not pick the labels that count, for which one waits on a device; a graph has a fixed number of chunks."""
    hidden, head, labels = problem(bias)
    for row in (slice(0, 2), slice(0, 1), slice(0, 0)):  # seven tokens are fewer than the chunks of a graph
        states = hidden[row].detach().requires_grad_()
        expected = 3 * cross_entropy(head(states), labels[row], smoothing)
        if where == "a graph":
            monkeypatch.setattr(losses, "is_tracing", lambda: True)
        total = losses._ChunkedCrossEntropy.apply(
            states.flatten(0, -2), head.weight, head.bias, labels[row].flatten(), smoothing
        )
        actual = 3 * total / counted_items(labels[row])
        assert_same_gradients(actual, expected, [states, *head.parameters()])


@pytest.mark.dtype(torch.float32)
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32], ids=str)
def test_scaled_loss_in_half_precision_does_not_overflow(few_rows, dtype):
    """A loss of two labels, scaled by 2^17, has a gradient of 2^16, which is no number of 16 bits."""
    hidden, head, labels = problem(dtype=dtype)
    labels = labels.masked_fill(torch.arange(14).view(2, 7) > 1, -100)
    scale = 2.0**17
    with torch.no_grad():  # gradients that fit
        head.weight *= 1e-3
    found = gradients(scale * chunked_cross_entropy(hidden, head, labels), hidden, head)
    expected = gradients(scale * cross_entropy(head(hidden), labels), hidden, head)
    torch.testing.assert_close(found, expected, atol=1e-2, rtol=1e-2)


def test_losses_are_computed_on_the_device_of_the_head():
    """As `device_map` splits a large model. The device "meta" stands for all but the CPU."""
    head, states, labels = nn.Linear(16, 31, device="meta"), torch.randn(2, 3, 16), torch.ones(2, 3).long()
    assert cross_entropy(head(states.to("meta")), labels, 0.1, 9).is_meta
    assert chunked_cross_entropy(states, head, labels, 0.1, 9).is_meta
