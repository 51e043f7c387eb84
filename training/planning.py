"""The plan of a training run, made before there is a Trainer, from the arguments and the sizes of model and data."""

import copy
import math
from dataclasses import dataclass
from typing import Any

from torch.utils.data import IterableDataset
from transformers import IntervalStrategy
from transformers.trainer_utils import has_length

from ..common.words import counted
from ..hub.loading import chosen_threads
from .batching import row_lengths
from .options import TrainingOptions

# The number of optimizer steps for which a small data set is repeated if no number of epochs is given.
_STEPS = 2_000
# The fewest and most epochs of any run, and those from the included starter, which read this number of pairs.
_EPOCHS, _STARTER_EPOCHS, _STARTER_ROWS = (10, 100), (10, 20), 20_000
# The second cycle of the learning rate, if the first leaves enough to gain, is one to three times as long as the
# first.
_SECOND_CYCLE_ROWS = 60_000
_STARTER_RATE, _TRAINED_RATE, _HIGHEST_RATE = 1e-3, 5e-5, 2e-3
# With `auto_find_batch_size`, the token budget is lowered to 1 of this many parts at most.
_FEWEST = 32


@dataclass(frozen=True)
class RunFacts:
    """What a plan depends on besides the arguments.

    Args:
        num_pairs: number of training pairs. None if they are a stream.
        pair_tokens: mean length of the longer side of a pair, which batches by tokens need.
        has_validation: whether there are pairs to evaluate on.
        has_scores: whether an evaluation computes more than the loss. None leaves that to the arguments.
        width: the model's `d_model`. None if there is no model yet.
        num_parameters: the size of the model, which decides the default of the threads.
        is_trained: whether the model continues from trained weights.
        is_starter: whether these are the included starter.
        has_conditions: whether the model reads numbers beside the source.
        has_schedule: whether the caller has a schedule of the learning rate.
    """

    num_pairs: int | None = None
    pair_tokens: float | None = None
    has_validation: bool = False
    has_scores: bool | None = None
    width: int | None = None
    num_parameters: int | None = None
    is_trained: bool = False
    is_starter: bool = False
    has_conditions: bool = True
    has_schedule: bool = False


@dataclass(frozen=True)
class TrainingPlan:
    """What a run will do.

    Args:
        args: a copy of the arguments with all that was not given.
        num_pairs: as in [`RunFacts`].
        first_cycle: the share of the first of two cycles of the learning rate in all epochs. None if there is one.
    """

    args: Any
    num_pairs: int | None
    first_cycle: float | None

    def describe(self) -> str:
        """Return the plan in a few lines, with the options that change it."""
        args, pairs = self.args, "A stream of pairs" if self.num_pairs is None else counted(self.num_pairs, "pair")
        length = f"{counted(args.num_train_epochs, 'epoch')} (--epochs)"
        if args.max_steps > 0:
            length = f"{counted(args.max_steps, 'step')} (--max-steps)"
        elif self.first_cycle is not None:
            length = f"up to {length}, in two cycles: training ends after the first if the loss is low"
        batch = f"{counted(args.per_device_train_batch_size, 'pair')} (--per-device-train-batch-size)"
        if args.max_tokens_per_batch is not None:
            batch = f"{args.max_tokens_per_batch:,} tokens (--max-tokens-per-batch)"
        strategy, every = IntervalStrategy(args.eval_strategy).value, args.eval_steps
        if strategy == "steps":
            every = args.logging_steps if every is None else every
            strategy = counted(round(1 / every), "time") if every < 1 else f"after every {counted(every, 'step')}"
        evaluation = {"no": "none", "epoch": "after each epoch"}.get(strategy, strategy)
        return (
            f"Plan: {pairs}, {length}.\n"
            f"  learning rate {args.learning_rate:g} (--learning-rate), batches of {batch}\n"
            f"  evaluation {evaluation} (--eval-strategy), "
            f"{'threads as torch sets them' if args.threads is None else f'threads: {args.threads}'} (--threads)"
        )


def replaced(args: Any, **values: Any) -> Any:
    """Return a copy of training arguments with other values. (`dataclasses.replace` would derive all others again.)"""
    arguments = copy.copy(args)
    for name, value in values.items():
        setattr(arguments, name, value)
    return arguments


def facts_of(args: Any, train_dataset: Any, model: Any = None, **facts: Any) -> RunFacts:
    """Return the facts of a run with these training pairs and this model. `facts` are other fields of [`RunFacts`]."""
    num_pairs, tokens = len(train_dataset) if has_length(train_dataset) else None, None
    is_counted = args.num_train_epochs is None and getattr(args, "max_tokens_per_batch", None) is not None
    if num_pairs and is_counted and not isinstance(train_dataset, IterableDataset):
        tokens = float(row_lengths(train_dataset, ("input_ids", "labels")).max(axis=0).mean())
    if model is not None:
        facts["width"], facts["is_trained"] = getattr(model.config, "d_model", None), bool(model.name_or_path)
        facts["has_conditions"] = bool(getattr(model.config, "num_condition_features", 1))
    return RunFacts(num_pairs=num_pairs, pair_tokens=tokens, **facts)


def plan_training(args: Any, facts: RunFacts) -> TrainingPlan:
    """Return the plan of a run. Arguments that are given are respected; the plan decides the others.

    Args:
        args: training arguments, which are only read: [`WeftTrainingArguments`] or those of transformers.
        facts: what the plan depends on besides them.
    """
    changes: dict[str, Any] = {}
    is_weft = isinstance(args, TrainingOptions)
    is_default = is_weft and args.eval_strategy == type(args).eval_strategy
    if not facts.has_validation and is_default and not args.load_best_model_at_end:
        changes |= {"eval_strategy": IntervalStrategy.NO, "do_eval": False}
    if facts.has_scores is False:
        changes["prediction_loss_only"] = True  # else every logit of the evaluation is kept
    if args.auto_find_batch_size and getattr(args, "max_tokens_per_batch", None) is not None:
        # it replaces the number of rows, in whose steps it is lowered
        changes["per_device_train_batch_size"] = max(_FEWEST, args.per_device_train_batch_size)
    if not facts.has_conditions and args.ddp_find_unused_parameters is None:
        # DDP would search for unused weights in each step, but only a batch without conditions has any
        changes["ddp_find_unused_parameters"] = False
    if facts.num_parameters is not None:
        changes["threads"] = chosen_threads(facts.num_parameters, args.threads)
    if args.learning_rate is None and facts.width is not None:
        changes["learning_rate"] = _default_rate(facts)
    first_cycle = None
    if args.num_train_epochs is None:
        epochs = _default_epochs(args, facts)
        if _has_two_cycles(args, facts):
            assert facts.num_pairs is not None
            second = min(3 * epochs, max(epochs, _SECOND_CYCLE_ROWS // facts.num_pairs))
            first_cycle, epochs = epochs / (epochs + second), epochs + second
            # not in each epoch: writing 50 texts takes about as long as an epoch
            changes |= {"eval_strategy": IntervalStrategy.STEPS, "eval_steps": 0.125}
        changes["num_train_epochs"] = epochs
    return TrainingPlan(replaced(args, **changes), facts.num_pairs, first_cycle)


def _default_rate(facts: RunFacts) -> float:
    if facts.is_starter:
        return _STARTER_RATE
    assert facts.width is not None
    return _TRAINED_RATE if facts.is_trained else min(_HIGHEST_RATE, 0.384 / facts.width)


def _default_epochs(args: Any, facts: RunFacts) -> int:
    rows = max(1, facts.num_pairs or 0)
    if facts.is_starter:
        fewest, most = _STARTER_EPOCHS
        return min(most, max(fewest, _STARTER_ROWS // rows))
    batch: float = args.train_batch_size
    if facts.pair_tokens is not None:
        batch = args.max_tokens_per_batch / facts.pair_tokens
    batch *= args.gradient_accumulation_steps * args.world_size
    fewest, most = _EPOCHS
    return min(most, max(fewest, math.ceil(_STEPS * batch / rows)))


def _has_two_cycles(args: Any, facts: RunFacts) -> bool:
    """Return whether a run from the starter has two cycles: if its texts are scored, and nothing else is chosen."""
    is_scored = facts.has_validation and args.predict_with_generate and args.eval_strategy == "epoch"
    is_chosen = facts.has_schedule or args.lr_scheduler_type != "linear" or args.max_steps > 0
    return facts.is_starter and bool(is_scored) and not is_chosen and not args.load_best_model_at_end
