import pytest

from weftformer.serving import Limits


@pytest.mark.parametrize(
    "wrong",
    [
        {"max_queue": 0},
        {"timeout_s": float("nan")},
        {"max_wait_ms": -1},
        {"timeout_s": 0.0},
        {"max_time_limit": 0.0},
        {"max_expand_leaves": -1},
    ],
)
def test_bounds_are_positive(wrong):
    (name,) = wrong
    with pytest.raises(ValueError, match=f"{name}=.* is not allowed: give at least"):
        Limits(**wrong)
    assert Limits(max_wait_ms=0).max_wait_ms == Limits(max_expand_leaves=0).max_expand_leaves == 0
