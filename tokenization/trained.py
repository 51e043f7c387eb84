"""Subword vocabularies trained on the user's own texts: byte-level BPE, as a fast tokenizer."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast
from transformers.utils import logging

__all__ = ["iter_columns", "train_tokenizer"]

logger = logging.get_logger(__name__)

# The position is the id. No unknown token, since every byte is known, and no mask, since nothing here trains on one.
_PAD, _BOS, _EOS = _SPECIAL_TOKENS = ("<pad>", "<s>", "</s>")


def train_tokenizer(
    texts: Iterable[str],
    *,
    vocab_size: int = 8000,
    min_frequency: int = 2,
    lowercase: bool = False,
) -> PreTrainedTokenizerFast:
    """Train a byte-level BPE vocabulary (GPT-2's, Radford et al. 2019) on `texts`.

    Every byte is a token, so no text is ever unknown, and decoding gives the text back exactly (lower-cased if
    `lowercase`). Ids 0, 1, 2 are `<pad>`, `<s>` (bos), `</s>` (eos). `tokenizer(text)` appends `</s>` and puts nothing
    in front: `decoder_start_token_id` is the bos, and the model adds it when it shifts the labels. A `</s>` written in
    a text is text; pass `split_special_tokens=False` to have it recognised. The same texts give the same vocabulary.

    Args:
        texts: the texts, read once; an iterator will do. For several columns of a data set see [`iter_columns`].
        vocab_size: most tokens, the 256 bytes and 3 special tokens included. Few texts give fewer (a warning says so):
            take the model's `vocab_size` from `len(tokenizer)`.
        min_frequency: how often a pair of tokens has to occur to be merged into one.
        lowercase: whether all texts are lower-cased, in training and in use.

    Returns:
        The tokenizer. Saved with `save_pretrained`, it is loaded by `AutoTokenizer` without Weft.

    Raises:
        TypeError: `texts` is one string, or holds something that is not a string.
        ValueError: no text, or only empty ones; `vocab_size` too small.
    """
    if isinstance(texts, str):
        raise TypeError("texts is one string, which would be read character by character; pass a list of texts")
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    smallest = len(alphabet) + len(_SPECIAL_TOKENS)
    if vocab_size < smallest:
        raise ValueError(
            f"vocab_size={vocab_size} is too small: {len(alphabet)} bytes and {len(_SPECIAL_TOKENS)} special tokens "
            f"need at least {smallest}"
        )
    backend = Tokenizer(models.BPE())
    if lowercase:
        backend.normalizer = normalizers.Lowercase()
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        min_frequency=min_frequency,
        special_tokens=list(_SPECIAL_TOKENS),
        initial_alphabet=alphabet,
        show_progress=logging.is_progress_bar_enabled(),
    )
    backend.train_from_iterator(_checked(texts), trainer, length=len(texts) if isinstance(texts, Sequence) else None)
    if backend.get_vocab_size() < vocab_size:
        logger.warning(
            f"asked for {vocab_size} tokens, the texts gave {backend.get_vocab_size()}: "
            f"no further pair of tokens occurs {min_frequency} times (min_frequency)"
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
        # `<s>` is a tag in HTML: what users send as text must not turn into control tokens.
        "split_special_tokens": True,
    }
    return PreTrainedTokenizerFast(tokenizer_object=backend, **options)


def iter_columns(dataset: Iterable[Mapping[str, Any]], columns: str | Sequence[str]) -> Iterator[str]:
    """Yield the texts of some columns of a data set, row by row, for [`train_tokenizer`].

    Args:
        dataset: rows as mappings: a `datasets.Dataset`, streaming or not, or a list of dictionaries.
        columns: name or names of the columns to read, e.g. `("en", "de")` for one vocabulary shared by both languages.

    Yields:
        One text for each row and column.

    Raises:
        ValueError: a row lacks a column, or holds no string there; the message names both.
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
    """Pass `texts` on; a generator, so that an iterator over more than fits in memory is read once."""
    empty = True
    for number, text in enumerate(texts):
        if not isinstance(text, str):
            raise TypeError(f"text {number} is not a string: {text!r}")
        empty = empty and not text
        yield text
    if empty:
        raise ValueError("there is no text to train on: texts is empty, or holds only empty strings")
