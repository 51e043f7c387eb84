"""CTranslate2 instead of `generate`: the same texts in less time, if it supports the model and the search."""

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch.nn.utils.rnn import pad_sequence
from transformers import GenerationConfig
from transformers.utils import logging

from ..common.watching import Watch
from ..modeling import WeftForConditionalGeneration
from ..modeling.decoding import reason_against
from .ctranslate2 import check_expressible, write_ctranslate2
from .extras import needed

logger = logging.get_logger(__name__)

# The number of texts that both write before CTranslate2 writes alone. "auto" leaves as many to Weft first, because so
# few texts are not worth a start.
COMPARED = 16
# Arguments of `generate` that do not affect the search.
_OF_NO_EFFECT = {"synced_gpus", "streamer", "labels", "logits_processor"}


class Engine:
    """
    Generates as `model.generate` does, with CTranslate2 if it computes the same.

    CTranslate2 reads the weights once. It ends a beam search when as many texts are complete as there are beams, like
    transformers with `early_stopping=True`.

    Args:
        model ([`WeftForConditionalGeneration`]):
            The model. Its weights must not change any more.
        name (`str`):
            `"auto"` uses CTranslate2 for more than 16 texts if it is installed and computes exactly what Weft
            computes: for a dense model in fp32 on a CPU, greedy search or a beam search that ends early, and as long
            as the first 16 texts are the same. `"weft"` never uses it. `"ctranslate2"` always uses it, and
            `"ctranslate2-int8"` with weights rounded to 8 bits: beam search then ends early.

    Raises:
        ValueError: the engine is named explicitly, but CTranslate2 is not installed or does not support the model.
    """

    def __init__(self, model: Any, name: str):
        self.model = model
        self.is_chosen = name.startswith("ctranslate2")
        self.compute_type = "int8" if name.endswith("int8") else "float32"
        self.is_off = name == "weft" or (name == "auto" and find_spec("ctranslate2") is None)
        self._own, self._translator = model.generate, None
        self._seen, self._same, self._to_compare = 0, 0, COMPARED
        if self.is_chosen:
            needed("ctranslate2", extra="engine")
            check_expressible(model.config)

    def is_for(self, **settings: Any) -> bool:
        """Return whether, as far as is known, CTranslate2 writes the texts for these settings of `generate`."""
        return self.is_chosen or self.reason_against(**settings) is None

    def reason_against(self, **settings: Any) -> str | None:
        """Return, in a few words, why Weft must generate with these settings, or None if CTranslate2 can."""
        if self.is_off:
            return "Weft was requested, or CTranslate2 is not installed"
        is_weft = isinstance(self.model, WeftForConditionalGeneration)
        if not is_weft or self.model.dtype != torch.float32 or self.model.device.type != "cpu":
            return "the weights are not those of a Weft model in fp32 on a CPU"
        try:
            check_expressible(self.model.config)
        except ValueError as error:
            return str(error).removesuffix(".")
        search = {name: value for name, value in settings.items() if name not in _OF_NO_EFFECT}
        prepared, others = self.model._prepare_generation_config(None, **search)
        if set(others) - {"input_ids", "attention_mask"} or prepared.return_dict_in_generate:
            return "the request has inputs other than tokens, or returns more than texts"
        if any(not isinstance(processor, Watch) for processor in settings.get("logits_processor") or ()):
            return "logits processors are set"
        config = self.model.config
        ends, start = prepared.eos_token_id, prepared.decoder_start_token_id
        if ends not in (config.eos_token_id, [config.eos_token_id]) or start != config.decoder_start_token_id:
            return "the start or end token is not that of the configuration"
        if prepared.do_sample or settings.get("streamer") is not None:
            return "texts are sampled or streamed"
        if prepared.num_beams > 1 and not (prepared.early_stopping is True and prepared.length_penalty > 0):
            return "CTranslate2 supports only beam search with `early_stopping=True`"
        return reason_against(self.model, **search)

    def generate(self, input_ids: torch.Tensor, attention_mask: torch.Tensor | None = None, **settings: Any) -> Any:
        """
        Generate ids as `model.generate` does.

        Args:
            input_ids (`torch.LongTensor` of shape `(batch, source)`):
                Ids of the source, padded on the right.
            attention_mask (`torch.LongTensor` of shape `(batch, source)`, *optional*):
                1 for tokens and 0 for pads.
            settings (*optional*):
                Further arguments of `generate`.

        Returns:
            `torch.LongTensor` of shape `(batch * num_return_sequences, length)`, or whatever `model.generate` returns.

        Raises:
            ValueError: the engine is named explicitly, but does not support this search.
        """
        inputs = {"input_ids": input_ids} | ({} if attention_mask is None else {"attention_mask": attention_mask})
        self._seen += len(input_ids)
        if self.is_off or (not self.is_chosen and self._seen <= COMPARED):
            return self._own(**inputs, **settings)
        if self.is_chosen and (settings.get("num_beams") or self.model.generation_config.num_beams or 1) > 1:
            settings |= {"early_stopping": True}
        against = self.reason_against(**settings)
        if against is not None:
            if self.is_chosen:
                raise ValueError(f"--engine ctranslate2 does not support this request: {against}. Leave it out.")
            logger.warning_once(f"Generating with Weft, not CTranslate2: {against}.")
            return self._own(**inputs, **settings)
        if self._translator is None:
            self._translator = load_translator(self.model, compute_type=self.compute_type)
        ids = self._translated(input_ids, attention_mask, settings)
        return self._compared(ids, inputs, settings) if self._to_compare else ids

    def _compared(self, ids: torch.Tensor, inputs: dict[str, torch.Tensor], settings: dict[str, Any]) -> Any:
        """Compare the first texts with Weft's. Return all texts, or Weft's if a difference turns the engine off."""
        count = min(self._to_compare, len(inputs["input_ids"]))
        expected = self._own(**{name: value[:count] for name, value in inputs.items()}, **settings)
        rows = self._without_pads(expected)
        each = len(rows) // count  # texts per source
        same = [rows[i : i + each] == self._without_pads(ids[i : i + each]) for i in range(0, len(rows), each)]
        self._to_compare -= count
        self._same += sum(same)
        compared = COMPARED - self._to_compare
        if not self.is_chosen and self._same < compared:
            self.is_off = True
            logger.warning_once(
                f"Generating with Weft: {compared - self._same} of the first {compared} texts of CTranslate2 differ."
            )
            return self._own(**inputs, **settings)
        if not self._to_compare or compared == count:
            logger.warning_once(
                f"Generating with CTranslate2: {self._same} of the first {compared} texts are the same as Weft's."
            )
        return ids

    def _without_pads(self, ids: torch.Tensor) -> list[list[int]]:
        """Return each row without its start token, up to its first end token."""
        end = self.model.config.eos_token_id
        return [row[: row.index(end) + 1] if end in row else row for row in ids[:, 1:].tolist()]

    def _translated(
        self, input_ids: torch.Tensor, attention_mask: torch.Tensor | None, settings: dict[str, Any]
    ) -> torch.Tensor:
        for processor in settings.get("logits_processor") or ():
            processor.check()
        search = {name: value for name, value in settings.items() if name not in _OF_NO_EFFECT}
        prepared: GenerationConfig = self.model._prepare_generation_config(None, **search)[0]
        config = self.model.config
        mask = input_ids != config.pad_token_id if attention_mask is None else attention_mask.bool()
        results = self._translator.translate_batch(  # type: ignore[attr-defined]
            [[str(token) for token in row[own].tolist()] for row, own in zip(input_ids, mask, strict=True)],
            beam_size=prepared.num_beams,
            num_hypotheses=prepared.num_return_sequences,
            length_penalty=prepared.length_penalty,
            max_decoding_length=prepared.max_new_tokens or prepared.max_length - 1,
            min_decoding_length=0,
            max_input_length=0,
            return_end_token=True,  # so that the length penalty counts it, as in transformers
        )
        start = [config.decoder_start_token_id]
        rows = [torch.tensor([*start, *map(int, words)]) for result in results for words in result.hypotheses]
        return pad_sequence(rows, batch_first=True, padding_value=config.pad_token_id or 0)


@contextmanager
def engine_of(model: Any, name: str) -> Iterator[None]:
    """Replace `model.generate` by that of an [`Engine`] within this context. The weights must not change."""
    model.generate = Engine(model, name).generate
    try:
        yield
    finally:
        del model.generate


def load_translator(model: WeftForConditionalGeneration, tokenizer: Any = None, compute_type: str = "default") -> Any:
    """Load a model into CTranslate2. Without a tokenizer, the numbers of tokens are their names."""
    import ctranslate2

    with TemporaryDirectory() as folder:
        write_ctranslate2(model, Path(folder), tokenizer)
        return ctranslate2.Translator(folder, compute_type=compute_type, intra_threads=torch.get_num_threads())
