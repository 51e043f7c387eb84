import pytest

from weftformer.common.statistics import wilson_interval


def test_wilson_interval_against_published_values():
    # R. G. Newcombe, Statistics in Medicine 17 (1998) 857-872, table I, method 3: 81/263, 15/148, 0/20, 1/29.
    for successes, n, low, high in [
        (81, 263, 0.2553, 0.3662),
        (15, 148, 0.0624, 0.1605),
        (0, 20, 0, 0.1611),
        (1, 29, 0.0061, 0.1718),
    ]:
        assert wilson_interval(successes, n) == pytest.approx((low, high), abs=6e-5)
    assert wilson_interval(7, 7)[1] == 1.0
    for successes, n in ((0, 0), (3, 2), (-1, 5)):
        with pytest.raises(ValueError, match="successes"):
            wilson_interval(successes, n)
