"""What a search calls to run the decoder: over a prefix, and then over one more token of each row at a time.

Shape suffixes: W rows (the beams of all sources), V tokens of the vocabulary, T tokens so far.
"""

from typing import Any

import torch
from transformers import GenerationConfig
from transformers.cache_utils import EncoderDecoderCache
from transformers.modeling_outputs import ModelOutput

from .attention import self_attention_cache
from .decoding_cache import DecodingCache, FastPathRequest
from .decoding_leaving import only_sequences, rows_of


def is_fast(model_kwargs: dict[str, Any]) -> bool:
    """Return whether `generate` has prepared this request for the fast path."""
    return isinstance(model_kwargs.get("past_key_values"), FastPathRequest)


class Stepper:
    """Runs the decoder over a prefix, and then over one more token of each row at a time.

    `logits` (W, V) in float32 score the next token.

    Args:
        model: the model.
        ids_WT: ids of the prefix.
        generation_config: the settings of the request.
        model_kwargs: the keywords that `generate` passes to a search.
    """

    def __init__(self, model: Any, ids_WT: torch.Tensor, generation_config: GenerationConfig, model_kwargs: dict):
        self.model, self.kwargs, self.is_fast = model, model_kwargs, is_fast(model_kwargs)
        beams = 1
        if self.is_fast:  # all beams of a source have the same prefix
            request: FastPathRequest = model_kwargs["past_key_values"]
            beams = request.beams
            self.positions_W1 = _next_positions(model_kwargs.get("decoder_attention_mask"))
            model_kwargs = {name: first_beams(value, len(ids_WT), beams) for name, value in model_kwargs.items()}
        self.outputs = model._prefill(ids_WT[::beams], generation_config, model_kwargs)
        if self.is_fast:
            is_returned = generation_config.return_dict_in_generate and not only_sequences(generation_config)
            self.decoding_cache = DecodingCache(request, is_returned=is_returned)
            self.step = model.fast_path.decode_step(model)
        self.logits = self._last(self.outputs.logits[:, -1], ids_WT.device).repeat_interleave(beams, dim=0)

    @property
    def can_keep_sources(self) -> bool:
        """Whether [`keep_sources`] may be called. A compiled step has one package for each number of rows."""
        return self.is_fast and self.step.compiled is None

    def keep_sources(self, sources: list[int]) -> None:
        """Go on with some sources, before the next [`advance`]: source i is what was source `sources[i]`."""
        self.decoding_cache.keep(sources)
        if self.positions_W1 is not None:
            rows = rows_of(sources, self.decoding_cache.target.beams)
            self.positions_W1 = self.positions_W1[torch.tensor(rows, device=self.positions_W1.device)]

    def final_cache(self, rows_W: torch.Tensor | None = None) -> EncoderDecoderCache | None:
        """Return the cache as transformers' own searches do, or None if it is not asked for.

        Its row i was row `rows_W[i]` before.
        """
        if not self.is_fast:
            self._reorder(rows_W)
            return self.kwargs.get("past_key_values")
        if not self.decoding_cache.is_returned:
            return None
        self._reorder(rows_W)
        return self.decoding_cache.as_dynamic()

    def _reorder(self, rows_W: torch.Tensor | None) -> None:
        # the cross-attention cache needs no reordering: all beams of a source have the same source
        cache = self.decoding_cache if self.is_fast else self_attention_cache(self.kwargs.get("past_key_values"))
        if cache is not None and rows_W is not None:
            cache.reorder_cache(rows_W)

    @staticmethod
    def _last(logits: torch.Tensor, device: torch.device) -> torch.Tensor:
        return logits.to(device=device, dtype=torch.float32)

    def advance(self, ids_WT: torch.Tensor, rows_W: torch.Tensor | None = None) -> torch.Tensor:
        """Run the decoder over the last token of `ids_WT` and return the logits.

        Row i continues what was row `rows_W[i]`.
        """
        if self.is_fast:
            self._reorder(rows_W)
            logits = self.step.step(ids_WT[:, -1:], self.decoding_cache, self.positions_W1)
            if self.positions_W1 is not None:
                self.positions_W1 = self.positions_W1 + 1
        else:
            self.kwargs = self.model._update_model_kwargs_for_generation(
                self.outputs, self.kwargs, is_encoder_decoder=True
            )
            self._reorder(rows_W)
            has_cache = self.kwargs.get("past_key_values") is not None
            inputs = self.model.prepare_inputs_for_generation(
                ids_WT, next_sequence_length=1 if has_cache else None, **self.kwargs
            )
            self.outputs = self.model(**inputs, return_dict=True)
            logits = self.outputs.logits[:, -1]
        self.logits = self._last(logits, ids_WT.device)
        return self.logits


def _next_positions(mask_WT: torch.Tensor | None) -> torch.Tensor | None:
    """Return the position of the next token (W, 1), or None if all rows have the same."""
    return None if mask_WT is None else mask_WT.long().sum(dim=-1, keepdim=True)


def first_beams(value: Any, rows: int, beams: int) -> Any:
    """Return the first beam of each source, of a value that was expanded for the beams."""
    if isinstance(value, ModelOutput):
        return type(value)(**{name: first_beams(part, rows, beams) for name, part in value.items()})
    if isinstance(value, torch.Tensor) and value.ndim > 0 and value.shape[0] == rows:
        return value[::beams]
    return value
