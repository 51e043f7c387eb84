"""Judges steps by recorded reactions."""

from ..chemistry.finding import Finding
from .judged_step import JudgedStep, count_detours
from .judgement import is_route_supported, is_supported, judge, judge_route
from .library import Library
from .library_files import library_of, load_library, shipped_library
from .transformation import CLASSES, Transformation

__all__ = [
    "CLASSES",
    "Finding",
    "JudgedStep",
    "Library",
    "Transformation",
    "count_detours",
    "is_route_supported",
    "is_supported",
    "judge",
    "judge_route",
    "library_of",
    "load_library",
    "shipped_library",
]
