"""The files of `scripts/configs/` say to accelerate what they are meant to say."""

from pathlib import Path

import pytest
import yaml
from accelerate import FullyShardedDataParallelPlugin
from accelerate.commands.launch import _validate_launch_command, launch_command_parser
from accelerate.utils import patch_environment, prepare_multi_gpu_env

import weftformer

FOLDER = Path(weftformer.__file__).parent / "scripts" / "configs"
NAMES = ["ddp", "deepspeed_zero3", "expert_parallel", "fsdp2", "tensor_parallel"]


def parsed(name):
    """What `accelerate launch --config_file` makes of a file."""
    command = ["--config_file", str(FOLDER / f"{name}.yaml"), "-m", "weftformer.scripts.train", "--seed", "1"]
    return _validate_launch_command(launch_command_parser().parse_args(command))[0]


def test_there_is_no_other_file():
    assert sorted(path.name for path in FOLDER.iterdir()) == [f"{name}.yaml" for name in NAMES]


@pytest.mark.parametrize("name", NAMES)
def test_every_word_is_known(name):
    """accelerate refuses an unknown word at the top, and passes over one below it in silence."""
    arguments = parsed(name)
    assert arguments.num_processes == 2 and arguments.mixed_precision == "no"
    engines = {"ddp": "multi_gpu", "fsdp2": "use_fsdp", "deepspeed_zero3": "use_deepspeed"}
    assert getattr(arguments, engines.get(name, "multi_gpu"))
    fields = yaml.safe_load((FOLDER / f"{name}.yaml").read_text())
    options = {action.dest for action in launch_command_parser()._actions}
    for group in ("fsdp_config", "deepspeed_config"):
        for key, value in fields.get(group, {}).items():
            assert key in options and getattr(arguments, key) == value, key


def test_fsdp2_is_what_the_tests_of_the_engine_run(monkeypatch):
    arguments = parsed("fsdp2")
    monkeypatch.setattr(arguments, "main_process_port", 0)
    with patch_environment(**prepare_multi_gpu_env(arguments)):
        plugin = FullyShardedDataParallelPlugin()
    assert plugin.fsdp_version == 2 and plugin.reshard_after_forward is True
    assert plugin.auto_wrap_policy is not None and not plugin.cpu_ram_efficient_loading
    assert plugin.state_dict_type.name == "FULL_STATE_DICT" and not plugin.activation_checkpointing
