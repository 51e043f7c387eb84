"""Updates the selection biases of routers after each step of the optimizer that trains them."""

from collections.abc import Mapping
from functools import cache
from typing import Any
from weakref import WeakSet

from torch.optim.optimizer import Optimizer, register_optimizer_step_post_hook

# All routers that have a selection bias.
_routers: WeakSet[Any] = WeakSet()


def update_after_steps(router: Any) -> None:
    """Let each step of an optimizer that trains the weights of a router update its selection bias, too."""
    _watch_optimizers()
    _routers.add(router)


@cache
def _watch_optimizers() -> None:
    # A hook on the optimizer's step needs no read from a device and no state to save, runs once a step, and is not
    # compiled.
    register_optimizer_step_post_hook(_after_optimizer_step)


def _after_optimizer_step(optimizer: Optimizer, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
    # not the weights of a copy that an adapter (PEFT) trains, which saves no bias
    weights = ((dict(router.classifier.named_parameters(recurse=False)).get("weight"), router) for router in _routers)
    routers = {id(weight): router for weight, router in weights if weight is not None}
    # in the order of the optimizer, which is the same in every process: the loads are summed over the processes
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            if id(parameter) in routers:
                routers[id(parameter)].update_selection_bias()
