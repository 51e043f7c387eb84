"""Tokens that stand in a text for what was taken out of it: T5's sentinels, BART's mask, and UL2's modes."""

from typing import Literal

from transformers import PreTrainedTokenizerBase

__all__ = ["MODES", "Objective", "add_denoising_tokens", "sentinel_ids"]

Objective = Literal["span", "infilling", "ul2"]

# As in T5 (Raffel et al. 2020) and in the tokenizers of its checkpoints.
_SENTINEL = "<extra_id_{}>"
_NUM_SENTINELS = 100
_MASK = "<mask>"
# Denoiser of UL2 (Tay et al. 2022): the token that its checkpoint begins such a source with.
MODES = {"R": "[NLU]", "S": "[S2S]", "X": "[NLG]"}


def add_denoising_tokens(tokenizer: PreTrainedTokenizerBase, objective: Objective) -> int:
    """Give a tokenizer the tokens that an objective of pretraining needs, where it lacks them; ids it has stay as they are.

    Args:
        tokenizer: changed in place. Tokens are added at the end of its vocabulary.
        objective: "span" needs the sentinels `<extra_id_0>` to `<extra_id_99>` (a tokenizer that has some keeps its number),
            "ul2" the modes `[NLU]`, `[S2S]` and `[NLG]` too, "infilling" a mask token.

    Returns:
        How many tokens were added. A model over the old vocabulary needs `resize_token_embeddings(len(tokenizer))`.

    Raises:
        ValueError: there is no such objective.
    """
    if objective not in ("span", "infilling", "ul2"):
        raise ValueError(f"objective={objective!r} is not allowed: choose one of 'span', 'infilling', 'ul2'.")
    if objective == "infilling":
        return 0 if tokenizer.mask_token_id is not None else tokenizer.add_special_tokens({"mask_token": _MASK})
    wanted = [] if sentinel_ids(tokenizer) else [_SENTINEL.format(index) for index in range(_NUM_SENTINELS)]
    wanted += MODES.values() if objective == "ul2" else ()
    known = tokenizer.get_vocab()
    return tokenizer.add_tokens([token for token in wanted if token not in known], special_tokens=True)


def sentinel_ids(tokenizer: PreTrainedTokenizerBase) -> list[int]:
    """Ids of `<extra_id_0>`, `<extra_id_1>`, ..., as many as the tokenizer has without a gap."""
    known = tokenizer.get_vocab()
    ids: list[int] = []
    while (token := _SENTINEL.format(len(ids))) in known:
        ids.append(known[token])
    return ids
