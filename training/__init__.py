"""Training on pairs, and on plain texts before: arguments, data, metrics, and what the Trainer's loop needs beside them."""

from .arguments import (
    DataArguments,
    ModelArguments,
    PretrainingArguments,
    WeftPretrainingArguments,
    WeftTrainingArguments,
)
from .averaging import average_checkpoints
from .batching import TokenBudgetSampler
from .building import (
    build_config,
    build_distributed_config,
    build_model,
    build_teacher,
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
from .costs import Estimate, Workload, count_parameters, estimate
from .data import Columns, load_file, load_file_stream, load_pairs, load_stream, split_validation
from .denoising import (
    DataCollatorForSpanCorruption,
    DataCollatorForTextInfilling,
    DataCollatorForUL2,
    DenoisingCollator,
)
from .devices import DEVICES, Device, find_device
from .distillation import Distillation
from .encoding import encode_pairs, encode_stream, longest
from .metrics import METRICS, TextMetrics
from .pairs import FittedPairs, fit_pairs
from .parsing import ArgumentParser, parse_arguments, parse_overrides, parse_pretraining_arguments
from .pretraining import fit_texts, load_texts
from .streaming import ShuffledStream
from .trainer import WeftTrainer

__all__ = [
    "DEVICES",
    "EXPERT_LOAD",
    "METRICS",
    "ArgumentParser",
    "Columns",
    "DataArguments",
    "DataCollatorForSpanCorruption",
    "DataCollatorForTextInfilling",
    "DataCollatorForUL2",
    "DenoisingCollator",
    "Device",
    "Distillation",
    "Estimate",
    "ExpertStatisticsCallback",
    "FittedPairs",
    "ModelArguments",
    "PretrainingArguments",
    "PushCodeCallback",
    "RouterBiasCallback",
    "ShuffledStream",
    "TextMetrics",
    "TokenBudgetSampler",
    "WeftPretrainingArguments",
    "WeftTrainer",
    "WeftTrainingArguments",
    "Workload",
    "average_checkpoints",
    "build_config",
    "build_distributed_config",
    "build_model",
    "build_teacher",
    "build_tokenizer",
    "check_output_dir",
    "check_same_model",
    "count_parameters",
    "draw_expert_load",
    "encode_pairs",
    "encode_stream",
    "estimate",
    "find_checkpoint",
    "find_device",
    "fit_pairs",
    "fit_texts",
    "load_file",
    "load_file_stream",
    "load_pairs",
    "load_stream",
    "load_texts",
    "longest",
    "parse_arguments",
    "parse_overrides",
    "parse_pretraining_arguments",
    "read_expert_load",
    "remove_checkpoints",
    "save_model_folder",
    "set_generation_defaults",
    "source_and_target_limits",
    "split_validation",
]
