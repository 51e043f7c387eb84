"""Muon: its updates against a plain computation by singular values, the weights that it trains, and runs with it."""

import pytest
import torch
from torch import nn

from weftformer.training.muon import Muon, layer_matrices, orthogonal

from . import runs


def numbers(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def test_orthogonal_keeps_the_singular_vectors_and_levels_the_values():
    left, right = torch.linalg.qr(numbers(3, 16, 16))[0], torch.linalg.qr(numbers(3, 24, 24))[0].mT[:, :16]
    matrices = left @ torch.diag(torch.logspace(0, -1.5, 16)) @ right
    found = orthogonal(matrices)
    for matrix, other in zip(matrices, found, strict=True):
        left, _, right = torch.linalg.svd(matrix, full_matrices=False)
        values = left.T @ other @ right.T
        assert torch.allclose(values, torch.diag(values.diagonal()), atol=1e-4)
        assert values.diagonal().min() > 0.43 and values.diagonal().max() < 1.57
    assert not orthogonal(torch.zeros(1, 2, 3)).any()


def test_a_step_is_that_of_its_formula_and_of_adamw():
    rate, decay = 0.1, 0.3
    shapes = {"tall": (8, 4), "wide": (4, 8), "stack": (3, 8, 4), "vector": (8,), "embedding": (5, 4)}
    weights = {name: nn.Parameter(numbers(*shape)) for name, shape in shapes.items()}
    others = [nn.Parameter(weights[name].detach().clone()) for name in ("vector", "embedding")]
    matrices = [weights[name] for name in ("tall", "wide", "stack")]
    optimizer = Muon([{"params": list(weights.values())}], matrices, lr=rate, weight_decay=decay)
    adamw = torch.optim.AdamW(others, lr=rate, weight_decay=decay)
    expected = {name: weights[name].detach().clone() for name in shapes}
    momentum = {name: torch.zeros(shape) for name, shape in shapes.items()}
    for step in range(3):
        for name, weight in weights.items():
            weight.grad = numbers(*weight.shape, seed=step + 1)
            momentum[name] = 0.95 * momentum[name] + 0.05 * weight.grad
            update = 0.05 * weight.grad + 0.95 * momentum[name]
            if update.ndim > 1:
                ones = [
                    orthogonal(one[None])[0] if one.shape[0] <= one.shape[1] else orthogonal(one.T[None])[0].T
                    for one in update.reshape(-1, *update.shape[-2:])
                ]
                scale = rate * 0.2 * max(update.shape[-2:]) ** 0.5
                expected[name] *= 1 - rate * decay
                expected[name] -= scale * torch.stack(ones).reshape(update.shape)
        for weight, name in zip(others, ("vector", "embedding"), strict=True):
            weight.grad = weights[name].grad.clone()
        optimizer.step()
        adamw.step()
    for name in ("tall", "wide", "stack"):
        assert torch.allclose(weights[name], expected[name], atol=1e-5), name
    assert torch.allclose(weights["vector"], others[0]) and torch.allclose(weights["embedding"], others[1])


@pytest.mark.parametrize("kind", ["dense", "sparse"])
def test_what_it_trains(kind):
    model = runs.build(**({"num_experts": 2, "encoder_mlp_layer_types": "sparse"} if kind == "sparse" else {}))
    chosen = set(layer_matrices(model))
    names = {name for name, parameter in model.named_parameters() if parameter in chosen}
    left = {name for name, parameter in model.named_parameters() if parameter not in chosen and parameter.ndim > 1}
    assert {f"model.decoder.layers.0.{name}.weight" for name in ("encoder_attn.q_proj", "mlp.down_proj")} <= names
    assert not any(word in name for name in names for word in ("bias", "norm", "router", "embed", "shared", "lm_head"))
    assert not any(word in name for name in left for word in ("attn", "down_proj", "up_proj"))
