"""One object for all settings of a plan."""

import pytest

from weftformer.routes import NO_CONSTRAINTS, Constraints, PlanSettings


def test_settings_shared_by_a_search():
    one = PlanSettings(
        beams=3, num_augmentations=4, seed=1, time_limit=3, per_reaction=1, on_salt="strip", max_new_tokens=5,
        enforce_limits=False,
    )  # fmt: skip
    assert one.for_search == PlanSettings(beams=3).for_search
    for other in ({"beams": 4}, {"ranking": "sqrt_length"}, {"grammar": False}, {"constraints": NO_CONSTRAINTS}):
        assert PlanSettings(**{"beams": 3} | other).for_search != one.for_search
    # a search to the stock goes on from what the stock lacks
    wishes = Constraints(only_purchasable=True, forbidden=("CO",))
    assert PlanSettings(constraints=wishes).for_search.rules == Constraints(forbidden=("CO",))
    assert PlanSettings(direct=True, constraints=wishes).for_search.rules == wishes


def test_rules_need_the_grammar():
    assert PlanSettings(grammar=False).rules == NO_CONSTRAINTS
    with pytest.raises(ValueError, match="Constraints need the grammar"):
        PlanSettings.from_options({"grammar": False, "required_leaf": "CO"})
