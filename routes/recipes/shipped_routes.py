"""Write the models, the library and the stock of the benchmark of `weftformer.routes.shipped`.

Run it with `python -m weftformer.routes.recipes.shipped_routes --model runs/routes routes/shipped/weft-routes` for
either model, and with `--stock-routes n1.jsonl.gz n5.jsonl.gz` for the stock `paroutes`, which is the starting
materials of recorded routes. `shipped_stock` writes the included stock. `--reactions uspto-full-part.jsonl.gz
uspto-480k-part.jsonl.gz --known paroutes-n5.jsonl.gz uspto-50k-train.jsonl.gz uspto-15k.jsonl.gz --exclude
paroutes-n1.jsonl.gz uspto-50k-valid.jsonl.gz uspto-50k-test.jsonl.gz held-out-2000.jsonl.gz` adds mapped reactions to
the earlier library of 65,148 reactions of the known files, which rxnmapper has mapped. It leaves out what makes a
molecule that the excluded routes make, and takes a core about an hour. `--remove-doubtful` then removes
transformations that no chemist would run (`doubtful.py`), in ten minutes. `--textbook
routes/recipes/textbook.csv` writes the library of textbook reactions beside it, in a minute.

The model is a folder of `weftformer routes train` or `weftformer train`. Its weights are stored in half precision.
They are still loaded in float32, in which CPUs compute faster. The cards (`README.md`) and `about.json` are written by
hand.
"""

import argparse
import csv
import json
import multiprocessing
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from transformers import AutoTokenizer

from weftformer import WeftForConditionalGeneration
from weftformer.common.atomic import write_json
from weftformer.routes.chemistry.molecules import joined
from weftformer.routes.files import read_canonical
from weftformer.routes.judging.library_files import SHIPPED, TEXTBOOK, combined, load_library, named, read_rows
from weftformer.routes.judging.ranker import RANKER, Ranker
from weftformer.routes.recipes.doubtful import is_doubtful
from weftformer.routes.recipes.shipped_stock import with_zinc
from weftformer.routes.recipes.shipped_stock import write as write_table
from weftformer.routes.shipped import PAROUTES_STOCK, STOCK
from weftformer.routes.training.extraction import (
    Record,
    build,
    core_of,
    extracted,
    is_sound,
    read_records,
    record_of,
    write,
)
from weftformer.scripts.cli import run_script

LIBRARY = STOCK.with_name(SHIPPED)


def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m weftformer.routes.recipes.shipped_routes", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)  # fmt: skip
    add = parser.add_argument
    words = "trained model, and a folder for the stored one"
    add("--model", type=Path, nargs=2, metavar=("FOLDER", "OUT"), help=words)
    add("--stock-routes", type=Path, nargs="+", default=[], metavar="FILE", help="recorded routes with the stock")
    words = "file of the stock (default: %(default)s)"
    add("--out-stock", type=Path, default=PAROUTES_STOCK, metavar="FILE", help=words)
    add_reactions(parser)
    words = "remove records from the library that no chemist would run, also from its ranker"
    add("--remove-doubtful", action="store_true", help=words)
    add("--textbook", type=Path, metavar="FILE", help="mapped examples of named reactions of textbooks")
    add("--library", type=Path, default=LIBRARY, metavar="FILE", help="file of the library (default: %(default)s)")
    return parser


def add_reactions(parser: argparse.ArgumentParser, required: bool = False) -> None:
    """Add the options that name the reactions of the library."""
    files: dict[str, Any] = {"type": Path, "nargs": "+", "default": [], "metavar": "FILE"}
    parser.add_argument("--reactions", required=required, help="mapped reactions for the library", **files)
    parser.add_argument("--known", help="routes whose reactions are in the library", **files)
    parser.add_argument("--exclude", help="routes whose molecules nothing may make", **files)


def extend_library(
    files: Iterable[Path], routes: Iterable[Path], exclude: Iterable[Path], library: Path, workers: int
) -> int:
    """Add mapped reactions to a library, and return their number.

    Args:
        files: mapped reactions.
        routes: routes whose reactions are in the library.
        exclude: routes. Reactions that make a molecule that these make are left out.
        library: the library.
        workers: the number of processes.
    """
    reactions = {
        (part.smiles, joined(child.smiles for child in part.children))
        for file in routes
        for route in read_canonical(file)
        for part in route.sub_routes()
    }
    records = list(new_records(files, exclude, reactions))
    templates = list(extracted(records, workers))
    rows = ((key, replace(row, core=core_of(row.smarts))) for key, row in read_rows(library) if is_sound(row.smarts))
    write(named(combined(rows, build(records, templates))), library)
    return sum(template is not None for template in templates)


def new_records(files: Iterable[Path], exclude: Iterable[Path], known: set[tuple[str, str]]) -> Iterator[Record]:
    """Yield the distinct reactions of some files that make no molecule of the excluded routes, and add them to the
    known ones, which are left out.
    """
    products = molecules_of(exclude)
    for record in (record for file in files for record in read_records(file)):
        if isinstance(record, Record) and record.mapped and record.product not in products:
            reaction = record.product, record.reactants
            if reaction not in known:
                known.add(reaction)
                yield record


def molecules_of(files: Iterable[Path]) -> set[str]:
    """Return the molecules that routes make, and their starting materials."""
    return {part.smiles for file in files for route in read_canonical(file) for part in route.sub_routes()}


def remove_doubtful(library: Path) -> tuple[int, int]:
    """Remove the transformations that no chemist would run (`is_doubtful`) from a library and its ranker. Return their
    number, and that of their reactions.

    Args:
        library: the library. Its ranker is beside it.
    """
    rows, file = list(read_rows(library)), library.with_name(RANKER)
    ranker = Ranker.load(file, [row.smarts for _, row in rows])
    remaining = [place for place, (_, row) in enumerate(rows) if not is_doubtful(row)]
    places = {place: number for number, place in enumerate(remaining)}
    classes = torch.tensor([number for number, place in enumerate(ranker.places) if place in places])
    tensors = {
        name: tensor[classes].contiguous() if name.startswith("output.") or name == "places" else tensor
        for name, tensor in ranker.tensors.items()
    }
    tensors["places"] = torch.tensor([places[place] for place in tensors["places"].tolist()], dtype=torch.int32)
    remaining_rows = [rows[place] for place in remaining]
    write(remaining_rows, library)
    Ranker(tensors).save(file, [remaining_rows[place][1].smarts for place in tensors["places"].tolist()])
    num_reactions = sum(row.count for _, row in rows) - sum(row.count for _, row in remaining_rows)
    return len(rows) - len(remaining_rows), num_reactions


def write_textbook(examples: Path, library: Path, out: Path) -> int:
    """Write the library of named reactions of textbooks, and count its transformations.

    Args:
        examples: a table with the name (`id`), the mapped reaction and the source of each example.
        library: the library of recorded reactions, which has names and classes for like transformations.
        out: the file.
    """
    with examples.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    records = [record_of(row["reaction_smiles"], source=row["source"]) for row in rows]
    names = {f"{record.reactants}>>{record.product}": row["id"] for record, row in zip(records, rows, strict=True)}
    transformations = named(build(records, list(extracted(records))), load_library(library))
    write(((key, replace(row, textbook=names[row.examples[0].smiles])) for key, row in transformations), out)
    return len(transformations)


def write_stock(files: Iterable[Path], out: Path) -> int:
    """Write the starting materials of recorded routes with the numbers of steps that use them, and count them."""
    uses = Counter(
        child.smiles
        for file in files
        for route in read_canonical(file)
        for step in route.steps()
        for child in step.children
        if not child.children
    )
    write_table(with_zinc(uses), out)
    return len(uses)


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
    if arguments.remove_doubtful:
        number, count = remove_doubtful(arguments.library)
        print(f"{number:,} transformations of {count:,} reactions were removed from {arguments.library}.")
    if arguments.textbook is not None:
        out = arguments.library.with_name(TEXTBOOK)
        number = write_textbook(arguments.textbook, arguments.library, out)
        print(f"{number:,} transformations of textbook reactions are in {out}.")
    if arguments.reactions:
        number = extend_library(
            arguments.reactions, arguments.known, arguments.exclude, arguments.library, multiprocessing.cpu_count()
        )
        print(f"{number:,} reactions were added to {arguments.library}.")


if __name__ == "__main__":
    sys.exit(run_script("shipped_routes", main))
