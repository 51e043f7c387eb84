r"""The vocabularies of routes as fast tokenizers, and the layout of a source.

There are two vocabularies: the 53 tokens of DirectMultiStep (DMS), and Weft's, which adds the rest of SMILES.

DMS reads molecules as SMILES, with one token per character. It writes a synthesis route as the Python dictionary
`{'smiles':'CCO','children':[{'smiles':'C=C'},{'smiles':'O'}]}` without spaces, with one token per character except for
the two keys. One splitting rule is right for both. Vocabulary and layout are those of the PyPI package
`directmultistep` 1.1.3 (https://github.com/batistagroup/DirectMultiStep), so the ids fit its published checkpoints.

The saved tokenizer is a plain `tokenizer.json`, which `AutoTokenizer` loads without Weft. For `tokenizer("C%O")` it
raises `Exception("WordLevel error: Missing [UNK] token from the vocabulary")`, which does not name the character. The
functions in this file name it. Do not give this tokenizer an `unk_token`: unknown characters would then silently
become this token.
"""

import re
from typing import Any

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

from .checks import encode_checked, shown

# Lengths in the published DMS models: 145 tokens for the product, and 135 more for the starting material.
PRODUCT_LENGTH = 145
SOURCE_LENGTH = 280

_BOS, _EOS, _PAD, _MASK = "<SOS>", "?", " ", "J"
_KEYS = ("'smiles':", "'children':")

# The index of a token is its id. The order is that of the published vocabulary and must not change.
# fmt: off
_TOKENS: tuple[str, ...] = (
    _BOS, "{", _KEYS[0], "'", "C", "O", "(", "=", ")", "c", "1", "2", "[", "N", "+", "]", "-", ",", _KEYS[1], "B", "r",
    "}", _EOS, "l", "#", "n", "o", "3", "s", "S", "F", "I", "H", "P", "@", "4", "L", "i", "5", "/", "\\", "M", "g",
    "6",
    "7", "u", "K", "e", "Z", "a", "p", _MASK, _PAD,
)
# fmt: on
# DMS cannot write [18F], [125I], [Pd], a salt, or more than seven open rings. Weft's vocabulary adds the remaining
# digits and letters of elements, and the characters for more rings and for separate molecules.
VOCABULARIES = {"dms": _TOKENS, "weft": (*_TOKENS, *"089%.ADEGRTUVWXYbdfhkmtvy")}

# Number of tokens that the template adds to a text: `<SOS>` and `?`.
_TEMPLATE_TOKENS = 2

_SPECIAL = re.compile("|".join(map(re.escape, (_BOS, _EOS, _PAD, _MASK))))
_NOT_SMILES = re.compile(_SPECIAL.pattern + "|[{}',]")


def build_route_tokenizer(vocabulary: str = "dms") -> PreTrainedTokenizerFast:
    """Build a tokenizer of routes: bos `<SOS>` (0), eos `?` (22), pad space (52), mask `J` (51).

    `tokenizer("CCO")` gives `<SOS> C C O ?`. Decoding inserts no spaces. Special tokens are recognised inside the
    text, so that [`source_text`] can write pads and a second `<SOS>`. The tokenizer returns only `input_ids`: a source
    has pads in its middle, so a mask of ones would be wrong, and the model infers the mask (`infer_attention_mask`).

    Args:
        vocabulary: `"dms"` has the 53 tokens of DMS. `"weft"` has 25 more, which write every element, isotope and
            salt.

    Returns:
        The tokenizer. If it is saved with `save_pretrained`, `AutoTokenizer` loads it without Weft.

    Example:

    ```python
    >>> from weftformer.tokenization import build_route_tokenizer

    >>> build_route_tokenizer()("CCO").input_ids
    [0, 4, 4, 5, 22]
    ```
    """
    backend = Tokenizer(models.WordLevel({token: index for index, token in enumerate(VOCABULARIES[vocabulary])}))
    # "isolated" keeps characters that `.` does not match, such as a line break, which the vocabulary then refuses
    backend.pre_tokenizer = pre_tokenizers.Split(Regex("|".join((*_KEYS, "."))), behavior="isolated")
    backend.decoder = decoders.Fuse()
    # an explicit template, because transformers does not save `add_bos_token=True`
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
        # true would remove the space before `?`, as in English text
        "clean_up_tokenization_spaces": False,
    }
    return PreTrainedTokenizerFast(tokenizer_object=backend, **options)


def source_text(
    product: str,
    starting_material: str | None = None,
    product_length: int = PRODUCT_LENGTH,
    source_length: int = SOURCE_LENGTH,
) -> str:
    """Write the source of a DMS model as one text. The tokenizer's template adds the outer `<SOS>` and `?`.

    The tokens are then `<SOS> product ?`, or with a starting material `<SOS> product ? pads <SOS> starting material
    ?`. The second `<SOS>` is at position `product_length`, because DMS has learned positions and was trained with the
    starting material there. The text has no pads at its end, which batching adds.

    Args:
        product: the SMILES of the molecule to make.
        starting_material: the SMILES of a molecule that the route must start from.
        product_length: the number of tokens for the product, with its `<SOS>`, `?` and pads, in front of a starting
            material.
        source_length: the number of tokens for the whole source. `source_length - product_length` of them are for the
            starting material. Without one, all of them are for the product.

    Returns:
        The text, for `tokenizer(text)`.

    Raises:
        ValueError: product or starting material is too long (the message names both lengths), or contains a character
            of the layout, which is never part of a SMILES: space, `?`, `J`, `{`, `}`, `'`, `,` or `<SOS>`.
    """
    if starting_material is None:
        _check_smiles("product", product, source_length, f"{source_length=}")
        return product
    _check_smiles("product", product, product_length, f"{product_length=}")
    rest = source_length - product_length
    _check_smiles("starting material", starting_material, rest, f"{source_length=} - {product_length=}")
    padding = _PAD * (product_length - len(product) - _TEMPLATE_TOKENS)
    return f"{product}{_EOS}{padding}{_BOS}{starting_material}"


def encode_source(
    tokenizer: PreTrainedTokenizerFast,
    product: str,
    starting_material: str | None = None,
    *,
    source_length: int = SOURCE_LENGTH,
) -> list[int]:
    """Check a source, and encode the text of [`source_text`] with the outer `<SOS>` and `?`.

    Args:
        tokenizer: the tokenizer of [`build_route_tokenizer`].
        product, starting_material, source_length: as in [`source_text`].

    Returns:
        The ids, at most `source_length`.

    Raises:
        TypeError: product or starting material is not a string.
        ValueError: as in [`source_text`], or a character is not in the vocabulary.
    """
    # each SMILES by itself first, so that an error names the index in the SMILES, not in the whole text
    for smiles in (product, starting_material) if starting_material is not None else (product,):
        encode_checked(tokenizer, smiles, add_special_tokens=False)
    return encode_checked(tokenizer, source_text(product, starting_material, source_length=source_length))


def encode_route(tokenizer: PreTrainedTokenizerFast, route_string: str, *, max_length: int | None = None) -> list[int]:
    """Check a route, and encode it as labels: its tokens and the eos, without the bos.

    The model adds the bos when it shifts the labels (`decoder_start_token_id` is the bos).

    Args:
        tokenizer: the tokenizer of [`build_route_tokenizer`].
        route_string: a route as DMS writes it, `str(route).replace(" ", "")` of nested dictionaries with the keys
            `smiles` and, except in leaves, `children`.
        max_length: the largest number of labels, with the eos. Defaults to no limit.

    Returns:
        The labels.

    Raises:
        TypeError: `route_string` is not a string.
        ValueError: a character is not in the vocabulary or is a special token (a space is the pad), or the route is
            too long (the message names both lengths).
    """
    ids = encode_checked(tokenizer, route_string, add_special_tokens=False)
    if hit := _SPECIAL.search(route_string):
        raise ValueError(
            f"route contains {hit[0]!r} at index {hit.start()}, which is a special token and never part of a route; "
            'write routes as str(route).replace(" ", "")'
        )
    ids = [*ids, _TOKENS.index(_EOS)]
    if max_length is not None and len(ids) > max_length:
        raise ValueError(f"route has {len(ids)} tokens with its eos, at most {max_length} are allowed")
    return ids


def _check_smiles(what: str, smiles: str, limit: int, limit_name: str) -> None:
    """Check that a SMILES fits into the layout. In a SMILES that passes, each character is one token."""
    if hit := _NOT_SMILES.search(smiles):
        raise ValueError(
            f"{what} contains {hit[0]!r} at index {hit.start()}, which is reserved for the layout and not allowed in "
            f"SMILES: {smiles!r}"
        )
    length = len(smiles) + _TEMPLATE_TOKENS
    if length > limit:
        raise ValueError(
            f"{what} has {length} tokens ({len(smiles)} characters, {_BOS} and {_EOS}), "
            f"at most {limit} are allowed ({limit_name}): {shown(smiles)}"
        )
