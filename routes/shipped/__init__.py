"""The included route model and the stocks.

`python -m weftformer.routes.recipes.shipped_routes` writes the weights and the stock of the benchmark PaRoutes, and
`python -m weftformer.routes.recipes.shipped_stock` the other one.
"""

import json
from os import PathLike
from pathlib import Path
from typing import Any

_FOLDER = Path(__file__).parent
MODEL = _FOLDER / "weft-routes"
STOCK = _FOLDER / "stock.csv.gz"
# The starting materials of the recorded routes of PaRoutes, advanced intermediates among them. It has a name.
PAROUTES_STOCK, PAROUTES = _FOLDER / "paroutes-stock.csv.gz", "paroutes"


def about_model() -> dict[str, Any]:
    """Return the facts about the included route model: `name`, `parameters`, `trained_on` (its data) and `figures`
    (its accuracy, a sentence).
    """
    return json.loads((MODEL / "about.json").read_text(encoding="utf-8"))


def describe_model() -> str:
    """Return a line for a person: the name, training data and accuracy of the included route model."""
    about = about_model()
    return f"Model: {_name()}. It was trained on {about['trained_on']}. {about['figures']}"


def stock_file(path: str | PathLike[str]) -> Path:
    """Return the file of a stock: that of the name `paroutes`, if no file has it, or the path itself."""
    path = Path(path)
    return PAROUTES_STOCK if str(path) == PAROUTES and not path.exists() else path


def provenance(
    model: str | PathLike[str] | None = None, stock: str | PathLike[str] | None = None, num_stock: int | None = None
) -> dict[str, str]:
    """Return the description of model and stock for a page of routes. The page may be shared, so it names no folders.

    Args:
        model: the folder or Hub id of the model.
        stock: the file of the stock.
        num_stock: the number of molecules in the stock.

    Returns:
        `model`, `figures` and `stock`, if known, for the argument `about` of `routes_page`. Only the included model
        has figures.
    """
    is_shipped = str(model) == str(MODEL)
    of_stock = [] if num_stock is None else [f"{num_stock:,} molecules"]
    if stock is not None:
        of_stock.insert(0, "the included one" if str(stock) == str(STOCK) else Path(stock).name)
    entries = {
        "model": _name() if is_shipped else model and (Path(model).name if Path(model).is_dir() else str(model)),
        "figures": about_model()["figures"] if is_shipped else None,
        "stock": ", ".join(of_stock),
    }
    return {key: text for key, text in entries.items() if text}


def _name() -> str:
    about = about_model()
    return f"{about['name']}, {about['parameters'] / 1e6:.1f} M parameters (included in Weft)"
