"""Exports Weft models to other runtimes: C++ and CTranslate2."""

from .ctranslate2 import TOLERANCE, check_expressible, compare_ctranslate2, write_ctranslate2
from .search import SearchGraph, differing_outputs, write_search

__all__ = [
    "TOLERANCE",
    "SearchGraph",
    "check_expressible",
    "compare_ctranslate2",
    "differing_outputs",
    "write_ctranslate2",
    "write_search",
]
