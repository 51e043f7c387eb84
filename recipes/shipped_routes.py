"""Write the models and the stock of `weftformer.routes.shipped`.

Run it with `python -m weftformer.recipes.shipped_routes --model runs/routes routes/shipped/weft-routes` for either
model, and with `--stock-routes n1.jsonl.gz n5.jsonl.gz` for the stock, which is the starting materials of recorded
routes. `--groups-of paroutes-n5.jsonl.gz uspto-50k-train.jsonl.gz uspto-15k.jsonl.gz --exclude paroutes-n1.jsonl.gz
uspto-50k-valid.jsonl.gz uspto-50k-test.jsonl.gz` counts the functional groups of the library in its reactions. The
included library has the counts of 65,466 of them.

The model is a folder of `weftformer routes train` or `weftformer train`. Its weights are stored in half precision.
They are still loaded in float32, in which CPUs compute faster. The cards (`README.md`) and `about.json` are written by
hand.
"""

import argparse
import gzip
import json
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

import torch
from transformers import AutoTokenizer

from weftformer import WeftForConditionalGeneration
from weftformer.common.atomic import atomic_write, write_json
from weftformer.recipes.extraction import with_groups, write
from weftformer.routes.data.training_data import read_canonical
from weftformer.routes.precedents.transformations import SHIPPED, joined, read_rows
from weftformer.routes.shipped import STOCK
from weftformer.scripts.cli import run_script

LIBRARY = STOCK.with_name(SHIPPED)


def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m weftformer.recipes.shipped_routes", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)  # fmt: skip
    add = parser.add_argument
    add(
        "--model", type=Path, nargs=2, metavar=("FOLDER", "OUT"), help="trained model, and a folder for the stored one"
    )
    add("--stock-routes", type=Path, nargs="+", default=[], metavar="FILE", help="recorded routes with the stock")
    add("--out-stock", type=Path, default=STOCK, metavar="FILE", help="file of the stock (default: %(default)s)")
    add("--groups-of", type=Path, nargs="+", default=[], metavar="FILE", help="recorded routes, to count groups in")
    add("--exclude", type=Path, nargs="+", default=[], metavar="FILE", help="routes whose targets are not counted")
    add("--library", type=Path, default=LIBRARY, metavar="FILE", help="file of the library (default: %(default)s)")
    return parser


def count_groups(files: Iterable[Path], exclude: Iterable[Path], library: Path) -> int:
    """Count the functional groups of a library in the steps of recorded routes, and return the number of steps."""
    targets = {route.smiles for file in exclude for route in read_canonical(file)}
    steps = {step for file in files for route in read_canonical(file) for step in route.steps()}
    reactions = sorted(
        {(step.smiles, joined(step.last_step().leaves())) for step in steps if step.smiles not in targets}
    )
    write(with_groups(list(read_rows(library)), reactions), library)
    return len(reactions)


def write_stock(files: Iterable[Path], out: Path) -> int:
    """Write the starting materials of recorded routes, canonical and sorted, as gzipped SMILES, and count them."""
    leaves = sorted({leaf for file in files for route in read_canonical(file) for leaf in route.leaves()})
    out.parent.mkdir(parents=True, exist_ok=True)
    with atomic_write(out) as temporary:
        # without a timestamp, so that the same molecules give the same file
        temporary.write_bytes(gzip.compress("".join(f"{leaf}\n" for leaf in leaves).encode(), mtime=0))
    return len(leaves)


def write_model(source: Path, out: Path) -> None:
    """Write weights in half precision, configuration, generation settings and tokenizer, without the code."""
    WeftForConditionalGeneration.from_pretrained(source, dtype=torch.float16).save_pretrained(out)
    AutoTokenizer.from_pretrained(source).save_pretrained(out)
    config = json.loads((out / "config.json").read_text(encoding="utf-8"))
    config.pop("auto_map", None)  # these files are part of the package
    config["dtype"] = "float32"  # the type that `from_pretrained` loads
    write_json(out / "config.json", config)
    for code in out.glob("*.py"):
        code.unlink()
    (out / "model.safetensors").chmod(0o644)  # transformers makes it readable for its owner alone


def main(argv: Sequence[str] | None = None) -> None:
    """Write the files that the arguments name.

    Raises:
        ValueError, OSError: the model or the routes cannot be read.
    """
    arguments = build_parser().parse_args(argv)
    if arguments.model is not None:
        write_model(*arguments.model)
    if arguments.stock_routes:
        print(f"{write_stock(arguments.stock_routes, arguments.out_stock):,} molecules are in {arguments.out_stock}.")
    if arguments.groups_of:
        number = count_groups(arguments.groups_of, arguments.exclude, arguments.library)
        print(f"{number:,} reactions were examined for {arguments.library}.")


if __name__ == "__main__":
    sys.exit(run_script("shipped_routes", main))
