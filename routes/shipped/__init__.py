"""The included models, one for routes and one for products, and the stock.

`python -m weftformer.benchmarks.shipped_routes` makes the files of this folder.
"""

import json
from os import PathLike
from pathlib import Path
from typing import Any

_FOLDER = Path(__file__).parent
MODEL = _FOLDER / "weft-routes"
FORWARD_MODEL = _FOLDER / "weft-forward"
STOCK = _FOLDER / "stock.smi.gz"


def about_model(folder: Path = MODEL) -> dict[str, Any]:
    """
    Return the facts about the included model.

    Args:
        folder (`Path`, *optional*):
            The folder of the model.

    Returns:
        `dict`: `name`, `parameters`, `trained_on` (a description of the data), `tested_on` (the same), and `figures`: shares
        of targets by name, each with `value`, `low`, `high` and `n`. `searched` has the numbers of targets of a search to the stock.
    """
    return json.loads((folder / "about.json").read_text(encoding="utf-8"))


def describe_model(folder: Path = MODEL) -> str:
    """Return a line for a person: the name, training data and accuracy of the model."""
    return f"Model: {_name(folder)}. It was trained on {about_model(folder)['trained_on']}. {describe_figures(folder)}"


def describe_figures(folder: Path = MODEL) -> str:
    """Return a sentence for a person: the accuracy of the model."""
    about = about_model(folder)
    figures, searched = about["figures"], about.get("searched")
    if searched:
        shares = {name: f"{100 * count / searched['targets']:.0f} %" for name, count in searched.items()}
        return (
            f"In searches to its stock for {searched['targets']} unseen recorded targets of PaRoutes n1, {shares['purchasable']} had a "
            f"purchasable route among ten, {shares['precedented']} one of recorded transformations, and {shares['exact']} the recorded route."
        )

    def shown(name: str) -> str:
        first, ten = (f"{100 * figures[f'{name}_{top}']['value']:.1f} %" for top in ("top_1", "top_10"))
        return f"{first} (among the first ten: {ten})"

    return (
        f"Of {figures['exact_top_1']['n']:,} {about['tested_on']}, its first route was the recorded one for "
        f"{shown('exact')}, and its last reaction for {shown('last_reaction')}."
    )


def provenance(
    model: str | PathLike[str] | None = None, stock: str | PathLike[str] | None = None, num_stock: int | None = None
) -> dict[str, str]:
    """
    Return the description of model and stock for a page of routes. The page may be shared, so it names no folders.

    Args:
        model (`str` or `PathLike`, *optional*):
            The folder or Hub id of the model.
        stock (`str` or `PathLike`, *optional*):
            The file of the stock.
        num_stock (`int`, *optional*):
            The number of molecules in the stock.

    Returns:
        `dict[str, str]`: `model`, `figures` and `stock`, as far as known, for `about` of `routes_page`. Figures exist for
        the included model.
    """
    is_shipped = str(model) == str(MODEL)
    of_stock = [] if num_stock is None else [f"{num_stock:,} molecules"]
    if stock is not None:
        of_stock.insert(0, "the included one" if str(stock) == str(STOCK) else Path(stock).name)
    told = {
        "model": _name() if is_shipped else model and (Path(model).name if Path(model).is_dir() else str(model)),
        "figures": describe_figures() if is_shipped else None,
        "stock": ", ".join(of_stock),
    }
    return {key: text for key, text in told.items() if text}


def _name(folder: Path = MODEL) -> str:
    about = about_model(folder)
    return f"{about['name']}, {about['parameters'] / 1e6:.1f} M parameters (included in Weft)"
