"""Writes the graphs as ONNX files, `encoder.onnx` and `decoder_step.onnx`, and runs them with onnxruntime."""

from pathlib import Path

import torch

from ..configuration import WeftConfig
from ..modeling import WeftForConditionalGeneration
from .extras import needed
from .graphs import GRAPHS, OUTPUTS, Inputs, exported_programs
from .running import Exported, Run


def write_onnx(model: WeftForConditionalGeneration, folder: Path) -> None:
    """
    Write both graphs and the configuration of a model as `encoder.onnx`, `decoder_step.onnx` and `config.json`.

    Args:
        model ([`WeftForConditionalGeneration`]):
            The model, on the CPU.
        folder (`Path`):
            An existing folder.

    Raises:
        ValueError: onnx or onnxscript is not installed, or the implementation of experts or attention does not convert
            (`"eager"` does, for both).
    """
    needed("onnx", "onnxscript")
    if model.config.has_sparse_layers and model.config._experts_implementation == "grouped_mm":
        raise ValueError(
            'ONNX has no operator for experts_implementation="grouped_mm": call '
            '`model.set_experts_implementation("eager")` (or "batched_mm") first.'
        )
    for name, program in exported_programs(model).items():
        try:
            written = torch.onnx.export(program, dynamo=True, output_names=list(OUTPUTS[name]), verbose=False)
        except torch.onnx.errors.OnnxExporterError as error:
            raise ValueError(
                f"`torch.onnx.export` cannot write the {name} of this model ({error.__cause__}): try "
                '`model.set_attn_implementation("eager")`, which relative positions need.'
            ) from error
        assert written is not None
        written.save(folder / f"{name}.onnx")
    model.config.to_json_file(folder / "config.json")


def load_onnx(folder: Path) -> Exported:
    """
    Load the graphs that [`write_onnx`] has written, to run on the CPU.

    Args:
        folder (`Path`):
            The folder.

    Returns:
        [`Exported`]

    Raises:
        ValueError: onnxruntime is not installed.
    """
    needed("onnxruntime")
    import onnxruntime

    def run(name: str) -> Run:
        session = onnxruntime.InferenceSession(folder / f"{name}.onnx", providers=["CPUExecutionProvider"])

        def call(inputs: Inputs):
            arrays = {key: tensor.numpy() for key, tensor in inputs.items()}
            return [torch.from_numpy(array) for array in session.run(None, arrays)]

        return call

    return Exported(WeftConfig.from_pretrained(folder), *map(run, GRAPHS))
