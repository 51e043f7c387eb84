"""What is trained and decoded, as the arguments of an estimate."""

import math
from dataclasses import dataclass
from typing import Any

PRECISIONS = ("bf16", "fp32")


@dataclass(frozen=True)
class Workload:
    """
    What is trained and decoded, and how.

    Args:
        tokens_per_batch (`int`, *optional*, defaults to 65536): tokens of an optimizer step, of all processes, source and
            target together, pads included. It is rounded up to whole pairs on each process.
        source_length (`int`, *optional*): tokens of each source. Defaults to 512, or to the model's `max_source_positions`
            where that is less.
        target_length (`int`, *optional*): tokens of each target, likewise.
        tokens (`float`, *optional*): tokens of the whole training, source and target together.
        precision (`str`, *optional*): `"bf16"` (autocast, with weights in fp32, as `--bf16`) or `"fp32"`. Defaults to bf16
            where the device has it.
        gradient_checkpointing (`bool`, *optional*, defaults to `False`): as the Trainer's.
        gradient_accumulation_steps (`int`, *optional*, defaults to 1): batches of each process in an optimizer step.
        chunked_loss (`bool`, *optional*, defaults to `True`): as in `weftformer train`.
        num_processes (`int`, *optional*): processes with a whole copy of the model each (DDP), where there is no
            `distributed_config`. Beside one, it must be their product.
        distributed_config (`str` or `dict`, *optional*): `fsdp_size` and `dp_replicate_size`, as
            `weftformer train --distributed-config` takes them.
        num_beams (`int`, *optional*, defaults to 5): beams of a search.
        utilization (`float`, *optional*, defaults to 0.4): share of the peak that a training step reaches. The model FLOPs
            utilisation of Llama 3 405B on 8,192 to 16,384 H100 was 38 to 43 % in bf16 (arXiv:2407.21783, table 4).

    Raises:
        ValueError: a number is out of range.
    """

    tokens_per_batch: int = 65_536
    source_length: int | None = None
    target_length: int | None = None
    tokens: float | None = None
    precision: str | None = None
    gradient_checkpointing: bool = False
    gradient_accumulation_steps: int = 1
    chunked_loss: bool = True
    num_processes: int | None = None
    distributed_config: str | dict[str, Any] | None = None
    num_beams: int = 5
    utilization: float = 0.4

    def __post_init__(self):
        for name in (
            "tokens_per_batch", "source_length", "target_length", "gradient_accumulation_steps", "num_processes", "num_beams",
        ):  # fmt: skip
            value = getattr(self, name)
            if value is not None and (not isinstance(value, int) or value < 1):
                raise ValueError(f"{name}={value} is not allowed: give a whole number of at least 1.")
        if self.tokens is not None and not 0 < self.tokens < math.inf:
            raise ValueError(f"tokens={self.tokens} is not allowed: give a number above 0.")
        if not 0 < self.utilization <= 1:
            raise ValueError(
                f"utilization={self.utilization} is not allowed: give a share of the peak, above 0 and at most 1."
            )
        if self.precision not in (None, *PRECISIONS):
            raise ValueError(f"precision={self.precision!r} is not allowed: choose one of {', '.join(PRECISIONS)}.")
