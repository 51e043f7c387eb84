"""Training on pairs: arguments, data, metrics, and additions to the Trainer's loop.

Modules are imported on first use: the options of the commands need no torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .arguments import WeftTrainingArguments
    from .batching import TokenBudgetSampler
    from .callbacks import ExpertStatisticsCallback, PushCodeCallback
    from .checkpoints import average_checkpoints
    from .fitting import fit_pairs
    from .metrics import TextMetrics
    from .options import DataArguments, ModelArguments
    from .report import TrainingReport
    from .streaming import ShuffledStream
    from .trainer import WeftTrainer

_MODULES = {
    "arguments": ("WeftTrainingArguments",),
    "batching": ("TokenBudgetSampler",),
    "callbacks": ("ExpertStatisticsCallback", "PushCodeCallback"),
    "checkpoints": ("average_checkpoints",),
    "fitting": ("fit_pairs",),
    "metrics": ("TextMetrics",),
    "options": ("DataArguments", "ModelArguments"),
    "report": ("TrainingReport",),
    "streaming": ("ShuffledStream",),
    "trainer": ("WeftTrainer",),
}
_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names}
__all__ = list(_MODULE_OF)


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f".{_MODULE_OF[name]}", __name__), name)
