"""What two processes do that measure their memory while they train; see `worker.py`."""

import ctypes
import gc
import os
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel
from transformers.distributed import DistributedConfig

from weftformer import WeftConfig, WeftForConditionalGeneration

RANK = int(os.environ.get("RANK", "0"))
_MMAP_THRESHOLD = -3  # glibc's name of the size from which a block goes back to the system when it is freed


def status(name: str) -> int:
    """A number of /proc/self/status, in bytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(name + ":"))


def settled() -> int:
    """Give back what is free, let the peak begin anew, and return what is held."""
    gc.collect()
    ctypes.CDLL("libc.so.6").malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5")
    return status("VmRSS")


def local(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def size_of(tensors) -> int:
    """Bytes of the storages that tensors have, each once."""
    storages = [local(tensor).untyped_storage() for tensor in tensors]
    return sum({storage.data_ptr(): storage.nbytes() for storage in storages}.values())


def batch_of(config: WeftConfig, rows: int, length: int) -> dict[str, torch.Tensor]:
    draw = torch.Generator().manual_seed(RANK)
    mask = torch.ones(rows, length, dtype=torch.long)
    mask[0, -3:] = 0
    ids, labels = torch.randint(3, config.vocab_size, (2, rows, length), generator=draw)
    return {"input_ids": ids, "attention_mask": mask, "labels": labels}


def own_shards(model: torch.nn.Module) -> None:
    """Copy what is read from a file: on a CPU it is a view of the whole weight, on a GPU it is a copy anyway."""
    for weight in model.parameters():
        if isinstance(weight, DTensor):
            weight._local_tensor = weight._local_tensor.clone()
        else:
            weight.data = weight.data.clone()


def step(model, call, batch, optimizer, bf16: bool) -> tuple[int, dict[str, int]]:
    """A training step as the Trainer does it: the peak, and the bytes of gradients and optimizer after it."""
    with torch.autocast("cpu", torch.bfloat16, enabled=bf16):
        loss = call(**batch, chunked_loss=None).loss
    loss.backward()
    gradients = size_of(weight.grad for weight in model.parameters())
    optimizer.step()
    peak = status("VmHWM")
    states = [value for state in optimizer.state.values() for value in state.values() if value.numel() > 1]
    optimizer.zero_grad()
    return peak, {"gradients": gradients, "optimizer": size_of(states)}


def measure(folder, rows: int, length: int, sizes=None, bf16=False, checkpointing=False) -> dict[str, Any]:
    """Bytes that a process holds at the peak of a step beyond those before it had the model, and those of its tensors."""
    ctypes.CDLL("libc.so.6").mallopt(_MMAP_THRESHOLD, 65536)
    small = WeftConfig(vocab_size=5000, d_model=64, encoder_layers=1, decoder_layers=1)
    warm = WeftForConditionalGeneration(small).train()  # the first step loads what torch needs
    step(warm, warm, batch_of(small, 2, 8), torch.optim.AdamW(warm.parameters(), fused=True), bf16)
    del warm
    dist.all_reduce(torch.ones(10**6))
    before = settled()
    options = {} if sizes is None else {"distributed_config": DistributedConfig(**sizes)}
    model = WeftForConditionalGeneration.from_pretrained(folder, **options).train()
    own_shards(model)
    if checkpointing:
        model.gradient_checkpointing_enable({"use_reentrant": False})
    call = DistributedDataParallel(model) if sizes is None else model
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    batch, peak, held = batch_of(model.config, rows, length), 0, {}
    for _ in range(3):  # buckets and moments are made in the first steps
        settled()
        peak, held = step(model, call, batch, optimizer, bf16)
    weights = size_of([*model.parameters(), *model.buffers()])
    return {"peak": peak - before, "weights": weights, **held}
