"""Special tokens for pretraining: T5's sentinels and BART's mask, which replace removed text, and UL2's modes."""

from typing import Literal

from transformers import PreTrainedTokenizerBase

__all__ = ["MODES", "Objective", "add_denoising_tokens", "sentinel_ids"]

Objective = Literal["span", "infilling", "ul2"]

# As in T5 (Raffel et al. 2020) and in the tokenizers of its checkpoints.
_SENTINEL = "<extra_id_{}>"
_NUM_SENTINELS = 100
_MASK = "<mask>"
# Denoisers of UL2 (Tay et al. 2022), each with the token that a source begins with in UL2's checkpoint.
MODES = {"R": "[NLU]", "S": "[S2S]", "X": "[NLG]"}


def add_denoising_tokens(tokenizer: PreTrainedTokenizerBase, objective: Objective) -> int:
    """
    Add the tokens that an objective of pretraining needs to a tokenizer, if it does not have them. Other ids do not
    change.

    Args:
        tokenizer (`PreTrainedTokenizerBase`):
            The tokenizer, which is changed. New tokens are added at the end of its vocabulary.
        objective (`str`):
            `"span"` needs the sentinels `<extra_id_0>` to `<extra_id_99>` (if the tokenizer has some, none are added),
            `"ul2"` also needs the modes `[NLU]`, `[S2S]` and `[NLG]`, and `"infilling"` needs a mask token.

    Returns:
        `int`: the number of new tokens. A model with the old vocabulary needs
        `resize_token_embeddings(len(tokenizer))`.

    Raises:
        ValueError: the objective does not exist.
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
    """
    Return the ids of the sentinels `<extra_id_0>`, `<extra_id_1>` and so on, up to the first that the tokenizer lacks.

    Args:
        tokenizer (`PreTrainedTokenizerBase`):
            The tokenizer.

    Returns:
        `list[int]`
    """
    known = tokenizer.get_vocab()
    ids: list[int] = []
    while (token := _SENTINEL.format(len(ids))) in known:
        ids.append(known[token])
    return ids
