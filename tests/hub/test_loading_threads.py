"""The number of threads: the one that was asked for, else that of the environment, else one for a small model."""

import pytest
import torch

from weftformer.hub import loading

from ..models import tiny_model


@pytest.mark.parametrize(
    ("asked", "environment", "is_small", "expected"),
    [(2, "3", True, 2), (None, "3", True, 3), (None, None, True, 1), (None, None, False, 3)],
)
def test_threads(monkeypatch, asked, environment, is_small, expected):
    monkeypatch.delenv("OMP_NUM_THREADS")
    if environment is not None:
        monkeypatch.setenv("OMP_NUM_THREADS", environment)
    monkeypatch.setattr(loading, "_SMALL", 5_000_000 if is_small else 10)
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(3)
        loading.use_threads(tiny_model(), asked)
        assert torch.get_num_threads() == expected
    finally:
        torch.set_num_threads(before)
