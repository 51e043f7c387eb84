"""Judges reactions: precedents in recorded chemistry, and remarks."""

from .judgement import CLASSES, Judgement, count_unproductive, judge, judge_route, judge_step
from .transformations import Library, Transformation, shipped_library

__all__ = [
    "CLASSES",
    "Judgement",
    "Library",
    "Transformation",
    "count_unproductive",
    "judge",
    "judge_route",
    "judge_step",
    "shipped_library",
]
