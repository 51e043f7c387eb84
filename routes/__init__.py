"""Retrosynthesis, on top of the family: molecules and stocks, judging and planning, files, pictures and pages, with
commands and endpoints of its own.

Nothing is imported before it is used: a task that is registered costs no chemistry.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from ..common.lazy import lazy_names

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

_find, __all__ = lazy_names(__package__, __file__)


def __getattr__(name: str) -> Any:
    if name in __all__:
        importlib.import_module(".pages", __name__)  # attaches to `Route` what notebooks show
    try:
        return _find(name)
    except ModuleNotFoundError as error:
        missing = (error.name or "weftformer").split(".")[0]
        if missing == "weftformer":
            raise
        extra = "syntheseus" if missing == "syntheseus" else "chem"
        raise ImportError(
            f'weftformer.routes.{name} needs {missing}. Install it in your clone of Weft: pip install -e ".[{extra}]"'
        ) from error
