"""Lengths of rows."""

import numpy as np
import pytest


@pytest.fixture(scope="module")
def lengths() -> np.ndarray:
    """Lengths like those of routes: long targets, and short sources that hardly depend on them."""
    rng = np.random.default_rng(0)
    return np.stack([rng.integers(10, 90, 1500), np.minimum(rng.gamma(4.0, 60.0, 1500).astype(int) + 40, 700)])
