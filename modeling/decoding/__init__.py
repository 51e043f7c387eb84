"""The fast path of decoding: a search in Python and compiled ones, which share the step and the rules of beams.

Code that travels with weights takes the plain path.
"""

from . import dispatch
from .continuous import ContinuousSearch, Found, IncrementalProcessor, reason_against
from .dispatch import fast_decoding
from .graph import SourceGraph
from .search import decode

__all__ = [
    "ContinuousSearch",
    "Found",
    "IncrementalProcessor",
    "SourceGraph",
    "decode",
    "dispatch",
    "fast_decoding",
    "reason_against",
]
