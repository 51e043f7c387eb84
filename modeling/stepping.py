"""Logits of the next token of each row, and the way from one token to the next: what every search here is built on.

Shape suffixes: B sources, S beams of each, W = B * S rows, V tokens of the vocabulary, T tokens written so far.
"""

from typing import Any

import torch
from transformers import GenerationConfig
from transformers.modeling_outputs import ModelOutput

from .cache import self_attention_cache
from .decoding_cache import DecodingCache


def is_short(model_kwargs: dict[str, Any]) -> bool:
    """Whether what `generate` prepared allows to go from token to token without the model's whole forward pass."""
    cache = model_kwargs.get("past_key_values")
    given = [model_kwargs.get(name) for name in ("decoder_position_ids", "decoder_position_mask")]
    if not isinstance(cache, DecodingCache) or cache.step is None or any(value is not None for value in given):
        return False
    return cache.get_seq_length() == 0 and not torch.is_grad_enabled()


class Stepper:
    """Reads a prefix, then one token of each row after the other.

    `logits` (W, V), in float32, score the token after all that was read.

    Args:
        ids_WT: the prefix.
        model_kwargs: as `generate` hands them to a search.
    """

    def __init__(self, model: Any, ids_WT: torch.Tensor, generation_config: GenerationConfig, model_kwargs: dict):
        self.model, self.kwargs, self.is_short = model, model_kwargs, is_short(model_kwargs)
        beams = 1
        if self.is_short:  # all beams of a source have the same prefix
            self.cache: DecodingCache = model_kwargs["past_key_values"]
            beams = self.cache.self_attention_cache.beams
            self.positions_W1 = _next_positions(model_kwargs.get("decoder_attention_mask"))
            model_kwargs = {name: _first_beams(value, len(ids_WT), beams) for name, value in model_kwargs.items()}
        self.outputs = model._prefill(ids_WT[::beams], generation_config, model_kwargs)
        self.logits = self._last(self.outputs.logits[:, -1], ids_WT.device).repeat_interleave(beams, dim=0)

    @staticmethod
    def _last(logits: torch.Tensor, device: torch.device) -> torch.Tensor:
        return logits.to(device=device, dtype=torch.float32)

    def advance(self, ids_WT: torch.Tensor, rows_W: torch.Tensor | None = None) -> torch.Tensor:
        """Read the last token of `ids_WT`, whose row i goes on from what was row `rows_W[i]`; returns the logits."""
        if self.is_short:
            if rows_W is not None:
                self.cache.reorder_cache(rows_W)
            logits = self.cache.take_step(ids_WT[:, -1:], self.positions_W1)
            if self.positions_W1 is not None:
                self.positions_W1 = self.positions_W1 + 1
        else:
            self.kwargs = self.model._update_model_kwargs_for_generation(
                self.outputs, self.kwargs, is_encoder_decoder=True
            )
            cache = self_attention_cache(self.kwargs.get("past_key_values"))
            if cache is not None and rows_W is not None:
                cache.reorder_cache(rows_W)  # beams of one source share the source's keys and values
            inputs = self.model.prepare_inputs_for_generation(
                ids_WT, next_sequence_length=None if cache is None else 1, **self.kwargs
            )
            self.outputs = self.model(**inputs, return_dict=True)
            logits = self.outputs.logits[:, -1]
        self.logits = self._last(logits, ids_WT.device)
        return self.logits


def _next_positions(mask_WT: torch.Tensor | None) -> torch.Tensor | None:
    """Where the next token stands (W, 1), where rows differ."""
    return None if mask_WT is None else mask_WT.long().sum(dim=-1, keepdim=True)


def _first_beams(value: Any, rows: int, beams: int) -> Any:
    """What was expanded for the beams, for one beam of each source."""
    if isinstance(value, ModelOutput):
        return type(value)(**{name: _first_beams(part, rows, beams) for name, part in value.items()})
    if isinstance(value, torch.Tensor) and value.ndim > 0 and value.shape[0] == rows:
        return value[::beams]
    return value
