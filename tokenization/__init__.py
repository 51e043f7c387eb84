"""Tokenizers: the vocabulary of DirectMultiStep for routes, and vocabularies trained on the user's own texts."""

from .checks import encode_checked
from .route_tokenizer import (
    PRODUCT_LENGTH,
    SOURCE_LENGTH,
    build_route_tokenizer,
    encode_route,
    encode_source,
    source_text,
)
from .trained import iter_columns, train_tokenizer

__all__ = [
    "PRODUCT_LENGTH",
    "SOURCE_LENGTH",
    "build_route_tokenizer",
    "encode_checked",
    "encode_route",
    "encode_source",
    "iter_columns",
    "source_text",
    "train_tokenizer",
]
