"""Train the ranker of the included library:

    python -m weftformer.routes.recipes.shipped_ranker --reactions uspto-full-part.jsonl.gz uspto-480k-part.jsonl.gz \\
        --known paroutes-n5.jsonl.gz uspto-50k-train.jsonl.gz uspto-15k.jsonl.gz \\
        --exclude paroutes-n1.jsonl.gz uspto-50k-valid.jsonl.gz uspto-50k-test.jsonl.gz --pairs runs/pairs

The files are those of the library, as in `routes.recipes.shipped_routes`. The class of a reaction is the most common
transformation that turns its product into its reactants, among those that at least two reactions share. This needs no
atom maps, and takes 10 ms of CPU time a reaction, 46 minutes for all of them. What is done is kept in `--pairs`, where
the recipe continues. The training takes 35 minutes of two busy cores.

2,000 reactions of the first file are held out, drawn at random among those whose products only one reaction of all
files makes. They are in `held-out.jsonl`: the first 1,000 are for tests, and the others for calibration. Of the other
products, one of 50 is for validation, and the rest for training.
"""

import argparse
import hashlib
import json
import multiprocessing
import random
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy
import torch
from torch.nn import functional

from weftformer.common.atomic import atomic_write
from weftformer.common.progress import Progress
from weftformer.common.workers import WorkerProcesses
from weftformer.routes.chemistry.molecules import joined
from weftformer.routes.files import read_canonical
from weftformer.routes.judging.library import LEAST_PROPOSED, Library, difference
from weftformer.routes.judging.library_files import read_rows
from weftformer.routes.judging.ranker import BITS, LARGEST, RANKER, Ranker, fingerprint
from weftformer.routes.recipes.shipped_routes import LIBRARY, add_reactions, molecules_of
from weftformer.routes.training.extraction import Record, read_records
from weftformer.scripts.cli import run_script

# The number of reactions that are held out. One of so many other products is for validation.
HELD_OUT, VALIDATION = 2_000, 50
HIDDEN, EPOCHS, BATCH = 1024, 8, 512
LEARNING_RATE, WARMUP, WEIGHT_DECAY, SMOOTHING, DROPOUT = 2e-3, 0.15, 1e-4, 0.05, 0.4
# The seconds for the class of a reaction. The accuracies that are printed.
SECONDS, KS = 60.0, (1, 5, 10, 50)
# The number of inputs that show how large activations become, and the share of them that are not cut.
SAMPLE, NEARLY_ALL = 20_000, 0.9999

# A product and its reactants, canonical SMILES.
Reaction = tuple[str, str]


def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m weftformer.routes.recipes.shipped_ranker", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)  # fmt: skip
    add = parser.add_argument
    add_reactions(parser, required=True)
    add("--pairs", type=Path, required=True, metavar="FOLDER", help="folder of the reactions and their classes")
    add("--library", type=Path, default=LIBRARY, metavar="FILE", help="file of the library (default: %(default)s)")
    add("--out", type=Path, default=LIBRARY.with_name(RANKER), metavar="FILE",
        help="file of the ranker (default: %(default)s)")  # fmt: skip
    return parser


def reactions_of(
    mapped: Sequence[Path], routes: Sequence[Path], exclude: Sequence[Path]
) -> tuple[list[Reaction], list[Reaction]]:
    """Return the reactions of the library in random order, and those that are held out.

    Args:
        mapped: mapped reactions.
        routes: routes whose reactions are in the library.
        exclude: routes. Reactions that make a molecule that these make are left out.
    """
    products = molecules_of(exclude)
    steps = [step for file in routes for route in read_canonical(file) for step in route.steps()]
    is_first = {(step.smiles, joined(child.smiles for child in step.children)): False for step in steps}
    for file in mapped:
        for record in read_records(file):
            if isinstance(record, Record) and record.mapped:
                is_first.setdefault((record.product, record.reactants), file == mapped[0])
    is_first = {reaction: value for reaction, value in is_first.items() if reaction[0] not in products}
    num_ways = Counter(product for product, _ in is_first)
    candidates = sorted(reaction for reaction, value in is_first.items() if value and num_ways[reaction[0]] == 1)
    random.Random(0).shuffle(candidates)
    held_out = candidates[:HELD_OUT]
    order = list(is_first)
    random.Random(0).shuffle(order)
    return order, held_out


class Classes:
    """Finds the class of a reaction, as the place of a transformation in a library. `library` is its file."""

    def __init__(self, library: Path):
        rows = list(read_rows(library))
        self._places = {(key, row.smarts): place for place, (key, row) in enumerate(rows)}
        self._library = Library(row for row in rows if row[1].count >= LEAST_PROPOSED)

    def place(self, reaction: Reaction) -> list[int | None]:
        """Return the place, or None if the library has no such transformation."""
        product, reactants = reaction
        match = self._library.match(product, reactants.split("."))
        return [None if match is None else self._places[difference(product, reactants), match.transformation.smarts]]


def classes_of(reactions: Sequence[Reaction], library: Path, folder: Path, workers: int) -> list[int | None]:
    """Return the class of each reaction. Those that are known are kept in a file of the folder, and are read again."""
    with open(folder / "classes.txt", "a+", encoding="utf-8") as file:
        file.seek(0)
        places = [json.loads(line) for line in file]
        with (
            WorkerProcesses(Classes(library), workers, SECONDS) as processes,
            Progress("matching", len(reactions), "reactions", done=len(places)) as bar,
        ):
            for place in processes.map(Classes.place, reactions[len(places) :]):
                file.write(f"{json.dumps(place)}\n")
                file.flush()
                places.append(place)
                bar.update(1)
    return places


def is_validation(product: str) -> bool:
    """Return whether a product is for validation."""
    return int(hashlib.md5(product.encode()).hexdigest(), 16) % VALIDATION == 0


def fit(products: Sequence[str], places: Sequence[int], counts: Sequence[int]) -> Ranker:
    """Train a ranker, and print its accuracy on the products for validation.

    Args:
        products: canonical SMILES.
        places: the class of each.
        counts: the number of reactions of each transformation of the library. Common classes come first.
    """
    torch.manual_seed(0)
    mask = torch.tensor(list(map(is_validation, products)))
    inputs = torch.from_numpy(
        numpy.stack([numpy.array(fingerprint(product), dtype=numpy.uint8) for product in products])
    )
    training_places = {place for place, is_other in zip(places, mask.tolist(), strict=True) if not is_other}
    classes = sorted(training_places, key=lambda place: (-counts[place], place))
    numbers = {place: number for number, place in enumerate(classes)}
    labels = torch.tensor([numbers.get(place, -1) for place in places])
    first, second = torch.nn.Linear(BITS, HIDDEN), torch.nn.Linear(HIDDEN, len(classes))
    model = torch.nn.Sequential(first, torch.nn.ReLU(), torch.nn.Dropout(DROPOUT), second)
    training = (~mask).nonzero()[:, 0]
    steps = len(training) // BATCH
    optimizer = torch.optim.AdamW(model.parameters(), LEARNING_RATE, weight_decay=WEIGHT_DECAY)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, LEARNING_RATE, total_steps=EPOCHS * steps, pct_start=WARMUP
    )
    with Progress("training", EPOCHS * steps, "steps") as bar:
        for _ in range(EPOCHS):
            for batch in training[torch.randperm(len(training))].split(BATCH)[:steps]:
                loss = functional.cross_entropy(model(inputs[batch].float()), labels[batch], label_smoothing=SMOOTHING)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                schedule.step()
                bar.update(1)
    ranker = rounded(model.eval(), classes, inputs[training[:SAMPLE]].float())
    accuracy(ranker, [(products[row], int(labels[row])) for row in mask.nonzero()[:, 0].tolist()])
    return ranker


def accuracy(ranker: Ranker, pairs: Sequence[tuple[str, int]]) -> None:
    """Print how often the class of a product is among the first ones. `pairs` are products with their classes."""
    ranks = [(label, [number for number, _ in ranker.ranked(product, max(KS))]) for product, label in pairs]
    for k in KS:
        print(f"top-{k}: {sum(label in numbers[:k] for label, numbers in ranks) / len(ranks):.1%}")


def rounded(model: torch.nn.Sequential, places: Sequence[int], inputs: torch.Tensor) -> Ranker:
    """Return a perceptron with the whole numbers of [`Ranker`].

    Args:
        model: two linear layers, with a ReLU and dropout between them.
        places: the place of each class in the library.
        inputs: fingerprints, which show how large the activations become.
    """
    first, *_, second = model
    with torch.no_grad():
        # an activation above nearly all others is cut
        largest = first(inputs).relu().sort(0).values[int(len(inputs) * NEARLY_ALL)].clamp(min=1e-3)
        factors = LARGEST / largest
        rows = second.weight / factors
        scale = rows.abs().amax(1) / LARGEST
        tensors = {
            "input.weight": (first.weight * factors[:, None]).T.half(),
            "input.bias": (first.bias * factors).half(),
            "output.weight": (rows / scale[:, None]).round().to(torch.int8),
            "output.scale": scale,
            "output.bias": second.bias,
            "places": torch.tensor(places, dtype=torch.int32),
        }
    return Ranker({name: tensor.detach().contiguous() for name, tensor in tensors.items()})


def main(argv: Sequence[str] | None = None) -> None:
    """Match the reactions, and write the ranker and the held-out reactions.

    Raises:
        ValueError, OSError: a file cannot be read.
    """
    arguments = build_parser().parse_args(argv)
    folder = arguments.pairs
    folder.mkdir(parents=True, exist_ok=True)
    reactions, held_out = reactions_of(arguments.reactions, arguments.known, arguments.exclude)
    rows = [{"product": product, "reactants": reactants.split(".")} for product, reactants in held_out]
    with atomic_write(folder / "held-out.jsonl") as part:
        part.write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")
    places = classes_of(reactions, arguments.library, folder, multiprocessing.cpu_count())
    exclusions = set(held_out)
    pairs = [
        (product, place)
        for (product, reactants), place in zip(reactions, places, strict=True)
        if place is not None and (product, reactants) not in exclusions
    ]
    library = [row for _, row in read_rows(arguments.library)]
    products, classes = zip(*pairs, strict=True)
    ranker = fit(products, classes, [row.count for row in library])
    ranker.save(arguments.out, [library[place].smarts for place in ranker.places])
    print(f"{len(pairs):,} reactions of {len(ranker.places):,} classes. Saved to {arguments.out}.")


if __name__ == "__main__":
    sys.exit(run_script("shipped_ranker", main))
