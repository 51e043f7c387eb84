"""Callbacks for training a Weft model, and statistics of its routers.

Shape suffixes: N tokens, E experts, K selected experts. The sums of a layer have the shape (2 E + 5): load of each
expert, probability of each expert, and `_SUMS`.
"""

from typing import Any

import torch
from accelerate.utils import extract_model_from_parallel
from torch.utils.hooks import RemovableHandle
from transformers import PrinterCallback, TrainerCallback, TrainerState
from transformers.trainer_utils import has_length

from ..common.progress import Progress
from ..hub import export_code
from ..modeling import WeftPreTrainedModel
from ..modeling.moe import Router, expert_load

# Maps the name of a sparse layer, such as decoder_1, to its statistics. `load` is the list of the experts' shares.
Layers = dict[str, dict[str, Any]]
_SUMS = ("entropy", "log_z", "log_z_squared", "dropped", "tokens")


def weft_model(model) -> Any:
    """Return the Weft model without the wrappers of compilation, distributed training and PEFT."""
    model = extract_model_from_parallel(model, keep_torch_compile=False)
    return model.get_base_model() if hasattr(model, "get_base_model") else model  # PEFT


class RouterBiasCallback(TrainerCallback):
    """
    Updates the routers' selection biases after each optimizer step of DeepSpeed (Wang et al. 2024, arXiv:2408.15664).

    The optimizer of DeepSpeed has copies of the weights, so routers do not notice its steps. With other optimizers the
    routers have already updated their biases, and the callback changes nothing. It also changes nothing for models
    without `router_bias_update_rate`. Every process must have the callback, because the loads are summed over
    processes.
    """

    def on_optimizer_step(self, args, state, control, model=None, **kwargs):
        weft_model(model).update_router_biases()


class ProgressLinesCallback(PrinterCallback):
    """
    Shows progress if the output is not a terminal: a line every few seconds, and each log as it comes.

    [`WeftTrainer`] uses it in place of transformers' `ProgressCallback`, which would write something for each step.
    """

    def __init__(self):
        self._training: Progress | None = None
        self._prediction: Progress | None = None

    def on_train_begin(self, args, state, control, **kwargs):
        self._training = Progress(
            "training", state.max_steps, "steps", done=state.global_step, is_shown=state.is_world_process_zero
        )

    def on_step_end(self, args, state, control, **kwargs):
        if self._training is not None:
            self._training.update(state.global_step - self._training.done)

    def on_train_end(self, args, state, control, **kwargs):
        if self._training is not None:
            self._training.close()
            self._training = None

    def on_prediction_step(self, args, state, control, eval_dataloader=None, **kwargs):
        if self._prediction is None:
            total = len(eval_dataloader) if has_length(eval_dataloader) else None
            self._prediction = Progress("evaluating", total, "batches", is_shown=state.is_world_process_zero)
        self._prediction.update()

    def on_evaluate(self, args, state, control, **kwargs):
        if self._prediction is not None:
            self._prediction.close()
            self._prediction = None

    on_predict = on_evaluate


class PushCodeCallback(TrainerCallback):
    """
    Adds the model's code to the folder that the Trainer pushes during training (`hub_strategy`).

    The Trainer copies configuration and weights of a checkpoint into this folder, but not the code that the
    configuration refers to. [`WeftTrainer`] has this callback. Another Trainer that pushes during training needs it.
    """

    def on_push_begin(self, args, state, control, model=None, **kwargs):
        model = extract_model_from_parallel(model, keep_torch_compile=False)
        # for an adapter (PEFT), the Trainer pushes no Weft configuration
        if state.is_world_process_zero and isinstance(model, WeftPreTrainedModel):
            export_code(args.output_dir)


class ExpertStatisticsCallback(TrainerCallback):
    """
    Logs statistics of each router at each logging step, over all non-pad tokens since the last one and over all
    processes.

    For each sparse layer (`encoder_0`, `decoder_1`, ...) these are:

    - `load`: the list of the shares of assignments that each expert received, which is only in the `log_history`;
    - `max_load`, `min_load`: the largest and the smallest load of an expert, divided by the mean load;
    - `dead_experts`: the number of experts without any assignment;
    - `entropy`: the mean entropy of a token's router probabilities, in nats;
    - `log_z`: the mean logsumexp of a token's router logits;
    - `drop_rate`: the share of assignments that were dropped because the expert was full (0 without
      `expert_capacity_factor`);
    - `balance_loss`, `z_loss`: the two router losses without their coefficients, for all these tokens as one batch;
    - `tokens`: the number of tokens.

    They are in the `log_history` of the state, as `experts/<layer>/<name>`. [`WeftTrainer`] also sends them to the services
    in `report_to`, and prints their [`expert_summary`]. Every process must have the callback.
    Statistics of modules inside `torch.compile` are not reliable.
    """

    def __init__(self):
        self._hooks: list[RemovableHandle] = []
        self._routers: dict[str, Router] = {}
        self._seen: dict[Router, tuple[torch.Tensor, ...]] = {}
        self._is_forward = False
        self._sums: dict[str, torch.Tensor] = {}
        self._taken: tuple[int, Layers] | None = None

    def on_train_begin(self, args, state, control, model=None, **kwargs):
        self.watch(weft_model(model))

    def on_log(self, args, state, control, logs=None, **kwargs):
        if "loss" in (logs or {}) and state.log_history:
            state.log_history[-1] |= flat_statistics(self.take(state))

    def on_train_end(self, args, state, control, **kwargs):
        self.stop()

    def watch(self, model) -> None:
        """Start to count the training passes of a Weft model. Earlier counts are discarded."""
        self.stop()
        self._routers, self._sums, self._taken = _named_routers(model), {}, None
        for router in self._routers.values():
            self._hooks.append(router.register_forward_hook(self._keep))
        self._hooks.append(model.register_forward_pre_hook(self._begin))
        self._hooks.append(model.register_forward_hook(self._count, with_kwargs=True))

    def stop(self) -> None:
        """Remove the hooks from the model."""
        for hook in self._hooks:
            hook.remove()
        self._hooks.clear()

    def _begin(self, model, args) -> None:
        # a pass without gradients is an evaluation, or only counts tokens
        self._is_forward = model.training and torch.is_grad_enabled()
        self._seen.clear()

    def _keep(self, router: Router, args, output) -> None:
        if self._is_forward:  # false for the second pass of gradient checkpointing, in `backward`
            self._seen[router] = tuple(part.detach() for part in output)

    @torch.no_grad()
    def _count(self, model, args, kwargs, output) -> None:
        if not self._is_forward:
            return
        self._is_forward = False
        if kwargs.get("labels") is None:
            return
        names = ("labels", "input_ids", "attention_mask", "decoder_attention_mask")
        source, target = model.non_pad_tokens(**{name: kwargs.get(name) for name in names})
        for name, router in self._routers.items():
            if router in self._seen:
                non_pad_N = source if name.startswith("encoder") else target
                sums = _sums_of(router, self._seen.pop(router), non_pad_N)
                self._sums[name] = self._sums[name] + sums if name in self._sums else sums

    def sums(self) -> dict[str, list[float]]:
        """Return the sums of this process since the last log. A resumed run continues from them with [`add`]."""
        return {name: values.tolist() for name, values in self._sums.items()}

    def add(self, sums: dict[str, list[float]]) -> None:
        """Add the result of [`sums`] to the counts."""
        for name, values in sums.items():
            known = self._sums.get(name)
            dtype = torch.float64 if known is None else known.dtype
            new = torch.tensor(values, dtype=dtype, device=self._routers[name].classifier.weight.device)
            self._sums[name] = new if known is None else known + new

    def take(self, state: TrainerState) -> Layers:
        """Return the statistics of each layer since the last log, over all processes, and reset the counts.

        Call it on every process at the same step. A second call at the same step returns the same statistics.
        """
        if self._taken is None or self._taken[0] != state.global_step:
            self._taken = state.global_step, self._summed_up()
        return self._taken[1]

    def _summed_up(self) -> Layers:
        if not self._routers:
            return {}
        # include layers without counts, so that all processes reduce tensors of the same shape
        width = {name: 2 * router.num_experts + len(_SUMS) for name, router in self._routers.items()}
        device = next(iter(self._routers.values())).classifier.weight.device
        empty = {name: torch.zeros(size, dtype=_dtype(device), device=device) for name, size in width.items()}
        sums = torch.cat([self._sums.get(name, empty[name]).to(device) for name in width])
        self._sums = {}
        if torch.distributed.is_available() and torch.distributed.is_initialized():
            torch.distributed.all_reduce(sums)
        parts = sums.cpu().double().split(list(width.values()))
        return {
            name: _numbers(values, self._routers[name].num_experts)
            for name, values in zip(width, parts, strict=True)
            if values[-1] > 0  # leave out layers without tokens
        }


def flat_statistics(layers: Layers) -> dict[str, Any]:
    """Return all statistics with the names `experts/<layer>/<name>`."""
    return {f"experts/{layer}/{name}": value for layer, numbers in layers.items() for name, value in numbers.items()}


def expert_summary(layers: Layers) -> dict[str, float]:
    """
    Return five numbers for all layers together.

    Args:
        layers (`dict[str, dict[str, Any]]`):
            The statistics of each layer, as [`ExpertStatisticsCallback`] takes them.

    Returns:
        `dict[str, float]`: the largest load of an expert, the number of dead experts, and the means over layers of the
        drop rate, the balance loss and the z-loss. It is empty without layers.
    """
    if not layers:
        return {}

    def mean(name: str) -> float:
        return sum(numbers[name] for numbers in layers.values()) / len(layers)

    return {
        "experts_max_load": max(numbers["max_load"] for numbers in layers.values()),
        "experts_dead": sum(numbers["dead_experts"] for numbers in layers.values()),
        "experts_drop_rate": mean("drop_rate"),
        "balance_loss": mean("balance_loss"),
        "z_loss": mean("z_loss"),
    }


def _named_routers(model) -> dict[str, Router]:
    config = model.config
    kinds = (("encoder", config.encoder_mlp_layer_types), ("decoder", config.decoder_mlp_layer_types))
    sparse = [f"{name}_{index}" for name, of in kinds for index, kind in enumerate(of) if kind == "sparse"]
    # a model without a decoder has the routers of the encoder alone
    return dict(zip(sparse, model.routers(), strict=False))


def _dtype(device: torch.device) -> torch.dtype:
    return torch.float32 if device.type == "mps" else torch.float64  # MPS has no float64


def _sums_of(router: Router, output: tuple[torch.Tensor, ...], non_pad_N: torch.Tensor | None) -> torch.Tensor:
    logits_NE, weights_NK, ids_NK = output
    log_z_N = logits_NE.logsumexp(dim=-1)
    probs_NE = logits_NE.softmax(dim=-1)
    entropy_N = torch.special.entr(probs_NE).sum(dim=-1)
    # dropped assignments have the weight 0; without a capacity, a weight of 0 is only an underflow
    dropped_N = (weights_NK == 0).sum(dim=-1) if router.capacity_factor is not None else torch.zeros_like(log_z_N)
    columns = torch.stack([entropy_N, log_z_N, log_z_N.square(), dropped_N, torch.ones_like(log_z_N)], dim=-1)
    values = torch.cat([probs_NE, columns], dim=-1)
    if non_pad_N is not None:
        values = values * non_pad_N[:, None]
    sums = torch.cat([expert_load(ids_NK, router.num_experts, non_pad_N), values.sum(dim=0)])
    return sums.to(_dtype(sums.device))


def _numbers(sums: torch.Tensor, num_experts: int) -> dict[str, Any]:
    load_E, probs_E, rest = sums.split([num_experts, num_experts, len(_SUMS)])
    total = dict(zip(_SUMS, rest.tolist(), strict=True))
    tokens, assigned = total["tokens"], load_E.sum().item()
    return {
        "load": (load_E / assigned).tolist(),
        "max_load": (load_E.max() / load_E.mean()).item(),
        "min_load": (load_E.min() / load_E.mean()).item(),
        "dead_experts": int((load_E == 0).sum()),
        "entropy": total["entropy"] / tokens,
        "log_z": total["log_z"] / tokens,
        "drop_rate": total["dropped"] / assigned,
        "balance_loss": num_experts * (load_E / assigned * probs_E / tokens).sum().item(),
        "z_loss": total["log_z_squared"] / tokens,
        "tokens": int(tokens),
    }
