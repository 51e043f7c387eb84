"""Checkpoints of a model that processes share are whole files, as one process writes them.

The Trainer writes whole weights too, but of the optimizer what the first process holds, and it loads neither.
"""

from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch.utils._pytree import tree_map
from transformers import PreTrainedModel, Seq2SeqTrainer
from transformers.trainer import OPTIMIZER_NAME, SCHEDULER_NAME

from ..modeling.loading import check_weights_files


class WholeCheckpointsTrainer(Seq2SeqTrainer):
    """`Seq2SeqTrainer` that saves and resumes a model which `DistributedConfig` keeps in parts.

    Any number of processes may read the weights and the state of the optimizer; resuming takes the same number, as each has
    random numbers of its own.
    """

    def __init__(self, model=None, args=None, *rest, **kwargs):
        keeps_all = _is_in_parts(model) and args is not None and not args.save_only_model
        if keeps_all:  # transformers refuses checkpoints that it could not resume, and this class can
            args.save_only_model = True
        try:
            super().__init__(model, args, *rest, **kwargs)
        finally:
            if keeps_all:
                args.save_only_model = False

    @property
    def _is_in_parts(self) -> bool:
        return _is_in_parts(self.model)

    def _save_optimizer_and_scheduler(self, output_dir: str) -> None:
        if not self._is_in_parts:
            return super()._save_optimizer_and_scheduler(output_dir)

        from torch.distributed.tensor import DTensor  # not in every build of torch

        def whole(value: Any) -> Any:
            if not isinstance(value, DTensor):
                return value
            full = value.full_tensor()  # by all processes together
            return full.cpu() if self.args.should_save else None

        state = tree_map(whole, self.optimizer.state_dict())
        if self.args.should_save:
            torch.save(state, Path(output_dir, OPTIMIZER_NAME))
            torch.save(self.lr_scheduler.state_dict(), Path(output_dir, SCHEDULER_NAME))

    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
        if checkpoint is None or not self._is_in_parts:
            return super()._load_optimizer_and_scheduler(checkpoint)
        # on the CPU: no GPU has room for the whole
        state = torch.load(Path(checkpoint, OPTIMIZER_NAME), map_location="cpu", weights_only=True, mmap=True)
        parameters = [parameter for group in self.optimizer.param_groups for parameter in group["params"]]
        for index, values in state["state"].items():
            state["state"][index] = {name: _part(value, parameters[index]) for name, value in values.items()}
        self.optimizer.load_state_dict(state)
        self.lr_scheduler.load_state_dict(torch.load(Path(checkpoint, SCHEDULER_NAME), weights_only=True))

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model=None) -> None:
        if not self._is_in_parts:
            return super()._load_from_checkpoint(resume_from_checkpoint, model)
        files, own = check_weights_files(Path(resume_from_checkpoint)), self.model.state_dict()
        if not files:
            raise ValueError(f"{resume_from_checkpoint} holds no weights to go on with: name another checkpoint.")
        for file in files:
            weights = {name: _part(value, own[name]) for name, value in load_file(file).items()}
            self.model.load_state_dict(weights, strict=False)  # one name of a tied weight, and one file of several

    def _load_best_model(self) -> None:
        if not self._is_in_parts:
            return super()._load_best_model()
        self._load_from_checkpoint(str(self.state.best_model_checkpoint))


def _is_in_parts(model: Any) -> bool:
    # not one in an adapter: its trained weights are whole on every process
    return isinstance(model, PreTrainedModel) and getattr(model, "is_distributed_loading_by_transformers", False)


def _part(value: Any, like: torch.Tensor) -> Any:
    """What this process holds of a whole tensor that is shared out as `like` is."""
    from torch.distributed.tensor import DTensor, distribute_tensor

    if not isinstance(like, DTensor) or not isinstance(value, torch.Tensor) or value.shape != like.shape:
        return value
    # every process has the whole: none needs to send
    return distribute_tensor(value, like.device_mesh, like.placements, src_data_rank=None)
