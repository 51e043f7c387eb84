"""Converts weights of other model families to Weft and back.

Each source has a file, with its configuration and its table of keys.
"""

from .converting import SOURCES, convert, detect
from .files import read_source_config, read_tokenizer, read_weights
from .source import Conversion, DoesNotFit, Source, clean_keys, export
from .upcycling import upcycle

__all__ = [
    "SOURCES",
    "Conversion",
    "DoesNotFit",
    "Source",
    "clean_keys",
    "convert",
    "detect",
    "export",
    "read_source_config",
    "read_tokenizer",
    "read_weights",
    "upcycle",
]
