"""Compares a model in CTranslate2 with the model itself."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import torch
from transformers import GenerationConfig, PreTrainedTokenizerBase

from ..modeling import WeftForConditionalGeneration
from .ctranslate2 import check_expressible, vocabularies
from .extras import needed

# for log-probabilities in fp32; the measured differences are a thousandth of it
TOLERANCE = 1e-3
# number of non-pad tokens in the source of each sample, number of new tokens, and width of the search
_LENGTHS, _NEW_TOKENS, _BEAMS = (7, 4, 6), 12, 4


class Comparison(NamedTuple):
    """
    The result of a comparison.

    Args:
        largest_difference (`float`):
            The largest difference of the log-probability of a token.
        same_beams (`int`):
            The number of samples for which beam search finds the same sequence.
        samples (`int`):
            The number of samples.
    """

    largest_difference: float
    same_beams: int
    samples: int


@contextmanager
def _plain_generation(model: WeftForConditionalGeneration) -> Iterator[None]:
    """Remove the model's own settings of `generate` within this context, because CTranslate2 does not get them."""
    own = model.generation_config
    config = model.config
    names = ("bos_token_id", "eos_token_id", "pad_token_id", "decoder_start_token_id")
    model.generation_config = GenerationConfig(**{name: getattr(config, name) for name in names})
    try:
        yield
    finally:
        model.generation_config = own


@torch.no_grad()
def compare_ctranslate2(
    model: WeftForConditionalGeneration, folder: Path, tokenizer: PreTrainedTokenizerBase | None = None
) -> Comparison:
    """
    Compare scores of random targets, and beam search over random sources, in CTranslate2 and in Weft.

    Args:
        model ([`WeftForConditionalGeneration`]):
            The model.
        folder (`Path`):
            The folder that [`write_ctranslate2`] has written for this model.
        tokenizer (`PreTrainedTokenizerBase`, *optional*):
            The tokenizer that was given to [`write_ctranslate2`].

    Returns:
        [`Comparison`]

    Raises:
        ValueError: CTranslate2 is not installed.
    """
    needed("ctranslate2")
    import ctranslate2

    translator: Any = ctranslate2.Translator(str(folder), device="cpu", compute_type="float32", intra_threads=1)
    config = model.config
    generator = torch.Generator().manual_seed(1)
    reserved = {config.pad_token_id, config.bos_token_id, config.eos_token_id, config.decoder_start_token_id}

    def drawn(size: int, *shape: int) -> torch.Tensor:
        usable = torch.tensor([index for index in range(size) if index not in reserved])
        return usable[torch.randint(len(usable), shape, generator=generator)]

    lengths = torch.tensor(_LENGTHS)
    mask = (torch.arange(int(lengths.max())) < lengths[:, None]).long()
    sources = drawn(config.vocab_size, *mask.shape).where(mask.bool(), torch.tensor(config.pad_token_id or 0))
    targets = drawn(config.target_vocab_size, len(lengths), 6)
    start, end = check_expressible(config)
    starts, ends = (torch.full((len(lengths), 1), token) for token in (start, end))
    source_words, target_words = vocabularies(config, tokenizer)
    rows = [
        [source_words[index] for index in row[:length]] for row, length in zip(sources.tolist(), _LENGTHS, strict=True)
    ]

    scored = translator.score_batch(rows, [[target_words[index] for index in row] for row in targets.tolist()])
    logits = model(
        input_ids=sources, attention_mask=mask, decoder_input_ids=torch.cat([starts, targets], dim=1)
    ).logits
    expected = logits.log_softmax(dim=-1).gather(-1, torch.cat([targets, ends], dim=1)[..., None])[..., 0]
    difference = (expected - torch.tensor([result.log_probs for result in scored])).abs().max().item()

    # length_penalty=0 compares sums of log-probabilities, because the two have different length penalties
    with _plain_generation(model):
        sequences = model.generate(
            sources, attention_mask=mask, num_beams=_BEAMS, length_penalty=0.0, max_new_tokens=_NEW_TOKENS
        )
    results = translator.translate_batch(
        rows, beam_size=_BEAMS, length_penalty=0, max_decoding_length=_NEW_TOKENS, min_decoding_length=0
    )
    same = 0
    for row, result in zip(sequences[:, 1:].tolist(), results, strict=True):
        written = row[: row.index(end)] if end in row else row
        same += [target_words[index] for index in written] == result.hypotheses[0]
    return Comparison(difference, same, len(rows))
