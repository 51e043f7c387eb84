"""A logits processor that calls a function before each token, which may end `generate` with an error."""

from collections.abc import Callable, Sequence

import torch
from transformers import LogitsProcessor


class Watch(LogitsProcessor):
    """Calls a function before each token. (A stopping criterion would be called for every candidate of a beam search.)

    Args:
        check: the function. An exception in it ends the generation.
    """

    def __init__(self, check: Callable[[], None]):
        self.check = check

    def __call__(self, input_ids: torch.LongTensor, scores: torch.FloatTensor) -> torch.FloatTensor:
        self.check()
        return scores

    def select_sources(self, sources: Sequence[int], beams: int) -> None:
        """Do nothing when sources leave the batch, because the function does not depend on the rows."""
