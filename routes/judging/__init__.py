"""Judges reactions: precedents in recorded chemistry, and remarks."""

from .judgement import (
    CLASSES,
    Evidence,
    Judgement,
    count_hidden,
    count_unproductive,
    is_recorded,
    judge,
    judge_route,
    judge_step,
)
from .transformations import Library, Transformation, library_of, shipped_library

__all__ = [
    "CLASSES",
    "Evidence",
    "Judgement",
    "Library",
    "Transformation",
    "count_hidden",
    "count_unproductive",
    "is_recorded",
    "judge",
    "judge_route",
    "judge_step",
    "library_of",
    "shipped_library",
]
