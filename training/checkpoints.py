"""Checkpoints: averaging the last ones, finding the one to resume from, and saving the model of a finished run."""

import logging
import os
import re
import shutil
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import torch
from accelerate.utils import broadcast_object_list
from safetensors.torch import load_file
from torch.utils._pytree import tree_map
from transformers import AutoModelForSeq2SeqLM, PreTrainedModel, Seq2SeqTrainer, Trainer
from transformers.trainer import OPTIMIZER_NAME, SCHEDULER_NAME
from transformers.utils import SAFE_WEIGHTS_INDEX_NAME, SAFE_WEIGHTS_NAME

from ..common.atomic import locked_folder, staging_folder
from ..common.commands import command_line
from ..common.rules import integer
from ..configuration import WeftConfig
from ..configuration.fields import TRAINING_FIELDS
from ..hub.loading import load
from ..modeling import WeftForConditionalGeneration
from ..modeling.loading import check_weights_files
from .arguments import WeftTrainingArguments
from .report import OUTPUTS, PAGE

logger = logging.getLogger(__name__)

_CHECKPOINT = re.compile(r"checkpoint-(\d+)")


def checkpoints(folder: str | os.PathLike) -> list[Path]:
    """Return the `checkpoint-<step>` folders in a folder, last step first."""
    entries = Path(folder).iterdir() if Path(folder).is_dir() else []
    steps = {path: match for path in entries if path.is_dir() and (match := _CHECKPOINT.fullmatch(path.name))}
    return sorted(steps, key=lambda path: int(steps[path][1]), reverse=True)


def average_checkpoints(
    folder: str | os.PathLike, count: int = 10, *, trust_remote_code: bool = False
) -> WeftForConditionalGeneration:
    """Average the weights of a run's last checkpoints, as in section 6.1 of Vaswani et al. 2017 (arXiv:1706.03762).

    The weights are summed in float64.

    Args:
        folder: the `output_dir` of a training run.
        count: the number of checkpoints to average. If the folder has fewer, all of them are averaged.
        trust_remote_code: whether to run the code beside the weights, for a model of a subclass.

    Returns:
        A model with the averaged weights, in float32.

    Raises:
        ValueError: `count` is less than 1, there is no checkpoint, or a checkpoint is damaged.
    """
    integer(1).check("count", count)
    folders = checkpoints(folder)[:count]
    if not folders:
        raise ValueError(f"{folder} has no checkpoint-<step> to average.")
    sums: dict[str, torch.Tensor] = {}
    for checkpoint in folders:
        model = load(AutoModelForSeq2SeqLM, checkpoint, dtype=torch.float32, trust_remote_code=trust_remote_code)
        for name, value in model.state_dict().items():
            sums[name] = sums[name] + value.double() if name in sums else value.double()
    model.load_state_dict({name: (total / len(folders)).float() for name, total in sums.items()})
    return model


def missing_files(checkpoint: str | os.PathLike, world_size: int = 1) -> list[str]:
    """Return the names of files that a checkpoint needs and does not have.

    Without most of these files the Trainer resumes with a new optimizer, a new schedule or other random numbers, and
    gives no warning.
    """
    folder = Path(checkpoint)
    has_weights = (folder / SAFE_WEIGHTS_NAME).is_file() or (folder / SAFE_WEIGHTS_INDEX_NAME).is_file()
    random_states = [f"rng_state_{rank}.pth" for rank in range(world_size)] if world_size > 1 else ["rng_state.pth"]
    names = ["trainer_state.json", "optimizer.pt", "scheduler.pt", *random_states]
    return [SAFE_WEIGHTS_NAME] * (not has_weights) + [name for name in names if not (folder / name).is_file()]


def find_checkpoint(args: WeftTrainingArguments) -> str | None:
    """Find the checkpoint to resume from.

    With several processes, the first one decides for all, because the others may see new files later on a shared file
    system. Every process must call this function.

    Returns:
        The folder of the checkpoint, or None to start from the beginning. It is None if resuming is not requested. It
        is also None if the last checkpoint is requested and `output_dir` has neither a checkpoint nor a model, so that
        a run that was killed before its first checkpoint can be started again with the same command.

    Raises:
        ValueError: no checkpoint is complete, or the given one is not (the message names the missing files); there is
            no checkpoint but a trained model, which would be overwritten; or this process does not see the checkpoint
            that the first has chosen.
    """
    if not args.wants_resume:
        return None
    if args.world_size == 1:
        return _last_whole_checkpoint(args)
    answer: list[Any] = [None, None]
    if args.is_main_process:
        try:
            answer[0] = _last_whole_checkpoint(args)
        except ValueError as error:  # the others would wait for an answer
            answer[1] = str(error)
    checkpoint, problem = broadcast_object_list(answer)
    if problem is not None:
        raise ValueError(problem)
    if checkpoint is not None and not Path(checkpoint).is_dir():
        raise ValueError(
            f"Process {args.process_index} does not see {checkpoint}, from which the first process resumes: all nodes "
            "need the same --output-dir, on a file system that they share."
        )
    return checkpoint


def _last_whole_checkpoint(args: WeftTrainingArguments) -> str | None:
    name = args.checkpoint_to_resume()
    candidates = [Path(name)] if name else checkpoints(args.output_dir)
    problems = []
    for folder in candidates:
        missing = missing_files(folder, args.world_size)
        if not folder.is_dir():
            problems.append(f"there is no folder {folder}")
        elif missing:
            problems.append(f"{folder} lacks {', '.join(missing)}")
        else:
            check_weights_files(folder)
            if problems:
                logger.warning(f"Skipped checkpoints: {'; '.join(problems)}.")
            return str(folder)
    folder = Path(args.output_dir)
    if not problems and not (folder.is_dir() and any(map(_is_weights, folder.iterdir()))):
        logger.warning(f"There is no checkpoint in {folder} yet: training starts from the beginning.")
        return None
    reason = "; ".join(problems) or (
        f"{folder} has a model, but no checkpoint-<step> to continue from. Its training may have ended: "
        f"--model-name-or-path {folder} trains it further, into another --output-dir"
    )
    raise ValueError(f"resume_from_checkpoint={args.resume_from_checkpoint}: {reason}.")


def output_lock(args: WeftTrainingArguments) -> AbstractContextManager[None]:
    """Return a context in which no other run can write to the output folder. The first process locks it.

    Raises:
        ValueError: another run is writing there, or it is a file.
        OSError: the folder cannot be made.
    """
    return locked_folder(str(args.output_dir)) if args.is_main_process else nullcontext()


def check_output_dir(args: WeftTrainingArguments, inputs: tuple[str | None, ...] = ()) -> None:
    """Check that the output folder is empty, unless training resumes or the user allows overwriting.

    Args:
        args: the training arguments.
        inputs: files and folders that training reads. Overwriting must not remove them.

    Raises:
        ValueError: the folder is not empty, or has an input that would be removed.
    """
    folder = Path(args.output_dir)
    entries = sorted(path.name for path in folder.iterdir() if path.name[0] != ".") if folder.is_dir() else []
    if args.wants_resume or not entries:
        return
    if not args.overwrite_output_dir:
        listing = ", ".join(entries[:5]) + (", ..." if len(entries) > 5 else "")
        raise ValueError(
            f"--output-dir {folder} is not empty (it has {listing}): give --resume-from-checkpoint true, "
            "--overwrite-output-dir, or another folder."
        )
    for name in inputs:
        if name and any(
            Path(name).resolve().is_relative_to(checkpoint.resolve()) for checkpoint in checkpoints(folder)
        ):
            raise ValueError(f"--overwrite-output-dir would remove {name}: choose another --output-dir.")


def remove_checkpoints(folder: str | os.PathLike) -> None:
    """Remove the checkpoints of a run."""
    for checkpoint in checkpoints(folder):
        shutil.rmtree(checkpoint)


def remove_earlier_run(folder: str | os.PathLike) -> None:
    """Remove the checkpoints and scores of an earlier run.

    Otherwise, this run could be resumed from one of the checkpoints by mistake, and the Trainer would add its scores
    to the old ones.
    """
    if names := [str(checkpoint) for checkpoint in checkpoints(folder)]:
        logger.info(f"Removing {', '.join(names)} of an earlier run (--overwrite-output-dir).")
    remove_checkpoints(folder)
    for name in (
        *(f"{split}_results.json" for split in ("all", "train", "eval", "test")),
        "generated_predictions.txt",
        PAGE,
        OUTPUTS,
    ):
        Path(folder, name).unlink(missing_ok=True)


@contextmanager
def resumable(folder: str, words: Sequence[str] = ()) -> Iterator[None]:
    """Let a run that is interrupted end with a sentence on how it is resumed.

    Args:
        folder: the folder of the run.
        words: the words of its command after `weftformer`, if there are any.
    """
    try:
        yield
    except KeyboardInterrupt as error:
        folders = checkpoints(folder)
        options = {"--overwrite-output-dir": False, "--resume-from-checkpoint": "true"}
        if not folders:
            message = f"No checkpoint of this run was saved yet in {folder}. --save-steps N saves one every N steps."
        elif words:
            message = f"This command continues from {folders[0]}:\n  {command_line(words, options)}"
        else:
            message = f"The same run with --resume-from-checkpoint true continues from {folders[0]}."
        raise KeyboardInterrupt(message) from error


def check_same_model(config: WeftConfig, checkpoint: str) -> None:
    """Check that a checkpoint is of the same model. The Trainer itself loads whatever weights fit.

    Raises:
        ValueError: fields differ. The message names them with both values.
    """
    checkpoint_config = WeftConfig.from_pretrained(checkpoint)
    fields = [name for name in WeftConfig.__annotations__ if name in WeftConfig.field_names() - TRAINING_FIELDS]
    different = [
        f"{name} ({getattr(checkpoint_config, name)} in the checkpoint, {getattr(config, name)} now)"
        for name in fields
        if getattr(checkpoint_config, name) != getattr(config, name)
    ]
    if different:
        raise ValueError(f"{checkpoint} is of another model: {', '.join(different)}. Resume with the same arguments.")


def save_model_folder(trainer: Trainer, folder: str | os.PathLike) -> None:
    """Save model, tokenizer and generation settings, so that no file in `folder` is ever incomplete.

    The weights are moved into the folder last. Weights of an earlier save are removed, because loading could choose
    them instead of the new ones. Call it on every process.
    """
    folder = Path(folder)
    with staging_folder(folder, ".saving", trainer) as staging:
        trainer.save_model(str(staging), _internal_call=True)  # an internal call does not push
        if not trainer.args.should_save:
            return
        files = sorted(staging.iterdir(), key=_is_weights)
        for path in files:
            os.replace(path, folder / path.name)
    new = {path.name for path in files}
    for path in folder.iterdir():
        if _is_weights(path) and path.name not in new:
            path.unlink()


def _is_weights(path: Path) -> bool:
    return re.fullmatch(r"model(-\d+-of-\d+)?\.safetensors(\.index\.json)?", path.name) is not None


class ShardedModelTrainer(Seq2SeqTrainer):
    """A `Seq2SeqTrainer` whose checkpoints of a model with a `DistributedConfig` are like those of one process.

    The `Trainer` saves whole weights of such a model too, but only the first process' part of the optimizer's state,
    and it can load neither. Here any number of processes can load the weights and the optimizer's state. Resuming
    needs the same number of processes, because each has its own random state.
    """

    def __init__(self, model=None, args=None, *rest, **kwargs):
        keeps_all = _is_in_parts(model) and args is not None and not args.save_only_model
        if keeps_all:  # transformers refuses to save the optimizer of such models, which this class can do
            args.save_only_model = True
        try:
            super().__init__(model, args, *rest, **kwargs)
        finally:
            if keeps_all:
                args.save_only_model = False

    def _save_optimizer_and_scheduler(self, output_dir: str) -> None:
        if not _is_in_parts(self.model):
            return super()._save_optimizer_and_scheduler(output_dir)

        from torch.distributed.tensor import DTensor  # not in every build of torch

        def whole(value: Any) -> Any:
            if not isinstance(value, DTensor):
                return value
            full = value.full_tensor()  # a collective call: every process must make it
            return full.cpu() if self.args.should_save else None

        state = tree_map(whole, self.optimizer.state_dict())
        if self.args.should_save:
            torch.save(state, Path(output_dir, OPTIMIZER_NAME))
            torch.save(self.lr_scheduler.state_dict(), Path(output_dir, SCHEDULER_NAME))

    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
        if checkpoint is None or not _is_in_parts(self.model):
            return super()._load_optimizer_and_scheduler(checkpoint)
        # on the CPU, because the whole state may not fit on one GPU
        state = torch.load(Path(checkpoint, OPTIMIZER_NAME), map_location="cpu", weights_only=True, mmap=True)
        parameters = [parameter for group in self.optimizer.param_groups for parameter in group["params"]]
        for index, values in state["state"].items():
            state["state"][index] = {name: _part(value, parameters[index]) for name, value in values.items()}
        self.optimizer.load_state_dict(state)
        self.lr_scheduler.load_state_dict(torch.load(Path(checkpoint, SCHEDULER_NAME), weights_only=True))

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model=None) -> None:
        if not _is_in_parts(self.model):
            return super()._load_from_checkpoint(resume_from_checkpoint, model)
        files, state = check_weights_files(Path(resume_from_checkpoint)), self.model.state_dict()
        if not files:
            raise ValueError(f"{resume_from_checkpoint} has no weights: give another checkpoint.")
        for file in files:
            weights = {name: _part(value, state[name]) for name, value in load_file(file).items()}
            # not strict, because a file has only some of the weights, and tied weights have one name only
            self.model.load_state_dict(weights, strict=False)

    def _load_best_model(self) -> None:
        if not _is_in_parts(self.model):
            return super()._load_best_model()
        self._load_from_checkpoint(str(self.state.best_model_checkpoint))


def _is_in_parts(model: Any) -> bool:
    # false for a model in an adapter, whose trained weights are whole on every process
    # releases before 5.20 have no such attribute, and this model is split from 5.23 on
    return isinstance(model, PreTrainedModel) and getattr(model, "is_distributed_loading_by_transformers", False)


def _part(value: Any, like: torch.Tensor) -> Any:
    """Return this process' part of a whole tensor, distributed in the same way as `like`."""
    from torch.distributed.tensor import DTensor, distribute_tensor

    if not isinstance(like, DTensor) or not isinstance(value, torch.Tensor) or value.shape != like.shape:
        return value
    # without a source rank, because every process has the whole tensor
    return distribute_tensor(value, like.device_mesh, like.placements, src_data_rank=None)
