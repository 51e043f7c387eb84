"""Training on pairs, and on plain texts before: arguments, data, metrics, and what the Trainer's loop needs beside them.

Nothing is imported before it is asked for: the options of the commands need no torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .arguments import WeftPretrainingArguments, WeftTrainingArguments
    from .averaging import average_checkpoints
    from .batching import TokenBudgetSampler
    from .building import (
        build_config,
        build_distributed_config,
        build_model,
        build_tokenizer,
        set_generation_defaults,
        source_and_target_limits,
    )
    from .callbacks import (
        EXPERT_LOAD,
        ExpertStatisticsCallback,
        PushCodeCallback,
        RouterBiasCallback,
        read_expert_load,
    )
    from .checkpoints import check_output_dir, check_same_model, find_checkpoint, remove_checkpoints
    from .data import Columns, load_file, load_file_stream, load_pairs, split_validation
    from .denoising import (
        DataCollatorForSpanCorruption,
        DataCollatorForTextInfilling,
        DataCollatorForUL2,
        DenoisingCollator,
    )
    from .distillation import Distillation
    from .encoding import encode_pairs, longest
    from .fitting import fit, start
    from .metrics import TextMetrics
    from .options import DataArguments, ModelArguments, PretrainingArguments
    from .pairs import fit_pairs
    from .pretraining import fit_texts
    from .streaming import ShuffledStream
    from .trainer import WeftTrainer

_MODULES = {
    "WeftPretrainingArguments": "arguments",
    "WeftTrainingArguments": "arguments",
    "average_checkpoints": "averaging",
    "TokenBudgetSampler": "batching",
    "build_config": "building",
    "build_distributed_config": "building",
    "build_model": "building",
    "build_tokenizer": "building",
    "set_generation_defaults": "building",
    "source_and_target_limits": "building",
    "EXPERT_LOAD": "callbacks",
    "ExpertStatisticsCallback": "callbacks",
    "PushCodeCallback": "callbacks",
    "RouterBiasCallback": "callbacks",
    "read_expert_load": "callbacks",
    "check_output_dir": "checkpoints",
    "check_same_model": "checkpoints",
    "find_checkpoint": "checkpoints",
    "remove_checkpoints": "checkpoints",
    "Columns": "data",
    "load_file": "data",
    "load_file_stream": "data",
    "load_pairs": "data",
    "split_validation": "data",
    "DataCollatorForSpanCorruption": "denoising",
    "DataCollatorForTextInfilling": "denoising",
    "DataCollatorForUL2": "denoising",
    "DenoisingCollator": "denoising",
    "Distillation": "distillation",
    "encode_pairs": "encoding",
    "longest": "encoding",
    "fit": "fitting",
    "start": "fitting",
    "TextMetrics": "metrics",
    "DataArguments": "options",
    "ModelArguments": "options",
    "PretrainingArguments": "options",
    "fit_pairs": "pairs",
    "fit_texts": "pretraining",
    "ShuffledStream": "streaming",
    "WeftTrainer": "trainer",
}
__all__ = list(_MODULES)


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f".{_MODULES[name]}", __name__), name)
