"""Functions of one of two processes, which `Pair` runs in both at the same time."""

import os
from pathlib import Path

import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel
from transformers.distributed import DistributedConfig

from weftformer import WeftForConditionalGeneration


def begin(rank: int, store: Path) -> None:
    """Make this one of two processes. They meet through a file, because a port could be taken in the meantime."""
    os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2"}
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2)


def rank() -> int:
    return int(os.environ.get("RANK", "0"))


def whole(tensor: torch.Tensor) -> torch.Tensor:
    return (tensor.full_tensor() if isinstance(tensor, DTensor) else tensor).detach().clone()


def held(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def micro_batches(batch, split):
    """Return the half of a batch for this process if `split`, else both halves."""
    halves = [{name: value[rows] for name, value in batch.items()} for rows in (slice(0, 2), slice(2, 4))]
    return halves[rank() : rank() + 1] if split else halves


def train(model, batch, split, call):
    """Return the losses of three SGD steps, the gradients of the first, and weights and buffers after the last."""
    model.train()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, foreach=False)
    total, losses, gradients = (batch["labels"] != -100).sum(), [], {}
    for step in range(3):
        loss = torch.zeros((), dtype=torch.float64)
        for part in micro_batches(batch, split):
            # every engine that splits the batch takes the mean of the gradients instead of the sum
            output = call(**part, num_items_in_batch=total).loss * (2 if split else 1)
            output.backward()
            loss += output.detach() / (2 if split else 1)
        if split:
            dist.all_reduce(loss)
        losses.append(loss.item())
        if step == 0:
            gradients = {name: whole(p.grad) for name, p in model.named_parameters() if p.grad is not None}
        optimizer.step()  # which updates the biases of the routers, too
        optimizer.zero_grad()
    return {"losses": losses, "gradients": gradients, "state": {n: whole(t) for n, t in model.state_dict().items()}}


def generated(model, batch, split):
    """Return beams with their scores, the beams of DirectMultiStep's search, and greedy text."""
    part = micro_batches(batch, split)[0] if split else batch
    inputs = {name: value for name, value in part.items() if name != "labels"}
    settings = {"max_new_tokens": 6, "num_beams": 3, "num_return_sequences": 2}
    beams = model.generate(**inputs, **settings, return_dict_in_generate=True, output_scores=True)
    by_length = model.generate(**inputs, **settings, custom_generate="sqrt_length")
    greedy = model.generate(**inputs, max_new_tokens=6)
    return {"beams": beams.sequences, "scores": beams.sequences_scores, "by_length": by_length, "greedy": greedy}


def run_engine(folder, batch, out, sizes=None, ddp=False):
    """Train, save and generate on one of the engines, or on one process as the reference."""
    torch.manual_seed(0)
    options = {"distributed_config": DistributedConfig(**sizes)} if sizes else {}
    model = WeftForConditionalGeneration.from_pretrained(folder, **options)
    split = ddp or bool(sizes and sizes.get("fsdp_size", 1) > 1)
    # before a forward pass of the whole model has prepared anything
    result = {"generated": generated(model.eval(), batch, split)}
    result |= train(model, batch, split, DistributedDataParallel(model) if ddp else model)
    result["held"] = sum(held(parameter).numel() for parameter in model.parameters())
    model.save_pretrained(out, is_main_process=rank() == 0)
    return result | {"generated after": generated(model.eval(), batch, split)}
