"""Writes the graphs as ONNX files, `encoder.onnx` and `decoder_step.onnx`, and runs them with onnxruntime: greedy search, and a
comparison with the model."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from ..configuration import WeftConfig
from ..modeling import WeftForConditionalGeneration
from .extras import needed
from .graphs import OUTPUTS, Inputs, exported_programs, graphs

Run = Callable[[Inputs], Sequence[torch.Tensor]]
# batch size and number of source tokens of the samples of a comparison, which are not those of the export
_SAMPLES = ((3, 7), (1, 4))
_STEPS = 4


def start_tokens(config: WeftConfig, batch: int) -> torch.Tensor:
    """Return the start tokens of all rows (B, 1): the configuration's start token, or 0 if it has none."""
    return torch.full((batch, 1), config.decoder_start_token_id or 0)


@dataclass(frozen=True)
class Exported:
    """
    The two graphs of a model, in any runtime.

    Args:
        config ([`WeftConfig`]):
            The configuration of the model.
        encoder (`Callable`):
            Takes the inputs of [`EncoderGraph`] as a dictionary, and returns its outputs.
        step (`Callable`):
            Takes the inputs of [`DecoderStepGraph`] as a dictionary, and returns its outputs.
    """

    config: WeftConfig
    encoder: Run
    step: Run

    def begin(self, inputs: Inputs) -> tuple[Sequence[torch.Tensor], Inputs]:
        """
        Run the encoder.

        Args:
            inputs (`dict[str, torch.Tensor]`):
                The inputs of [`EncoderGraph`].

        Returns:
            The outputs of the encoder, and the inputs of the first step without its tokens.
        """
        outputs = self.encoder(inputs)
        _, keys, values = outputs
        empty = keys[:, :, :, :0]  # the cache of self-attention is empty, and has the same heads
        mask = inputs["attention_mask"]
        return outputs, {
            "attention_mask": mask, "self_keys": empty, "self_values": empty, "cross_keys": keys, "cross_values": values,
        }  # fmt: skip

    def advance(self, tokens: torch.Tensor, state: Inputs) -> tuple[Sequence[torch.Tensor], Inputs]:
        """
        Run a decoding step.

        Args:
            tokens (`torch.LongTensor` of shape `(batch, 1)`):
                Ids of the new tokens.
            state (`dict[str, torch.Tensor]`):
                The other inputs, from [`begin`] or the step before.

        Returns:
            The outputs of the step, and the inputs of the next one without its tokens.
        """
        outputs = self.step({"decoder_input_ids": tokens} | state)
        return outputs, state | {"self_keys": outputs[1], "self_values": outputs[2]}

    @torch.no_grad()
    def greedy(self, inputs: Inputs, max_new_tokens: int) -> torch.Tensor:
        """
        Generate with the best token at each step, as `model.generate` does with one beam.

        Args:
            inputs (`dict[str, torch.Tensor]`):
                `input_ids` and `attention_mask` of shape `(batch, source)` and, if the model has them,
                `condition_values`.
            max_new_tokens (`int`):
                The largest number of new tokens.

        Returns:
            `torch.LongTensor` of shape `(batch, length)`: the start token, at most `max_new_tokens` tokens, and pads
            after an end token.
        """
        eos = self.config.eos_token_id
        ends = torch.tensor([] if eos is None else eos).view(-1)
        tokens = start_tokens(self.config, len(inputs["input_ids"]))
        rows, has_ended = tokens, torch.zeros_like(tokens, dtype=torch.bool)
        _, state = self.begin(inputs)
        for _ in range(max_new_tokens):
            (scores, *_), state = self.advance(tokens, state)
            tokens = scores.argmax(dim=-1, keepdim=True).masked_fill(has_ended, self.config.pad_token_id or 0)
            rows, has_ended = torch.cat([rows, tokens], dim=1), has_ended | torch.isin(tokens, ends)
            if bool(has_ended.all()):
                break
        return rows


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

    return Exported(WeftConfig.from_pretrained(folder), *map(run, OUTPUTS))


def _difference(expected: Sequence[torch.Tensor], actual: Sequence[torch.Tensor]) -> float:
    if [tensor.shape for tensor in expected] != [tensor.shape for tensor in actual]:
        return math.inf
    largest = max((one - other).abs().max().item() for one, other in zip(expected, actual, strict=True))
    return math.inf if math.isnan(largest) else largest


@torch.no_grad()
def largest_difference(model: WeftForConditionalGeneration, exported: Exported) -> float:
    """
    Compare exported graphs with the model, for padded sources of two shapes and four steps each.

    Args:
        model ([`WeftForConditionalGeneration`]):
            The model.
        exported ([`Exported`]):
            The exported graphs.

    Returns:
        `float`: the largest difference of an output, infinite if a shape differs or an output is NaN.
    """
    encoder, step = graphs(model)
    reference = Exported(model.config, lambda inputs: encoder(**inputs), lambda inputs: step(**inputs))
    differences = []
    for batch, source in _SAMPLES:
        inputs = encoder.example(batch, source, seed=source)
        tokens = start_tokens(model.config, batch)
        (expected, own), (outputs, state) = reference.begin(inputs), exported.begin(inputs)
        differences.append(_difference(expected, outputs))
        for _ in range(_STEPS):
            (expected, own), (outputs, state) = reference.advance(tokens, own), exported.advance(tokens, state)
            differences.append(_difference(expected, outputs))
            tokens = expected[0].argmax(dim=-1, keepdim=True)
    return max(differences)
