"""Vocabularies in a source's own configuration: their special ids, and a tokenizer."""

from collections.abc import Mapping
from typing import Any

from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

Vocabulary = Mapping[str, int]


def read_vocabularies(source_config: Mapping[str, Any]) -> tuple[Vocabulary, Vocabulary] | None:
    """Return the vocabularies of source and target, or None if the configuration has none.

    They are `source_vocabulary` and `target_vocabulary`, or `vocabulary` if both are the same.

    Raises:
        ValueError: only one of them is given, or one is not a mapping.
    """
    names = [name for name in ("source_vocabulary", "target_vocabulary") if name in source_config]
    if "vocabulary" in source_config:
        names = ["vocabulary", "vocabulary"]
    if not names:
        return None
    if len(names) == 1:
        raise ValueError(f"The configuration has only {names[0]}: give source_vocabulary and target_vocabulary.")
    source, target = (source_config[name] for name in names)
    for name, vocabulary in zip(names, (source, target), strict=True):
        if not isinstance(vocabulary, Mapping):
            raise ValueError(f"{name} is a {type(vocabulary).__name__}: give a mapping of tokens to their ids.")
    return source, target


def special_tokens(vocabularies: tuple[Vocabulary, Vocabulary], start: str, pad: str, end: str) -> dict[str, Any]:
    """Return the special ids of two vocabularies, as fields of `WeftConfig`.

    The pad is that of the source, because the encoder's mask is inferred from it.

    Args:
        vocabularies: token -> id of the source, with the pad, and of the target, with all three.
        start, pad, end: the special tokens.

    Raises:
        ValueError: a token is missing.
    """
    source, target = vocabularies
    for name, vocabulary, tokens in (("source", source, [pad]), ("target", target, [start, pad, end])):
        for token in tokens:
            if token not in vocabulary:
                raise ValueError(f"The {name} vocabulary has no {token}.")
    return {
        "pad_token_id": source[pad],
        "bos_token_id": target[start],
        "decoder_start_token_id": target[start],
        "eos_token_id": target[end],
    }


def target_pad(source_config: Mapping[str, Any], pad: str) -> dict[str, int]:
    """Return the target's pad token for `generate`, which pads finished rows with it."""
    vocabularies = read_vocabularies(source_config)
    return {"pad_token_id": vocabularies[1][pad]} if vocabularies else {}


def build_tokenizer(
    vocabulary: Vocabulary, start: str, pad: str, end: str, unknown: str | None, pattern: str | None, lower: bool
) -> PreTrainedTokenizerFast:
    """Build a tokenizer of whole tokens: `tokenizer(text)` gives `start`, the tokens of the text, and `end`.

    Args:
        vocabulary: token -> id.
        start, pad, end, unknown: the special tokens. Without an unknown token, unknown texts are refused.
        pattern: regular expression of a token. Texts are decoded without spaces between tokens. If it is None, tokens
            are words between spaces.
        lower: whether texts are converted to lower case.

    Raises:
        ValueError: the pattern is not a regular expression.
    """
    backend = Tokenizer(models.WordLevel(dict(vocabulary), unk_token=unknown))
    if lower:
        backend.normalizer = normalizers.Lowercase()
    if pattern is None:
        backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    else:
        try:
            # "isolated" keeps characters that the pattern does not match, which become the unknown token
            backend.pre_tokenizer = pre_tokenizers.Split(Regex(pattern), behavior="isolated")
        except Exception as error:  # the Rust layer raises plain `Exception`
            raise ValueError(f"pattern={pattern!r} is not a regular expression: {error}.") from error
        backend.decoder = decoders.Fuse()
    backend.post_processor = processors.TemplateProcessing(
        single=f"{start} $A {end}", special_tokens=[(token, vocabulary[token]) for token in (start, end)]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        bos_token=start,
        pad_token=pad,
        eos_token=end,
        unk_token=unknown,
        model_input_names=["input_ids", "attention_mask"],
        padding_side="right",
        # true would remove spaces before punctuation
        clean_up_tokenization_spaces=False,
    )
