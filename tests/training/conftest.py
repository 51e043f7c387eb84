"""Data sets are cached beside the test's files, and never in the user's home."""

import datasets
import numpy as np
import pytest


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "datasets-cache")


@pytest.fixture(scope="module")
def lengths() -> np.ndarray:
    """Of the kind that routes have: long targets, short sources that know little of them."""
    rng = np.random.default_rng(0)
    return np.stack([rng.integers(10, 90, 1500), np.minimum(rng.gamma(4.0, 60.0, 1500).astype(int) + 40, 700)])
