"""The entries of the lists and tables of suppliers."""

from __future__ import annotations

import itertools
import json
import logging
import math
import re
from collections.abc import Iterator
from pathlib import Path

from ...common.tables import Table, find_column, named_errors, read_table, text_of
from ..chemistry.sd_files import SDRecord, read_sd_file, smiles_of_cell
from ..tree import SMILES_COLUMNS, smiles_and_name, with_whole_extension
from .offers import PER_GRAM, ZINC

_logger = logging.getLogger(__name__)

# Names of columns, compared by `find_column`.
_PRICES = ("price", "unit_price", "list_price")
# A part of the names of other columns with prices, and of those with prices of one gram.
_PRICE = re.compile("price|preis|prix|ppg")
_PER_GRAM = re.compile(r"ppg|(?:/|per|pro)[ _]*g(?:ramm?)?(?![a-z])")
_CURRENCIES = ("currency", "price_currency", "currency_code", "price_unit")
_VENDORS = ("vendor", "vendor_name", "supplier", "supplier_name", "source", "company", "brand")
_NUMBERS = (
    "catalogue_number", "catalog_number", "catalogue_no", "catalog_no", "cat_no", "catalogue_id", "catalog_id", "sku",
    "product_number", "product_id", "product_code", "vendor_id", "supplier_code",
)  # fmt: skip
# The SMILES or InChIKey of an entry, its price (NaN if unknown), unit, vendor, catalogue number, kind and number of
# recorded reactions.
Entry = tuple[str, float, str, str, str, str, str]
NO_FIELDS = ("", "", "", "", "")
# The number of lines that decide what a file contains. A file is refused if more than half of them are unreadable.
LOOK_AT = 1000


def read_entries(path: Path, column: str | None) -> Iterator[Entry]:
    """Yield the SMILES or InChIKey of each line that is not empty, with its other data in a table."""
    columns = (*SMILES_COLUMNS, "inchikey") if column is None else (column,)
    with path.open("rb") as file, named_errors(path):
        records, lines = read_sd_file(text_of(file, str(path)))
        table, lines = read_table(lines, columns) if records is None else (_table_of(records), iter(()))
        if table is None and (first := next(lines, "")).startswith(("[\n", "[{", "{")):
            table = _table_of_json(first + "".join(lines), path)
        elif table is None:
            lines = itertools.chain([first], lines)
        if table is None and column is not None:
            raise ValueError(f"{path} has no column {column!r}: its first line is {next(lines, '').strip()[:200]!r}.")
        if table is None:  # a list: the text after the SMILES is a name
            yield from ((smiles_and_name(line)[0], math.nan, *NO_FIELDS) for line in lines if line.strip())
            return
        currency = table.column(_CURRENCIES)
        if currency is None:
            currency = next((place for place, name in enumerate(table.header) if "currency" in name.lower()), None)
        prices = _price_columns(table, currency)
        units = [_unit(table.header[place].lower()) for place in prices]
        places = [table.column(columns), currency, table.column(_VENDORS), table.column(_NUMBERS)]
        is_counted = {"reactions", "zinc"} <= set(table.header)  # the columns of included stocks
        places += [table.header.index(name) if is_counted else None for name in ("reactions", "zinc")]
        is_warned = False
        for row in table.rows:
            row = with_whole_extension(row, places[0]) if places[0] is not None else row
            entry, code, vendor, number, reactions, zinc = ("" if place is None else row[place] for place in places)
            kind = "common" if is_counted and not zinc else ""
            costs = [(_price(row[place]), unit) for place, unit in zip(prices, units, strict=True)]
            wrong = [row[place] for place, (amount, _) in zip(prices, costs, strict=True) if math.isnan(amount)]
            if any(wrong) and not is_warned:
                _logger.warning(
                    "%s: %r is not a price, and is ignored like others of its kind: give a positive number, and the "
                    "currency in a column 'currency'.", path, next(filter(None, wrong))[:80],
                )  # fmt: skip
                is_warned = True
            known = [cost for cost in costs if not math.isnan(cost[0])]
            amount, unit = min(known, default=(math.nan, ""))
            if code and known:
                unit = f"{code} {PER_GRAM}" if unit.endswith(PER_GRAM) else code
            yield (
                smiles_of_cell(entry),
                amount,
                unit,
                vendor or (ZINC if zinc == "1" else zinc),
                number,
                kind,
                reactions,
            )


def _table_of(records: Iterator[SDRecord]) -> Table:
    """Return the records of an SD file as a table, with the data fields that the first of them have."""
    head = list(itertools.islice(records, LOOK_AT))
    names = list(dict.fromkeys(name for record in head for name in record.fields if name not in SMILES_COLUMNS))
    whole = itertools.chain(head, records)
    rows = ([record.smiles, *(record.fields.get(name, "") for name in names)] for record in whole)
    return Table(["smiles", *names], rows)


def _table_of_json(text: str, path: Path) -> Table:
    """Return the objects of a JSON text as a table with the fields of the first of them.

    Raises:
        ValueError: it is not a list of objects that begins with one that has a `smiles`.
    """
    try:
        entries = json.loads(text)
        names = list(entries[0])
        rows = ([str(entry.get(name, "")) for name in names] for entry in entries)
        if find_column(names, SMILES_COLUMNS) is not None:
            return Table(names, rows)
    except (ValueError, TypeError, KeyError, IndexError, AttributeError):
        pass
    raise ValueError(f"{path} is not a stock: it is JSON, but not a list of objects with a field 'smiles'.")


def _price_columns(table: Table, but: int | None) -> list[int]:
    """Return the indices of the columns with prices: one, or that of each vendor with prices of one gram."""
    header = ["" if index == but else name for index, name in enumerate(table.header)]
    if (exact := find_column(header, _PRICES)) is not None:
        return [exact]
    places = [place for place, name in enumerate(header) if _PRICE.search(name.lower())]
    return [place for place in places if place == places[0] or "ppg" in header[place].lower()]


def _unit(header: str) -> str:
    """Return the unit in a header such as `price_usd`, `Price (EUR)` or `ppg`, the price of one gram."""
    unit = _PER_GRAM.sub("", _PRICE.split(header, maxsplit=1)[-1]).strip(" ,:;()[]_0123456789")
    unit = unit.upper() if len(unit) <= 3 else unit
    return f"{unit} {PER_GRAM}".strip() if _PER_GRAM.search(header) else unit


def _price(text: str) -> float:
    """Return the price in a cell of a table, or NaN if it is not a positive number."""
    try:
        price = float(text)
    except ValueError:
        return math.nan
    return price if 0 < price < math.inf else math.nan
