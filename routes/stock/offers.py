"""Offers of starting materials in a stock: form, price and vendor. This module needs neither RDKit nor NumPy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from ...common.words import counted

# The catalogues of molbloom: the molecules in stock of ZINC20, and a smaller filter of them with more mistakes.
CATALOGUES = ("zinc-instock", "zinc-instock-mini")

# The vendor of a molecule of an included stock that ZINC20 has in stock.
ZINC = "ZINC20 in stock"
# The vendor of a labelled reagent of the included stock.
LABELLED = "catalogues of labelled compounds"

# What is known of a molecule: somebody sells it, or recorded reactions use it.
Kind = Literal["sold", "common"]

# The vendor of a molecule that the user has.
OWN = "your own store"

# The end of the unit of a price of one gram.
PER_GRAM = "per g"


@dataclass(frozen=True)
class Offer:
    """The stock's data for a starting material.

    Args:
        smiles: the SMILES in the route.
        form: the form that the stock has instead, such as `"HCl salt"` or `"another tautomer"`. `None` stands for the
            molecule itself.
        sold_as: the SMILES of that form.
        price: the lowest price in the file.
        unit: the unit of the price, as the file writes it.
        vendor: the vendor.
        catalogue_number: the catalogue number.
        kind: `"sold"` for a molecule of your own stock, of a catalogue or of ZINC20. In an included stock, `"common"`
            for others: recorded reactions use it, and that is all that is known.
        reactions: the number of recorded reactions that use it, if an included stock has it.
    """

    smiles: str
    form: str | None = None
    sold_as: str | None = None
    price: float | None = None
    unit: str | None = None
    vendor: str | None = None
    catalogue_number: str | None = None
    kind: Kind = "sold"
    reactions: int | None = None

    @property
    def description(self) -> str:
        """Form, price, vendor and catalogue number as a text for an order, or the number of recorded reactions that
        use the molecule; empty if the stock has no such data.
        """
        price = None if self.price is None else price_in_words(self.price, self.unit)
        form = self.form and f"as {self.form}" + (f" ({self.sold_as})" if self.sold_as else "")
        number = self.reactions or 0
        common = f"used by {counted(number, 'recorded reaction')}, no seller listed"
        source = common if self.kind == "common" else None
        return ", ".join(filter(None, [form, price, self.vendor, self.catalogue_number, source]))


def price_in_words(price: float, unit: str | None) -> str:
    """Return a price with its unit."""
    return f"{price:,.2f} {unit or ''}".strip()


def price_sum(offers: Sequence[Offer]) -> float | None:
    """Return the sum of the known prices; None if there is none, or if their units differ."""
    units = {offer.unit for offer in offers if offer.price is not None}
    return sum(offer.price or 0.0 for offer in offers) if len(units) == 1 else None
