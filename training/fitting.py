"""A training run for any task: from a model and its data to a folder for `from_pretrained` with a card and scores."""

import copy
import logging
from collections.abc import Callable, Mapping
from typing import Any

import datasets
from transformers import IntervalStrategy, PreTrainedTokenizerBase, set_seed

from ..modeling import WeftForConditionalGeneration
from .arguments import WeftTrainingArguments, check_one_gpu
from .checkpoints import check_output_dir, checkpoints, find_checkpoint, remove_checkpoints, save_model_folder
from .streaming import ShuffledStream
from .trainer import WeftTrainer

logger = logging.getLogger(__name__)


def start(args: WeftTrainingArguments, *inputs: str | None) -> str | None:
    """Check the folder to write to, and find the checkpoint to resume from. Every process must call it.

    Args:
        args: the training arguments.
        inputs: folders that are read, which must not be overwritten.

    Returns:
        The folder of the checkpoint, or None to start from the beginning.

    Raises:
        ValueError: as in [`check_output_dir`], [`check_one_gpu`] and [`find_checkpoint`].
    """
    if args.is_main_process:  # the others would find the files that this one has already written
        check_output_dir(args, inputs)
    check_one_gpu(args)
    return find_checkpoint(args)


def fit(
    build_model: Callable[[], WeftForConditionalGeneration],
    tokenizer: PreTrainedTokenizerBase,
    data: Mapping[str, datasets.Dataset | ShuffledStream],
    args: WeftTrainingArguments,
    evaluate: Callable[[WeftTrainer], dict[str, Any]],
    *,
    checkpoint: str | None = None,
    **trainer_options: Any,
) -> WeftTrainer:
    """Train a model, save it with its tokenizer, evaluate it, and write its card, or push all of it.

    Args:
        build_model: builds the model. The random seed is set to `args.seed` just before.
        tokenizer: the tokenizer, which is saved too.
        data: encoded rows to train on as `"train"`, and to evaluate on as `"validation"` if there are any.
        args: how to train, and the folder to write to. The trainer changes them.
        evaluate: measures the trained model. It returns additional facts for the model card.
        checkpoint: the folder to resume from, see [`start`].
        **trainer_options: further arguments of [`WeftTrainer`].

    Returns:
        The trainer, with the trained model.

    Raises:
        ValueError: the best checkpoint is requested, but there is nothing to evaluate on.
    """
    if "validation" not in data:
        if args.load_best_model_at_end:
            raise ValueError("--load-best-model-at-end needs something to evaluate on: give --validation-file.")
        args.eval_strategy, args.do_eval = IntervalStrategy.NO, False
    if trainer_options.get("compute_metrics") is None:
        args.prediction_loss_only = True  # else every logit of the evaluation is kept
    set_seed(args.seed)
    model = build_model()
    logger.info(f"The model has {model.num_parameters():,} parameters.")
    trainer = WeftTrainer(
        model=model,
        args=args,
        train_dataset=data["train"],
        eval_dataset=data.get("validation"),
        processing_class=tokenizer,
        **trainer_options,
    )
    generation_config = copy.deepcopy(model.generation_config)
    if args.overwrite_output_dir and not checkpoint and args.is_main_process:
        remove_checkpoints(str(args.output_dir))
    try:
        result = trainer.train(resume_from_checkpoint=checkpoint)
    except KeyboardInterrupt as error:
        raise KeyboardInterrupt(_how_to_resume(str(args.output_dir))) from error
    size = {} if isinstance(data["train"], ShuffledStream) else {"train_samples": len(data["train"])}
    report(trainer, "train", result.metrics | size)
    trainer.save_state()
    model.generation_config = copy.deepcopy(generation_config)  # evaluation fills it with thirty defaults
    save_model_folder(trainer, str(args.output_dir))
    details = evaluate(trainer)
    model.generation_config = generation_config
    if args.push_to_hub:
        trainer.push_to_hub(**details)
    else:
        trainer.create_model_card(**details)
    return trainer


def _how_to_resume(folder: str) -> str:
    saved = checkpoints(folder)
    if not saved:
        return f"No checkpoint of this run was saved yet in {folder}. --save-steps N saves one every N steps."
    return f"The same command with --resume-from-checkpoint true continues from {saved[0]}."


def report(trainer: WeftTrainer, split: str, scores: dict[str, float]) -> None:
    """Print scores, and write them into the folder of the run."""
    trainer.log_metrics(split, scores)
    trainer.save_metrics(split, scores)
