"""Exports Weft models to other runtimes: C++, ONNX, CTranslate2."""

from .ctranslate2 import TOLERANCE, check_expressible, compare_ctranslate2, write_ctranslate2
from .graphs import DecoderStepGraph, EncoderGraph, check_exportable, exported_programs, graphs
from .onnx import Exported, largest_difference, load_onnx, write_onnx
from .search import SearchGraph, differing_texts, write_search

__all__ = [
    "TOLERANCE",
    "DecoderStepGraph",
    "EncoderGraph",
    "Exported",
    "SearchGraph",
    "check_exportable",
    "check_expressible",
    "compare_ctranslate2",
    "differing_texts",
    "exported_programs",
    "graphs",
    "largest_difference",
    "load_onnx",
    "write_ctranslate2",
    "write_onnx",
    "write_search",
]
