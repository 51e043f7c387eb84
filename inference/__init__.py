"""Batched decoding of texts from a loaded model: requests, lines of a file, searches that sources join, and scores."""

from .lines import Answer, Line, answer_lines
from .texts import GeneratedText, Sampling, TextInput, TextSettings, TextTask

__all__ = ["Answer", "GeneratedText", "Line", "Sampling", "TextInput", "TextSettings", "TextTask", "answer_lines"]
