"""Work for many machines: jobs that several processes share, on Ray or as shards, and what they write.

Nothing here imports Ray before workers are wanted. It comes with the extra `ray`.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .datasets import plan

__all__ = ["plan"]


def __getattr__(name: str) -> Any:
    if name != "plan":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from .datasets import plan

    return plan
