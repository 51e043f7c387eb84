"""The table of what records cannot know. `judging/steps.csv` has steps that it decides."""

import json
from importlib.resources import files

from weftformer.routes.chemistry.groups import patterns
from weftformer.routes.chemistry.reactivity import REACTIVITY

TABLE = json.loads(files("weftformer.routes.chemistry").joinpath(REACTIVITY).read_text(encoding="utf-8"))
CONDITIONS = ("with", "without", "reacting", "forms", "elsewhere", "beside")


def test_the_table_names_groups_that_exist():
    names = set(TABLE["protecting_groups"])
    for rule in (*TABLE["rules"], *TABLE["stereo_rules"]):
        assert rule.keys() <= {*CONDITIONS, "steps", "molecules", "why", "effect"}
        for condition in CONDITIONS:
            names.update(rule.get(condition, ()))
    assert names <= patterns().keys()
