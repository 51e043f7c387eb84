"""Offers of starting materials in a stock: form, price and vendor. This module needs neither RDKit nor NumPy."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

_NUMBER = re.compile(r"\d(?:[\d.,' ]*\d)?(?:[eE][+-]?\d+)?")
_TO_WORD = r"[-\u2013\u2014]|\bto\b"
_TO = re.compile(rf"\D*(?:{_TO_WORD})\D*")
# What follows a price in front of the size of a pack.
_PER = re.compile(r"\D*(?:/|\bper\b)")
# The end of a text in front of a negative number.
_MINUS = re.compile(r"[-\u2212(]\s*[^\w\s]?\s*$")


@dataclass(frozen=True)
class Offer:
    """
    The stock's data for a starting material.

    Args:
        smiles (`str`):
            The SMILES in the route.
        form (`str`, *optional*):
            The form that the stock has instead, such as `"HCl salt"` or `"another tautomer"`. `None` stands for the
            molecule itself.
        sold_as (`str`, *optional*):
            The SMILES of that form.
        price (`float`, *optional*):
            The lowest price in the file.
        unit (`str`, *optional*):
            The unit of the price, as the file writes it.
        vendor (`str`, *optional*):
            The vendor.
        catalogue_number (`str`, *optional*):
            The catalogue number.
        is_lowest (`bool`, *optional*, defaults to `False`):
            Whether the price is the lower end of a range.
    """

    smiles: str
    form: str | None = None
    sold_as: str | None = None
    price: float | None = None
    unit: str | None = None
    vendor: str | None = None
    catalogue_number: str | None = None
    is_lowest: bool = False

    @property
    def description(self) -> str:
        """Form, price, vendor and catalogue number as a text for an order; empty if the stock has no such data."""
        price = None if self.price is None else price_in_words(self.price, self.unit, self.is_lowest)
        form = self.form and f"as {self.form}" + (f" ({self.sold_as})" if self.sold_as else "")
        return ", ".join(filter(None, [form, price, self.vendor, self.catalogue_number]))


def price_in_words(price: float, unit: str | None, is_lowest: bool = False) -> str:
    """Return a price with its unit."""
    return f"{'from ' * is_lowest}{price:,.2f} {unit or ''}".strip()


def price_sum(offers: Sequence[Offer]) -> float | None:
    """Return the sum of the known prices; None if there is none, or if their units differ."""
    priced = [offer for offer in offers if offer.price is not None]
    return sum(offer.price or 0.0 for offer in priced) if len({offer.unit for offer in priced}) == 1 else None


def read_price(text: str) -> tuple[float, str, bool]:
    """
    Return the number in a text such as `$1,250.00`, `12,50 EUR` or `1.250,00`, the surrounding text as the unit, and
    whether it is the lower end of a range such as `10-20 USD`.

    A text without a number, or with a number that is not positive, has the price NaN.
    """
    numbers = [(match.start(), match.end(), _number(match[0])) for match in _NUMBER.finditer(text)]
    if not numbers or _MINUS.search(text[: numbers[0][0]]):
        return math.nan, "", False
    start, end, price = numbers[0]
    between = "" if len(numbers) == 1 else text[end : numbers[1][0]]
    is_range = _TO.fullmatch(between) is not None
    if is_range:
        end, price = numbers[1][1], min(price, numbers[1][2])
    elif len(numbers) > 1 and not _PER.match(text, end):
        return math.nan, "", False
    around = f"{text[:start]} {re.sub(_TO_WORD, ' ', between) if is_range else ''} {text[end:]}".split()
    return price or math.nan, "" if math.isnan(price) else " ".join(dict.fromkeys(around)), is_range


def _number(digits: str) -> float:
    """Return a number with points or commas for thousands and decimals, or NaN."""
    digits = re.sub("[' ]", "", digits)
    if digits.rfind(",") > digits.rfind(".") and not re.fullmatch(r"\d{1,3}(,\d{3})+", digits):
        digits = digits.replace(".", "").replace(",", ".")  # a decimal comma
    try:
        return float(digits.replace(",", ""))
    except ValueError:  # several points
        return math.nan
