"""Training on pairs: arguments, data, metrics, and what the Trainer's loop needs beside them."""

from .arguments import DataArguments, ModelArguments, WeftTrainingArguments
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
    draw_expert_load,
    read_expert_load,
)
from .checkpoints import (
    check_output_dir,
    check_same_model,
    find_checkpoint,
    remove_checkpoints,
    save_model_folder,
)
from .data import Columns, load_file, load_pairs, split_validation
from .encoding import encode_pairs, longest
from .metrics import METRICS, TextMetrics
from .pairs import FittedPairs, fit_pairs
from .parsing import ArgumentParser, parse_arguments, parse_overrides
from .trainer import WeftTrainer

__all__ = [
    "EXPERT_LOAD",
    "METRICS",
    "ArgumentParser",
    "Columns",
    "DataArguments",
    "ExpertStatisticsCallback",
    "FittedPairs",
    "ModelArguments",
    "PushCodeCallback",
    "RouterBiasCallback",
    "TextMetrics",
    "TokenBudgetSampler",
    "WeftTrainer",
    "WeftTrainingArguments",
    "average_checkpoints",
    "build_config",
    "build_distributed_config",
    "build_model",
    "build_tokenizer",
    "check_output_dir",
    "check_same_model",
    "draw_expert_load",
    "encode_pairs",
    "find_checkpoint",
    "fit_pairs",
    "load_file",
    "load_pairs",
    "longest",
    "parse_arguments",
    "parse_overrides",
    "read_expert_load",
    "remove_checkpoints",
    "save_model_folder",
    "set_generation_defaults",
    "source_and_target_limits",
    "split_validation",
]
