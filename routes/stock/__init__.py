"""The molecules that can be bought, and what is known of them."""

from typing import Any


def __getattr__(name: str) -> Any:
    if name != "Stock":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from .stock import Stock  # needs RDKit and NumPy, which offers do not

    return Stock
