"""The output folder: refusing to overwrite, finding a checkpoint that can be resumed, saving whole files."""

import logging
import os
import re
import shutil
from pathlib import Path

from accelerate.utils import parse_flag_from_env
from transformers import Trainer
from transformers.utils import SAFE_WEIGHTS_INDEX_NAME, SAFE_WEIGHTS_NAME

from ..configuration import WeftConfig
from ..hub.export import NOT_UPLOADED
from ..modeling.loading import check_weights_files
from .arguments import WeftTrainingArguments
from .manifest import damage

logger = logging.getLogger(__name__)

_CHECKPOINT = re.compile(r"checkpoint-(\d+)")
# May be changed in the middle of a training; everything else makes it another model.
_FREE_FIELDS = frozenset(
    ["dropout", "attention_dropout", "activation_dropout", "label_smoothing", "router_aux_loss_coef",
     "router_z_loss_coef", "router_bias_update_rate", "output_router_logits", "use_cache", "init_std"]
)  # fmt: skip


def checkpoints(folder: str | os.PathLike) -> list[Path]:
    """The `checkpoint-<step>` folders in a folder, last step first."""
    found = Path(folder).iterdir() if Path(folder).is_dir() else []
    steps = {path: match for path in found if path.is_dir() and (match := _CHECKPOINT.fullmatch(path.name))}
    return sorted(steps, key=lambda path: int(steps[path][1]), reverse=True)


def missing_files(checkpoint: str | os.PathLike, world_size: int = 1) -> list[str]:
    """Files without which the Trainer would resume as if nothing were wrong, or not at all.

    Training then goes on with a fresh optimizer, a fresh schedule or other random numbers, and does not say so.
    """
    folder = Path(checkpoint)
    has_weights = (folder / SAFE_WEIGHTS_NAME).is_file() or (folder / SAFE_WEIGHTS_INDEX_NAME).is_file()
    random_states = [f"rng_state_{rank}.pth" for rank in range(world_size)] if world_size > 1 else ["rng_state.pth"]
    needed = ["trainer_state.json", "optimizer.pt", "scheduler.pt", *random_states]
    return [SAFE_WEIGHTS_NAME] * (not has_weights) + [name for name in needed if not (folder / name).is_file()]


def find_checkpoint(args: WeftTrainingArguments) -> str | None:
    """The checkpoint to resume from, or None to begin.

    None was asked for, or the last one, and `output_dir` holds neither a checkpoint nor a model: a run that was killed before
    its first checkpoint begins again by the command it was begun with.

    Raises:
        ValueError: there is no complete checkpoint, or the one asked for is incomplete; the message names what is
            missing. Or there is none, and a trained model that would be overwritten.
    """
    if not args.wants_resume:
        return None
    # sharded runs write other files, and check them when they read them
    is_sharded = (
        args.uses_fsdp_of_accelerate or bool(args.deepspeed) or parse_flag_from_env("ACCELERATE_USE_DEEPSPEED")
    )
    given = args.checkpoint_to_resume()
    candidates = [Path(given)] if given else checkpoints(args.output_dir)
    problems = []
    for folder in candidates:
        missing = [] if is_sharded else missing_files(folder, args.world_size)
        if not folder.is_dir():
            problems.append(f"there is no folder {folder}")
        elif missing:
            problems.append(f"{folder} lacks {', '.join(missing)}")
        elif found := damage(folder):
            problems.append(f"in {folder} {', '.join(found)}")
        else:
            if not is_sharded:
                check_weights_files(folder)
            if problems and args.is_main_process:
                logger.warning(f"Passed over: {'; '.join(problems)}.")
            return str(folder)
    folder = Path(args.output_dir)
    if not problems and not (folder.is_dir() and any(map(_is_weights, folder.iterdir()))):
        if args.is_main_process:
            logger.warning(f"There is no checkpoint in {folder} yet: training begins at the beginning.")
        return None
    reason = "; ".join(problems) or f"{folder} holds a model, and no checkpoint-<step> to continue from"
    raise ValueError(f"resume_from_checkpoint={args.resume_from_checkpoint}: {reason}.")


def check_output_dir(args: WeftTrainingArguments, inputs: tuple[str | None, ...] = ()) -> None:
    """Refuse an output folder with something in it, unless training resumes or the user said to overwrite.

    Args:
        inputs: folders that training reads from; none may be among what overwriting removes.

    Raises:
        ValueError: the folder is not empty, is a file, or holds an input that would be removed.
    """
    folder = Path(args.output_dir)
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"--output_dir {folder} is a file: give a folder.")
    entries = sorted(path.name for path in folder.iterdir() if path.name[0] != ".") if folder.is_dir() else []
    if args.wants_resume or not entries:
        return
    if not args.overwrite_output_dir:
        shown = ", ".join(entries[:5]) + (", ..." if len(entries) > 5 else "")
        raise ValueError(
            f"--output_dir {folder} is not empty (it holds {shown}): continue what was begun there with "
            "--resume_from_checkpoint true, start again with --overwrite_output_dir, or choose another folder."
        )
    for name in inputs:
        if name and any(Path(name).resolve().is_relative_to(old.resolve()) for old in checkpoints(folder)):
            raise ValueError(
                f"--overwrite_output_dir would remove {name}, which training reads from: choose another --output_dir."
            )


def remove_checkpoints(folder: str | os.PathLike) -> None:
    """Remove the checkpoints of an earlier run, which would be taken for this run's when it is resumed."""
    for old in checkpoints(folder):
        logger.info(f"Removing {old}, of an earlier run (--overwrite_output_dir).")
        shutil.rmtree(old)


def check_same_model(config: WeftConfig, checkpoint: str) -> None:
    """Refuse to resume a checkpoint of another model, of which the Trainer would load what happens to fit.

    Raises:
        ValueError: fields differ; the message names them with both values.
    """
    saved = WeftConfig.from_pretrained(checkpoint)
    fields = [name for name in WeftConfig.__annotations__ if name in WeftConfig.field_names() - _FREE_FIELDS]
    different = [
        f"{name} ({getattr(saved, name)} there, {getattr(config, name)} here)"
        for name in fields
        if getattr(saved, name) != getattr(config, name)
    ]
    if different:
        raise ValueError(
            f"{checkpoint} is of another model: {', '.join(different)}. Resume with the arguments it was begun with."
        )


def save_model_folder(trainer: Trainer, folder: str | os.PathLike) -> None:
    """Save model, tokenizer and generation settings so that every file in `folder` is whole, the weights coming last.

    Call it on every process. Weights of an earlier save that would be loaded instead of, or beside, the new ones are
    removed.
    """
    folder = Path(folder)
    saving = folder / ".saving"
    staging = saving / NOT_UPLOADED
    if trainer.args.should_save:
        shutil.rmtree(saving, ignore_errors=True)  # of a run that was killed while it saved
    trainer.save_model(str(staging), _internal_call=True)  # internal: pushing is a step of its own
    if not trainer.args.should_save:
        return
    files = sorted(staging.iterdir(), key=_is_weights)
    for path in files:
        os.replace(path, folder / path.name)
    shutil.rmtree(saving)
    new = {path.name for path in files}
    for path in folder.iterdir():
        if _is_weights(path) and path.name not in new:
            path.unlink()


def _is_weights(path: Path) -> bool:
    return re.fullmatch(r"model(-\d+-of-\d+)?\.safetensors(\.index\.json)?", path.name) is not None
