r"""The 53 tokens of DirectMultiStep (DMS) as a fast tokenizer, and the layout of its source.

DMS reads molecules as SMILES, one character a token, and writes a synthesis route as the Python dictionary
`{'smiles':'CCO','children':[{'smiles':'C=C'},{'smiles':'O'}]}` without spaces, one character a token except for its two
keys. One splitting rule serves both. Vocabulary and layout are those of the PyPI package `directmultistep` 1.1.3
(https://github.com/batistagroup/DirectMultiStep), so ids fit its published checkpoints.

The saved tokenizer is plain `tokenizer.json`: `AutoTokenizer` loads it without Weft. That leaves no room for a readable
error in `tokenizer("C%O")`, but nothing is lost silently either: the vocabulary has no unknown token, so the Rust layer
raises `Exception("WordLevel error: Missing [UNK] token from the vocabulary")`. The functions here say which character
it was. Do not give this tokenizer an `unk_token`: `%` would then become it without a word.
"""

import re
from typing import Any

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

from .checks import encode_checked

__all__ = [
    "PRODUCT_LENGTH",
    "SOURCE_LENGTH",
    "build_route_tokenizer",
    "encode_route",
    "encode_source",
    "source_text",
]

# Lengths of the published DMS models: product 145 tokens, and 135 more for the starting material.
PRODUCT_LENGTH = 145
SOURCE_LENGTH = 280

_BOS, _EOS, _PAD, _MASK = "<SOS>", "?", " ", "J"
_KEYS = ("'smiles':", "'children':")

# The position is the id; the order is that of the published vocabulary and never changes.
# fmt: off
_TOKENS = (
    _BOS, "{", _KEYS[0], "'", "C", "O", "(", "=", ")", "c", "1", "2", "[", "N", "+", "]", "-", ",", _KEYS[1], "B", "r",
    "}", _EOS, "l", "#", "n", "o", "3", "s", "S", "F", "I", "H", "P", "@", "4", "L", "i", "5", "/", "\\", "M", "g", "6",
    "7", "u", "K", "e", "Z", "a", "p", _MASK, _PAD,
)
# fmt: on

# The two added to any text around which the template is applied.
_TEMPLATE_TOKENS = 2

_SPECIAL = re.compile("|".join(map(re.escape, (_BOS, _EOS, _PAD, _MASK))))
_NOT_SMILES = re.compile(_SPECIAL.pattern + "|[{}',]")


def build_route_tokenizer() -> PreTrainedTokenizerFast:
    """Build the DMS tokenizer: 53 tokens, bos `<SOS>` (0), eos `?` (22), pad space (52), mask `J` (51).

    `tokenizer("CCO")` gives `<SOS> C C O ?`; decoding inserts no spaces. Special tokens are recognised inside the text,
    which lets [`source_text`] write padding and a second `<SOS>`. Only `input_ids` come out: pads stand in the middle
    of a source, so the model reads the mask from them (`infer_attention_mask`), and a mask of ones would be wrong.

    Returns:
        The tokenizer. Saved with `save_pretrained`, it is loaded by `AutoTokenizer` without Weft.
    """
    backend = Tokenizer(models.WordLevel({token: index for index, token in enumerate(_TOKENS)}))
    # "isolated" also keeps what `.` does not match, so a line break reaches the vocabulary and is refused there.
    backend.pre_tokenizer = pre_tokenizers.Split(Regex("|".join((*_KEYS, "."))), behavior="isolated")
    backend.decoder = decoders.Fuse()
    # Written out and not left to `add_bos_token=True`, which transformers forgets on saving.
    backend.post_processor = processors.TemplateProcessing(
        single=f"{_BOS} $A {_EOS}",
        pair=f"{_BOS} $A {_EOS} {_BOS}:1 $B:1 {_EOS}:1",
        special_tokens=[(_BOS, _TOKENS.index(_BOS)), (_EOS, _TOKENS.index(_EOS))],
    )
    options: dict[str, Any] = {
        "bos_token": _BOS,
        "eos_token": _EOS,
        "pad_token": _PAD,
        "mask_token": _MASK,
        "model_input_names": ["input_ids"],
        "padding_side": "right",
        # Would take the space before `?` for an English typing slip.
        "clean_up_tokenization_spaces": False,
    }
    return PreTrainedTokenizerFast(tokenizer_object=backend, **options)


def source_text(
    product: str,
    starting_material: str | None = None,
    product_length: int = PRODUCT_LENGTH,
    source_length: int = SOURCE_LENGTH,
) -> str:
    """Write the source of a DMS model as one text, to which the tokenizer's template adds the outer `<SOS>` and `?`.

    The tokens are `<SOS> product ?`, and with a starting material `<SOS> product ? pads <SOS> starting material ?`, the
    second `<SOS>` at position `product_length`: DMS has learned positions, and meets the starting material only there.
    Trailing pads are left to batching; they are masked.

    Args:
        product: SMILES of the molecule to make.
        starting_material: SMILES of a molecule the route has to start from, or None.
        product_length: tokens of the product part, its `<SOS>`, `?` and padding included.
        source_length: tokens of the whole source; `source_length - product_length` are for the starting material.

    Returns:
        The text, for `tokenizer(text)`.

    Raises:
        ValueError: product or starting material is too long (the message names both lengths), or holds a character
            that is layout here and never SMILES: space, `?`, `J`, `{`, `}`, `'`, `,` or `<SOS>`.
    """
    _check_smiles("product", product, product_length, f"product_length={product_length}")
    if starting_material is None:
        return product
    rest = source_length - product_length
    _check_smiles("starting material", starting_material, rest, f"{source_length=} - {product_length=}")
    padding = _PAD * (product_length - len(product) - _TEMPLATE_TOKENS)
    return f"{product}{_EOS}{padding}{_BOS}{starting_material}"


def encode_source(
    tokenizer: PreTrainedTokenizerFast,
    product: str,
    starting_material: str | None = None,
    *,
    product_length: int = PRODUCT_LENGTH,
    source_length: int = SOURCE_LENGTH,
) -> list[int]:
    """Check a source and encode it: the ids of [`source_text`] with the outer `<SOS>` and `?`.

    Args:
        tokenizer: the tokenizer of [`build_route_tokenizer`], built or loaded.
        product, starting_material, product_length, source_length: as in [`source_text`].

    Returns:
        Token ids, at most `product_length` without a starting material and at most `source_length` with one.

    Raises:
        TypeError: product or starting material is not a string.
        ValueError: as in [`source_text`], or a character is not in the vocabulary.
    """
    # First each on its own, so that an unknown character is found at its index in the SMILES, not in the layout.
    for smiles in (product, starting_material) if starting_material is not None else (product,):
        encode_checked(tokenizer, smiles, add_special_tokens=False)
    return encode_checked(tokenizer, source_text(product, starting_material, product_length, source_length))


def encode_route(tokenizer: PreTrainedTokenizerFast, route_string: str, *, max_length: int | None = None) -> list[int]:
    """Check a route and encode it as labels: its tokens and the eos, without the bos.

    The model puts the bos in front when it shifts the labels (`decoder_start_token_id` is the bos).

    Args:
        tokenizer: the tokenizer of [`build_route_tokenizer`], built or loaded.
        route_string: a route as DMS writes it, `str(route).replace(" ", "")` of nested dictionaries with the keys
            `smiles` and, except in leaves, `children`.
        max_length: most labels allowed, the eos included; None for no limit.

    Returns:
        Token ids.

    Raises:
        TypeError: `route_string` is not a string.
        ValueError: a character is not in the vocabulary or is a special token there (a space is the pad), or the route
            is too long (the message names both lengths).
    """
    ids = encode_checked(tokenizer, route_string, add_special_tokens=False)
    if found := _SPECIAL.search(route_string):
        raise ValueError(
            f"route holds {found[0]!r} at index {found.start()}, which is a special token and never part of a route; "
            'write routes as str(route).replace(" ", "")'
        )
    ids = [*ids, _TOKENS.index(_EOS)]
    if max_length is not None and len(ids) > max_length:
        raise ValueError(f"route has {len(ids)} tokens with its eos, at most {max_length} are allowed")
    return ids


def _check_smiles(what: str, smiles: str, limit: int, limit_name: str) -> None:
    """Refuse what would shift the layout; one character is one token in all that passes."""
    if found := _NOT_SMILES.search(smiles):
        raise ValueError(
            f"{what} holds {found[0]!r} at index {found.start()}, which is layout here and never SMILES: {smiles!r}"
        )
    length = len(smiles) + _TEMPLATE_TOKENS
    if length > limit:
        raise ValueError(
            f"{what} has {length} tokens ({len(smiles)} characters, {_BOS} and {_EOS}), "
            f"at most {limit} are allowed ({limit_name})"
        )
