"""Judges reactions: precedents in recorded chemistry, reasons against a reaction, remarks."""

from .judgement import CLASSES, Judgement, count_moves, judge, judge_route, judge_step, why_it_fails
from .transformations import Library, Transformation, shipped_library

__all__ = [
    "CLASSES",
    "Judgement",
    "Library",
    "Transformation",
    "count_moves",
    "judge",
    "judge_route",
    "judge_step",
    "shipped_library",
    "why_it_fails",
]
