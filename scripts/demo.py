"""See what Weft does in about two minutes: load the included route model, plan three drugs outside its training
data, write a page with their routes, and train a small new model for about a minute. `make demo` runs this."""

from __future__ import annotations

import argparse
import time
from pathlib import Path

from weftformer.scripts import cli
from weftformer.scripts.arguments import positive
from weftformer.scripts.routes_plan import NO_ROUTE

# None of them is a product in the training data of the shipped model, even if stereochemistry is ignored.
DRUGS = {
    "lidocaine": "CCN(CC)CC(=O)Nc1c(C)cccc1C",
    "safinamide": "C[C@H](NCc1ccc(OCc2cccc(F)c2)cc1)C(N)=O",
    "celecoxib": "Cc1ccc(-c2cc(C(F)(F)F)nn2-c2ccc(S(N)(=O)=O)cc2)cc1",
}
# The time limit of each search in seconds, and the number of purchasable routes after which it ends.
BUDGET, NUM_ROUTES = 20.0, 5
NUM_TEST_ROUTES = 20


def plan_drugs(model: str | None, beams: int, folder: Path) -> None:
    """Plan the drugs, print the best route of each, and draw all on a page."""
    from weftformer.routes.shipped import STOCK

    targets = folder / "drugs.smi"
    targets.write_text("".join(f"{smiles} {name}\n" for name, smiles in DRUGS.items()))
    words = ["--input-file", targets, "--html", folder / "routes.html", "--show", 1, "--no-progress", "--beams", beams]
    words += ["--forward-model", "none", "--time-limit", BUDGET, "--num-routes", NUM_ROUTES]
    words += [] if model is None else ["--model", model, "--stock", STOCK]
    if cli.main(["routes", "plan", *map(str, words)]) not in (0, NO_ROUTE):
        raise ValueError("The drugs were not planned.")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--output-dir", type=Path, default=Path("runs/demo-output"), metavar="FOLDER",
        help="folder for the page and the trained model; older files are replaced (default: %(default)s)")  # fmt: skip
    add("--model", metavar="MODEL", help="folder or Hub id of another route model (default: the included one)")
    add("--beams", type=positive, default=10, metavar="N", help="width of the search (default: %(default)s)")
    add("--max-steps", type=positive, default=150, metavar="N", help="training steps (default: %(default)s)")
    add("--seed", type=int, default=0, help="seed of the training (default: %(default)s)")


def main(args: argparse.Namespace) -> None:
    """Plan, draw, train and save.

    Raises:
        ValueError: a number is below 1.
        OSError: there is no such model, or the folder cannot be written.
    """
    started = time.monotonic()
    args.output_dir.mkdir(parents=True, exist_ok=True)
    plan_drugs(args.model, args.beams, args.output_dir)
    print("\nTraining a new model on recorded routes.")
    words = ["--output-dir", args.output_dir / "model", "--overwrite-output-dir", "--max-steps", args.max_steps]
    words += ["--num-test-routes", NUM_TEST_ROUTES, "--beams", 2, "--seed", args.seed]
    if cli.main(["routes", "train", *map(str, words)]):
        raise ValueError("The new model was not trained.")
    print(
        f"The demo took {time.monotonic() - started:.0f} s.\n\n"
        "Next:\n  weftformer routes plan 'SMILES OF YOUR TARGET' --html routes.html\n  weftformer serve\n"
        "  weftformer --help"
    )
