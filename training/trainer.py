"""Seq2SeqTrainer whose losses do not depend on how batches are split, with batches by tokens and whole checkpoints."""

import logging
import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from accelerate.data_loader import prepare_data_loader
from accelerate.utils import AutocastKwargs, gather_object, recursively_apply
from datasets import Dataset
from torch.distributed.tensor import DTensor
from torch.optim.lr_scheduler import LambdaLR
from torch.utils.data import DataLoader, IterableDataset
from transformers import TrainerState
from transformers.trainer import TRAINER_STATE_NAME
from transformers.trainer_pt_utils import find_batch_size
from transformers.trainer_utils import has_length, rotate_checkpoints, seed_worker

from ..common.atomic import put_folder, staging_folder
from ..hub.trained import trained_card
from ..modeling.parallel import is_fully_sharded
from ..modeling.transformers_names import named_arguments
from .arguments import check_one_gpu, refuse_other_engines
from .batching import TokenBudgetSampler, padded, row_lengths
from .callbacks import ExpertStatisticsCallback, PushCodeCallback, is_weft, weft_model
from .checkpoints import ShardedModelTrainer
from .muon import Muon, layer_matrices
from .planning import facts_of, plan_training, replaced
from .router_counts import SumCounts, build_sum_counts
from .sources import forget_sources
from .streaming import ShuffledStream

logger = logging.getLogger(__name__)


class WeftTrainer(ShardedModelTrainer):
    """`Seq2SeqTrainer` for Weft models.

    - `args.max_tokens_per_batch` forms batches by tokens instead of rows ([`TokenBudgetSampler`]).
      `args.auto_find_batch_size` lowers it.
    - A `train_dataset` may be a [`ShuffledStream`], which processes share, with either kind of batches. A resumed run
      continues at the exact row. So it does in another `IterableDataset`, if that has the same rows in each run.
    - Cross-entropy and z-loss are those of the whole optimizer step, however many batches and processes share it. The
      balance loss of each accumulated batch uses its own load, over all processes ([`build_sum_counts`]).
    - With a large vocabulary the training loss is computed in pieces, without the logits of a whole batch, unless
      `args.chunked_loss` is off.
    - `args.label_smoothing_factor` is passed to the model, whose loss keeps the router losses. `eval_loss` is not
      smoothed.
    - `eval_loss` is the mean over all labels, not over batches. Metrics and predictions have each row once and in its
      order, for any number of processes.
    - With `args.muon`, Muon trains the matrices of the layers ([`Muon`]).
    - With `args.log_expert_statistics`, statistics of the routers are logged ([`ExpertStatisticsCallback`]).
    - Checkpoints of a model that processes share (`DistributedConfig`) are like those of one process, and can be
      resumed ([`ShardedModelTrainer`]).
    - A checkpoint gets its name when all its files are written. If saving fails, earlier checkpoints are not changed.
    - A push during training (`args.hub_strategy`) can be loaded where Weft is not installed.

    Args:
        model, args, data_collator, train_dataset, eval_dataset, *rest, **kwargs: as in `Seq2SeqTrainer`. Without an
            `eval_dataset`, the default `eval_strategy` of [`WeftTrainingArguments`] is "no".
        schedule: called as `schedule(step, num_steps=...)`, returns the factor of the learning rate after `step` of
            `num_steps` steps. Defaults to the schedule of the arguments.

    Raises:
        ValueError: one process has several GPUs; or in `train`, no trainable parameter gets a gradient in the first
            step.
    """

    args: Any
    lr_scheduler: Any
    # the batches of an optimizer step that is about to begin
    _to_count: Sequence[dict[str, Any]] = ()
    _sum_router_counts: SumCounts | None = None
    # (sum of losses, number of labels) of each batch of the current evaluation
    _losses: list[torch.Tensor] | None = None
    # the number of rows of its current batch, over all processes and without repeated ones
    _rows_in_batch = 0
    _has_trained = False
    # whether no gradient has been seen in this run yet
    _awaits_gradient = False
    # the folder of the checkpoint that is being saved
    _staging: Path | None = None
    _sampler: TokenBudgetSampler | None = None

    def __init__(
        self,
        model=None,
        args=None,
        data_collator=None,
        train_dataset=None,
        eval_dataset=None,
        *rest,
        schedule: Callable[..., float] | None = None,
        **kwargs,
    ):
        if isinstance(train_dataset, ShuffledStream) and has_length(train_dataset):
            raise ValueError("A ShuffledStream has no end: remove `__len__`, and set max_steps.")
        facts = partial(facts_of, train_dataset=train_dataset, has_validation=eval_dataset is not None)
        if args is not None:
            args = plan_training(args, facts(args, model=model and weft_model(model))).args
        super().__init__(model, args, data_collator, train_dataset, eval_dataset, *rest, **kwargs)
        self.schedule, weft = schedule, weft_model(self.model)
        forget_sources(self.processing_class)  # `fit_pairs`, which knows those of this training, writes them again
        config = weft.config
        _refuse_lost_noise(self.args, config)
        refuse_other_engines(self.args)
        check_one_gpu(self.args)  # now, because the Trainer sets `n_gpu` to 1 for a model that a `device_map` splits
        if self.args.learning_rate is None:  # `model_init` has only built the model now
            self.args = plan_training(self.args, facts(self.args, model=weft)).args
        self.label_smoother = None  # that of transformers removes the labels, and with them the routers' losses
        self.add_callback(PushCodeCallback())
        generation_config = getattr(weft, "generation_config", None)
        if generation_config is not None:  # now, rather than at the first save
            generation_config.validate(strict=True)
        weft.check_config()
        is_wanted = getattr(self.args, "log_expert_statistics", False)
        if is_wanted and not self.args.torch_compile and config.has_sparse_layers:
            self.callback_handler.callbacks.insert(0, ExpertStatisticsCallback())

    def _prepare_for_training(self, *args, **kwargs):
        # the gradients of these are gone after the backward pass
        self._awaits_gradient = not any(word in self.args.optim for word in ("lomo", "layerwise"))
        for router in weft_model(self.model).routers():
            if router.expert_load is not None:
                router.expert_load.zero_()  # a step that ran out of memory has counted some
        return super()._prepare_for_training(*args, **kwargs)

    def create_scheduler(self, num_training_steps: int, optimizer: Any = None) -> Any:
        scheduler = super().create_scheduler(num_training_steps, optimizer)
        if self.schedule is not None:  # after it, because the Trainer notes there that it made one
            factor = partial(self.schedule, num_steps=num_training_steps)
            self.lr_scheduler = scheduler = LambdaLR(self.optimizer if optimizer is None else optimizer, factor)
        return scheduler

    def create_optimizer(self, *model: Any) -> torch.optim.Optimizer:
        if getattr(self.args, "muon", False) and self.optimizer is None:
            kind, settings = self.get_optimizer_cls_and_kwargs(self.args, self.model)
            if kind is not torch.optim.AdamW:
                raise ValueError("--muon needs AdamW for the other weights: leave --optim out.")
            # fused, AdamW would also unscale float16 gradients, but not those of the matrices
            settings |= {"matrices": layer_matrices(self.model), "fused": False}
            self.optimizer_cls_and_kwargs = Muon, settings
        # a schedule-free optimizer warms up by itself: it would take a share of the steps for a number of steps
        args, warmup = self.args, self.args.get_warmup_steps(self.state.max_steps)
        self.args = replaced(args, warmup_steps=warmup)
        try:
            return super().create_optimizer(*model)
        finally:
            self.args = args

    def get_train_dataloader(self) -> DataLoader:
        budget = self._token_budget()
        if isinstance(self.train_dataset, ShuffledStream):
            return self._stream_loader(self.train_dataset, budget)
        if budget is None:
            return super().get_train_dataloader()
        dataset, collator = self.train_dataset, self.data_collator
        if not _has_rows(dataset):
            raise ValueError(f"max_tokens_per_batch={budget} needs the lengths of all rows: give a ShuffledStream.")
        if isinstance(dataset, Dataset):
            dataset = self._remove_unused_columns(dataset, description="training")
        sources, targets = padded(row_lengths(dataset, ("input_ids", "labels")), self.data_collator)
        seed = self.args.seed if self.args.data_seed is None else self.args.data_seed
        sampler = TokenBudgetSampler(sources, targets, budget, num_processes=self.args.world_size, seed=seed)
        if not isinstance(dataset, Dataset):  # a list, or another map from numbers to rows
            collator = self._get_collator_with_removed_columns(collator, description="training")
        self._sampler = sampler
        return self.accelerator.prepare(self._loader(dataset, collator, batch_sampler=sampler))

    def _token_budget(self) -> int | None:
        """Return `args.max_tokens_per_batch`, or less after a batch that did not fit into memory."""
        budget = getattr(self.args, "max_tokens_per_batch", None)
        if budget is None or self._train_batch_size == self.args.train_batch_size:
            return budget
        smaller = max(1, budget * self._train_batch_size // self.args.train_batch_size)
        logger.warning(f"auto_find_batch_size lowers max_tokens_per_batch from {budget} to {smaller}.")
        return smaller

    def _get_dataloader(self, dataset, *args, is_training: bool = False, **kwargs) -> DataLoader:
        if is_training:
            return super()._get_dataloader(dataset, *args, is_training=True, **kwargs)
        if isinstance(dataset, IterableDataset) and self.args.world_size > 1:
            dataset = list(dataset)  # accelerate would repeat or reorder rows of a stream without saying how many
        run_args, loading = self.args, self.accelerator.dataloader_config
        is_even, loading.even_batches = loading.even_batches, True  # otherwise processes wait for each other forever
        # "random" is the order of the rows in evaluation
        strategy = run_args.train_sampling_strategy if run_args.prediction_loss_only else "random"
        self.args = replaced(run_args, dataloader_drop_last=False, train_sampling_strategy=strategy)
        try:
            return super()._get_dataloader(dataset, *args, **kwargs)
        finally:
            self.args, loading.even_batches = run_args, is_even

    def _stream_loader(self, stream: ShuffledStream, budget: int | None) -> DataLoader:
        args = self.args
        stream.batch_size, stream.form_batches = self._train_batch_size, None
        if budget is not None:
            stream.form_batches = partial(_budget_batches, budget=budget, collator=self.data_collator)
        # processes that share the weights of one layer read the same rows
        stream.process_index = args.process_index // self.get_tp_size()
        stream.num_processes = args.world_size // self.get_tp_size()
        # as for one process, because accelerate would divide it once more
        return prepare_data_loader(
            self._loader(stream, self.data_collator, batch_size=None),  # the stream makes the batches
            self.accelerator.device,
            num_processes=1,
            process_index=0,
            put_on_device=True,
            dispatch_batches=False,
            non_blocking=self.accelerator.non_blocking,
        )

    def _loader(self, dataset: Any, collator: Any, **batches: Any) -> DataLoader:
        args = self.args
        return DataLoader(
            dataset,
            collate_fn=collator,
            num_workers=args.dataloader_num_workers,
            pin_memory=args.dataloader_pin_memory,
            persistent_workers=args.dataloader_persistent_workers,
            prefetch_factor=args.dataloader_prefetch_factor,
            worker_init_fn=partial(seed_worker, num_workers=args.dataloader_num_workers, rank=args.process_index),
            **batches,
        )

    def _init_training_state(self, *args, **kwargs) -> tuple[int, int]:
        """Return the number of finished epochs, and of batches to skip in the next one."""
        place = super()._init_training_state(*args, **kwargs)
        checkpoint = named_arguments(super()._init_training_state, args, kwargs).get("resume_from_checkpoint")
        is_plain = not has_length(self.train_dataset) and not isinstance(self.train_dataset, ShuffledStream)
        if checkpoint is None or not is_plain or self.args.ignore_data_skip:
            return place
        logger.warning(
            "Resuming in a train_dataset without a length: the run continues exactly if the data set has the same "
            "rows in the same order in each run. A ShuffledStream (weftformer.training) does."
        )
        # the Trainer would skip the batches of all passes in the first one; a pass is an epoch of up to `max_steps`
        # steps
        state = TrainerState.load_from_json(str(Path(checkpoint, TRAINER_STATE_NAME)))
        passes = math.ceil(state.epoch) - 1
        return passes, round((state.epoch - passes) * state.max_steps) * self.args.gradient_accumulation_steps

    def _run_epoch(self, **arguments):
        # the Trainer checks for the last step only after a step, so that a finished run would take one more when
        # resumed
        if self.state.global_step >= self.state.max_steps or self.control.should_training_stop:
            self.control.should_training_stop = True
        else:
            self._has_trained = True
            if self._sampler is not None:  # which the Trainer does not reach in a resumed run on two processes
                self._sampler.set_epoch(arguments["epoch"])
            super()._run_epoch(**arguments)

    def get_batch_samples(self, epoch_iterator, num_batches, device):
        self._to_count, num_items = super().get_batch_samples(epoch_iterator, num_batches, device)
        return self._to_count, num_items

    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        if self._to_count and model.training:
            # not in `get_batch_samples`, where a resumed run has not restored its random state yet
            self._sum_router_counts, self._to_count = build_sum_counts(self, self._to_count), []
        if self._sum_router_counts is not None and model.training:
            inputs = {**inputs, "sum_router_counts": self._sum_router_counts}
        if model.training:
            is_chunked = getattr(self.args, "chunked_loss", True) and not return_outputs
            # None: the model decides when it runs, because a head that is sharded here may be whole then
            inputs = {**inputs, "chunked_loss": None if is_chunked else False}
            if self.args.label_smoothing_factor:
                inputs["smoothing"] = self.args.label_smoothing_factor
            if not return_outputs:
                inputs |= self._token_mask(model, inputs)
        result = super().compute_loss(model, inputs, return_outputs, num_items_in_batch)
        loss = result[0] if return_outputs else result
        if self.is_in_train and model.training and not loss.requires_grad:
            self._refuse_to_train_nothing()
        return result

    def _token_mask(self, model, inputs) -> dict[str, torch.Tensor]:
        """Return the mask that keeps targets after the last label from the experts. It changes no score of a label."""
        base, labels = self.accelerator.unwrap_model(model, keep_torch_compile=False), inputs.get("labels")
        # virtual tokens of an adapter have no labels
        if labels is None or not (is_weft(base) and base.config.has_sparse_layers):
            return {}
        has_mask = inputs.get("decoder_attention_mask") is not None or "decoder_token_mask" in inputs
        if has_mask or inputs.get("is_causal") is False:
            return {}
        return {"decoder_token_mask": labels.ne(-100).flip(-1).cumsum(-1).flip(-1) > 0}

    def training_step(self, model, inputs, num_items_in_batch=None):
        loss = super().training_step(model, inputs, num_items_in_batch)
        # a step without labels has no gradient either
        if self._awaits_gradient and self.accelerator.sync_gradients and num_items_in_batch != 0:
            gradients = [weight.grad for weight in model.parameters() if weight.grad is not None]
            parts = (gradient.to_local() if isinstance(gradient, DTensor) else gradient for gradient in gradients)
            # one is enough: experts without tokens and the first matrices of LoRA have none yet
            has_gradient = torch.tensor([int(any(bool(part.any()) for part in parts))], device=loss.device)
            if not self.accelerator.gather(has_gradient).any():
                self._refuse_to_train_nothing()
            self._awaits_gradient = False
        return loss

    def _refuse_to_train_nothing(self) -> None:
        names = [name for name, weight in self.model.named_parameters() if weight.requires_grad]
        listing = ", ".join(names[:5]) + (", ..." if len(names) > 5 else "")
        raise ValueError(f"None of the {len(names)} trainable parameters ({listing}) affects the loss: train others.")

    def _get_num_items_in_batch(self, batch_samples, device):
        if self._losses is not None:  # the mean of this batch alone, because `evaluation_loop` weights it
            return None
        is_last = self.accelerator.gradient_state.end_of_dataloader
        if batch_samples and "labels" in batch_samples[-1] and is_last and self._may_repeat_rows:
            last = batch_samples[-1]  # in the list that the Trainer continues with
            # counted here, because the loader of a resumed epoch does not know it
            over = len(self.train_dataset) % (len(last["labels"]) * self.args.world_size // self.get_tp_size())
            last["labels"] = self._without_repeated_rows(last["labels"], over)
        return super()._get_num_items_in_batch(batch_samples, device)

    def prediction_step(self, model, inputs, prediction_loss_only, ignore_keys=None, **gen_kwargs):
        self._rows_in_batch = self._count_rows(inputs)
        if inputs.get("labels") is None:  # transformers' collator gives None for rows without labels
            inputs = {name: value for name, value in inputs.items() if name != "labels"}
        if self._losses is None or "labels" not in inputs:
            return super().prediction_step(model, inputs, prediction_loss_only, ignore_keys, **gen_kwargs)
        inputs = {**inputs, "labels": self._without_repeated_rows(inputs["labels"], self._rows_in_batch)}
        count = inputs["labels"].ne(-100).sum()
        loss, logits, labels = super().prediction_step(model, inputs, prediction_loss_only, ignore_keys, **gen_kwargs)
        if loss is not None:
            total = torch.where(count.to(loss.device) > 0, loss.float() * count.to(loss.device), 0.0)
            self._losses.append(torch.stack([total, count.to(total)]))
        return loss, logits, labels

    @property
    def _may_repeat_rows(self) -> bool:
        args = self.args
        is_cut = args.dataloader_drop_last or not args.accelerator_config.even_batches
        # its sampler gives all processes the same number of batches
        by_length = getattr(args, "max_tokens_per_batch", None) is not None
        return not is_cut and not by_length and has_length(self.train_dataset)

    def _without_repeated_rows(self, labels: torch.Tensor, over: int) -> torch.Tensor:
        """Mask the labels of rows that are repeated to fill up the last batch, which has `over` other rows in all."""
        rows = len(labels)
        if self.args.world_size == 1 or over <= 0:
            return labels
        rows_here = max(0, over - self.args.process_index // self.get_tp_size() * rows)
        return labels.masked_fill(torch.arange(rows, device=labels.device)[:, None] >= rows_here, -100)

    def _count_rows(self, inputs: dict[str, Any]) -> int:
        """Return the number of rows of all processes in this batch of an evaluation, without repeated ones."""
        loader, processes = self.callback_handler.eval_dataloader, self.args.world_size // self.get_tp_size()
        if processes > 1 and getattr(loader, "end_of_dataloader", False) and loader.remainder > 0:
            return loader.remainder
        return processes * find_batch_size(inputs)

    def _gather_rows(self, rows: Any) -> Any:
        """Gather rows of all processes, each once and in its order."""

        def each_once(part: torch.Tensor) -> torch.Tensor:
            if part.ndim == 0:
                return part
            # processes that share the weights of one layer have the same rows
            by_process = part.unflatten(0, (self.args.world_size, -1))[:: self.get_tp_size()]
            return by_process.flatten(0, 1)[: self._rows_in_batch]

        return recursively_apply(each_once, self.accelerator.gather(rows))

    def evaluation_loop(self, *args, metric_key_prefix="eval", **kwargs):
        self._losses, self.gather_function = [], self._gather_rows
        try:
            # accelerate puts only `forward` into autocast, and `generate` also calls the encoder and, for each token,
            # the decoder; within one context, each weight is cast once, unless a process does not have the memory for
            # all
            with self.accelerator.autocast(AutocastKwargs(cache_enabled=not is_fully_sharded(self.model))):
                output = super().evaluation_loop(*args, metric_key_prefix=metric_key_prefix, **kwargs)
            losses = self._losses
        finally:
            self._losses = None
        # in double precision, because the sum is large, and on the CPU, because some devices do not support it
        sums = torch.stack(losses).cpu().double().sum(dim=0).tolist() if losses else None
        if self.args.world_size > 1:  # the batches of some processes may have labels, and those of others none
            sums_of_processes = [part for part in gather_object([sums]) if part is not None]
            sums = [sum(part) for part in zip(*sums_of_processes, strict=True)] or None
        if sums is not None:
            total, count = sums
            # a loss of 0 would be the best of all
            output.metrics[f"{metric_key_prefix}_loss"] = total / count if count else math.nan
        return output

    def log(self, logs, start_time=None):
        if not self._has_trained:
            logs.pop("train_loss", None)  # without a step, the Trainer's 0 was not measured
        super().log(logs, start_time)

    def create_model_card(self, **details: Any) -> None:
        """Write Weft's card into `output_dir`: see [`trained_card`]. An adapter (PEFT) gets that of transformers."""
        model = self.accelerator.unwrap_model(self.model, keep_torch_compile=False)
        if not is_weft(model):
            super().create_model_card(**details)
        elif self.is_world_process_zero():
            trained_card(self, model, **details).save(Path(str(self.args.output_dir), "README.md"))

    def _issue_warnings_after_load(self, load_result: Any) -> None:
        # a checkpoint has only one of their names
        tied_names = getattr(weft_model(self.model), "all_tied_weights_keys", {})
        load_result.missing_keys[:] = [name for name in load_result.missing_keys if name not in tied_names]
        super()._issue_warnings_after_load(load_result)

    def _get_output_dir(self, trial) -> str:
        return super()._get_output_dir(trial) if self._staging is None else str(self._staging)

    def _save_checkpoint(self, model, trial) -> None:
        """Save into a staging folder, and move the checkpoint to its name when all files are written."""
        folder, name = Path(super()._get_output_dir(trial)), f"checkpoint-{self.state.global_step}"
        final = folder / name
        try:
            with staging_folder(folder, ".saving-checkpoint", self) as self._staging:
                super()._save_checkpoint(model, trial)
                self.accelerator.wait_for_everyone()  # each process writes its own random state
                if self.state.best_model_checkpoint == str(self._staging / name):
                    self.state.best_model_checkpoint = str(final)
                if self.args.should_save:
                    self.state.save_to_json(str(self._staging / name / TRAINER_STATE_NAME))  # with this path
                    # the same step may be saved again, at the end of an epoch
                    put_folder(self._staging / name, final, self._staging / "replaced")
                    rotate_checkpoints(
                        output_dir=str(folder),
                        save_total_limit=self.args.save_total_limit,
                        best_model_checkpoint=self.state.best_model_checkpoint,
                        use_mtime=True,
                    )
        finally:
            self._staging = None
        self.accelerator.wait_for_everyone()
        if self.args.push_to_hub:
            self._push_from_checkpoint(str(final))

    def _push_from_checkpoint(self, checkpoint_folder: str) -> None:
        # the Trainer calls this before the checkpoint has its name, and `_save_checkpoint` calls it again afterwards
        if self._staging is None:
            super()._push_from_checkpoint(checkpoint_folder)


def _has_rows(dataset: Any) -> bool:
    """Return whether the rows of a data set have numbers. A stream may have a length, but no rows to ask for."""
    return has_length(dataset) and not isinstance(dataset, IterableDataset)


def _refuse_lost_noise(args: Any, config: Any) -> None:
    """Raise a ValueError for noise on embeddings that transformers would add to a module that the stacks do not
    call.
    """
    if args.neftune_noise_alpha is not None and getattr(config, "share_encoder_decoder_embeddings", False):
        raise ValueError("neftune_noise_alpha does not work with share_encoder_decoder_embeddings=True: leave it out.")


def _budget_batches(
    lengths: np.ndarray, rng: np.random.Generator, *, budget: int, collator: Any = None
) -> Iterator[list[int]]:
    """Return the batches of a window of a stream, formed as in [`TokenBudgetSampler`]."""
    lengths = padded(lengths, collator)
    if lengths.max() > budget:
        raise ValueError(f"A pair has {lengths.max()} tokens: raise max_tokens_per_batch={budget}, or limit lengths.")
    sources, targets = lengths
    return iter(TokenBudgetSampler(sources, targets, budget, seed=int(rng.integers(2**31))))
