"""What transformers' recorders of outputs need: hooks that copies drop, and that are installed before a graph is
traced.
"""

from collections import OrderedDict
from collections.abc import Callable
from functools import wraps
from typing import Any

import torch

from .transformers_names import OutputRecorder, install_recorders


class Recorded:
    """A mixin for modules whose outputs transformers records with a hook, installed when they are first requested.

    The hook is a local function, which cannot be pickled, so a copy drops it and gets its own.
    """

    def __getstate__(self) -> dict[str, Any]:
        state: Any = super().__getstate__()
        hooks = state["_forward_hooks"].items()
        hooks_to_copy = {
            key: hook for key, hook in hooks if getattr(hook, "__module__", None) != OutputRecorder.__module__
        }
        state = {name: value for name, value in state.items() if name != "_output_capturing_hooks_installed"}
        return state | {"_forward_hooks": OrderedDict(hooks_to_copy)}

    @torch.compiler.assume_constant_result
    def _install_recorders(self) -> bool:
        """Install the recorders of a stack.

        transformers installs them when outputs are first requested, with a lock that no compiled graph can contain.
        This method runs while a graph is traced, and is not part of the graph.
        """
        install_recorders(self)
        return True


def traceable(forward: Callable) -> Callable:
    """Wrap the `forward` of a stack so that recorders, if needed, are installed before a graph is traced."""

    @wraps(forward)
    def wrapper(self, *args, **kwargs):
        if torch.compiler.is_compiling() or torch.compiler.is_exporting() or torch.jit.is_tracing():
            names = [f"output_{name}" for name in self._can_record_outputs]
            if any(kwargs.get(name, getattr(self.config, name, False)) for name in names):
                self._install_recorders()
        return forward(self, *args, **kwargs)

    return wrapper
