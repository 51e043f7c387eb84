"""Trains subword vocabularies (byte-level BPE) on the user's own texts."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast
from transformers.utils import logging

logger = logging.get_logger(__name__)

# Defaults for texts whose best number of tokens is unknown: the most tokens, and the fewest occurrences of a pair that
# becomes a token. A rule of thumb, from what Gowda and May (2020, https://aclanthology.org/2020.findings-emnlp.352)
# found best over languages and sizes of data: that 95% of the tokens occur at least 100 times.
_MOST_TOKENS, _EXAMPLES = 8000, 100

# The index of a token is its id. There is no unknown token, because every byte is known, and no mask token, because
# nothing here trains with one.
_PAD, _BOS, _EOS = _SPECIAL_TOKENS = ("<pad>", "<s>", "</s>")


def train_tokenizer(
    texts: Iterable[str],
    *,
    vocab_size: int | None = None,
    min_frequency: int | None = None,
) -> PreTrainedTokenizerFast:
    """Train a byte-level BPE vocabulary (as GPT-2's, Radford et al. 2019).

    Every byte is a token, so no text is unknown, and decoding returns the exact text.
    The ids 0, 1 and 2 are `<pad>`, `<s>` (bos) and `</s>` (eos). `tokenizer(text)` adds `</s>` at the end and nothing
    at the start: the model adds the bos (`decoder_start_token_id`) when it shifts the labels. A `</s>` in a text is
    encoded as text. Pass `split_special_tokens=False` to have it recognised. The same texts give the same vocabulary.

    Words that you add later with `add_tokens` do not decode to themselves if they have accented letters such as ü
    (https://github.com/huggingface/tokenizers/issues/1392). Train the vocabulary on texts with these words instead.

    Args:
        texts: the texts, which are read once. For columns of a data set see [`iter_columns`].
        vocab_size: the largest number of tokens, with the 256 bytes and 3 special tokens. Few texts give fewer tokens,
            with a warning, so set the model's `vocab_size` to `len(tokenizer)`. By default the texts decide: pairs are
            merged while one occurs 100 times, up to 8000 tokens (a rule of thumb after
            https://aclanthology.org/2020.findings-emnlp.352).
        min_frequency: how often a pair of tokens must occur to be merged. By default 2 with a `vocab_size`, 100
            without.

    Returns:
        The tokenizer. If it is saved with `save_pretrained`, `AutoTokenizer` loads it without Weft.

    Raises:
        TypeError: `texts` is one string, or an item is not a string.
        ValueError: there is no text, or only empty ones, or `vocab_size` is too small.
    """
    if isinstance(texts, str):
        raise TypeError("texts is one string, which would be read character by character; pass a list of texts")
    max_tokens = _MOST_TOKENS if vocab_size is None else vocab_size
    least = (_EXAMPLES if vocab_size is None else 2) if min_frequency is None else min_frequency
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    smallest = len(alphabet) + len(_SPECIAL_TOKENS)
    if max_tokens < smallest:
        raise ValueError(
            f"vocab_size={vocab_size} is too small: {len(alphabet)} bytes and {len(_SPECIAL_TOKENS)} special tokens "
            f"need at least {smallest}"
        )
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=max_tokens,
        min_frequency=least,
        special_tokens=list(_SPECIAL_TOKENS),
        initial_alphabet=alphabet,
        show_progress=logging.is_progress_bar_enabled(),
    )
    backend.train_from_iterator(_checked(texts), trainer, length=len(texts) if isinstance(texts, Sequence) else None)
    if vocab_size is not None and backend.get_vocab_size() < vocab_size:
        logger.warning(
            f"requested {vocab_size} tokens, the texts gave {backend.get_vocab_size()}: "
            f"no further pair of tokens occurs {least} times (min_frequency)"
        )
    backend.post_processor = processors.TemplateProcessing(
        single=f"$A {_EOS}",
        pair=f"$A {_EOS} $B:1 {_EOS}:1",
        special_tokens=[(_EOS, _SPECIAL_TOKENS.index(_EOS))],
    )
    options: dict[str, Any] = {
        "pad_token": _PAD,
        "bos_token": _BOS,
        "eos_token": _EOS,
        "model_input_names": ["input_ids", "attention_mask"],
        "padding_side": "right",
        "clean_up_tokenization_spaces": False,
        # `<s>` is a tag in HTML, and a user's text must not become special tokens
        "split_special_tokens": True,
    }
    return PreTrainedTokenizerFast(tokenizer_object=backend, **options)


def iter_columns(dataset: Iterable[Mapping[str, Any]], columns: str | Sequence[str]) -> Iterator[str]:
    """Yield the texts of some columns of a data set, row by row, for [`train_tokenizer`].

    Args:
        dataset: the rows: a `datasets.Dataset`, streaming or not, or a list of dictionaries.
        columns: the columns, e.g. `("en", "de")` for one vocabulary of both languages.

    Yields:
        A text for each row and column.

    Raises:
        ValueError: a row lacks a column, or the value is not a string. The message names the row and the column.
    """
    names = (columns,) if isinstance(columns, str) else tuple(columns)
    for number, row in enumerate(dataset):
        for name in names:
            if name not in row:
                raise ValueError(f"row {number} has no column {name!r}, its columns are {sorted(row)}")
            if not isinstance(row[name], str):
                raise ValueError(f"row {number} has no text in column {name!r}: {row[name]!r}")
            yield row[name]


def _checked(texts: Iterable[str]) -> Iterator[str]:
    """Yield the texts after checking each. A generator, because all texts may not fit into memory."""
    empty = True
    for number, text in enumerate(texts):
        if not isinstance(text, str):
            raise TypeError(f"text {number} is not a string: {text!r}")
        empty = empty and not text
        yield text
    if empty:
        raise ValueError("there is no text to train on: texts is empty, or has only empty strings")
