"""The route model that comes with the package, and its stock.

`python -m weftformer.benchmarks.shipped_routes` makes the files of this folder.
"""

import json
from pathlib import Path
from typing import Any

_FOLDER = Path(__file__).parent
MODEL = _FOLDER / "model"
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
    first, ten = (f"{100 * figures[name]['value']:.1f} %" for name in ("exact_top_1", "exact_top_10"))
    return (
        f"Model: {about['name']}, {about['parameters'] / 1e6:.1f} M parameters, which comes with Weft. It was trained on "
        f"{about['trained_on']}. For {figures['exact_top_1']['n']:,} {about['tested_on']}, its first route is the recorded "
        f"route for {first}, and one of its first ten for {ten}."
    )
