"""The options of `weftformer train`: model, data and training.

Their defaults and help texts are defined only here. This module does not need torch, so that the commands show their
help at once. `arguments.py` joins the options with the arguments of transformers' Trainer. The first sentence of a
help text is the short help. Names follow transformers where it has one.
"""

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

from ..common.options import option
from ..common.rules import closest, integer, number
from ..configuration.presets import preset_fields

# An option that `--help` shows too; `--help-all` shows all.
common_option = partial(option, is_common=True)
_SPLITS = ("train", "validation", "test")


def check_exist(*files: str | None) -> None:
    """Check that files exist.

    Args:
        files: their paths; None is skipped.

    Raises:
        FileNotFoundError: a file does not exist. The message names a file with a similar name.
    """
    for path in files:
        if path and not Path(path).is_file():
            beside = Path(path).parent
            neighbours = sorted(entry.name for entry in beside.iterdir()) if beside.is_dir() else []
            hint = closest(Path(path).name, neighbours) if neighbours else f" There is no folder {beside} either."
            raise FileNotFoundError(f"the file {path} does not exist.{hint}")


@dataclass
class ModelArguments:
    """The model to train, and its vocabulary.

    Raises:
        ValueError: two arguments contradict each other.
    """

    _argument_group_name = "model"

    model_name_or_path: str | None = common_option(
        None,
        "Folder or Hub id of a trained Weft model to continue from. Default: a new model, or the included starter "
        "for a few short pairs.",
    )
    from_scratch: bool = common_option(
        False,
        "Begin with random weights, where the default would be the included starter (fewer than 10,000 short pairs).",
    )
    preset: str | None = common_option(
        None,
        "Named size of a new model: modern-tiny or modern-small, which can be exported to CTranslate2, or another of "
        "weftformer.configuration.PRESETS. The default copies from the source better, but cannot be exported there.",
    )
    config_overrides: dict | str | None = common_option(
        None, "Fields of the configuration to change, such as d_model=256,dropout=0.2. May be JSON."
    )
    tokenizer_name: str | None = option(
        None,
        "Folder or Hub id of a tokenizer. Default: that of the model to continue from, else a byte-level BPE "
        "vocabulary is trained on the training pairs.",
    )
    tokenizer_vocab_size: int | None = common_option(
        None, "Largest number of tokens of a trained vocabulary (default: 8,000, merging pairs that occur 100 times)."
    )
    attn_implementation: str | None = option(
        None, "eager, sdpa, flash_attention_2, flex_attention, ... Default: the best installed one."
    )
    distributed_config: dict | str | None = option(
        None,
        "Shard the model over several processes, by transformers' DistributedConfig: JSON, or "
        "key=value,key=value such as fsdp_size=2 (or fsdp_size=2,ep_size=2 for experts). Start with torchrun.",
    )

    trust_remote_code: bool = option(False, "Run the code beside the weights of the model, after you have read it.")

    def __post_init__(self):
        if self.preset is not None:
            preset_fields(self.preset)
        if self.model_name_or_path and self.preset:
            raise ValueError(f"--preset {self.preset} is for a new model, not --model-name-or-path: give one.")
        if self.model_name_or_path and self.from_scratch:
            raise ValueError("--from-scratch is for random weights, not --model-name-or-path: give one.")


@dataclass
class DataArguments:
    """The pairs to train on, and the limits of their lengths.

    Raises:
        ValueError: no data is named, or two arguments contradict each other.
    """

    _argument_group_name = "data"

    train_file: str | None = common_option(
        None,
        "Training pairs: csv, tsv, json, jsonl, parquet or txt with tabs, .gz and .zst too. Or a folder of "
        "`Dataset.save_to_disk`, or a text with one source per line, together with --train-target-file. "
        "With --streaming also a pattern (pairs-*.jsonl.gz), or several files or patterns, separated by commas.",
    )
    train_target_file: str | None = common_option(
        None, "Targets, one per line, if train_file has one source per line."
    )
    validation_file: str | None = common_option(None, "Validation pairs, in the formats of train_file.")
    validation_target_file: str | None = option(None, "Targets of validation_file, one per line.")
    test_file: str | None = common_option(
        None, "Test pairs, in the formats of train_file: generated and scored after training."
    )
    test_target_file: str | None = option(None, "Targets of test_file, one per line.")
    dataset_name: str | None = common_option(None, "Data set on the Hub (or its folder) instead of files.")
    dataset_config_name: str | None = option(None, "Configuration of dataset_name.")
    streaming: bool = common_option(
        False,
        "Stream pairs that do not fit into memory and tokenize them on the fly. Needs --max-steps. Validation and "
        "test pairs are in memory.",
    )
    shuffle_buffer_size: int = common_option(
        10_000, "Pairs in the shuffle buffer of a stream, on each process. 1 keeps the order."
    )
    no_header: bool = option(
        False,
        "csv and tsv files have no header: their columns are source, target, column_3, ... (txt never has a header).",
    )
    source_column: str | None = common_option(None, "Source column (default: source, or the first of two).")
    target_column: str | None = common_option(None, "Target column (default: target, or the other of two).")
    condition_columns: str | None = common_option(
        None, "Comma-separated numeric columns that the model reads beside the source, as `condition_values`."
    )
    max_source_length: int | None = option(
        None, "Limit of a source in tokens, including special ones. Default: the model's max_source_positions."
    )
    max_target_length: int | None = option(
        None, "Limit of a target in tokens, including its end. Default: the model's max_target_positions."
    )
    truncate: bool = option(False, "Truncate overlong pairs instead of skipping them.")
    max_train_samples: int | None = common_option(None, "Train only on the first N pairs.")
    max_eval_samples: int | None = option(None, "Evaluate and test only on the first N pairs.")
    validation_split: float | None = common_option(
        None,
        "Share (below 1) or number of training pairs to set aside for validation (default: a twentieth, but at least "
        "50 pairs, or a fifth of fewer than 250). 0 trains on all and evaluates nothing. A trained vocabulary also "
        "sees these pairs. With --streaming: the first N pairs (no share).",
    )
    num_proc: int | None = option(None, "Number of processes that tokenize. Default: one.")
    pad_to_multiple_of: int | None = option(
        None,
        "Pad batches to a multiple of this length, up to the length limits. Default: 8 on CUDA GPUs, else the "
        "longest row. 64 gives fewer shapes of long texts.",
    )

    def __post_init__(self):
        # a stream may also be passed to `fit_pairs`
        if bool(self.dataset_name) == bool(self.train_file) and not (self.streaming and not self.train_file):
            choice = "both" if self.train_file else "neither"
            raise ValueError(f"Give either --train-file or --dataset-name: got {choice}.")
        for split in _SPLITS:
            file, target_file = getattr(self, f"{split}_file"), getattr(self, f"{split}_target_file")
            if target_file and not file:
                raise ValueError(f"--{split}-target-file {target_file} needs the sources too: give --{split}-file.")
            if self.dataset_name and file:
                raise ValueError(f"--{split}-file and --dataset-name are mutually exclusive: give one.")
        number(0, optional=True).check("validation_split", self.validation_split)
        for name in (
            "max_source_length", "max_target_length", "max_train_samples", "max_eval_samples", "num_proc",
            "pad_to_multiple_of", "shuffle_buffer_size",
        ):  # fmt: skip
            integer(1, optional=True).check(name, getattr(self, name))

    def check(self) -> None:
        """Raise a FileNotFoundError for a file that does not exist."""
        for split in _SPLITS:
            if not (self.streaming and split == "train"):  # which may be a pattern
                check_exist(*(file for file in self.files(split) if file and not Path(file).is_dir()))

    @property
    def condition_names(self) -> list[str]:
        """The condition columns, in the order of the model's features."""
        return [name.strip() for name in (self.condition_columns or "").split(",") if name.strip()]

    def files(self, split: str) -> tuple[str | None, str | None]:
        """Return the file and the target file of "train", "validation" or "test"."""
        return getattr(self, f"{split}_file"), getattr(self, f"{split}_target_file")


@dataclass
class TrainingOptions:
    """The arguments that [`WeftTrainingArguments`] adds to transformers', or whose defaults or help it changes."""

    _argument_group_name = "training"

    output_dir: str = common_option(None, "Folder for the model and its checkpoints.")
    overwrite_output_dir: bool = common_option(
        False, "Start again in an output_dir that is not empty. Its checkpoints are removed when training starts."
    )
    resume_from_checkpoint: str | None = common_option(
        None,
        "true to continue from the last complete checkpoint, or the folder of one. With true, a new run starts if "
        "output_dir has no checkpoint yet.",
        nargs="?",
        const="true",
    )
    max_tokens_per_batch: int | None = common_option(
        None,
        "Form batches by tokens instead of rows, on each device. Their rows have similar lengths, and the number of "
        "rows times the longest source or target is at most this. Replaces per_device_train_batch_size.",
    )
    muon: bool = common_option(
        False,
        "Train the matrices of attention, feed-forward networks and experts with Muon, and the other weights with "
        "AdamW. Fewer steps may be needed, and each takes longer.",
    )
    chunked_loss: bool = option(
        True,
        "With a vocabulary of 4,096 tokens or more: compute the training loss in chunks, so that the logits of a "
        "whole batch are never in memory. --no-chunked-loss keeps them for code that reads the logits of a training "
        "step.",
    )
    log_expert_statistics: bool = option(
        True,
        "Log the largest load of an expert, dead experts, the drop rate and the router losses to the trackers of "
        "report_to and to trainer_state.json, which also gets the load of each expert.",
    )

    max_steps: int = common_option(-1, "Steps instead of epochs.")
    gradient_accumulation_steps: int = common_option(1, "Accumulated batches per step on each process.")
    threads: int | None = common_option(
        None, "Threads of torch. Default: OMP_NUM_THREADS, or 1 for a model of fewer than 5 million parameters."
    )
    bf16: bool | None = common_option(None, "Compute in bfloat16. Default: on GPUs that have it (Ampere or newer).")
    tf32: bool | None = option(
        None, "Compute float32 matrix products with TF32 on the GPU. Default: on GPUs that have it (Ampere or newer)."
    )
    dataloader_num_workers: int | None = option(
        None, "Processes that make batches, 0 for none. Default: up to 4 on a GPU, else none."
    )
    seed: int = common_option(42, "Seed of weights and data order.")
    report_to: None | str | list[str] = common_option(  # noqa: RUF036 (as `HfArgumentParser` reads it)
        "none", "Where to log losses: tensorboard, wandb, trackio or others."
    )
    push_to_hub: bool = common_option(False, "Push model, tokenizer and card to the Hub.")
    predict_with_generate: bool | None = option(
        None,
        "Generate in evaluation, and score the texts by exact match, BLEU and chrF. Default: on, but off in a "
        "WeftTrainer of your own, as in Seq2SeqTrainer.",
    )
    num_train_epochs: float | None = common_option(
        None,
        "Training epochs (default: 10, or more to reach 2,000 steps, up to 100; from the included starter 10, or "
        "more to read 20,000 pairs, up to 20, and up to three times as many again if the validation loss is 0.01 "
        "or more).",
        aliases=["--epochs"],
    )
    per_device_train_batch_size: int = common_option(32, "Pairs in a batch, on each device.")
    per_device_eval_batch_size: int = option(32, "Pairs in a batch of evaluation, on each device.")
    learning_rate: float | None = common_option(
        None,
        "Highest learning rate (default: 0.384 / d_model and at most 2e-3; 1e-3 for the included starter; 5e-5 for "
        "another trained model).",
    )
    warmup_steps: float = option(
        0.05, "Warm-up steps of the learning rate, as a number or (below 1) as a share of all."
    )
    weight_decay: float = option(0.01, "Weight decay; not applied to biases and norms.")
    adam_beta2: float = option(0.98, "Second-moment decay of Adam, as in Vaswani et al. 2017.")
    label_smoothing_factor: float = option(
        0.0, "Label smoothing of the training loss, computed by the model to keep router losses."
    )
    eval_strategy: Literal["no", "steps", "epoch"] = option(
        "epoch", "When to evaluate: no, steps or epoch; never without validation pairs."
    )
    save_strategy: Literal["no", "steps", "epoch", "best"] = option(
        "epoch", "When to save a checkpoint: no, steps, epoch or best."
    )
    save_steps: float | None = option(
        None,
        "Save a checkpoint every N steps, as a number or (below 1) as a share of all. Sets save_strategy to steps, "
        "unless another one is given. Default: 500, with save_strategy steps.",
    )
    eval_steps: float | None = option(
        None,
        "Evaluate every N steps, as a number or (below 1) as a share of all. Sets eval_strategy to steps, unless "
        "another one is given. Default: logging_steps, with eval_strategy steps.",
    )
    save_total_limit: int | None = option(2, "Checkpoints to keep, besides the best. Older ones are removed.")
    keep_checkpoints: bool | None = common_option(
        None,
        "Keep the checkpoints when training has ended. Default: only if save_strategy, save_steps or save_total_limit "
        "is given.",
    )
    logging_steps: float = option(50, "Log every N steps, as a number or (below 1) as a share of all.")
    # the filter replaces a NaN by the mean of earlier losses, so that a failed run looks well
    logging_nan_inf_filter: bool = option(False, "Omit NaN and infinite losses from the log.")
    # transformers writes this into the model's configuration; a model with labels makes no cache anyway
    use_cache: bool = option(True, "Value of use_cache in the saved configuration.")

    def check(self) -> None:
        """Raise a ValueError without an output folder."""
        if not self.output_dir:
            raise ValueError("Give --output-dir, the folder for the model and its checkpoints.")
