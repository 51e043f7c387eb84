"""The arguments of `weftformer train`: what model, what data, how to train. Names follow transformers where it has one."""

import os
from dataclasses import dataclass, field
from typing import Literal

from accelerate.utils import parse_flag_from_env
from transformers import IntervalStrategy, Seq2SeqTrainingArguments
from transformers.trainer_utils import SaveStrategy

_SPLITS = ("train", "validation", "test")


def _argument(default, help: str, **metadata):
    return field(default=default, metadata={"help": help, **metadata})


@dataclass
class ModelArguments:
    """Which model to train, and with which vocabulary.

    Raises:
        ValueError: two arguments contradict each other.
    """

    _argument_group_name = "model"

    model_name_or_path: str | None = _argument(
        None, "Folder or Hub id of a trained Weft model to go on from. Without it a new model is made."
    )
    preset: str | None = _argument(
        None, "A named size for a new model, such as modern-small (see weftformer.configuration.PRESETS)."
    )
    # `field` itself where the linter takes the type for a mutable one
    config_overrides: dict | str | None = field(
        default=None,
        metadata={
            "help": "Fields of the configuration to change: JSON, or key=value,key=value such as d_model=256,dropout=0.2."
        },
    )
    tokenizer_name: str | None = _argument(
        None, "Folder or Hub id of a tokenizer. Without it: that of model_name_or_path, else --tokenizer."
    )
    tokenizer: Literal["bpe", "routes"] | None = _argument(
        None,
        "Tokenizer of a new model: bpe trains a byte-level BPE vocabulary on the training pairs (the default), routes "
        "is the vocabulary of DirectMultiStep for synthesis routes.",
    )
    tokenizer_vocab_size: int | None = _argument(
        None, "Most tokens of a trained vocabulary; by default 8,000, of pairs that occur 100 times."
    )
    tokenizer_lowercase: bool = _argument(False, "Lower-case all texts in a trained vocabulary.")
    teacher: str | None = _argument(
        None,
        "Folder or Hub id of an encoder-decoder of any family, from which the model learns what else could be written at each "
        "token. A new model gets its tokenizer.",
    )
    distillation_temperature: float = _argument(
        2.0, "With a teacher: what the logits of both are divided by before they are compared."
    )
    distillation_alpha: float = _argument(
        0.5, "With a teacher: its weight, from 0 to 1; the labels have what is left."
    )
    attn_implementation: str | None = _argument(
        None, "eager, sdpa, flash_attention_2, flex_attention, ...; the best one that is installed by default."
    )
    distributed_config: dict | str | None = field(
        default=None,
        metadata={
            "help": "Keep the model in parts on several processes, as transformers' DistributedConfig says: JSON, or "
            "key=value,key=value such as fsdp_size=2 (or fsdp_size=2,ep_size=2 for experts). Start with torchrun."
        },
    )

    def __post_init__(self):
        for name in ("distillation_temperature", "distillation_alpha"):
            if not self.teacher and getattr(self, name) != getattr(type(self), name):
                raise ValueError(
                    f"--{name.replace('_', '-')} {getattr(self, name)} is for a teacher: give --teacher too."
                )
        if self.model_name_or_path and self.tokenizer == "bpe":
            raise ValueError(
                f"--tokenizer bpe trains a new vocabulary, and --model-name-or-path {self.model_name_or_path} knows its own alone: "
                "leave --tokenizer out."
            )
        if self.tokenizer_name and self.tokenizer:
            raise ValueError(
                f"--tokenizer-name {self.tokenizer_name} and --tokenizer {self.tokenizer} exclude each other: give one."
            )
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

    train_file: str | None = _argument(
        None,
        "Training pairs: csv, tsv, json, jsonl or parquet with named columns; txt or tsv with source and target "
        "separated by a tab; or a text with one source a line and --train-target-file beside it. All may end in .gz or .zst. "
        "With --streaming also a pattern (pairs-*.jsonl.gz), or several files or patterns, separated by commas.",
    )
    train_target_file: str | None = _argument(None, "The targets of train_file, line by line.")
    validation_file: str | None = _argument(None, "Validation pairs, as train_file.")
    validation_target_file: str | None = _argument(None, "The targets of validation_file, line by line.")
    test_file: str | None = _argument(None, "Test pairs, as train_file: translated and scored after training.")
    test_target_file: str | None = _argument(None, "The targets of test_file, line by line.")
    dataset_name: str | None = _argument(None, "A data set on the Hub (or a folder with one) instead of files.")
    dataset_config_name: str | None = _argument(None, "Which configuration of dataset_name.")
    streaming: bool = _argument(
        False,
        "Read the training pairs as a stream, again and again, and tokenize them on the fly: for data that does not fit into "
        "memory or on the disk. Needs --max-steps. Validation and test pairs are in memory.",
    )
    shuffle_buffer_size: int = _argument(
        10_000,
        "With --streaming: pairs that are in memory at a time and are shuffled among each other, on each process; 1 keeps the "
        "order.",
    )
    no_header: bool = _argument(
        False, "csv and tsv files begin with data: their columns are source, target, column_3, ... (always so in txt)."
    )
    source_column: str | None = _argument(None, "Column to read from. Default: source, else the first column.")
    target_column: str | None = _argument(None, "Column to learn to write. Default: target, else the second column.")
    condition_columns: str | None = _argument(
        None, "Comma-separated columns of numbers that the model is told beside the source (`condition_values`)."
    )
    max_source_length: int | None = _argument(
        None, "Most tokens of a source, special ones included. Default: the model's max_source_positions."
    )
    max_target_length: int | None = _argument(
        None, "Most tokens of a target, its end included. Default: the model's max_target_positions."
    )
    truncate: bool = _argument(False, "Cut pairs that are too long instead of leaving them out.")
    max_train_samples: int | None = _argument(None, "Train on the first so many pairs only.")
    max_eval_samples: int | None = _argument(None, "Evaluate and test on the first so many pairs only.")
    validation_split: float = _argument(
        0.05,
        "Without validation pairs, take this share of the training pairs (below 1), or this number of them (1 or "
        "more); 0 trains on all and evaluates nothing. A vocabulary trained on the pairs sees them all. With --streaming, which "
        "knows no shares: the first so many pairs.",
    )
    num_proc: int | None = _argument(None, "Processes that tokenize. Default: one.")
    pad_to_multiple_of: int | None = _argument(None, "Pad batches to a multiple of this length, such as 8 on GPUs.")

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
        for name in (
            "max_source_length", "max_target_length", "max_train_samples", "max_eval_samples", "num_proc",
            "pad_to_multiple_of", "shuffle_buffer_size",
        ):  # fmt: skip
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name}={value} is not allowed: give at least 1, or leave it out.")

    @property
    def condition_names(self) -> list[str]:
        """The condition columns, in the order of the model's features."""
        return [name.strip() for name in (self.condition_columns or "").split(",") if name.strip()]

    def files(self, split: str) -> tuple[str | None, str | None]:
        """(file, file of targets) of "train", "validation" or "test"."""
        return getattr(self, f"{split}_file"), getattr(self, f"{split}_target_file")


@dataclass
class WeftTrainingArguments(Seq2SeqTrainingArguments):
    """`Seq2SeqTrainingArguments` with defaults for a small model trained from scratch, and seven arguments more.

    Raises:
        ValueError: as in transformers; `output_dir` is missing; two arguments contradict each other; or FSDP of accelerate is
            asked for on a CPU.
    """

    _argument_group_name = "training"

    overwrite_output_dir: bool = _argument(
        False,
        "Start again in an output_dir that is not empty; the checkpoints in it are removed when training begins.",
    )
    resume_from_checkpoint: str | None = _argument(
        None,
        "true: continue from the last complete checkpoint in output_dir, and begin where none was saved yet; or the folder "
        "of a checkpoint.",
        nargs="?",
        const="true",
    )
    max_tokens_per_batch: int | None = _argument(
        None,
        "Form batches by tokens instead of rows: rows alike in length, so many that rows times the longest source or "
        "target is at most this, on each device. Leaves out per_device_train_batch_size.",
    )
    generation_metrics: str | None = _argument(
        None,
        "Comma-separated scores of generated texts: exact_match, bleu, chrf. Default: all three (bleu and chrf need "
        "sacrebleu), and exact_match alone for synthesis routes.",
    )

    exact_balance_loss: bool = _argument(
        False,
        "With a balance loss (router_aux_loss_coef) and accumulated batches: balance over all of them, for which each goes "
        "through the model once more, without gradients, about a third of the time. By default each batch balances by its "
        "own load, summed over processes.",
    )
    loss_in_pieces: bool = _argument(
        True,
        "With a vocabulary of 4,096 words or more: compute the training loss in pieces, so that the logits of a whole "
        "batch are never in memory. --no-loss-in-pieces keeps them, for what reads the logits of a training step.",
    )
    log_expert_statistics: bool = _argument(
        True,
        "With sparse layers: log load, entropy, log-Z, drop rate and router losses of each to what report_to names, and "
        "the load of each expert to expert_load.jsonl in output_dir.",
    )

    do_train: bool = _argument(True, "Always on: this command trains.")
    predict_with_generate: bool = _argument(True, "Generate in evaluation, and score what was generated.")
    num_train_epochs: float = _argument(10.0, "How often to go through the training pairs.")
    per_device_train_batch_size: int = _argument(32, "Pairs in a batch, on each device.")
    per_device_eval_batch_size: int = _argument(32, "Pairs in a batch of evaluation, on each device.")
    learning_rate: float = _argument(
        5e-4, "Highest learning rate; about a tenth of the default to go on from a model."
    )
    warmup_steps: float = _argument(
        0.05, "Steps in which the learning rate rises, as a number or (below 1) as a share of all."
    )
    weight_decay: float = _argument(0.01, "Weight decay; biases and norms are left out.")
    adam_beta2: float = _argument(0.98, "Second-moment decay of Adam, as in Vaswani et al. 2017.")
    label_smoothing_factor: float = _argument(
        0.0, "Label smoothing, done by the model (it becomes its label_smoothing) so that router losses stay in."
    )
    eval_strategy: IntervalStrategy | str = field(
        default="epoch",
        metadata={"help": "When to evaluate: no, steps or epoch; never without validation pairs."},
    )
    save_strategy: SaveStrategy | str = field(
        default="epoch", metadata={"help": "When to save a checkpoint: no, steps, epoch or best."}
    )
    save_total_limit: int | None = _argument(2, "Checkpoints to keep, beside the best; older ones are removed.")
    logging_steps: float = _argument(50, "Log every so many steps, as a number or (below 1) as a share of all.")
    # the filter replaces a NaN by the mean of the losses before it: the run is lost and looks well
    logging_nan_inf_filter: bool = _argument(False, "Leave NaN and infinite losses out of the log.")
    # transformers writes this into the model's configuration; a model with labels makes no cache anyway
    use_cache: bool = _argument(True, "Whether the saved configuration says to generate with a cache.")

    def __post_init__(self):
        if not self.output_dir:
            raise ValueError("Give --output-dir, the folder for the model and its checkpoints.")
        if not self.do_train:
            raise ValueError("--no-do-train: this command trains; a trained model is scored by `weftformer evaluate`.")
        if self.max_tokens_per_batch is not None and self.max_tokens_per_batch < 1:
            raise ValueError(f"max_tokens_per_batch={self.max_tokens_per_batch} is not allowed: give at least 1.")
        if self.train_sampling_strategy == "sequential" and self.max_tokens_per_batch is not None:
            raise ValueError(
                "--train-sampling-strategy sequential and --max-tokens-per-batch, which shuffles, exclude each other: give one."
            )
        if self.overwrite_output_dir and self.wants_resume and self.checkpoint_to_resume() is None:
            raise ValueError(
                "--overwrite-output-dir begins again and --resume-from-checkpoint true goes on: give one (the other as false, where "
                "a file of arguments has it)."
            )
        super().__post_init__()
        if self.device.type == "cpu":  # torch warns otherwise that there is nothing to pin memory for
            self.dataloader_pin_memory = False
            if self.uses_fsdp_of_accelerate:  # it would take DDP and not say so
                raise ValueError(
                    "accelerate is told to use FSDP (--fsdp, or ACCELERATE_USE_FSDP=true by its configuration), which it does "
                    "on GPUs only, and this runs on the CPU: train with DDP (scripts/configs/ddp.yaml), or with "
                    "torchrun and --distributed-config fsdp_size=<processes>, which splits a model on CPUs too."
                )

    @property
    def is_main_process(self) -> bool:
        """Whether this process speaks and writes for all."""
        return self.process_index == 0

    @property
    def uses_fsdp_of_accelerate(self) -> bool:
        """Whether the Trainer is told to use FSDP, or `accelerate launch` is."""
        return bool(self.fsdp) or parse_flag_from_env("ACCELERATE_USE_FSDP")

    @property
    def metric_names(self) -> list[str] | None:
        """The scores asked for, or None for the defaults."""
        if self.generation_metrics is None:
            return None
        return [name.strip() for name in self.generation_metrics.split(",") if name.strip()]

    @property
    def wants_resume(self) -> bool:
        return str(self.resume_from_checkpoint).lower() not in ("none", "false", "no", "0", "")

    def checkpoint_to_resume(self) -> str | None:
        """The folder of the checkpoint asked for, or None for "the last one"; see `wants_resume`."""
        value = str(self.resume_from_checkpoint)
        return None if value.lower() in ("true", "yes", "1") else os.path.expanduser(value)


@dataclass
class PretrainingArguments:
    """Which texts to learn from before there are pairs, and what is asked about them.

    Raises:
        ValueError: no texts are named, or an argument is out of range.
    """

    _argument_group_name = "data"

    train_file: str | None = _argument(
        None,
        "Texts to learn from, one a line (a document on one line): txt, or txt.gz. Read as a stream, again and again.",
    )
    validation_file: str | None = _argument(
        None, "Texts to evaluate on, as train_file: corrupted once, the same each time."
    )
    objective: Literal["span", "infilling", "ul2"] = _argument(
        "span",
        "What is asked: span is T5's span corruption, infilling is BART's text infilling with permuted sentences, ul2 is "
        "UL2's mixture of denoisers.",
    )
    max_source_length: int | None = _argument(
        None,
        "Most tokens of a corrupted text. Default: the model's max_source_positions. Longer texts are cut to pieces.",
    )
    max_target_length: int | None = _argument(
        None, "Most tokens of what is to be written. Default: the model's max_target_positions."
    )
    shuffle_buffer: int = _argument(
        10_000,
        "Lines that are in memory at a time and are shuffled among each other, on each process; 1 keeps the order.",
    )
    max_eval_samples: int | None = _argument(None, "Evaluate on the first so many lines only.")
    pad_to_multiple_of: int | None = _argument(None, "Pad batches to a multiple of this length, such as 8 on GPUs.")

    def __post_init__(self):
        if not self.train_file:
            raise ValueError("Give --train-file, a text with one document a line (.gz may follow).")
        for name in (
            "max_source_length",
            "max_target_length",
            "shuffle_buffer",
            "max_eval_samples",
            "pad_to_multiple_of",
        ):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name}={value} is not allowed: give at least 1, or leave it out.")


@dataclass
class WeftPretrainingArguments(WeftTrainingArguments):
    """[`WeftTrainingArguments`] for texts without end: so many steps, evaluated by the loss.

    Raises:
        ValueError: as there; `max_steps` is missing; or what needs pairs is asked for.
    """

    max_steps: int = _argument(-1, "Steps to train: the texts are read again and again until they are done.")
    predict_with_generate: bool = _argument(False, "Not allowed here: pretraining is evaluated by its loss.")
    # to the Trainer all steps are one epoch
    save_strategy: SaveStrategy | str = field(
        default="steps", metadata={"help": "When to save a checkpoint: no, steps, best, or epoch, which is the end."}
    )
    eval_strategy: IntervalStrategy | str = field(
        default="steps",
        metadata={"help": "When to evaluate: no, steps, or epoch, which is the end; never without texts for it."},
    )
    eval_steps: float | None = _argument(
        500, "Evaluate every so many steps, as a number or (below 1) as a share of all."
    )

    def __post_init__(self):
        if self.max_steps < 1:
            raise ValueError(f"max_steps={self.max_steps}: a stream of texts has no end, so give --max-steps.")
        if self.predict_with_generate:
            raise ValueError("--predict-with-generate: pretraining is evaluated by its loss; leave it out.")
        if self.max_tokens_per_batch is not None:
            raise ValueError(
                f"max_tokens_per_batch={self.max_tokens_per_batch} needs all lengths before training begins, and texts come "
                "as a stream: give --per-device-train-batch-size."
            )
        super().__post_init__()
