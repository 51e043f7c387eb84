"""Retrosynthesis: the route tree, files, datasets and metrics; synthetic routes where RDKit is installed."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from .candidates import Candidate, Plan
from .comparison import edit_distance, is_convergent, is_prefix, truncated
from .dataset import drop_shared_targets, training_pairs
from .files import read_routes, write_routes
from .metrics import Estimate, Proportion, bootstrap_interval, top_k_exact, wilson_interval
from .tree import Route

if TYPE_CHECKING:
    from .building_blocks import load_building_blocks
    from .drawing import route_png, route_svg, save_picture
    from .evaluation import Evaluation, evaluate
    from .page import routes_page, save_page
    from .planner import RoutePlanner
    from .retro import Retrosynthesis
    from .stock import Stock
    from .synthetic import generate_routes, train_test_split
    from .templates import TEMPLATES

# Names that need RDKit (and pictures Pillow) and the module that has each; loaded when first asked for.
_NEEDS_RDKIT = {
    "TEMPLATES": "templates",
    "Evaluation": "evaluation",
    "RoutePlanner": "planner",
    "Retrosynthesis": "retro",
    "Stock": "stock",
    "evaluate": "evaluation",
    "generate_routes": "synthetic",
    "load_building_blocks": "building_blocks",
    "route_png": "drawing",
    "route_svg": "drawing",
    "routes_page": "page",
    "save_page": "page",
    "save_picture": "drawing",
    "train_test_split": "synthetic",
}

__all__ = [
    "TEMPLATES",
    "Candidate",
    "Estimate",
    "Evaluation",
    "Plan",
    "Proportion",
    "Retrosynthesis",
    "Route",
    "RoutePlanner",
    "Stock",
    "bootstrap_interval",
    "drop_shared_targets",
    "edit_distance",
    "evaluate",
    "generate_routes",
    "is_convergent",
    "is_prefix",
    "load_building_blocks",
    "read_routes",
    "route_png",
    "route_svg",
    "routes_page",
    "save_page",
    "save_picture",
    "top_k_exact",
    "train_test_split",
    "training_pairs",
    "truncated",
    "wilson_interval",
    "write_routes",
]


def __getattr__(name: str) -> Any:
    if name not in _NEEDS_RDKIT:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        return getattr(importlib.import_module(f".{_NEEDS_RDKIT[name]}", __name__), name)
    except ModuleNotFoundError as error:
        missing = {"rdkit": "RDKit", "PIL": "Pillow"}.get((error.name or "").split(".")[0])
        if missing is None:
            raise
        raise ImportError(f"weftformer.routes.{name} needs {missing}: pip install weftformer[chem]") from error
