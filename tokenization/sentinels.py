"""The sentinels of T5, special tokens that replace removed text in pretraining."""

from transformers import PreTrainedTokenizerBase

__all__ = ["add_sentinels", "sentinel_ids"]

# As in T5 (Raffel et al. 2020) and in the tokenizers of its checkpoints.
_SENTINEL = "<extra_id_{}>"
_NUM_SENTINELS = 100


def add_sentinels(tokenizer: PreTrainedTokenizerBase) -> int:
    """
    Add the sentinels `<extra_id_0>` to `<extra_id_99>` to a tokenizer that has none. Other ids do not change.

    Args:
        tokenizer (`PreTrainedTokenizerBase`):
            The tokenizer, which is changed. New tokens are added at the end of its vocabulary.

    Returns:
        `int`: the number of new tokens. A model with the old vocabulary needs
        `resize_token_embeddings(len(tokenizer))`.
    """
    if sentinel_ids(tokenizer):
        return 0
    return tokenizer.add_tokens([_SENTINEL.format(index) for index in range(_NUM_SENTINELS)], special_tokens=True)


def sentinel_ids(tokenizer: PreTrainedTokenizerBase) -> list[int]:
    """
    Return the ids of the sentinels `<extra_id_0>`, `<extra_id_1>` and so on, up to the first missing one.

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
