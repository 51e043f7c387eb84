"""Which step `generate` repeats for a model: one made for the request, or a compiled one that is kept."""

from typing import Any
from weakref import WeakKeyDictionary

from torch import nn

from .decoding import DecodeStep
from .eligibility import can_step

# The compiled step of each model that was asked to compile, and the weights it was compiled for.
_COMPILED: WeakKeyDictionary[nn.Module, tuple[list, DecodeStep | None]] = WeakKeyDictionary()


def decode_step(model: Any) -> DecodeStep:
    """The step over the model's weights as they are now; a compiled one is kept until they change."""
    if model not in _COMPILED:
        return DecodeStep(model)
    weights = [*model.model.decoder.parameters(), *model.lm_head.parameters()]
    made_of = [(weight.data_ptr(), weight._version) for weight in weights]
    known, step = _COMPILED[model]
    if step is None or known != made_of:
        step = DecodeStep(model, compiled=True)
        _COMPILED[model] = (made_of, step)
    return step


def fast_decoding(model: Any, compile: bool = True) -> Any:
    """Compile the decoding step of a model: `weftformer.fast_decoding(model)`, then `model.generate(...)` as ever.

    The first `generate` of each batch size and number of beams compiles, for seconds to minutes, in every process. The weights become constants of the compiled step: when they change, the next
    `generate` compiles anew.

    Args:
        compile: False goes back to the step as it is.

    Returns:
        The model.

    Raises:
        ValueError: this model cannot take the short way at all (it is in training mode, has adapters, quantised or sharded
            weights, or hooks).
    """
    if not compile:
        _COMPILED.pop(model, None)
        return model
    if not can_step(model):
        raise ValueError(
            "The decoding step of this model cannot be compiled: it is in training mode (call `model.eval()`), or has "
            "adapters, quantised or sharded weights, or hooks."
        )
    _COMPILED.setdefault(model, ([], None))
    return model
