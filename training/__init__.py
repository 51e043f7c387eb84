"""Training on pairs: arguments, data, metrics, and additions to the Trainer's loop.

Modules are imported on first use: the options of the commands need no torch.
"""

from typing import TYPE_CHECKING

from ..common.lazy import lazy_names

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

__getattr__, __all__ = lazy_names(__package__, __file__)
