"""Original models with random weights, and how each is called: what `test_parity.py` compares Weft's models with."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch
from torch import nn

from weftformer.conversion import SOURCES, Conversion, Source, convert
from weftformer.conversion.torch_transformer import stack_part


@dataclass
class Reference:
    """An original model in 64 bits, and one call of it.

    Args:
        source: the name of its source in `SOURCES`.
        module: the model, in eval mode, with random values everywhere: biases that start at zero and norms that start
            at one would hide a mistake.
        run: calls it, and returns its logits or its last states.
        inputs: the same call with Weft's names.
        settings: further arguments of `convert`.
        tolerance: the largest error, relative to the largest value.
        shown: the positions whose outputs are compared. By default all are.
        written: writes a text with the original. None where it has no head.
        generation: the arguments of Weft's `generate` for the same text.
        buffers: tensors of the original that are parameters in Weft.
        pad: the token whose embedding the original does not train.
        absent: keys of the original that do not come back.
        unread: rows of tables of positions that are never read, and come back as zeros.
        is_exact: whether all weights come back bit for bit, or only but for rounding.
    """

    source: str
    module: nn.Module
    run: Callable[[nn.Module], torch.Tensor]
    inputs: Mapping[str, Any]
    settings: Mapping[str, Any] = field(default_factory=dict)
    tolerance: float = 1e-10
    shown: torch.Tensor | None = None
    written: Callable[[nn.Module], torch.Tensor] | None = None
    generation: Mapping[str, Any] = field(default_factory=dict)
    buffers: tuple[str, ...] = ()
    pad: int | None = None
    absent: tuple[str, ...] = ()
    unread: int = 0
    is_exact: bool = True

    @property
    def kind(self) -> Source:
        return SOURCES[self.source]

    def converted(self, weights: Mapping[str, torch.Tensor] | None = None, **overrides: Any) -> Conversion:
        settings = dict(self.settings)
        settings["overrides"] = {**settings.get("overrides", {}), **overrides}
        return convert(self.module.state_dict() if weights is None else weights, self.kind, **settings)

    @cached_property
    def model(self) -> Any:
        """The Weft model with its weights."""
        return self.converted().build()

    def expected(self) -> torch.Tensor:
        torch.manual_seed(2)  # of the routers' noise
        return self.visible(self.run(self.module))

    def found(self, model: Any, **inputs: Any) -> torch.Tensor:
        """The outputs of a Weft model, or of a function that takes the same arguments."""
        torch.manual_seed(2)
        outputs = model(**{**self.inputs, **inputs})
        return self.visible(outputs.logits if "logits" in outputs else outputs.last_hidden_state)

    def visible(self, outputs: torch.Tensor) -> torch.Tensor:
        return outputs if self.shown is None else outputs[self.shown]

    @property
    def prefix(self) -> str:
        """The keys of a part have the keys of a whole model when they come back."""
        return stack_part(self.module.state_dict())[1] if self.source in ("torch", "symm") else ""


def largest_error(found: torch.Tensor, expected: torch.Tensor) -> float:
    """Relative to the largest of the expected values; 0 where both are 0 everywhere."""
    return ((found - expected).abs().max() / expected.abs().max().clamp(min=1e-30)).item()
