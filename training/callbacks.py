"""Callbacks for training a Weft model, and statistics of its routers.

Shape suffixes: N tokens, E experts, K selected experts, L sparse layers, C = 2 E + 3 columns: the load and the summed
probability of each expert, the sums of log_z^2 and of dropped assignments, and the number of tokens.
"""

import logging
import math
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from accelerate.utils import extract_model_from_parallel
from safetensors.torch import load_model, save_model
from torch.utils.hooks import RemovableHandle
from transformers import PreTrainedModel, ProgressCallback, TrainerCallback, TrainerState, TrainingArguments

from ..common.atomic import atomic_write
from ..common.progress import Progress
from ..hub.export import export_code, saving
from ..modeling import WeftPreTrainedModel
from ..modeling.losses import expert_load
from ..modeling.moe import Router

logger = logging.getLogger(__name__)


def weft_model(model) -> Any:
    """Return the Weft model without the wrappers of compilation, distributed training and PEFT."""
    model = extract_model_from_parallel(model, keep_torch_compile=False)
    return model.get_base_model() if hasattr(model, "get_base_model") else model  # PEFT


def is_weft(model: Any) -> bool:
    """Return whether an unwrapped model is a Weft model. The code of its class may come with its weights."""
    return isinstance(model, PreTrainedModel) and hasattr(model.config, "has_sparse_layers")


class PushCodeCallback(TrainerCallback):
    """Adds the model's code to the folder that the Trainer pushes during training (`hub_strategy`).

    The Trainer copies configuration and weights of a checkpoint into this folder, but not the code that the
    configuration refers to. [`WeftTrainer`] has this callback. Another Trainer that pushes during training needs it.
    """

    def on_push_begin(self, args, state, control, model=None, **kwargs):
        model = extract_model_from_parallel(model, keep_torch_compile=False)
        # for an adapter (PEFT), the Trainer pushes no Weft configuration
        if state.is_world_process_zero and isinstance(model, WeftPreTrainedModel):
            with saving(model):
                export_code(args.output_dir, type(model.config))


class TwoCyclesCallback(TrainerCallback):
    """Trains in two cycles of the learning rate, and keeps the better weights.

    In each cycle, the rate falls from its highest value to 0 as half a cosine (Loshchilov and Hutter 2017,
    arXiv:1608.03983). Training ends after the first cycle if the validation loss is low, or all validation pairs are
    right: a second cycle would begin with a high rate, and might not come back to it. The weights of the first are put
    back if the second cycle raises the loss and loses more than a tenth of the validation pairs. A loss alone may rise
    because the model is surer of its mistakes, while it makes fewer, and a few pairs are chance.

    Args:
        args: the training arguments. Their folder has the weights of the first cycle until the second ends.
        first: the share of the first cycle in the steps after the warm-up.
    """

    # The validation loss from which a second cycle pays (docs/training.md has the measurements).
    least_loss = 0.01
    # the share of the validation pairs that the second cycle may lose
    most_lost = 0.1

    def __init__(self, args: TrainingArguments, first: float):
        self.args, self.first = args, first

    def __str__(self) -> str:
        return f"two cycles of half a cosine, the first of {self.first:.0%} of the steps"

    def schedule(self, step: int, num_steps: int) -> float:
        """Return the factor of the learning rate, for [`WeftTrainer`]."""
        warmup, end = self.args.get_warmup_steps(num_steps), self.end_of_first(num_steps)
        if step < warmup:
            return step / warmup
        begin, end = (warmup, end) if step < end else (end, num_steps)
        return 0.5 + 0.5 * math.cos(math.pi * min(1.0, (step - begin) / max(1, end - begin)))

    def on_step_end(self, args, state, control, **kwargs):
        control.should_evaluate |= state.global_step in (self.end_of_first(state.max_steps), state.max_steps)

    def on_evaluate(self, args, state, control, model=None, **kwargs):
        end = self.end_of_first(state.max_steps)
        if state.global_step != end:
            return
        first_scores = _scores(state, end)
        is_enough = first_scores.get("eval_exact_match") == 1.0 or first_scores["eval_loss"] < self.least_loss
        what = "training ends here" if is_enough else "a second cycle follows"
        logger.info(f"The validation loss is {first_scores['eval_loss']:.4f} after the first cycle: {what}.")
        if is_enough:
            control.should_training_stop = True
        elif state.is_world_process_zero:
            with atomic_write(self._weights_of_first) as path:
                save_model(weft_model(model), str(path))

    def on_train_begin(self, args, state, control, model=None, **kwargs):
        if _scores(state, self.end_of_first(state.max_steps)):  # when a run that ended is resumed
            self.on_evaluate(args, state, control, model)

    def on_train_end(self, args, state, control, model=None, **kwargs):
        first_scores, last_scores = (
            _scores(state, step) for step in (self.end_of_first(state.max_steps), state.max_steps)
        )
        was_better = first_scores and last_scores and first_scores["eval_loss"] < last_scores["eval_loss"]
        if (
            was_better
            and first_scores["eval_exact_match"] - last_scores["eval_exact_match"] > self.most_lost
            and self._weights_of_first.exists()
        ):
            logger.info(
                f"The validation loss was {first_scores['eval_loss']:.4f} after the first cycle and is "
                f"{last_scores['eval_loss']:.4f} "
                "after the second, with fewer right pairs: the weights are those of the first."
            )
            load_model(weft_model(model), str(self._weights_of_first))
            state.best_global_step = first_scores["step"]
        if torch.distributed.is_initialized():
            torch.distributed.barrier()
        if state.is_world_process_zero:
            self._weights_of_first.unlink(missing_ok=True)

    @property
    def _weights_of_first(self) -> Path:
        return Path(self.args.output_dir, "first-cycle.safetensors")

    def end_of_first(self, num_steps: int) -> int:
        """Return the step at which the first cycle ends."""
        warmup = self.args.get_warmup_steps(num_steps)
        return warmup + round(self.first * (num_steps - warmup))


class ProgressLinesCallback(TrainerCallback):
    """Writes the progress of a training to stderr, as a line every few seconds. A terminal has transformers' bar.

    Args:
        cycles: the cycles of the training, which may end after the first: until then, its steps are counted.
        bars: transformers' bars, which count these steps too.
    """

    _progress: Progress | None = None

    def __init__(self, cycles: TwoCyclesCallback | None = None, bars: Sequence[ProgressCallback] = ()):
        self.cycles, self.bars = cycles, bars

    def on_train_begin(self, args, state, control, **kwargs):
        if state.is_world_process_zero and not sys.stderr.isatty() and logger.isEnabledFor(logging.INFO):
            self._progress = Progress("Training", self._num_steps(state), "steps", done=state.global_step)
        self._count(state)

    def on_step_end(self, args, state, control, **kwargs):
        self._count(state)
        if self._progress is not None:
            self._progress.update()

    def _count(self, state: TrainerState) -> None:
        for bar in (self._progress, *(callback.training_bar for callback in self.bars)):
            if bar is not None:
                bar.total = self._num_steps(state)

    def on_train_end(self, args, state, control, **kwargs):
        if self._progress is not None:
            self._progress.close()

    def _num_steps(self, state: TrainerState) -> int:
        end = state.max_steps if self.cycles is None else self.cycles.end_of_first(state.max_steps)
        return end if state.global_step <= end else state.max_steps


def _scores(state: TrainerState, step: int) -> dict[str, Any]:
    """Return what the evaluation at a step has logged."""
    return next((entry for entry in reversed(state.log_history) if entry["step"] == step and "eval_loss" in entry), {})


class ExpertStatisticsCallback(TrainerCallback):
    """Logs statistics of the routers at each logging step, over all non-pad tokens since the last one, of all
    processes.

    All loggers of the Trainer get five numbers for the model: the largest load of an expert (divided by the mean
        load),
    the number of experts without any assignment, and the means over layers of the share of assignments that were
    dropped because the expert was full, of the balance loss and of the z-loss, both without their coefficients. The
    `log_history` of the state also gets the load of each expert of a layer as `experts/<layer>/load`, a list of
    shares. Layers are named `encoder_0`, `decoder_1`, ...

    Loggers that come before this callback in the Trainer's list do not get the numbers; [`WeftTrainer`] puts it first.
    Every process must have it. Statistics of modules inside `torch.compile` are not reliable.
    """

    def __init__(self):
        self._hooks: list[RemovableHandle] = []
        self._layers: list[str] = []
        self._sums_LC = torch.empty(0)
        # the masks of a training pass; None in evaluation, and in the second pass of gradient checkpointing
        self._non_pads: dict[str, torch.Tensor | None] | None = None

    def on_train_begin(self, args, state, control, model=None, **kwargs):
        self.on_train_end(args, state, control)
        self._non_pads = None  # a pass that ran out of memory has left its masks
        model = weft_model(model)
        config, routers = model.config, model.routers()
        kinds = (("encoder", config.encoder_mlp_layer_types), ("decoder", config.decoder_mlp_layer_types))
        self._layers = [f"{stack}_{i}" for stack, types in kinds for i, kind in enumerate(types) if kind == "sparse"]
        device = routers[0].classifier.weight.device
        self._sums_LC = torch.zeros(len(routers), 2 * config.num_experts + 3, device=device)
        self._hooks = [
            model.register_forward_pre_hook(self._begin, with_kwargs=True),
            *(router.register_forward_hook(partial(self._count, index)) for index, router in enumerate(routers)),
            model.register_forward_hook(self._end),
        ]

    def on_train_end(self, args, state, control, **kwargs):
        for hook in self._hooks:
            hook.remove()
        self._hooks.clear()

    def on_log(self, args, state, control, logs=None, **kwargs):
        if not self._hooks or "loss" not in (logs or {}):
            return
        if torch.distributed.is_available() and torch.distributed.is_initialized():
            torch.distributed.all_reduce(self._sums_LC)
        sums_LC = self._sums_LC.cpu().double()
        self._sums_LC.zero_()
        num_experts = (sums_LC.shape[1] - 3) // 2
        load_LE, probs_LE, sums_of_layers = sums_LC.split([num_experts, num_experts, 3], dim=1)
        z_L, dropped_L, tokens_L = sums_of_layers.unbind(dim=1)
        assigned_L = load_LE.sum(dim=1).clamp(min=1)
        tokens_L = tokens_L.clamp(min=1)
        shares_LE = load_LE / assigned_L[:, None]
        summary = {
            "experts_max_load": num_experts * shares_LE.max(),
            "experts_dead": (load_LE == 0).sum(),
            "experts_drop_rate": (dropped_L / assigned_L).mean(),
            "balance_loss": num_experts * (shares_LE * probs_LE / tokens_L[:, None]).sum(dim=1).mean(),
            "z_loss": (z_L / tokens_L).mean(),
        }
        numbers = {name: value.item() for name, value in summary.items()}
        logs.update(numbers)
        loads = zip(self._layers, shares_LE.tolist(), strict=True)
        state.log_history[-1] |= numbers | {f"experts/{layer}/load": shares for layer, shares in loads}

    def _begin(self, model, args, kwargs) -> None:
        if model.training and torch.is_grad_enabled() and kwargs.get("labels") is not None:
            names = ("labels", "input_ids", "attention_mask", "decoder_attention_mask")
            source, target = model.non_pad_tokens(**{name: kwargs.get(name) for name in names})
            self._non_pads = {"encoder": source, "decoder": target}

    def _end(self, model, args, output) -> None:
        self._non_pads = None

    @torch.no_grad()
    def _count(self, index: int, router: Router, args, output) -> None:
        if self._non_pads is None:
            return
        logits_NE, weights_NK, ids_NK = output
        non_pad_N = self._non_pads[self._layers[index].partition("_")[0]]
        # dropped assignments have the weight 0; without a capacity, a weight of 0 is only an underflow
        dropped_N = (weights_NK == 0).sum(dim=1) * (router.capacity_factor is not None)
        columns = [logits_NE.logsumexp(dim=1).square(), dropped_N, torch.ones_like(dropped_N)]
        values_NC = torch.cat([logits_NE.softmax(dim=1), torch.stack(columns, dim=1)], dim=1)
        if non_pad_N is not None:
            values_NC = values_NC * non_pad_N[:, None]
        sums_C = torch.cat([expert_load(ids_NK, router.num_experts, non_pad_N), values_NC.sum(dim=0)])
        self._sums_LC[index] += sums_C.to(self._sums_LC.device)
