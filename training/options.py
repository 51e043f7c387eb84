"""The options of `weftformer train`: what model, what data, how to train.

Their defaults and texts are written here alone. Nothing here needs torch, so that the commands show their help at once:
`arguments.py` joins them with the arguments of transformers' Trainer. The first sentence of a text is the short help. Names
follow transformers where it has one.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from ..configuration.fields import closest
from ..configuration.presets import preset_fields

_SPLITS = ("train", "validation", "test")


class CommonHelp(str):
    """The text of an option that `--help` shows too."""


def option(default: Any, help: str, **metadata: Any) -> Any:
    """A field of a dataclass of options, which `--help-all` shows.

    Args:
        default: the default.
        help: what it is for. The first sentence is the short help.
        **metadata: as `HfArgumentParser` reads it.
    """
    return field(default=default, metadata={"help": help, **metadata})


def common_option(default: Any, help: str, **metadata: Any) -> Any:
    """An [`option`] that `--help` shows too."""
    return option(default, CommonHelp(help), **metadata)


def _check_positive(arguments: Any, *names: str) -> None:
    for name in names:
        value = getattr(arguments, name)
        if value is not None and value < 1:
            raise ValueError(f"{name}={value} is not allowed: give at least 1, or leave it out.")


def check_exist(*files: str | None) -> None:
    """Check that files exist.

    Args:
        files: their paths; None is left out.

    Raises:
        FileNotFoundError: a file does not exist. The message names a file with a similar name.
    """
    for path in files:
        if path and not Path(path).is_file():
            beside = Path(path).parent
            found = sorted(entry.name for entry in beside.iterdir()) if beside.is_dir() else []
            hint = closest(Path(path).name, found) if found else f" There is no folder {beside} either."
            raise FileNotFoundError(f"the file {path} does not exist.{hint}")


@dataclass
class ModelArguments:
    """Which model to train, and with which vocabulary.

    Raises:
        ValueError: two arguments contradict each other.
    """

    _argument_group_name = "model"

    model_name_or_path: str | None = common_option(
        None, "Folder or Hub id of a trained Weft model to go on from. Without it a new model is made."
    )
    preset: str | None = common_option(
        None, "A named size for a new model, such as modern-small. See weftformer.configuration.PRESETS."
    )
    config_overrides: dict | str | None = common_option(
        None, "Fields of the configuration to change, such as d_model=256,dropout=0.2. JSON is understood too."
    )
    tokenizer_name: str | None = option(
        None,
        "Folder or Hub id of a tokenizer. Without it: that of the model to continue from, else of the teacher, else a byte-level "
        "BPE vocabulary is trained on the training pairs.",
    )
    tokenizer_vocab_size: int | None = common_option(
        None, "Most tokens of a trained vocabulary (default: 8,000, of pairs that occur 100 times)."
    )
    teacher: str | None = common_option(
        None,
        "Learn from this model too, which has the same vocabulary. It is the folder or Hub id of an encoder-decoder of any "
        "family, which says what else could be written at each token. A new model gets its tokenizer.",
    )
    distillation_temperature: float = option(
        2.0, "With a teacher: divisor of both models' logits before they are compared."
    )
    distillation_alpha: float = option(0.5, "With a teacher: its weight, from 0 to 1; the labels have the rest.")
    attn_implementation: str | None = option(
        None, "eager, sdpa, flash_attention_2, flex_attention, ...; the best one that is installed by default."
    )
    distributed_config: dict | str | None = option(
        None,
        "Keep the model in parts on several processes, as transformers' DistributedConfig says: JSON, or "
        "key=value,key=value such as fsdp_size=2 (or fsdp_size=2,ep_size=2 for experts). Start with torchrun.",
    )

    def __post_init__(self):
        for name in ("distillation_temperature", "distillation_alpha"):
            if not self.teacher and getattr(self, name) != getattr(type(self), name):
                raise ValueError(
                    f"--{name.replace('_', '-')} {getattr(self, name)} is for a teacher: give --teacher too."
                )
        if self.preset is not None:
            preset_fields(self.preset)
        if self.model_name_or_path and self.preset:
            raise ValueError(
                f"--preset {self.preset} is for a new model, and --model-name-or-path {self.model_name_or_path} has its "
                "size already: give one."
            )


@dataclass
class DataArguments:
    """Which pairs to learn, and how long they may be.

    Raises:
        ValueError: no data is named, or two arguments contradict each other.
    """

    _argument_group_name = "data"

    train_file: str | None = common_option(
        None,
        "Training pairs: csv, tsv, json, jsonl, parquet or txt with tabs, .gz and .zst too. Or a text with one source a "
        "line, and --train-target-file beside it. "
        "With --streaming also a pattern (pairs-*.jsonl.gz), or several files or patterns, separated by commas.",
    )
    train_target_file: str | None = common_option(
        None, "Targets, line by line, where train_file has one source a line."
    )
    validation_file: str | None = common_option(None, "Validation pairs, as train_file.")
    validation_target_file: str | None = option(None, "The targets of validation_file, line by line.")
    test_file: str | None = common_option(None, "Test pairs, as train_file: translated and scored after training.")
    test_target_file: str | None = option(None, "The targets of test_file, line by line.")
    dataset_name: str | None = common_option(None, "A data set on the Hub (or a folder with one) instead of files.")
    dataset_config_name: str | None = option(None, "Which configuration of dataset_name.")
    streaming: bool = common_option(
        False,
        "Read pairs that do not fit into memory, again and again. They are tokenized on the fly. Needs --max-steps. Validation and test pairs are in memory.",
    )
    shuffle_buffer_size: int = common_option(
        10_000, "Pairs of a stream that are shuffled among each other, on each process. 1 keeps the order."
    )
    no_header: bool = option(
        False, "csv and tsv files begin with data: their columns are source, target, column_3, ... (always so in txt)."
    )
    source_column: str | None = common_option(None, "Column to read from (default: source, else the first).")
    target_column: str | None = common_option(None, "Column to learn to write (default: target, else the second).")
    condition_columns: str | None = common_option(
        None, "Columns of numbers that the model is given beside the source: comma-separated, its `condition_values`."
    )
    max_source_length: int | None = option(
        None, "Most tokens of a source, special ones included. Default: the model's max_source_positions."
    )
    max_target_length: int | None = option(
        None, "Most tokens of a target, its end included. Default: the model's max_target_positions."
    )
    truncate: bool = option(False, "Cut pairs that are too long instead of leaving them out.")
    max_train_samples: int | None = common_option(None, "Train on the first so many pairs only.")
    max_eval_samples: int | None = option(None, "Evaluate and test on the first so many pairs only.")
    validation_split: float = option(
        0.05,
        "Without validation pairs, take this share of the training pairs (below 1), or this number of them (1 or "
        "more); 0 trains on all and evaluates nothing. A vocabulary trained on the pairs sees them all. With --streaming, which "
        "knows no shares: the first so many pairs.",
    )
    num_proc: int | None = option(None, "Processes that tokenize. Default: one.")
    pad_to_multiple_of: int | None = option(None, "Pad batches to a multiple of this length, such as 8 on GPUs.")

    def __post_init__(self):
        # a stream may also be handed to `fit_pairs`
        if bool(self.dataset_name) == bool(self.train_file) and not (self.streaming and not self.train_file):
            got = "both" if self.train_file else "neither"
            raise ValueError(f"Give either --train-file or --dataset-name: got {got}.")
        for split in _SPLITS:
            file, target_file = getattr(self, f"{split}_file"), getattr(self, f"{split}_target_file")
            if target_file and not file:
                raise ValueError(f"--{split}-target-file {target_file} needs the sources too: give --{split}-file.")
            if self.dataset_name and file:
                raise ValueError(f"--{split}-file and --dataset-name exclude each other: give one.")
        if self.validation_split < 0:
            raise ValueError(f"validation_split={self.validation_split} is negative: give a share, a number or 0.")
        _check_positive(
            self, "max_source_length", "max_target_length", "max_train_samples", "max_eval_samples", "num_proc",
            "pad_to_multiple_of", "shuffle_buffer_size",
        )  # fmt: skip

    def check(self) -> None:
        """Raise a FileNotFoundError for a file that does not exist."""
        for split in _SPLITS:
            if not (self.streaming and split == "train"):  # which may be a pattern
                check_exist(*self.files(split))

    @property
    def condition_names(self) -> list[str]:
        """The condition columns, in the order of the model's features."""
        return [name.strip() for name in (self.condition_columns or "").split(",") if name.strip()]

    def files(self, split: str) -> tuple[str | None, str | None]:
        """(file, file of targets) of "train", "validation" or "test"."""
        return getattr(self, f"{split}_file"), getattr(self, f"{split}_target_file")


@dataclass
class TrainingOptions:
    """What [`WeftTrainingArguments`] adds to transformers' arguments, and what it has other defaults or texts for."""

    _argument_group_name = "training"

    output_dir: str = common_option(None, "Folder for the model and its checkpoints.")
    overwrite_output_dir: bool = common_option(
        False,
        "Start again in an output_dir that is not empty. The checkpoints in it are removed when training begins.",
    )
    resume_from_checkpoint: str | None = common_option(
        None,
        "true to continue from the last complete checkpoint, or the folder of one. With true, a run begins where none was "
        "saved yet in output_dir.",
        nargs="?",
        const="true",
    )
    max_tokens_per_batch: int | None = common_option(
        None,
        "Form batches by tokens instead of rows, on each device. Their rows are alike in length, and so many that rows times "
        "the longest source or target is at most this. Leaves out per_device_train_batch_size.",
    )
    chunked_loss: bool = option(
        True,
        "With a vocabulary of 4,096 words or more: compute the training loss in pieces, so that the logits of a whole "
        "batch are never in memory. --no-chunked-loss keeps them, for what reads the logits of a training step.",
    )
    log_expert_statistics: bool = option(
        True,
        "With sparse layers: log load, entropy, log-Z, drop rate and router losses of each to what report_to names, and "
        "with the load of each expert to trainer_state.json.",
    )

    max_steps: int = common_option(-1, "Steps instead of epochs.")
    gradient_accumulation_steps: int = common_option(1, "Batches of each process in a step.")
    bf16: bool = common_option(False, "Compute in bfloat16, on GPUs that have it.")
    seed: int = common_option(42, "Seed of weights and order.")
    report_to: None | str | list[str] = common_option(  # noqa: RUF036 (as `HfArgumentParser` reads it)
        "none", "Where losses go: tensorboard, wandb, trackio or others."
    )
    push_to_hub: bool = common_option(False, "Push model, tokenizer and card to the Hub.")
    do_train: bool = option(True, "Always on: this command trains.")
    predict_with_generate: bool = option(
        True, "Generate in evaluation, and score the texts by exact match, BLEU and chrF."
    )
    num_train_epochs: float | None = common_option(
        None,
        "How often to go through the training pairs (default: 10, and more where these are fewer than 2,000 steps, up to 100).",
        aliases=["--epochs"],
    )
    engine: Literal["auto", "weft", "ctranslate2", "ctranslate2-int8"] = option(
        "auto",
        "What generates in evaluation, in a single process: auto takes CTranslate2 where it is installed and writes the same.",
    )
    per_device_train_batch_size: int = common_option(32, "Pairs in a batch, on each device.")
    per_device_eval_batch_size: int = option(32, "Pairs in a batch of evaluation, on each device.")
    learning_rate: float | None = common_option(
        None,
        "Highest learning rate (default: 0.384 / d_model and at most 2e-3; 5e-5 for a trained model).",
    )
    warmup_steps: float = option(
        0.05, "Steps in which the learning rate rises, as a number or (below 1) as a share of all."
    )
    weight_decay: float = option(0.01, "Weight decay; biases and norms are left out.")
    adam_beta2: float = option(0.98, "Second-moment decay of Adam, as in Vaswani et al. 2017.")
    label_smoothing_factor: float = option(
        0.0, "Label smoothing of the training loss, computed by the model so that router losses stay in."
    )
    eval_strategy: Literal["no", "steps", "epoch"] = option(
        "epoch", "When to evaluate: no, steps or epoch; never without validation pairs."
    )
    save_strategy: Literal["no", "steps", "epoch", "best"] = option(
        "epoch", "When to save a checkpoint: no, steps, epoch or best."
    )
    save_steps: float | None = option(
        None,
        "Save a checkpoint every so many steps, as a number or (below 1) as a share of all. It sets save_strategy to steps "
        "where that has its default. Default: 500, with save_strategy steps.",
    )
    eval_steps: float | None = option(
        None,
        "Evaluate every so many steps, as a number or (below 1) as a share of all. It sets eval_strategy to steps where that "
        "has its default. Default: logging_steps, with eval_strategy steps.",
    )
    save_total_limit: int | None = option(2, "Checkpoints to keep, beside the best; older ones are removed.")
    logging_steps: float = option(50, "Log every so many steps, as a number or (below 1) as a share of all.")
    # the filter replaces a NaN by the mean of the losses before it: the run is lost and looks well
    logging_nan_inf_filter: bool = option(False, "Leave NaN and infinite losses out of the log.")
    # transformers writes this into the model's configuration; a model with labels makes no cache anyway
    use_cache: bool = option(True, "Whether the saved configuration says to generate with a cache.")

    def check(self) -> None:
        """Raise a ValueError where there is no folder to write to."""
        if not self.output_dir:
            raise ValueError("Give --output-dir, the folder for the model and its checkpoints.")
