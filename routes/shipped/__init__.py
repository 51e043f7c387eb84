"""The route model that comes with the package, and its stock.

`python -m weftformer.benchmarks.shipped_routes` makes the files of this folder.
"""

import json
from pathlib import Path
from typing import Any

_FOLDER = Path(__file__).parent
MODEL = _FOLDER / "weft-routes"
STOCK = _FOLDER / "stock.smi.gz"


def about_model(folder: Path = MODEL) -> dict[str, Any]:
    """
    Return what is known of the shipped model.

    Args:
        folder (`Path`, *optional*):
            The folder of the model.

    Returns:
        `dict`: `name`, `parameters`, `trained_on` (a description of the data), `tested_on` (the same), and `figures`: shares
        of targets by name, each with `value`, `low`, `high` and `n`.
    """
    return json.loads((folder / "about.json").read_text(encoding="utf-8"))


def describe_model(folder: Path = MODEL) -> str:
    """Return one line for a person: which model this is, what it was trained on, and how often it is right."""
    about = about_model(folder)
    figures = about["figures"]

    def shown(name: str) -> str:
        first, ten = (f"{100 * figures[f'{name}_{top}']['value']:.1f} %" for top in ("top_1", "top_10"))
        return f"{first} (among the first ten: {ten})"

    return (
        f"Model: {about['name']}, {about['parameters'] / 1e6:.1f} M parameters, which comes with Weft. It was trained on "
        f"{about['trained_on']}. Of {figures['exact_top_1']['n']:,} {about['tested_on']}, its first route was the recorded one for "
        f"{shown('exact')}, and its last reaction for {shown('last_reaction')}."
    )
