"""The entries of the lists and tables of suppliers."""

from __future__ import annotations

import itertools
import logging
import math
from collections.abc import Iterator, Sequence
from pathlib import Path

from ...common.tables import Table, find_column, named_errors, read_table, text_of
from ..chemistry.sd_files import SDRecord, read_sd_file
from ..tree import SMILES_COLUMNS, smiles_and_name, with_whole_extension
from .offers import ZINC

_logger = logging.getLogger(__name__)

# Names of columns, compared by `find_column`.
_PRICES = ("price", "unit_price", "list_price")
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
        if table is None and column is not None:
            raise ValueError(f"{path} has no column {column!r}: its first line is {next(lines, '').strip()[:200]!r}.")
        if table is None:  # a list: the text after the SMILES is a name
            yield from ((smiles_and_name(line)[0], math.nan, *NO_FIELDS) for line in lines if line.strip())
            return
        currency = _column_like(table, _CURRENCIES, "currency")
        price = _column_like(table, _PRICES, "price", but=currency)
        unit = "" if price is None else _unit(table.header[price].lower())
        places = [table.column(columns), price, currency, table.column(_VENDORS), table.column(_NUMBERS)]
        is_counted = {"reactions", "zinc"} <= set(table.header)  # the columns of included stocks
        places += [table.header.index(name) if is_counted else None for name in ("reactions", "zinc")]
        is_warned = False
        for row in table.rows:
            row = with_whole_extension(row, places[0]) if places[0] is not None else row
            entry, cost, code, vendor, number, reactions, zinc = (
                "" if place is None else row[place] for place in places
            )
            kind = "common" if is_counted and not zinc else ""
            amount = _price(cost)
            if cost and amount != amount and not is_warned:
                _logger.warning(
                    "%s: %r is not a price, and is ignored like others of its kind: give a positive number, and the "
                    "currency in a column 'currency'.", path, cost[:80],
                )  # fmt: skip
                is_warned = True
            unit_of_row = "" if amount != amount else code or unit
            yield entry, amount, unit_of_row, vendor or (ZINC if zinc else ""), number, kind, reactions


def _table_of(records: Iterator[SDRecord]) -> Table:
    """Return the records of an SD file as a table, with the data fields that the first of them have."""
    head = list(itertools.islice(records, LOOK_AT))
    names = list(dict.fromkeys(name for record in head for name in record.fields if name not in SMILES_COLUMNS))
    whole = itertools.chain(head, records)
    rows = ([record.smiles, *(record.fields.get(name, "") for name in names)] for record in whole)
    return Table(["smiles", *names], rows)


def _column_like(table: Table, names: Sequence[str], part: str, but: int | None = None) -> int | None:
    """Return the index of the first of the names that a table has, or of the first name that contains a part."""
    header = ["" if index == but else name for index, name in enumerate(table.header)]
    exact = find_column(header, names)
    return next((i for i, name in enumerate(header) if part in name.lower()), None) if exact is None else exact


def _unit(header: str) -> str:
    """Return the unit in a header such as `price_usd` or `Price (EUR)`."""
    unit = header.partition("price")[2].strip(" ,:;()[]_0123456789")
    return unit.upper() if len(unit) <= 3 else unit


def _price(text: str) -> float:
    """Return the price in a cell of a table, or NaN if it is not a positive number."""
    try:
        price = float(text)
    except ValueError:
        return math.nan
    return price if 0 < price < math.inf else math.nan
