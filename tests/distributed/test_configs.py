"""The files of `scripts/configs/` configure accelerate as intended."""

from pathlib import Path

import pytest
import yaml
from accelerate.commands.launch import _validate_launch_command, launch_command_parser

import weftformer

FOLDER = Path(weftformer.__file__).parent / "scripts" / "configs"
NAMES = sorted(path.stem for path in FOLDER.iterdir())


@pytest.mark.parametrize("name", NAMES)
def test_every_word_is_known(name):
    """accelerate refuses an unknown word at the top, and passes over one below it in silence."""
    command = ["--config_file", str(FOLDER / f"{name}.yaml"), "-m", "weftformer", "train", "--seed", "1"]
    arguments = _validate_launch_command(launch_command_parser().parse_args(command))[0]
    assert arguments.num_processes == 2 and arguments.mixed_precision == "no"
    engines = {"ddp": "multi_gpu", "fsdp2": "use_fsdp"}
    assert getattr(arguments, engines.get(name, "multi_gpu"))
    fields = yaml.safe_load((FOLDER / f"{name}.yaml").read_text())
    options = {action.dest for action in launch_command_parser()._actions}
    for key, value in fields.get("fsdp_config", {}).items():
        assert key in options and getattr(arguments, key) == value, key
