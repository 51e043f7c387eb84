"""Training arguments: those of transformers' Trainer and the options of this package (`options.py`)."""

import os
import sys
from dataclasses import dataclass

import torch
from accelerate.utils import parse_flag_from_env
from transformers import Seq2SeqTrainingArguments, TrainingArguments
from transformers.utils.import_utils import is_in_notebook, is_torch_tf32_available

from ..common.rules import integer
from .options import TrainingOptions

# A process makes a batch of 64 rows in a third of the time of a small model's step, and the GPU would wait.
_WORKERS = 4


@dataclass
class WeftTrainingArguments(TrainingOptions, Seq2SeqTrainingArguments):
    """`Seq2SeqTrainingArguments` with defaults for a small model trained from scratch, and additional arguments.

    Raises:
        ValueError: as in transformers, `output_dir` is missing, two arguments contradict each other, or DeepSpeed or
            accelerate's own FSDP is requested.
    """

    def __post_init__(self):
        self.check()
        refuse_other_engines(self)
        integer(1, optional=True).check("max_tokens_per_batch", self.max_tokens_per_batch)
        if self.train_sampling_strategy == "sequential" and self.max_tokens_per_batch is not None:
            raise ValueError("--max-tokens-per-batch, which shuffles, or a sequential strategy: give one.")
        if self.overwrite_output_dir and self.wants_resume and self.checkpoint_to_resume() is None:
            raise ValueError("--overwrite-output-dir or --resume-from-checkpoint true: give one.")
        self._set_dependent_defaults()
        is_default = self.accelerator_config is None
        super().__post_init__()
        if self.device.type == "cpu":  # otherwise torch warns that there is nothing to pin memory for
            self.dataloader_pin_memory = False
        elif self.device.type == "cuda":
            # cuDNN plans each new shape for as long as 50 steps, and can give NaN gradients with a mask
            # (pytorch#196678)
            torch.backends.cuda.enable_cudnn_sdp(False)
            if self.tf32 is None and is_torch_tf32_available():
                # what `tf32=True` calls would let Inductor fail, which reads the setting by this older name
                torch.set_float32_matmul_precision("high")
            if is_default:  # else the next batch waits for the end of the step
                self.accelerator_config.non_blocking = True

    def _set_dependent_defaults(self) -> None:
        is_gpu = torch.cuda.is_available() and not self.use_cpu
        if self.bf16 is None:
            is_open = not self.fp16 and os.environ.get("ACCELERATE_MIXED_PRECISION", "no") == "no"
            self.bf16 = is_gpu and is_open and torch.cuda.is_bf16_supported(including_emulation=False)
        if self.dataloader_num_workers is None:
            self.dataloader_num_workers = min(_WORKERS, (os.cpu_count() or 1) - 1) if is_gpu else 0
        if getattr(self, "disable_tqdm", None) is None:  # in a log file, a bar would write a line for each step
            self.disable_tqdm = not (sys.stderr.isatty() or is_in_notebook())
        for what in ("save", "eval"):  # a number of steps has no effect with another strategy
            is_default = getattr(self, f"{what}_strategy") == getattr(type(self), f"{what}_strategy")
            if is_default and getattr(self, f"{what}_steps") is not None:
                setattr(self, f"{what}_strategy", "steps")
        # otherwise it stays None, so that a copy by `dataclasses.replace` does not regard it as given
        if self.save_steps is None and self.save_strategy == "steps":
            self.save_steps = 500

    def describe_speed(self) -> str | None:
        """Return a line with the choices that make training on a GPU fast, or None on another device."""
        if self.device.type != "cuda":
            return None
        precision = "bfloat16" if self.bf16 else "float16" if self.fp16 else "float32"
        optimizer = "Muon" if self.muon else getattr(self.optim, "value", self.optim)
        return (
            f"Training on {torch.cuda.get_device_name(self.device)} in {precision} with {optimizer} and "
            f"{self.dataloader_num_workers} processes that make batches (--bf16, --optim and --dataloader-num-workers "
            "choose others)."
        )

    @property
    def is_main_process(self) -> bool:
        """Whether this process logs and writes files for all processes."""
        return self.process_index == 0

    @property
    def keeps_checkpoints(self) -> bool:
        """Whether the checkpoints stay when training has ended."""
        if self.keep_checkpoints is not None:
            return self.keep_checkpoints
        return any(getattr(self, name) != getattr(type(self), name) for name in ("save_strategy", "save_total_limit"))

    @property
    def wants_resume(self) -> bool:
        return str(self.resume_from_checkpoint).lower() not in ("none", "false", "no", "0", "")

    def checkpoint_to_resume(self) -> str | None:
        """Return the folder of the requested checkpoint, or None for "the last one"; see `wants_resume`."""
        value = str(self.resume_from_checkpoint)
        return None if value.lower() in ("true", "yes", "1") else os.path.expanduser(value)


def refuse_other_engines(args: TrainingArguments) -> None:
    """Raise a ValueError if the Trainer or `accelerate launch` is set to use DeepSpeed or accelerate's own FSDP."""
    for name, value in (("DEEPSPEED", args.deepspeed), ("FSDP", args.fsdp)):
        if value or parse_flag_from_env(f"ACCELERATE_USE_{name}"):
            remedy = "give --distributed-config fsdp_size=N"
            raise ValueError(f"--{name.lower()} (or ACCELERATE_USE_{name}=true) is not supported: {remedy}.")


def check_one_gpu(args: TrainingArguments) -> None:
    """Raise a ValueError if one process would train on several GPUs.

    `nn.DataParallel`, which the Trainer then uses, is slow, and its replicas lose what routers count.
    """
    if args.n_gpu > 1:
        raise ValueError(
            f"One process cannot train on {args.n_gpu} GPUs: start one for each with `torchrun --nproc-per-node "
            f"{args.n_gpu} -m weftformer train ...`, or set CUDA_VISIBLE_DEVICES=0."
        )
