"""What the routers of a training do: load, entropy, log-Z, dropped assignments and router losses of every sparse layer.

Shape suffixes: N tokens, E experts, K experts of a token; a layer's sums are (2 E + 5): load, probability, and `_SUMS`.
"""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
from torch.utils.hooks import RemovableHandle
from transformers import TrainerCallback, TrainerState

from ..modeling.moe import Router, expert_load
from .callbacks import weft_model
from .expert_load import EXPERT_LOAD, Layers, forget_after

_SUMS = ("entropy", "log_z", "log_z_squared", "dropped", "tokens")


class ExpertStatisticsCallback(TrainerCallback):
    """Logs, at each logging step, what every router has done since the one before, pads left out, over all processes.

    For each sparse layer (`encoder_0`, `decoder_1`, ...):

    - `load`: share of the assignments that each expert got; only in the file, a line of JSON for each logging step;
    - `max_load`, `min_load`: that of the busiest and of the idlest expert, 1 being the mean;
    - `dead_experts`: experts that got none;
    - `entropy`: mean entropy of a token's probabilities, in nats; `log_z`: mean logsumexp of its logits;
    - `drop_rate`: share of the assignments that an expert had no room for (0 without `expert_capacity_factor`);
    - `balance_loss`, `z_loss`: unweighted, of all these tokens as one batch; `tokens`: how many they are.

    [`WeftTrainer`] hands the numbers to whatever `report_to` names, and a [`summary`] to the screen. Under another Trainer
    they are in the state's `log_history` and in the file. Every process must have the callback. Modules that run inside
    `torch.compile` are not seen reliably.
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
        if state.is_world_process_zero:
            forget_after(Path(args.output_dir, EXPERT_LOAD), state.global_step)

    def on_log(self, args, state, control, logs=None, **kwargs):
        if "loss" not in (logs or {}):
            return
        layers = self.take(state)
        if state.log_history:
            state.log_history[-1] |= flat(layers)
        if state.is_world_process_zero:
            with Path(args.output_dir, EXPERT_LOAD).open("a", encoding="utf-8") as file:
                file.write(json.dumps({"step": state.global_step, "layers": layers}) + "\n")

    def on_train_end(self, args, state, control, **kwargs):
        self.stop()

    def watch(self, model) -> None:
        """Look at the training passes of a Weft model from now on; the count starts anew."""
        self.stop()
        self._routers, self._sums, self._taken = _named_routers(model), {}, None
        for router in self._routers.values():
            self._hooks.append(router.register_forward_hook(self._keep))
        self._hooks.append(model.register_forward_pre_hook(self._begin))
        self._hooks.append(model.register_forward_hook(self._count, with_kwargs=True))

    def stop(self) -> None:
        """Leave the model as it was."""
        for hook in self._hooks:
            hook.remove()
        self._hooks.clear()

    def _begin(self, model, args) -> None:
        # a pass without gradients trains nothing: it is an evaluation, or one that only counts
        self._is_forward = model.training and torch.is_grad_enabled()
        self._seen.clear()

    def _keep(self, router: Router, args, output) -> None:
        if self._is_forward:  # and not a second pass in `backward`, of gradient checkpointing
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
        """What was counted since the last log, on this process: for [`add`] of a run that goes on from here."""
        return {name: values.tolist() for name, values in self._sums.items()}

    def add(self, sums: dict[str, list[float]]) -> None:
        """Count what [`sums`] gave as well."""
        for name, values in sums.items():
            known = self._sums.get(name)
            dtype = torch.float64 if known is None else known.dtype
            new = torch.tensor(values, dtype=dtype, device=self._routers[name].classifier.weight.device)
            self._sums[name] = new if known is None else known + new

    def take(self, state: TrainerState) -> Layers:
        """The numbers of each layer since the last log, over all processes; the count starts again.

        Call it on every process, at the same step. A second call at a step gives the same.
        """
        if self._taken is None or self._taken[0] != state.global_step:
            self._taken = state.global_step, self._summed_up()
        return self._taken[1]

    def _summed_up(self) -> Layers:
        if not self._routers:
            return {}
        # every layer, seen or not, that all processes add up the same
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
            if values[-1] > 0  # a layer that saw no token has nothing to say
        }


def flat(layers: Layers) -> dict[str, float]:
    """All numbers but the loads, under `experts/<layer>/<name>`."""
    return {
        f"experts/{layer}/{name}": value
        for layer, numbers in layers.items()
        for name, value in numbers.items()
        if name != "load"
    }


def summary(layers: Layers) -> dict[str, float]:
    """Of all layers: the busiest expert's load, how many experts are dead, mean drop rate, and the two router losses."""
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
    stacks: Iterable[tuple[str, Any]] = (("encoder", model.get_encoder()), ("decoder", model.get_decoder()))
    return {
        f"{name}_{index}": module
        for name, stack in stacks
        for index, layer in enumerate(stack.layers)
        for module in layer.modules()
        if isinstance(module, Router)
    }


def _dtype(device: torch.device) -> torch.dtype:
    return torch.float32 if device.type == "mps" else torch.float64  # which knows no doubles


def _sums_of(router: Router, output: tuple[torch.Tensor, ...], non_pad_N: torch.Tensor | None) -> torch.Tensor:
    logits_NE, weights_NK, ids_NK = output
    log_z_N = logits_NE.logsumexp(dim=-1)
    log_probs_NE = logits_NE - log_z_N[:, None]
    probs_NE = log_probs_NE.exp()
    entropy_N = -(probs_NE * log_probs_NE).sum(dim=-1)
    # without a limit a weight of 0 is one too small to tell from 0
    dropped_N = (weights_NK == 0).sum(dim=-1) if router.limits_experts else torch.zeros_like(log_z_N)
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
