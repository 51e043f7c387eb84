"""One list of the reactions of two sources."""

import itertools
import math

import pytest

from weftformer.routes.planning.merging import merged

BOTH, LIBRARY, MODEL, RARE = ("A",), ("B",), ("C",), ("D",)


def test_what_both_sources_propose_comes_first():
    found = merged(
        {LIBRARY: math.log(0.4), BOTH: math.log(0.3), RARE: -30.0}, {MODEL: math.log(0.5), BOTH: math.log(0.3)}
    )
    assert next(iter(found)) == BOTH and sum(found.values()) == pytest.approx(1.0)
    assert list(found.values()) == sorted(found.values(), reverse=True)
    # a source counts an improbable set like one that it does not propose
    without = merged(
        {LIBRARY: math.log(0.4), BOTH: math.log(0.3)}, {MODEL: math.log(0.5), BOTH: math.log(0.3), RARE: -30}
    )
    assert without[RARE] == pytest.approx(found[RARE])


def test_the_order_of_one_source_stays():
    shares = {LIBRARY: -0.5, BOTH: -1.0, MODEL: -3.0}
    assert list(merged(shares, {})) == list(merged({}, shares)) == list(shares)
    assert merged({}, {}) == {}


def test_equal_sets_have_the_same_order_in_any_process_and_own_ones_come_first():
    shares = dict.fromkeys([MODEL, BOTH, LIBRARY], -1.0)
    for order in itertools.permutations(shares):
        assert list(merged({key: shares[key] for key in order}, {})) == [BOTH, LIBRARY, MODEL]
    found = merged(shares | {RARE: -2.0}, {}, [RARE, ("not proposed",)])
    assert list(found) == [RARE, BOTH, LIBRARY, MODEL] and found[RARE] < found[BOTH]
