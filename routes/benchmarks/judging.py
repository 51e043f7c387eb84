"""Measure how recorded steps are judged, and steps that a change makes wrong.

`python -m weftformer.routes.benchmarks.judging uspto-50k-test.jsonl.gz` judges steps of a file of routes or reactions,
drawn at random, and prints the share of each outcome. `--change` judges wrong steps in their place. docs/judging.md
has the results.
"""

import random
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from rdkit import Chem

from weftformer.common.progress import Progress
from weftformer.routes.files import read_canonical
from weftformer.routes.judging import judge
from weftformer.scripts.cli import Parser, run_script

Step = tuple[str, tuple[str, ...]]
CHANGES = ("swap", "invert", "move")


def steps_of(files: Sequence[Path], without: Sequence[Path]) -> list[Step]:
    """Return the distinct steps of some files whose products no step of the others makes, sorted."""

    def distinct(paths: Sequence[Path]) -> set[Step]:
        steps = (step for path in paths for route in read_canonical(path) for step in route.steps())
        return {(step.smiles, step.reactants) for step in steps}

    products = {product for product, _ in distinct(without)}
    return sorted(step for step in distinct(files) if step[0] not in products)


def swapped(step: Step, others: Sequence[str], rng: random.Random) -> Step | None:
    """Return a step with a molecule of another one in place of one of several reactants."""
    product, reactants = step
    place, other = rng.randrange(len(reactants)), rng.choice(others)
    if len(reactants) < 2 or other in reactants:
        return None
    return product, (*reactants[:place], other, *reactants[place + 1 :])


def inverted(step: Step, rng: random.Random) -> Step | None:
    """Return a step with the mirror image of a stereocentre of the product."""
    molecule = Chem.MolFromSmiles(step[0])
    centres = [atom for atom in molecule.GetAtoms() if atom.GetChiralTag() != Chem.ChiralType.CHI_UNSPECIFIED]
    if not centres:
        return None
    rng.choice(centres).InvertChirality()
    other = Chem.MolToSmiles(molecule)
    return None if other == step[0] else (other, step[1])


def moved(step: Step, rng: random.Random) -> Step | None:
    """Return a step with a substituent of the product at the next carbon atom of its aromatic ring."""
    molecule, isomers = Chem.MolFromSmiles(step[0]), set[str]()
    places = Chem.MolFromSmarts("*-!@c:@[cH]")
    for substituent, ring_atom, neighbour in molecule.GetSubstructMatches(places, uniquify=False):
        isomer = Chem.RWMol(molecule)
        isomer.RemoveBond(substituent, ring_atom)
        isomer.AddBond(substituent, neighbour, Chem.BondType.SINGLE)
        isomers.add(Chem.MolToSmiles(Chem.MolFromSmiles(Chem.MolToSmiles(isomer)) or molecule))
    isomers.discard(step[0])
    return (rng.choice(sorted(isomers)), step[1]) if isomers else None


def changed(steps: Sequence[Step], change: str, rng: random.Random) -> Iterator[Step]:
    """Yield the steps with a change, those that have room for it."""
    others = sorted({reactant for _, reactants in steps for reactant in reactants})
    for step in steps:
        if change == "swap":
            wrong = swapped(step, others, rng)
        else:
            wrong = inverted(step, rng) if change == "invert" else moved(step, rng)
        if wrong is not None:
            yield wrong


def outcome(step: Step) -> str:
    """Return `recorded`, `textbook`, `two at once`, `related`, `refused`, `fails` or `none`."""
    judgement = judge(*step)
    if judgement.state == "fails":
        return "fails"
    return "refused" if judgement.evidence == "none" and judgement.is_objected else judgement.evidence


def build_parser() -> Parser:
    parser = Parser(prog="python -m weftformer.routes.benchmarks.judging", description=__doc__)
    add = parser.add_argument
    add("files", type=Path, nargs="+", metavar="FILE", help="recorded routes or reactions")
    add("--without", type=Path, nargs="*", default=[], metavar="FILE", help="leave out steps whose product these make")
    add("--number", type=int, default=1000, metavar="N", help="number of steps (default: %(default)s)")
    add("--change", choices=CHANGES, help="swap a reactant, invert a stereocentre, or move a substituent")
    add("--seed", type=int, default=0, metavar="N", help="seed of the draws (default: %(default)s)")
    return parser


def main(argv: Sequence[str] | None = None) -> None:
    """Judge, and print the shares.

    Raises:
        ValueError, OSError: a file cannot be read.
    """
    arguments = build_parser().parse_args(argv)
    rng = random.Random(arguments.seed)
    steps = steps_of(arguments.files, arguments.without)
    steps = rng.sample(steps, min(arguments.number, len(steps)))
    if arguments.change is not None:
        steps = list(changed(steps, arguments.change, rng))
    with Progress("judged", len(steps), "steps") as bar:
        outcomes = Counter[str]()
        for step in steps:
            outcomes[outcome(step)] += 1
            bar.update()
    print(f"{len(steps):,} steps")
    for name, count in outcomes.most_common():
        print(f"{name:<12} {count:6,} {count / len(steps):7.1%}")


if __name__ == "__main__":
    sys.exit(run_script("judging", main))
