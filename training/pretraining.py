"""Pretraining on plain text by span corruption: from a file to a folder that training on pairs starts from."""

import itertools
import logging
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import datasets
import numpy as np
from datasets import Dataset, IterableDataset
from transformers import DataCollatorForSeq2Seq, PreTrainedTokenizerFast

from ..configuration import WeftConfig
from ..hub import measured
from ..modeling import WeftForConditionalGeneration
from ..tokenization import add_sentinels, iter_columns
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
from .denoising import DataCollatorForSpanCorruption
from .encoding import text_ids
from .fitting import fit, report, start
from .options import ModelArguments, PretrainingArguments
from .streaming import ShuffledStream
from .trainer import WeftTrainer

logger = logging.getLogger(__name__)


def fit_texts(
    model_args: ModelArguments, data_args: PretrainingArguments, training_args: WeftPretrainingArguments
) -> WeftTrainer:
    """Train a model by span corruption, and save it with tokenizer and model card.

    Everything that `weftformer pretrain` does. Under `torchrun` every process calls it. A tokenizer without sentinels gets
    them, and a trained model to continue from gets embeddings for them.

    Args:
        model_args: the model to begin with, or the size of a new one; and its tokenizer.
        data_args: the texts.
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
        model_args = replace(model_args, model_name_or_path=checkpoint, preset=None, tokenizer_name=None)
    texts = load_texts(str(data_args.train_file))
    some = itertools.islice(iter_columns(texts, "text"), VOCABULARY_TEXTS)
    tokenizer = build_tokenizer(model_args, some, training_args.is_main_process, checkpoint=checkpoint)
    if not model_args.model_name_or_path:
        add_sentinels(tokenizer)
    config = build_config(model_args, tokenizer)
    if checkpoint:
        check_same_model(config, checkpoint)
        if not asked.model_name_or_path:  # else the vocabulary was smaller when the run began
            check_same_model(build_config(asked, tokenizer), checkpoint)
    limits = source_and_target_limits(config, data_args)
    # a trained model to continue from may have a tokenizer without sentinels
    is_larger = _add_missing_tokens(tokenizer, config, distributed_config is not None)
    objective = DataCollatorForSpanCorruption(tokenizer)
    longest = objective.longest_text(*limits)
    encode = partial(_corrupted, tokenizer=tokenizer, objective=objective, longest=longest)
    data: dict[str, Any] = {
        "train": ShuffledStream(
            texts,
            partial(encode, file=data_args.train_file),
            buffer_size=data_args.shuffle_buffer_size,
            seed=training_args.seed,
            name=str(data_args.train_file),
        )
    }
    if data_args.validation_file:
        data["validation"] = _corrupted_once(data_args, encode, training_args.seed)

    def build() -> WeftForConditionalGeneration:
        model = build_model(model_args, config, distributed_config)
        if is_larger:
            model.resize_token_embeddings(len(tokenizer))
        set_generation_defaults(model, limits[1], training_args)
        return model

    def evaluate(trainer: WeftTrainer) -> dict[str, Any]:
        details: dict[str, Any] = {"dataset": Path(str(data_args.train_file)).name, "results": []}
        if "validation" in data:
            number = len(data["validation"])
            scores = trainer.evaluate() | {"eval_samples": number}
            report(trainer, "eval", scores)
            details["results"] = measured(scores, "eval", f"{number} validation texts, span corruption", n=number)
        return details

    return fit(
        build, tokenizer, data, training_args, evaluate, checkpoint=checkpoint,
        data_collator=DataCollatorForSeq2Seq(tokenizer, pad_to_multiple_of=data_args.pad_to_multiple_of),
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


def _add_missing_tokens(tokenizer: PreTrainedTokenizerFast, config: WeftConfig, is_in_parts: bool) -> bool:
    """Return whether the model needs embeddings for tokens that the tokenizer did not have."""
    if config.has_two_vocabularies:
        raise ValueError(
            "Source and target of this model have a vocabulary each, and the removed text is written in that of its source: "
            "begin with a model of one vocabulary."
        )
    added = add_sentinels(tokenizer)
    if len(tokenizer) <= config.vocab_size:
        return False
    if is_in_parts:
        raise ValueError(
            f"The model needs embeddings for {added} new tokens, and its tables are in parts: pretrain a few steps without "
            "--distributed-config, and continue from that folder."
        )
    logger.info(f"The vocabulary gets {added} sentinels.")
    return True


def _corrupted(
    batch: dict[str, list],
    lines: list[int],
    rng: np.random.Generator,
    *,
    tokenizer: PreTrainedTokenizerFast,
    objective: DataCollatorForSpanCorruption,
    longest: int,
    file: str | None,
) -> dict[str, list]:
    """Return the features of texts. Long texts are cut into pieces, and those of fewer than two tokens are left out."""
    places = [f"Line {line + 1} of {file}" for line in lines]
    # no special tokens: `objective` adds them
    encoded = text_ids(tokenizer, "text", batch["text"], places, add_special_tokens=False)
    pieces: Iterator[list[int]] = (
        ids[start : start + longest] for ids in encoded for start in range(0, len(ids), longest)
    )
    rows = [objective.features(piece, rng) for piece in pieces if len(piece) > 1]
    return {name: [row[name] for row in rows] for name in ("input_ids", "labels")}


def _corrupted_once(args: PretrainingArguments, encode: Callable[..., dict[str, list]], seed: int) -> Dataset:
    """Return the features of the validation texts, the same at each evaluation."""
    file = str(args.validation_file)
    texts = list(itertools.islice(iter_columns(load_texts(file), "text"), args.max_eval_samples))
    features = encode({"text": texts}, list(range(len(texts))), np.random.default_rng(seed), file=file)
    if not features["labels"]:
        raise ValueError(f"{file} has no text of two tokens or more.")
    return Dataset.from_dict(features)
