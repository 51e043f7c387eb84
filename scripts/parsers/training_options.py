"""The options that the commands of training have in common. Each command chooses its own order of them."""

from collections.abc import Callable
from typing import Any

# "{items}" stands for what the command trains on.
_OPTIONS: dict[str, dict[str, Any]] = {
    "--output-dir": {"metavar": "FOLDER", "help": "folder for the model and its checkpoints"},
    "--learning-rate": {"type": float, "default": 5e-4, "help": "highest learning rate (default: %(default)s)"},
    "--per-device-train-batch-size": {
        "type": int,
        "default": 32,
        "metavar": "N",
        "help": "{items} in a batch (default: %(default)s)",
    },
    "--resume-from-checkpoint": {"metavar": "true", "help": "go on where a run was interrupted"},
    "--overwrite-output-dir": {"action": "store_true", "help": "begin again in a folder that is not empty"},
    "--model-name-or-path": {"metavar": "MODEL", "help": "go on from this folder or Hub id instead of a new model"},
    "--config-overrides": {
        "metavar": "A=1,B=2",
        "help": "fields of the configuration, such as d_model=256,dropout=0.2",
    },
    "--tokenizer-vocab-size": {
        "type": int,
        "metavar": "N",
        "help": "most tokens of a new vocabulary (default: 8000, of pairs that occur 100 times)",
    },
    "--gradient-accumulation-steps": {
        "type": int,
        "default": 1,
        "metavar": "N",
        "help": "batches a step (default: %(default)s)",
    },
    "--bf16": {"action": "store_true", "help": "compute in bfloat16, on GPUs that have it"},
    "--report-to": {"metavar": "NAME", "help": "tensorboard, wandb, trackio, ...: where losses go"},
    "--help-all": {"action": "store_true", "help": "show every option"},
}


def add_shared(add: Callable[..., Any], *names: str, items: str = "", **changes: Any) -> None:
    """
    Add options that several commands of training have.

    Args:
        add (`Callable`):
            The method `add_argument` of a parser or of a group.
        names (`str`):
            The options, in the order of the help.
        items (`str`, *optional*):
            What the command trains on, for the help.
        changes:
            Fields of these options that this command has otherwise, such as `default`.
    """
    for name in names:
        fields = _OPTIONS[name] | changes
        add(name, **fields | {"help": fields["help"].replace("{items}", items)})
