"""Training on plain texts, corrupted and to be mended: from a file to a folder that pairs are then trained from."""

import itertools
import logging
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import datasets
import numpy as np
from datasets import Dataset, IterableDataset
from transformers import PreTrainedTokenizerFast

from ..configuration import WeftConfig
from ..hub import measured
from ..modeling import WeftForConditionalGeneration
from ..tokenization import Objective, add_denoising_tokens, check_encodable, iter_columns
from .arguments import WeftPretrainingArguments
from .building import (
    VOCABULARY_TEXTS,
    build_config,
    build_distributed_config,
    build_model,
    build_teacher,
    build_tokenizer,
    set_generation_defaults,
    source_and_target_limits,
)
from .checkpoints import check_same_model
from .denoising import COLLATORS, DenoisingCollator
from .fitting import fit, report, start
from .options import ModelArguments, PretrainingArguments
from .streaming import ShuffledStream
from .trainer import WeftTrainer

logger = logging.getLogger(__name__)


def fit_texts(
    model_args: ModelArguments, data_args: PretrainingArguments, training_args: WeftPretrainingArguments
) -> WeftTrainer:
    """Train a model to mend corrupted texts, and save it with tokenizer and model card.

    Everything that `weftformer pretrain` does. Under `torchrun` every process calls it. The tokenizer gets the tokens of
    the objective that it lacks, and a model that is gone on from gets rows for them.

    Args:
        model_args: the model to begin with, or the size of a new one; and its tokenizer.
        data_args: the texts and the objective.
        training_args: how to train, and the folder to write to.

    Returns:
        The trainer, with the trained model.

    Raises:
        ValueError, FileNotFoundError: something in the arguments or the texts is not as it should be.
    """
    distributed_config = build_distributed_config(model_args, training_args)
    checkpoint = start(training_args, model_args.model_name_or_path, model_args.tokenizer_name, model_args.teacher)
    asked = model_args
    if checkpoint:  # it has the tokens and the rows already that were added when the run began
        model_args = replace(
            model_args, model_name_or_path=checkpoint, preset=None, tokenizer=None, tokenizer_name=None
        )
    texts = load_texts(str(data_args.train_file))
    some = itertools.islice(iter_columns(texts, "text"), VOCABULARY_TEXTS)
    tokenizer = build_tokenizer(model_args, some, training_args.is_main_process, checkpoint=checkpoint)
    if not model_args.model_name_or_path:
        add_denoising_tokens(tokenizer, data_args.objective)
    config = build_config(model_args, tokenizer)
    if checkpoint:
        check_same_model(config, checkpoint)
        if not asked.model_name_or_path:  # else the vocabulary was smaller when the run began
            check_same_model(build_config(asked, tokenizer), checkpoint)
    limits = source_and_target_limits(config, data_args)
    # of a model that is gone on from, the tokenizer gets what it lacks before the collator looks for it
    added = _add_missing_tokens(tokenizer, config, data_args.objective, distributed_config is not None)
    collator = COLLATORS[data_args.objective](
        tokenizer,
        seed=training_args.seed,
        process_index=training_args.process_index,
        pad_to_multiple_of=data_args.pad_to_multiple_of,
    )
    longest = collator.longest_text(*limits)
    data: dict[str, Any] = {
        "train": ShuffledStream(
            texts,
            partial(_encode_lines, tokenizer=tokenizer, longest=longest, file=data_args.train_file),
            buffer_size=data_args.shuffle_buffer,
            seed=training_args.seed,
            name=str(data_args.train_file),
            too_bad="they have fewer than two tokens",
            jumps=False,  # the collator draws random numbers for one batch after another
        )
    }
    if data_args.validation_file:
        data["validation"] = _corrupted_once(data_args, tokenizer, collator, longest, training_args.seed)

    def build() -> WeftForConditionalGeneration:
        model = build_model(model_args, config, distributed_config)
        if added:
            model.resize_token_embeddings(len(tokenizer))
        set_generation_defaults(model, limits[1], training_args)
        return model

    def evaluate(trainer: WeftTrainer) -> dict[str, Any]:
        details: dict[str, Any] = {"dataset": Path(str(data_args.train_file)).name, "results": []}
        if "validation" in data:
            number = len(data["validation"])
            scores = trainer.evaluate() | {"eval_samples": number}
            report(trainer, "eval", scores)
            texts = f"{number} validation texts, objective {data_args.objective}"
            details["results"] = measured(scores, "eval", texts, n=number)
        return details

    return fit(
        build, tokenizer, data, training_args, evaluate, checkpoint=checkpoint, data_collator=collator,
        **build_teacher(model_args, tokenizer),
    )  # fmt: skip


def load_texts(file: str) -> IterableDataset:
    """The lines of a text file (.gz may follow) as a stream of `text`.

    Raises:
        FileNotFoundError: the file does not exist.
        ValueError: it cannot be read as text.
    """
    if not Path(file).is_file():
        raise FileNotFoundError(f"the file {file} does not exist.")
    texts = datasets.load_dataset("text", data_files=file, split="train", streaming=True, encoding="utf-8-sig")
    try:
        next(iter(texts), None)
    except (OSError, EOFError, UnicodeDecodeError) as error:
        raise ValueError(f"{file} cannot be read as text: {error}") from error
    return texts


def _add_missing_tokens(
    tokenizer: PreTrainedTokenizerFast, config: WeftConfig, objective: Objective, is_in_parts: bool
) -> bool:
    """Return whether the model needs rows for tokens that the tokenizer did not have."""
    if config.has_two_vocabularies:
        raise ValueError(
            "Source and target of this model have a vocabulary each, and a mended text is written in that of its source: "
            "begin with a model of one vocabulary."
        )
    added = add_denoising_tokens(tokenizer, objective)
    if len(tokenizer) <= config.vocab_size:
        return False
    if is_in_parts:
        raise ValueError(
            f"The model needs rows for {added} new tokens, and its tables are in parts: pretrain a few steps without "
            "--distributed-config, and go on from that folder."
        )
    logger.info(f"The vocabulary gets {added} tokens for the objective {objective}.")
    return True


def _encode_lines(batch: dict[str, list], lines: list[int], **settings: Any) -> dict[str, list]:
    return {"input_ids": _pieces(batch["text"], lines, **settings)}


def _pieces(
    texts: list[str], lines: list[int], tokenizer: PreTrainedTokenizerFast, longest: int, file: str | None
) -> list[list[int]]:
    """Ids of the texts, long ones in pieces; what has fewer than two tokens is left out."""
    try:
        # neither mask nor special tokens: the collator knows them
        encoded = tokenizer(texts, add_special_tokens=False, return_attention_mask=False, verbose=False)["input_ids"]
    except Exception as error:  # the Rust layer raises plain `Exception`, and does not say which text it was
        for line, text in zip(lines, texts, strict=True):
            try:
                check_encodable(tokenizer, text)
            except ValueError as reason:
                raise ValueError(f"Line {line + 1} of {file}: {reason}") from error
        raise
    pieces: Iterator[list[int]] = (
        ids[start : start + longest] for ids in encoded for start in range(0, len(ids), longest)
    )
    return [piece for piece in pieces if len(piece) > 1]


def _corrupted_once(
    args: PretrainingArguments, tokenizer, collator: DenoisingCollator, longest: int, seed: int
) -> Dataset:
    """The validation texts with their labels, the same at each evaluation."""
    texts = list(itertools.islice(iter_columns(load_texts(str(args.validation_file)), "text"), args.max_eval_samples))
    rng = np.random.default_rng(seed)
    pieces = _pieces(texts, list(range(len(texts))), tokenizer, longest, args.validation_file)
    if not pieces:
        raise ValueError(f"{args.validation_file} holds no text of two tokens or more.")
    return Dataset.from_list([collator.features(piece, rng) for piece in pieces])
