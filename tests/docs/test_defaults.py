"""Python, the commands and the server have the same defaults, but for a table in `docs/api.md`."""

import argparse
import inspect
import re
from dataclasses import MISSING, fields

import pytest

from weftformer.conversion import convert, upcycle
from weftformer.inference.scoring import score_pairs
from weftformer.routes import Constraints, PlanSettings
from weftformer.routes.planning.planner import RoutePlanner
from weftformer.routes.server import RouteTask
from weftformer.scripts import cli
from weftformer.serving import Limits

from ..routes.conftest import known, planner, planner_folder  # noqa: F401, fixtures
from .test_pages import ROOT, own_text


def documented(door):
    """Return the names in the rows of a door."""
    table = own_text(ROOT / "docs" / "api.md").partition("## What differs")[2].partition("\n## ")[0]
    rows = [line.split("|")[1:3] for line in table.splitlines() if line.startswith("| `")]
    return {name for doors, names in rows if f"`{door}`" in doors for name in re.findall(r"`(\w+)`", names)}


def of_function(function):
    return {name: one.default for name, one in inspect.signature(function).parameters.items()}


def of_command(name):
    actions = cli.build_parser([name])[1][name]._actions
    return {action.dest: action.default for action in actions if action.default is not argparse.SUPPRESS}


def of_settings(*kinds):
    defaults = {one.name: one.default for kind in kinds for one in fields(kind)}
    return {name: default for name, default in defaults.items() if default is not MISSING}


def of_requests(planner, path):
    [endpoint] = [one for one in RouteTask(planner).endpoints(Limits()) if one.path == path]
    return {name: one.default for name, one in endpoint.request.model_fields.items() if not one.is_required()}


def plain(value):
    return None if value in ((), [], "", inspect.Parameter.empty) else value


@pytest.mark.parametrize(
    ("door", "command", "names"),
    [
        ("plan", "routes plan", {}),
        ("expand", "routes expand", {"number": "n"}),
        ("upcycle", "upcycle", {"experts": "num_experts", "experts_per_token": "num_experts_per_tok"}),
        ("convert", "convert", {"rename": "renames", "config_overrides": "overrides"}),
        ("evaluate", "evaluate", {}),
    ],
)
def test_defaults_differ_where_the_table_says(door, command, names, planner):
    settings = of_settings(PlanSettings, Constraints)
    doors = {
        "plan": [of_function(RoutePlanner.stream) | settings, of_requests(planner, "/plan")],
        "expand": [of_function(RoutePlanner.expand) | settings, of_requests(planner, "/expand")],
        "upcycle": [of_function(upcycle)],
        "convert": [of_function(convert)],
        "evaluate": [of_function(score_pairs)],
    }[door]
    doors.append({names.get(name, name): default for name, default in of_command(command).items()})
    compared = {name for name in {*doors[0]} if sum(name in defaults for defaults in doors) > 1}
    different = {
        name for name in compared if len({repr(plain(one[name])) for one in doors if name in one}) > 1
    } - {"constraints"}  # fmt: skip
    assert compared and different == documented(door) & compared, different ^ documented(door)
