"""The loss that never has all logits in memory, against the one that does."""

import pytest
import torch
from torch import nn

from weftformer.modeling import losses
from weftformer.modeling.losses import chunked_cross_entropy, counted_items, cross_entropy

from ..models import assert_same_gradients, tiny_model

pytestmark = pytest.mark.dtype(torch.float64)


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


@pytest.mark.parametrize(("smoothing", "bias", "items"), [(0.0, True, None), (0.2, False, 5)])
def test_chunked_loss_equals_plain_loss(few_rows, smoothing, bias, items):
    hidden, head, labels = problem(bias)
    expected = 3 * cross_entropy(head(hidden), labels, smoothing, items)
    actual = 3 * chunked_cross_entropy(hidden, head, labels, smoothing, items)
    assert_same_gradients(actual, expected, [hidden, *head.parameters()])


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
    output, plain = (model(**BATCH, smoothing=0.1, chunked_loss=chunked) for chunked in (None, False))
    assert output.logits is None and plain.logits.shape == (1, 3, 4_096)
    assert_same_gradients(output.loss, plain.loss, list(model.parameters()))


def test_chunked_loss_setting():
    """None: in training with a large vocabulary; elsewhere there is little to be saved."""
    for model, chunks_training in ((large(), True), (large(64), False)):
        for training in (True, False):
            found = [model.train(training)(**BATCH, chunked_loss=asked).logits for asked in (False, True, None)]
            assert [logits is None for logits in found] == [False, True, chunks_training and training]
        without_labels = {"input_ids": BATCH["input_ids"], "decoder_input_ids": BATCH["input_ids"]}
        assert model.train()(**without_labels, chunked_loss=True).logits is not None


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
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, atol=1e-2, rtol=1e-2)
