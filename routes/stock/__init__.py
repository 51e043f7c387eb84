"""The molecules that can be bought, and what is known of them."""

from typing import TYPE_CHECKING

from ...common.lazy import lazy_names

if TYPE_CHECKING:
    from .stock import Stock  # needs RDKit and NumPy, which offers do not

__getattr__, __all__ = lazy_names(__package__, __file__)
