"""Writes and loads the graphs as files of `torch.export`, `encoder.pt2` and `decoder_step.pt2`."""

from pathlib import Path

import torch

from ..configuration import WeftConfig
from ..modeling import WeftForConditionalGeneration
from .graphs import GRAPHS, Inputs, exported_programs
from .running import Exported, Run


def write_torch(model: WeftForConditionalGeneration, folder: Path) -> None:
    """
    Write both graphs and the configuration of a model as `encoder.pt2`, `decoder_step.pt2` and `config.json`.

    Args:
        model ([`WeftForConditionalGeneration`]):
            The model, on the CPU.
        folder (`Path`):
            An existing folder.

    Raises:
        ValueError: a fixed graph cannot compute this model, see [`check_exportable`].
    """
    for name, program in exported_programs(model).items():
        torch.export.save(program, folder / f"{name}.pt2")
    model.config.to_json_file(folder / "config.json")


def load_torch(folder: Path) -> Exported:
    """
    Load the graphs that [`write_torch`] has written.

    Args:
        folder (`Path`):
            The folder.

    Returns:
        [`Exported`]
    """

    def run(name: str) -> Run:
        module = torch.export.load(folder / f"{name}.pt2").module()

        def call(inputs: Inputs):
            return module(**inputs)

        return call

    return Exported(WeftConfig.from_pretrained(folder), *map(run, GRAPHS))
