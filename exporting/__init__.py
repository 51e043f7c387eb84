"""Exports Weft models to the formats of other runtimes: `torch.export`, ONNX, CTranslate2."""

from .comparing import TOLERANCE, compare_ctranslate2
from .ctranslate2 import check_expressible, write_ctranslate2
from .graphs import DecoderStepGraph, EncoderGraph, check_exportable, exported_programs, graphs
from .onnx import load_onnx, write_onnx
from .running import Exported, largest_difference
from .torch_files import load_torch, write_torch

__all__ = [
    "TOLERANCE",
    "DecoderStepGraph",
    "EncoderGraph",
    "Exported",
    "check_exportable",
    "check_expressible",
    "compare_ctranslate2",
    "exported_programs",
    "graphs",
    "largest_difference",
    "load_onnx",
    "load_torch",
    "write_ctranslate2",
    "write_onnx",
    "write_torch",
]
