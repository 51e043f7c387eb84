"""The file of what the experts of a training did, `expert_load.jsonl`, and its picture."""

import importlib.util
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

EXPERT_LOAD = "expert_load.jsonl"
# name of a sparse layer, such as decoder_1: its numbers, and `load`, the share of each expert
Layers = dict[str, dict[str, Any]]


def read_expert_load(file: str | os.PathLike) -> list[dict[str, Any]]:
    """The whole lines of an `expert_load.jsonl`: {"step": ..., "layers": {name: numbers}}.

    Raises:
        ValueError: a line in the middle is no JSON.
        OSError: there is no such file.
    """
    lines = Path(file).read_text(encoding="utf-8").splitlines(keepends=True)
    if lines and not lines[-1].endswith("\n"):  # the process was killed while it wrote
        lines.pop()
    try:
        return [json.loads(line) for line in lines]
    except ValueError as error:
        raise ValueError(f"{file} is no file of expert loads: {error}.") from error


def forget_after(file: Path, step: int) -> None:
    """Drop the lines of later steps: of a run that was interrupted after the checkpoint this one goes on from."""
    if not file.is_file():
        return
    kept = [record for record in read_expert_load(file) if record["step"] <= step]
    new = file.with_suffix(".part")
    new.write_text("".join(json.dumps(record) + "\n" for record in kept), encoding="utf-8")
    new.replace(file)


def draw_expert_load(file: str | os.PathLike | Mapping[str, str | os.PathLike], picture: str | os.PathLike) -> None:
    """Draw every expert's load over the steps of a training: a panel for each layer, a row in it for each expert.

    Args:
        file: the `expert_load.jsonl` of a training; or several, by the titles of their columns.
        picture: where to, .svg, .png or .pdf.

    Raises:
        ValueError: matplotlib is missing, or a file holds no loads.
    """
    if importlib.util.find_spec("matplotlib") is None:
        raise ValueError("Drawing the load of experts needs matplotlib: pip install weftformer[benchmark].")
    from matplotlib import rc_context
    from matplotlib.figure import Figure  # no pyplot: no window, whatever backend is set

    runs = {title: read_expert_load(one) for title, one in (file if isinstance(file, Mapping) else {"": file}).items()}
    names = sorted({name for run in runs.values() for record in run for name in record["layers"]}, key=_in_order)
    if not names or not all(runs.values()):
        raise ValueError(f"{file} holds no loads of experts.")
    width = 7 if len(runs) == 1 else 1 + 2.4 * len(runs)
    figure = Figure(figsize=(width, 0.9 + 1.2 * len(names)), layout="constrained")
    panels = figure.subplots(len(names), len(runs), squeeze=False, sharex="col", sharey="row")
    for (title, run), column in zip(runs.items(), panels.T, strict=True):
        for panel, name in zip(column, names, strict=True):
            shown = [record for record in run if name in record["layers"]]
            relative = [
                [share * len(load) for share in load] for load in (one["layers"][name]["load"] for one in shown)
            ]
            steps, experts = [record["step"] for record in shown], range(len(relative[0]))
            # as an image: thousands of small shapes make a picture of many megabytes
            image = panel.pcolormesh(
                steps, experts, list(zip(*relative, strict=True)), shading="nearest", vmin=0, vmax=2, cmap="RdBu_r",
                rasterized=True,
            )  # fmt: skip
            panel.tick_params(labelsize=7)
        column[0].set_title(title, fontsize=9)
        column[-1].set_xlabel("step", fontsize=8)
    for panel, name in zip(panels[:, 0], names, strict=True):
        panel.set_ylabel(f"{name.replace('_', ' ')}\nexpert", fontsize=8)
    bar = figure.colorbar(image, ax=panels, extend="max", pad=0.01)
    bar.ax.tick_params(labelsize=7)
    bar.set_label("load; 1 is an even share, 0 is dead", fontsize=8)
    # the same picture every time it is drawn
    with rc_context({"svg.hashsalt": "weft"}):
        figure.savefig(picture, dpi=150, metadata={"Date": None} if Path(picture).suffix == ".svg" else None)


def _in_order(name: str) -> tuple[bool, int]:
    stack, number = name.rsplit("_", 1)
    return stack == "decoder", int(number)
