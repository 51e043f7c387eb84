"""Checks that a tokenizer can encode a text without loss."""

import re
from collections.abc import Iterator
from typing import Any

from tokenizers import models
from transformers import PreTrainedTokenizerFast

from ..common.panics import panics_as_errors

# The largest number of allowed characters that a message lists.
_LISTED_CHARACTERS = 120
# A text with more characters for each allowed token than this is probably too long.
_CHARACTERS = 32


def encode_checked(
    tokenizer: PreTrainedTokenizerFast,
    text: str,
    *,
    add_special_tokens: bool = True,
    max_length: int | None = None,
) -> list[int]:
    """Return the token ids of a text, without truncation or padding, if the tokenizer can encode all of it.

    A character is unknown if the tokenizer raises an error for it (a word-level vocabulary without an unknown token),
    encodes it as the unknown token, or leaves it out (BPE without an unknown token). Special tokens in the text are
    known if the tokenizer recognises them.

    Args:
        tokenizer: any tokenizer. Only the error of a fast one names the unknown character.
        text: one text.
        add_special_tokens: whether to add the special tokens of the tokenizer's template, which count for
            `max_length`.
        max_length: the largest number of tokens. Defaults to no limit.

    Raises:
        TypeError: `text` is not a string.
        ValueError: the text has an unknown character (the message names the first one, its index in the text and the
            allowed characters), or is too long (the message names both lengths).
    """
    if not isinstance(text, str):
        raise TypeError(f"expected one text as a string, got {type(text).__name__}: {text!r}")
    beginning = text[: _CHARACTERS * (max_length or 0)]
    if max_length is not None and len(beginning) < len(text):  # encoding megabytes of text takes gigabytes
        num_tokens = len(encode_checked(tokenizer, beginning, add_special_tokens=False))
        if num_tokens > 2 * max_length:  # the last word of the beginning may be cut into more tokens than it has
            raise ValueError(
                f"text has {len(text)} characters, of which the first {len(beginning)} are {num_tokens} tokens; at "
                f"most {max_length} are allowed: {shown(text)}"
            )
    with panics_as_errors(f"the tokenizer fails on {shown(text)}"):
        try:
            encoding = tokenizer(
                text,
                add_special_tokens=add_special_tokens,
                return_offsets_mapping=True,
                truncation=False,
                verbose=False,
            )
        except Exception as error:  # the Rust layer raises plain `Exception`
            index = next(_refused(tokenizer, text), None) if tokenizer.is_fast else None
            if index is None:
                raise
            raise ValueError(_unknown_message(tokenizer, text, index)) from error
    ids: list[int] = encoding["input_ids"]
    if not tokenizer.is_fast:  # it has no offsets, which would locate the character
        unknown = tokenizer.unk_token
        if None in ids or (unknown and ids.count(tokenizer.unk_token_id) > text.count(unknown)):
            raise ValueError(f"unknown characters in {shown(text)}")
    elif (index := min(_lost(tokenizer, text, ids, encoding["offset_mapping"]), default=None)) is not None:
        raise ValueError(_unknown_message(tokenizer, text, index))
    if max_length is not None and len(ids) > max_length:
        with_template = " with the special tokens around it" if add_special_tokens else ""
        raise ValueError(f"text has {len(ids)} tokens{with_template}, at most {max_length} are allowed: {shown(text)}")
    return ids


def decode_texts(tokenizer: Any, ids: Any) -> list[str]:
    """Return the texts of rows of token ids, without special tokens.

    Raises:
        ValueError: the tokenizer fails.
    """
    with panics_as_errors("the tokenizer fails on generated tokens"):
        return tokenizer.batch_decode(ids, skip_special_tokens=True)


def _refused(tokenizer: PreTrainedTokenizerFast, text: str) -> Iterator[int]:
    """Yield the indices of characters in `text` for which the backend's model raises an error."""
    backend = tokenizer.backend_tokenizer
    # the backend splits the text at added tokens first, and pre-tokenizes the parts between them
    tokens = sorted(map(re.escape, tokenizer.added_tokens_encoder), key=len, reverse=True)
    chunks = re.split(f"({'|'.join(tokens)})", text) if tokens and not tokenizer.split_special_tokens else [text]
    start = 0
    for number, chunk in enumerate(chunks):
        if number % 2 == 0 and chunk:
            splitter = backend.pre_tokenizer
            pieces = [(chunk, (0, len(chunk)))] if splitter is None else splitter.pre_tokenize_str(chunk)
            for piece, (offset, _) in pieces:
                try:
                    backend.model.tokenize(piece)
                except Exception:
                    yield start + offset + _first_missing(tokenizer, piece)
        start += len(chunk)


def _lost(
    tokenizer: PreTrainedTokenizerFast, text: str, ids: list[int], offsets: list[tuple[int, int]]
) -> Iterator[int]:
    """Yield the indices of characters in `text` that became the unknown token, or no token at all."""
    unknown = tokenizer.unk_token_id
    if unknown is not None:
        for token, (start, end) in zip(ids, offsets, strict=True):
            if token == unknown and text[start:end] != tokenizer.unk_token:
                yield start + _first_missing(tokenizer, text[start:end])
    elif isinstance(tokenizer.backend_tokenizer.model, models.BPE):
        columns = {index for start, end in offsets for index in range(start, end)}
        # pre-tokenizers may drop white space as a separator, which is not a loss
        yield from (index for index, char in enumerate(text) if index not in columns and not char.isspace())


def _first_missing(tokenizer: PreTrainedTokenizerFast, piece: str) -> int:
    """Return the index of the first character of `piece` that is not a token, or 0 if all are."""
    token_to_id = tokenizer.backend_tokenizer.token_to_id
    return next((index for index, char in enumerate(piece) if token_to_id(char) is None), 0)


def _unknown_message(tokenizer: PreTrainedTokenizerFast, text: str, index: int) -> str:
    characters = sorted(token for token in tokenizer.get_vocab() if len(token) == 1)
    examples = "".join(characters[:_LISTED_CHARACTERS])
    more = f" and {len(characters) - _LISTED_CHARACTERS} more" if len(characters) > _LISTED_CHARACTERS else ""
    return (
        f"unknown character {text[index]!r} at index {index} of {shown(text)}; "
        f'allowed characters are those between the quotes: "{examples}"{more}'
    )


def shown(text: str) -> str:
    """Return a text in quotes for messages. A long text is cut to its beginning."""
    return repr(text) if len(text) <= 80 else repr(text[:77]) + "..."
