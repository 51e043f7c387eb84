"""The sample of recorded routes, and the split of routes into those to train and to test on."""

import pytest

from weftformer.routes.chemistry.molecules import canonical_route
from weftformer.routes.family import source_key
from weftformer.routes.training.sample import SAMPLE, sample_routes, train_test_split


def test_the_sample_is_what_its_readme_says():
    routes = sample_routes()
    assert len(routes) == len({route.canonical() for route in routes}) == 4000
    assert {route.depth for route in routes} == {1, 2} and max(len(route.smiles) for route in routes) == 36
    assert all(canonical_route(route) == route for route in routes[::40])
    assert SAMPLE.stat().st_size < 150_000 and (SAMPLE.parent / "README.md").exists()
    assert sample_routes(7) == routes[:7]
    with pytest.raises(ValueError, match="The sample has 4000 routes: give a number from 1 to 4000, not 4001"):
        sample_routes(4001)


def test_no_test_target_is_in_a_training_route():
    routes = sample_routes(400)
    train, test = train_test_split(routes, 50)
    assert len(test) == 50 and sorted(map(routes.index, train + test)) == list(range(400))
    assert not {route.smiles for route in test} & {smiles for route in train for smiles in route.molecules()}
    assert [routes.index(route) for route in test] == sorted(map(routes.index, test))
    assert train_test_split(routes, 0.125) == (train, test)
    # the same in another order, and among more routes no route is tested that a model was trained on
    assert {route.smiles for route in train_test_split(routes[::-1], 50)[1]} == {route.smiles for route in test}
    trained = frozenset(source_key(route.smiles) for route in train)
    assert set(train_test_split(routes, 50, trained)[1]) == set(test)
    later = train_test_split(sample_routes(600), 90, trained)[1]
    assert not set(later) & set(train) and set(later) & set(test)
