"""Retrosynthesis: the route tree, molecules, stock; packages for files, data, planning, scoring and drawing.

Nothing is imported before it is used: a task that is registered costs no chemistry.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .drawing.svg import route_png, route_svg, save_picture
    from .evaluation.evaluation import Evaluation, evaluate
    from .files import read_routes, write_routes
    from .judging import JudgedStep, judge
    from .pages.page import routes_page, save_page
    from .planning.one_step import WeftReactionModel
    from .planning.planner import RoutePlanner
    from .planning.settings import NO_CONSTRAINTS, Constraints, PlanSettings
    from .plans import Candidate, Plan
    from .stock.stock import Stock
    from .training.rows import training_pairs
    from .training.sample import sample_routes, train_test_split
    from .tree import Route

_NAMES = {
    "training.rows": ("training_pairs",),
    "training.sample": ("sample_routes", "train_test_split"),
    "pages.page": ("routes_page", "save_page"),
    "drawing.svg": ("route_png", "route_svg", "save_picture"),
    "files": ("read_routes", "write_routes"),
    "judging": ("JudgedStep", "judge"),
    "planning.one_step": ("WeftReactionModel",),
    "planning.planner": ("RoutePlanner",),
    "planning.settings": ("NO_CONSTRAINTS", "Constraints", "PlanSettings"),
    "plans": ("Candidate", "Plan"),
    "evaluation.evaluation": ("Evaluation", "evaluate"),
    "stock.stock": ("Stock",),
    "tree": ("Route",),
}
_MODULES = {name: module for module, names in _NAMES.items() for name in names}

__all__ = [*_MODULES]


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    importlib.import_module(".pages", __name__)  # attaches to `Route` what notebooks show
    try:
        return getattr(importlib.import_module(f".{_MODULES[name]}", __name__), name)
    except ModuleNotFoundError as error:
        missing = (error.name or "weftformer").split(".")[0]
        if missing == "weftformer":
            raise
        extra = "syntheseus" if missing == "syntheseus" else "chem"
        raise ImportError(
            f'weftformer.routes.{name} needs {missing}. Install it in your clone of Weft: pip install -e ".[{extra}]"'
        ) from error
