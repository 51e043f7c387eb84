"""Compares a model in CTranslate2 with the model itself."""

from pathlib import Path
from typing import Any

import torch
from transformers import PreTrainedTokenizerBase

from ..modeling import WeftForConditionalGeneration
from .ctranslate2 import check_expressible, vocabularies
from .extras import needed

# for log-probabilities in fp32; the measured differences are a thousandth of it
TOLERANCE = 1e-3
# number of non-pad tokens in the source of each sample
_LENGTHS = (7, 4, 6)


@torch.no_grad()
def compare_ctranslate2(
    model: WeftForConditionalGeneration, folder: Path, tokenizer: PreTrainedTokenizerBase | None = None
) -> float:
    """
    Compare the scores of random targets of random sources in CTranslate2 and in Weft.

    Args:
        model ([`WeftForConditionalGeneration`]):
            The model.
        folder (`Path`):
            The folder that [`write_ctranslate2`] has written for this model.
        tokenizer (`PreTrainedTokenizerBase`, *optional*):
            The tokenizer that was given to [`write_ctranslate2`].

    Returns:
        `float`: the largest difference of the log-probability of a token, the end token included.

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
    starts, ends = (torch.full((len(lengths), 1), token) for token in check_expressible(config))
    source_words, target_words = vocabularies(config, tokenizer)
    scored = translator.score_batch(
        [[source_words[index] for index in row[:length]] for row, length in zip(sources.tolist(), _LENGTHS, strict=True)],
        [[target_words[index] for index in row] for row in targets.tolist()],
    )  # fmt: skip
    logits = model(
        input_ids=sources, attention_mask=mask, decoder_input_ids=torch.cat([starts, targets], dim=1)
    ).logits
    expected = logits.log_softmax(dim=-1).gather(-1, torch.cat([targets, ends], dim=1)[..., None])[..., 0]
    return (expected - torch.tensor([result.log_probs for result in scored])).abs().max().item()
