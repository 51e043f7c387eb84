"""The loss that never holds all logits, against the one that does."""

import pytest
import torch
from torch import nn

from weftformer import WeftConfig, WeftForConditionalGeneration
from weftformer.modeling import losses
from weftformer.modeling.losses import cross_entropy, fused_cross_entropy, skips_logits

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
    wanted = [tensor for tensor in (hidden, head.weight, head.bias) if tensor is not None and tensor.requires_grad]
    return torch.autograd.grad(loss, wanted)


@pytest.mark.parametrize("smoothing", [0.0, 0.2])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("items", [None, 5])
def test_loss_and_gradients_are_those_of_the_plain_one(few_rows, smoothing, bias, items):
    hidden, head, labels = problem(bias)
    expected = 3 * cross_entropy(head(hidden), labels, smoothing, items)
    actual = 3 * fused_cross_entropy(hidden, head, labels, smoothing, items)
    torch.testing.assert_close(actual, expected, atol=1e-10, rtol=1e-10)
    for one, other in zip(gradients(actual, hidden, head), gradients(expected, hidden, head), strict=True):
        torch.testing.assert_close(one, other, atol=1e-10, rtol=1e-10)


def test_no_label_that_counts_gives_nothing(few_rows):
    hidden, head, labels = problem()
    loss = fused_cross_entropy(hidden, head, torch.full_like(labels, -100))
    assert loss == 0 and all(not grad.any() for grad in gradients(loss, hidden, head))


def test_frozen_parts_get_no_gradient(few_rows):
    hidden, head, labels = problem()
    head.requires_grad_(False)
    fused_cross_entropy(hidden, head, labels).backward()
    assert hidden.grad.any() and head.weight.grad is None


@pytest.mark.dtype(torch.float32)
def test_half_precision_and_autocast_are_as_close_as_the_plain_one(few_rows):
    hidden, head, labels = problem(dtype=torch.bfloat16)
    expected = cross_entropy(head(hidden), labels)
    actual = fused_cross_entropy(hidden, head, labels)
    # logits of 8 bits: one of another rounding moves the mean by up to 1e-3
    torch.testing.assert_close(actual, expected, atol=2e-3, rtol=0)
    for one, other in zip(gradients(actual, hidden, head), gradients(expected, hidden, head), strict=True):
        assert one.dtype == other.dtype == torch.bfloat16
        torch.testing.assert_close(one, other, atol=2e-3, rtol=0.05)
    hidden, head, labels = problem(dtype=torch.float32)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        expected = cross_entropy(head(hidden), labels)
        torch.testing.assert_close(fused_cross_entropy(hidden, head, labels), expected, atol=2e-3, rtol=0)


def build(vocab_size=4_096, **overrides):
    torch.manual_seed(0)
    sizes = {f"{stack}_{name}": value for stack in ("encoder", "decoder") for name, value in (
        ("layers", 1), ("attention_heads", 2), ("ffn_dim", 16))}  # fmt: skip
    config = WeftConfig(vocab_size=vocab_size, d_model=8, dropout=0.0, label_smoothing=0.1, **sizes, **overrides)
    return WeftForConditionalGeneration(config)


@pytest.mark.parametrize("tied", [True, False])
def test_a_large_vocabulary_trains_without_logits(tied):
    model = build(tie_word_embeddings=tied)
    batch = {"input_ids": torch.tensor([[5, 6, 7]]), "labels": torch.tensor([[8, 9, -100]])}
    output = model.train()(**batch, skip_logits=None)
    plain = model(**batch)
    assert output.logits is None and plain.logits.shape == (1, 3, 4_096)
    torch.testing.assert_close(output.loss, plain.loss, atol=1e-10, rtol=1e-10)
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    grads = [torch.autograd.grad(loss, parameters) for loss in (output.loss, plain.loss)]
    for one, other in zip(*grads, strict=True):
        torch.testing.assert_close(one, other, atol=1e-10, rtol=1e-10)
    assert model.eval()(**batch).logits is not None
    assert (
        model.train()(**{"input_ids": batch["input_ids"], "decoder_input_ids": batch["input_ids"]}).logits is not None
    )
    assert build(64).train()(**batch).logits is not None


def test_heads_that_must_be_called_are_called():
    class Adapter(nn.Linear):
        pass

    head = Adapter(8, 20_000)
    assert not skips_logits(head, None, training=True)
    with pytest.raises(ValueError, match="Adapter"):
        skips_logits(head, True, training=True)


@pytest.mark.slow
def test_a_compiled_model_trains_without_logits():
    model = build().train()
    batch = {"input_ids": torch.tensor([[5, 6, 7]]), "labels": torch.tensor([[8, 9, -100]])}
    compiled = torch.compile(model, backend="aot_eager")
    torch.testing.assert_close(compiled(**batch).loss, model(**batch).loss)
