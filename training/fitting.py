"""A training run: from a model and its data to a folder for `from_pretrained` with a card and scores."""

import copy
import logging
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import datasets
from huggingface_hub import EvalResult
from transformers import IntervalStrategy, PreTrainedTokenizerBase, ProgressCallback, TrainerCallback, set_seed

from ..configuration import WeftConfig
from ..hub import evaluation_results
from ..hub.loading import use_threads
from ..hub.trained import training_table
from ..modeling import WeftForConditionalGeneration
from .arguments import WeftTrainingArguments, check_one_gpu
from .batching import PairCollator, row_lengths
from .building import (
    STARTER,
    build_config,
    build_distributed_config,
    build_model,
    build_tokenizer,
    set_generation_defaults,
    starts_from_starter,
)
from .callbacks import ProgressLinesCallback, TwoCyclesCallback
from .checkpoints import (
    check_output_dir,
    check_same_model,
    find_checkpoint,
    output_lock,
    remove_checkpoints,
    remove_earlier_run,
    resumable,
    save_model_folder,
)
from .encoding import longest
from .metrics import Row, TextMetrics
from .options import DataArguments, ModelArguments
from .pairs import Pairs
from .planning import facts_of, plan_training, replaced
from .report import OUTPUTS, PAGE, TrainingReport
from .sources import TrainedSources
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
    is_starter: bool = False,
    trained: TrainedSources | None = None,
    **trainer_options: Any,
) -> WeftTrainer:
    """Train a model, save it with its tokenizer, evaluate it, and write its card, or push all of it. Then remove the
    checkpoints, unless they are asked for.

    Args:
        build_model: builds the model. The random seed is set to `args.seed` just before.
        tokenizer: the tokenizer, which is saved too.
        data: encoded rows to train on as `"train"`, and to evaluate on as `"validation"` if there are any.
        args: how to train, and the folder to write to. The plan is made from them. `threads` is set in this process.
        evaluate: measures the trained model. It returns additional facts for the model card.
        checkpoint: the folder to resume from, see [`start`].
        is_starter: whether the model is the included starter.
        trained: the sources that the model will have been trained on. None if they are not known.
        **trainer_options: further arguments of [`WeftTrainer`].

    Returns:
        The trainer, with the trained model.

    Raises:
        ValueError: the best checkpoint is requested, but there is nothing to evaluate on.
    """
    if "validation" not in data:
        args = _without_evaluation(args)
    set_seed(args.seed)
    model = build_model()
    facts = facts_of(
        args,
        data["train"],
        model,
        has_validation="validation" in data,
        has_scores=trainer_options.get("compute_metrics") is not None,
        num_parameters=model.num_parameters(),
        is_starter=is_starter,
        has_schedule=trainer_options.get("schedule") is not None,
    )
    plan = plan_training(args, facts)
    args = plan.args
    logger.info(f"The model has {model.num_parameters():,} parameters.\n{plan.describe()}")
    if speed := args.describe_speed():
        logger.info(speed)
    use_threads(model, args.threads)
    if checkpoint:
        logger.info(f"Continuing from {checkpoint}.")
    cycles = None if plan.first_cycle is None else TwoCyclesCallback(args, plan.first_cycle)
    if cycles is not None:
        trainer_options["callbacks"] = [*trainer_options.get("callbacks", ()), cycles]
        trainer_options["schedule"] = cycles.schedule
    trainer = WeftTrainer(
        model=model,
        args=args,
        train_dataset=data["train"],
        eval_dataset=data.get("validation"),
        processing_class=tokenizer,
        **trainer_options,
    )
    if trained is not None:
        trained.save(tokenizer)
    bars = [callback for callback in trainer.callback_handler.callbacks if isinstance(callback, ProgressCallback)]
    trainer.add_callback(ProgressLinesCallback(cycles, bars))
    _remove_earlier_run(args, checkpoint)
    with _same_generation_config(model):
        _train(trainer, checkpoint)
    save_model_folder(trainer, str(args.output_dir))
    with _same_generation_config(model):
        details = evaluate(trainer)
    if args.push_to_hub:
        trainer.push_to_hub(**details)
    else:
        trainer.create_model_card(**details)
    if args.is_main_process and not args.keeps_checkpoints:
        remove_checkpoints(str(args.output_dir))
    return trainer


def _without_evaluation(args: WeftTrainingArguments) -> WeftTrainingArguments:
    if args.load_best_model_at_end:
        raise ValueError("--load-best-model-at-end needs something to evaluate on: give --validation-file.")
    return replaced(args, eval_strategy=IntervalStrategy.NO, do_eval=False)


def _remove_earlier_run(args: WeftTrainingArguments, checkpoint: str | None) -> None:
    if not args.is_main_process:
        return
    if args.push_to_hub:  # those of an earlier run have texts that nobody chose to publish
        for name in (PAGE, OUTPUTS):
            Path(str(args.output_dir), name).unlink(missing_ok=True)
    if args.overwrite_output_dir and not checkpoint:
        remove_earlier_run(str(args.output_dir))


def _train(trainer: WeftTrainer, checkpoint: str | None) -> None:
    result = trainer.train(resume_from_checkpoint=checkpoint)
    rows: Any = trainer.train_dataset
    size = {} if isinstance(rows, ShuffledStream) else {"train_samples": len(rows)}
    report(trainer, "train", result.metrics | size)
    trainer.save_state()


@contextmanager
def _same_generation_config(model: Any) -> Iterator[None]:
    """Put the model's `generation_config` back, which evaluation fills with thirty defaults."""
    generation_config = copy.deepcopy(model.generation_config)
    yield
    model.generation_config = generation_config


def report(trainer: WeftTrainer, split: str, scores: dict[str, float]) -> None:
    """Print scores, and write them into the folder of the run."""
    trainer.log_metrics(split, scores)
    trainer.save_metrics(split, scores)


@dataclass
class FittedPairs:
    """The trainer, with the trained model, the first source of its training pairs, and the report, which a notebook
    shows.
    """

    trainer: WeftTrainer
    example: str
    report: TrainingReport

    def _repr_html_(self) -> str:
        return self.report._repr_html_()


def fit_pairs(
    model_args: ModelArguments,
    data_args: DataArguments,
    training_args: WeftTrainingArguments,
    train_dataset: datasets.IterableDataset | None = None,
    *,
    callbacks: Sequence[TrainerCallback] = (),
    schedule: Callable[..., float] | None = None,
    words: Sequence[str] = (),
) -> FittedPairs:
    """Train a model on pairs of texts, evaluate it by generation, and save it with tokenizer and model card.

    This is everything that `weftformer train` does. Under `torchrun`, every process must call it.

    Args:
        model_args: the model to begin with, or the size of a new one; and its tokenizer.
        data_args: the pairs.
        training_args: how to train, and the folder to write to.
        train_dataset: training pairs as a stream, instead of those in `data_args`, which then need `streaming=True`.
            The stream must give the same rows whenever it is read.
        callbacks, schedule: as in [`WeftTrainer`].
        words: the words of `weftformer train` that gave the arguments, for the commands that the report advises.

    Returns:
        The trainer, with the trained model, a source to try it on, and the report.

    Raises:
        ValueError, FileNotFoundError: the arguments or the data are not valid.
    """
    with output_lock(training_args):
        _check_stream(data_args, training_args, train_dataset)
        args = _scored(training_args)
        distributed_config = build_distributed_config(model_args, args)
        checkpoint = start(args, model_args.model_name_or_path, model_args.tokenizer_name)
        with args.main_process_first(desc="reading the data"):
            pairs = Pairs(data_args, train_dataset)
        columns, first = pairs.columns, pairs.first()
        logger.info(
            f'Reading "{columns.source}", writing "{columns.target}". The first pair:\n  {first[0]!r}\n  {first[1]!r}'
        )
        trained = TrainedSources.load(checkpoint or model_args.model_name_or_path)
        if is_starter := starts_from_starter(model_args, pairs):
            logger.info("Starting from the included starter (--from-scratch begins with random weights).")
            model_args = replace(model_args, model_name_or_path=str(STARTER))
        tokenizer = build_tokenizer(model_args, pairs.texts(), args.is_main_process, checkpoint=checkpoint)
        # for `trained_columns`
        tokenizer.init_kwargs["text_columns"] = {"source": columns.source, "target": columns.target}
        num_pairs = None if data_args.streaming else len(pairs)
        config = build_config(model_args, tokenizer, len(columns.conditions), num_pairs)
        if checkpoint:
            check_same_model(config, checkpoint)
        seed = args.data_seed if data_args.streaming and args.data_seed is not None else args.seed
        with args.main_process_first(desc="tokenizing"):
            data = pairs.encode(tokenizer, config, seed, trained)

        def build() -> WeftForConditionalGeneration:
            model = build_model(model_args, config, distributed_config)
            set_generation_defaults(model, _longest_output(pairs, config, data), args)
            return model

        metrics, outputs = TextMetrics(tokenizer, args.metric_for_best_model), list[Row]()
        # the collator lacks the model: it makes its decoder inputs from the labels itself, and finds the pads of its
        # sources
        collator = PairCollator(tokenizer, pairs.limits(config), args.device, data_args.pad_to_multiple_of)
        with resumable(str(args.output_dir), ["train", *words] if words else ()):
            trainer = fit(
                build,
                tokenizer,
                data,
                args,
                partial(_evaluate, data, pairs, model_args, outputs),
                checkpoint=checkpoint,
                is_starter=is_starter,
                trained=pairs.trained,
                callbacks=[*callbacks],
                schedule=schedule,
                compute_metrics=metrics if args.predict_with_generate else None,
                data_collator=collator,
            )
        training_report = _write_report(trainer, outputs, pairs, data, model_args.model_name_or_path, words)
        return FittedPairs(trainer, first[0], training_report)


def _scored(args: WeftTrainingArguments) -> WeftTrainingArguments:
    """Return arguments by which texts are generated and scored, unless they say otherwise."""
    is_scored = args.predict_with_generate is not False
    # `TextMetrics` shows sources
    return replaced(args, predict_with_generate=is_scored, include_for_metrics=["inputs"] if is_scored else [])


def _longest_output(pairs: Pairs, config: WeftConfig, data: Mapping[str, Any]) -> int:
    """Return the largest number of tokens that the model writes by default."""
    limit = pairs.limits(config)[1]
    if pairs.args.max_target_length or pairs.args.streaming:
        return limit
    # an untrained model does not stop by itself, and outputs may be longer than all targets
    return min(limit, 2 * max(map(longest, data.values())) + 16)


def _evaluate(
    data: Mapping[str, Any],
    pairs: Pairs,
    model_args: ModelArguments,
    outputs: list[Row],
    trainer: WeftTrainer,
) -> dict[str, Any]:
    """Score the trained model, add the validation pairs to `outputs`, and return facts for the card."""
    results: list[EvalResult] = []
    if trainer.args.do_eval:
        scores = (_last_scores(trainer) or trainer.evaluate()) | {"eval_samples": len(data["validation"])}
        report(trainer, "eval", scores)
        results += _results(trainer, "eval", scores)
        if isinstance(trainer.compute_metrics, TextMetrics):
            outputs.extend(trainer.compute_metrics.rows())
    if "test" in data:
        results += _results(trainer, "test", _predict(trainer, data["test"]))
    details = _card_details(pairs.args, results, model_args)
    if not trainer.args.push_to_hub and not pairs.columns.conditions:  # nobody chose to publish it
        details["example"] = pairs.first()
    return details | ({"results_note": " ".join(pairs.notes)} if pairs.notes else {})


def _write_report(
    trainer: WeftTrainer,
    rows: list[Row],
    pairs: Pairs,
    data: Mapping[str, Any],
    model: str | None,
    words: Sequence[str],
) -> TrainingReport:
    args, state = trainer.args, trainer.state
    if args.max_steps > 0:
        longer: dict[str, Any] = {"--max-steps": 2 * state.global_step}
    else:
        longer = {"--num-train-epochs": None, "--epochs": math.ceil(2 * (state.epoch or 0))}
    origin = "the included starter" if model == str(STARTER) else model or "random"
    training_report = TrainingReport(
        str(args.output_dir),
        state.log_history,
        rows,
        _facts(pairs, data),
        settings={"weights to begin with": origin} | training_table(trainer),
        longer=longer,
        data=" and ".join(filter(None, (pairs.args.dataset_name, *pairs.args.files("train")))) or "the stream",
        words=words,
        notes=pairs.notes,
    )
    if args.is_main_process:
        training_report.save()
    return training_report


def _facts(pairs: Pairs, data: Mapping[str, Any]) -> dict[str, str]:
    """Return facts of the data for the report. A stream has no length."""
    facts = {"files": ", ".join(_names(pairs.args)), "columns": f"{pairs.columns.source}, {pairs.columns.target}"}
    facts |= {f"contradictions ({split})": text for split, text in pairs.contradictions.items()}
    for split, rows in data.items():
        if isinstance(rows, datasets.Dataset):
            sources, targets = row_lengths(rows, ("input_ids", "labels"))
            facts[f"{'training' if split == 'train' else split} pairs"] = (
                f"{len(rows):,}, with up to {sources.max():,} source and {targets.max():,} target tokens"
            )
    return facts


def _check_stream(
    args: DataArguments, training_args: WeftTrainingArguments, train_dataset: datasets.IterableDataset | None
) -> None:
    if train_dataset is not None:
        if not args.streaming or args.train_file or args.dataset_name:
            raise ValueError("train_dataset replaces files: pass DataArguments(streaming=True) without data.")
        if not isinstance(train_dataset, datasets.IterableDataset):
            raise ValueError(f"train_dataset is a {type(train_dataset).__name__}: use to_iterable_dataset().")
    if not args.streaming:
        return
    if training_args.max_steps < 1:
        raise ValueError("--streaming needs --max-steps: a stream has no length, so epochs cannot be counted.")
    strategy = training_args.train_sampling_strategy
    if strategy != "random":
        raise ValueError(f"A stream has no --train-sampling-strategy {strategy}: use --max-tokens-per-batch.")
    if training_args.save_strategy == "epoch":
        logger.warning(
            "A stream has no length, so the Trainer counts all steps as one epoch, and saves only at its end. Give "
            "--save-steps N for checkpoints to resume from, and --eval-steps N."
        )


def _predict(trainer: WeftTrainer, dataset: datasets.Dataset) -> dict[str, float]:
    """Generate texts for the test pairs, score them, and write them, one text per line. Return the scores."""
    metrics = trainer.compute_metrics
    scores = trainer.predict(dataset, metric_key_prefix="test").metrics | {"test_samples": len(dataset)}
    report(trainer, "test", scores)
    if isinstance(metrics, TextMetrics) and trainer.is_world_process_zero():
        lines = (" ".join(text.splitlines()) + "\n" for text in metrics.predictions)
        Path(trainer.args.output_dir, "generated_predictions.txt").write_text("".join(lines), encoding="utf-8")
    return scores


def _last_scores(trainer: WeftTrainer) -> dict[str, float] | None:
    """Return the scores of the last evaluation if this process made it with the trained weights, else None."""
    state, metrics = trainer.state, trainer.compute_metrics
    last = next((entry for entry in reversed(state.log_history) if "eval_loss" in entry), {"step": -1})
    is_here = not isinstance(metrics, TextMetrics) or bool(metrics.predictions)
    was_put_back = state.best_global_step not in (None, state.global_step)  # the weights are those of an earlier step
    if last["step"] != state.global_step or was_put_back or trainer.args.load_best_model_at_end or not is_here:
        return None
    return {name: value for name, value in last.items() if name.startswith("eval_") or name == "epoch"}


def _results(trainer: WeftTrainer, split: str, scores: dict[str, float]) -> list[EvalResult]:
    """Return the last evaluation for the model card: the scores of generated texts with their intervals."""
    n = int(scores[f"{split}_samples"])
    metrics = trainer.compute_metrics
    intervals = metrics.intervals() if isinstance(metrics, TextMetrics) else {}
    pairs = f"{n} {'validation' if split == 'eval' else split} pairs"
    return evaluation_results(scores, split, pairs, n, intervals)


def _card_details(data_args: DataArguments, results: list[EvalResult], model_args: ModelArguments) -> dict[str, Any]:
    """Return the facts for the model card that the trainer does not have: the names of the data, and the results."""
    name = data_args.dataset_name
    facts: dict[str, Any] = {"is_routes": False, "results": results}  # even with the vocabulary of a route model
    if model_args.model_name_or_path == str(STARTER):
        facts["origin"] = "It was fine-tuned from the starter that Weft includes."
    if name and not Path(name).is_dir():
        return facts | {"dataset_tags": name}
    return facts | {"dataset": _names(data_args)}


def _names(data_args: DataArguments) -> list[str]:
    """Return the names of the data without their folders, which are private."""
    return [Path(file).name for file in (data_args.dataset_name, *data_args.files("train")) if file]
