"""Exported graphs read back: a greedy loop over them, and how far they are from the model they were made of."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from ..configuration import WeftConfig
from ..modeling import WeftForConditionalGeneration
from .graphs import Inputs, graphs

Run = Callable[[Inputs], Sequence[torch.Tensor]]
# (rows, source tokens) of the samples of a comparison: none of them those of the export
_SAMPLES = ((3, 7), (1, 4))
_STEPS = 4


def start_tokens(config: WeftConfig, batch: int) -> torch.Tensor:
    """(B, 1): what every row begins with; 0 where the configuration does not say."""
    return torch.full((batch, 1), config.decoder_start_token_id or 0)


@dataclass(frozen=True)
class Exported:
    """Encoder and decoder step of one model, whatever runs them.

    Args:
        encoder: inputs of [`EncoderGraph`] by name -> its outputs. step: the same of [`DecoderStepGraph`].
    """

    config: WeftConfig
    encoder: Run
    step: Run

    def begin(self, inputs: Inputs) -> tuple[Sequence[torch.Tensor], Inputs]:
        """The encoder's outputs, and what the first step needs beside its tokens."""
        outputs = self.encoder(inputs)
        _, keys, values = outputs
        empty = keys[:, :, :, :0]  # self-attention has the same heads, and has read no token yet
        mask = inputs["attention_mask"]
        return outputs, {
            "attention_mask": mask, "self_keys": empty, "self_values": empty, "cross_keys": keys, "cross_values": values,
        }  # fmt: skip

    def advance(self, tokens: torch.Tensor, state: Inputs) -> tuple[Sequence[torch.Tensor], Inputs]:
        """The outputs of the step that reads `tokens` (B, 1), and what the next one needs."""
        outputs = self.step({"decoder_input_ids": tokens} | state)
        return outputs, state | {"self_keys": outputs[1], "self_values": outputs[2]}

    @torch.no_grad()
    def greedy(self, inputs: Inputs, max_new_tokens: int) -> torch.Tensor:
        """The best token at each step, as `model.generate` chooses them with one beam.

        Args:
            inputs: `input_ids` (B, S), `attention_mask` (B, S) and, where the model reads them, `condition_values`.

        Returns:
            (B, 1 + at most max_new_tokens): the start token, what was written, pads after its end.
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


def _difference(expected: Sequence[torch.Tensor], found: Sequence[torch.Tensor]) -> float:
    if [tensor.shape for tensor in expected] != [tensor.shape for tensor in found]:
        return math.inf
    largest = max((one - other).abs().max().item() for one, other in zip(expected, found, strict=True))
    return math.inf if math.isnan(largest) else largest


@torch.no_grad()
def largest_difference(model: WeftForConditionalGeneration, exported: Exported) -> float:
    """Over all outputs of both graphs, for padded sources of two shapes and four steps each; infinite if shapes differ."""
    encoder, step = graphs(model)
    reference = Exported(model.config, lambda inputs: encoder(**inputs), lambda inputs: step(**inputs))
    differences = []
    for batch, source in _SAMPLES:
        inputs = encoder.example(batch, source, seed=source)
        tokens = start_tokens(model.config, batch)
        (expected, own), (found, state) = reference.begin(inputs), exported.begin(inputs)
        differences.append(_difference(expected, found))
        for _ in range(_STEPS):
            (expected, own), (found, state) = reference.advance(tokens, own), exported.advance(tokens, state)
            differences.append(_difference(expected, found))
            tokens = expected[0].argmax(dim=-1, keepdim=True)
    return max(differences)
