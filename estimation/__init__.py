"""What a model costs, before anybody pays for it. `estimate` is in `costs`, which needs torch; devices and workloads do not."""

from typing import TYPE_CHECKING, Any

from .devices import DEVICES, Device, find_device
from .workload import Workload

if TYPE_CHECKING:
    from .costs import Estimate, estimate

__all__ = ["DEVICES", "Device", "Estimate", "Workload", "estimate", "find_device"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from . import costs  # here: the help of the command waits for nothing

    return getattr(costs, name)
