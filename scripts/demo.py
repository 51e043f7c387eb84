"""See what Weft does in a minute of CPU time: load the included route model, plan three drugs outside its training
data, write a page with their routes, then train the included model of short texts on 300 dates in five notations, and
write others as it learned. `make demo` runs this.
"""

from __future__ import annotations

import argparse
import calendar
import csv
import random
import time
from collections.abc import Iterator
from pathlib import Path

from weftformer.routes.commands.plan import NO_ROUTE
from weftformer.scripts import cli
from weftformer.scripts.arguments import positive

# None of them is a product in the training data of the shipped model, even if stereochemistry is ignored.
DRUGS = {
    "lidocaine": "CCN(CC)CC(=O)Nc1c(C)cccc1C",
    "safinamide": "C[C@H](NCc1ccc(OCc2cccc(F)c2)cc1)C(N)=O",
    "celecoxib": "Cc1ccc(-c2cc(C(F)(F)F)nn2-c2ccc(S(N)(=O)=O)cc2)cc1",
}
# The number of routes after which a search ends, and the numbers of dates to learn from and to show.
NUM_ROUTES, NUM_PAIRS, NUM_SHOWN = 5, 300, 5


def plan_drugs(model: str | None, beams: int, folder: Path) -> None:
    """Plan the drugs, print the best route of each, and draw all on a page."""
    from weftformer.routes.shipped import STOCK

    targets = folder / "drugs.smi"
    targets.write_text("".join(f"{smiles} {name}\n" for name, smiles in DRUGS.items()))
    words = ["--input-file", targets, "--html", folder / "routes.html", "--show", 1, "--no-progress", "--beams", beams]
    words += ["--forward-model", "none", "--num-routes", NUM_ROUTES]
    words += [] if model is None else ["--model", model, "--stock", STOCK]
    if cli.main(["routes", "plan", *map(str, words)]) not in (0, NO_ROUTE):
        raise ValueError("The drugs were not planned.")


def dates(seed: int) -> Iterator[tuple[str, str]]:
    """Yield dates in five notations, each with the same date in ISO 8601."""
    rng = random.Random(seed)
    while True:
        year, month, day = rng.randint(1970, 2029), rng.randint(1, 12), rng.randint(1, 28)
        name, short = calendar.month_name[month], calendar.month_abbr[month]
        yield rng.choice(
            (f"{day} {name} {year}", f"{name} {day}, {year}", f"{short} {day} {year}", f"{day}.{month}.{year}",
             f"{day:02}/{month:02}/{year}")
        ), f"{year}-{month:02}-{day:02}"  # fmt: skip


def learn_dates(folder: Path, seed: int, max_steps: int | None) -> None:
    """Train the included model of short texts on dates, and print what it writes for others."""
    pairs = dates(seed)
    with (folder / "dates.csv").open("w", newline="") as file:
        csv.writer(file).writerows([("date", "iso"), *(next(pairs) for _ in range(NUM_PAIRS))])
    words = ["--train-file", folder / "dates.csv", "--source-column", "date", "--target-column", "iso"]
    words += ["--output-dir", folder / "model", "--overwrite-output-dir", "--seed", seed]
    words += [] if max_steps is None else ["--max-steps", max_steps]
    if cli.main(["train", *map(str, words)]):
        raise ValueError("The model was not trained.")
    questions = [next(pairs)[0] for _ in range(NUM_SHOWN)]
    (folder / "new.txt").write_text("\n".join(questions) + "\n")
    words = ["--model", folder / "model", "--input-file", folder / "new.txt", "--output-file", folder / "answers.txt"]
    if cli.main(["generate", *map(str, words), "--overwrite"]):
        raise ValueError("The model wrote nothing.")
    for question, answer in zip(questions, (folder / "answers.txt").read_text().splitlines(), strict=True):
        print(f"  {question:20} {answer}")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--output-dir", type=Path, default=Path("runs/demo-output"), metavar="FOLDER",
        help="folder for the page and the trained model; older files are replaced (default: %(default)s)")  # fmt: skip
    add("--model", metavar="MODEL", help="folder or Hub id of another route model (default: the included one)")
    add("--beams", type=positive, default=10, metavar="N", help="width of the search (default: %(default)s)")
    add(
        "--max-steps", type=positive, metavar="N", help="training steps (default: as many as `weftformer train` takes)"
    )
    add("--seed", type=int, default=0, help="seed of the dates and the training (default: %(default)s)")


def main(args: argparse.Namespace) -> None:
    """Plan, draw, train and save.

    Raises:
        ValueError: a number is below 1.
        OSError: there is no such model, or the folder cannot be written.
    """
    started = time.monotonic()
    args.output_dir.mkdir(parents=True, exist_ok=True)
    plan_drugs(args.model, args.beams, args.output_dir)
    print(f"\nTraining on {NUM_PAIRS} dates in five notations.")
    learn_dates(args.output_dir, args.seed, args.max_steps)
    print(
        f"The demo took {time.monotonic() - started:.0f} s.\n\n"
        "Next:\n  weftformer routes plan 'SMILES OF YOUR TARGET' --html routes.html\n  weftformer train --help\n"
        "  weftformer --help"
    )
