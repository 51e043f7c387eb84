"""Learn which site reacts, which groups survive and what exists from the reactions of the included library:

    python -m weftformer.routes.recipes.shipped_learned \\
        --reactions uspto-full-part.jsonl.gz uspto-480k-part.jsonl.gz \\
        --known paroutes-n5.jsonl.gz uspto-50k-train.jsonl.gz uspto-15k.jsonl.gz \\
        --exclude paroutes-n1.jsonl.gz uspto-50k-valid.jsonl.gz uspto-50k-test.jsonl.gz

The files are those of the library, as in `routes.recipes.shipped_routes`. The known routes have no atom maps: the
library maps them, which takes 12 ms a reaction. To read a reaction takes 4 ms, and the training 4 minutes of a core.
One of 20 products is held out. The accuracies and the calibration on these are printed.
"""

import argparse
import hashlib
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy
import torch
from rdkit import Chem
from safetensors.numpy import save_file
from torch.nn import functional

from weftformer.common.atomic import atomic_write
from weftformer.common.progress import Progress
from weftformer.routes.chemistry.changes import Change, changes, environments, half_bonds, without_maps
from weftformer.routes.chemistry.molecules import joined
from weftformer.routes.files import read_canonical
from weftformer.routes.judging import shipped_library
from weftformer.routes.judging.objections import LEARNED, NOTED_RATIO
from weftformer.routes.judging.sites import BITS, Choice, Environments, choices
from weftformer.routes.judging.unseen import (
    could_react,
    environment_keys,
    kinds_of_change,
    molecule_key,
    ratio,
)
from weftformer.routes.recipes.shipped_routes import LIBRARY, add_reactions, new_records
from weftformer.scripts.cli import run_script

# One of so many products is held out. Larger reactions are left out.
HELD_OUT, MOST_ATOMS = 20, 90
EPOCHS, BATCH, LEARNING_RATE, WEIGHT_DECAY, DROPOUT = 2, 256, 0.1, 3e-6, 0.1
# Environments and kinds of fewer reactions are not compared, nor what is expected less often.
LEAST_RECORDED, LEAST_KINDS, LEAST_EXPECTED = 60, 30, 4.0
# A molecule of at most so many atoms that so many reactions have exists.
MOST_KNOWN, LEAST_USED = 8, 3


def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m weftformer.routes.recipes.shipped_learned", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)  # fmt: skip
    add = parser.add_argument
    add_reactions(parser, required=True)
    add("--out", type=Path, default=LIBRARY.with_name(LEARNED), metavar="FILE",
        help="file to write (default: %(default)s)")  # fmt: skip
    return parser


def mapped_reactions(
    files: Sequence[Path], known: Sequence[Path], exclude: Sequence[Path]
) -> Iterator[tuple[str, Any, Any]]:
    """Yield the product of each reaction, and its reactants and product as molecules with atom maps.

    Args:
        files: mapped reactions.
        known: routes, whose reactions the library maps.
        exclude: routes. Reactions that make a molecule that these make are left out.
    """
    reactions = set[tuple[str, str]]()
    for record in new_records(files, exclude, reactions):
        reactants, product = map(Chem.MolFromSmiles, record.mapped.split(">>"))
        if reactants is not None and product is not None:
            yield record.product, reactants, product
    for route in (route for file in known for route in read_canonical(file)):
        for step in route.steps():
            reaction = step.smiles, joined(child.smiles for child in step.children)
            if reaction not in reactions:
                reactions.add(reaction)
                match = shipped_library().match(reaction[0], reaction[1].split("."))
                if match is not None and match.step.reactants is not None:
                    yield reaction[0], match.step.reactants, match.step.molecule


def is_held_out(product: str) -> bool:
    """Return whether the reactions of a product are held out."""
    return int(hashlib.md5(product.encode()).hexdigest(), 16) % HELD_OUT == 0


class Rows:
    """Choices as rows of features: those of each candidate one after the other, the site that reacts first."""

    def __init__(self) -> None:
        self._features, self._sizes = list[numpy.ndarray](), list[numpy.ndarray]()
        self.num_candidates, self.kinds = list[int](), list[str]()

    def add(self, choice: Choice, near: Environments) -> None:
        """Add a choice, without leaving groups in the molecule of the partner."""
        is_left_out = [is_partner and choice.kind == "leaving group" for is_partner in choice.with_partner]
        places = [place for place, is_out in enumerate(is_left_out) if not is_out]
        if len(places) > 1:
            candidates, rings = ([values[place] for place in places] for values in (choice.candidates, choice.rings))
            features, rows = near.features(choice._replace(candidates=candidates, rings=rings))
            self._features.append(features[numpy.argsort(rows, kind="stable")].astype(numpy.int32))
            self._sizes.append(numpy.bincount(rows, minlength=len(places)))
            self.num_candidates.append(len(places))
            self.kinds.append(choice.kind)

    def close(self) -> None:
        """Put the rows together."""
        self.features = numpy.concatenate(self._features)
        self.sizes, self.counts = numpy.concatenate(self._sizes), numpy.array(self.num_candidates)
        self.starts, self.firsts = (numpy.cumsum(sizes) - sizes for sizes in (self.sizes, self.counts))
        self._features.clear()

    def logits(self, weights: torch.nn.EmbeddingBag, choices: Any, dropout: float = 0.0) -> torch.Tensor:
        """Return the scores of the candidates of some choices, of shape `(choices, most candidates)`."""
        counts = self.counts[choices]
        firsts = self.firsts[choices] - (numpy.cumsum(counts) - counts)
        rows = numpy.repeat(firsts, counts) + numpy.arange(counts.sum())
        sizes = self.sizes[rows]
        offsets = numpy.cumsum(sizes) - sizes
        places = numpy.repeat(self.starts[rows] - offsets, sizes) + numpy.arange(sizes.sum())
        factors = functional.dropout(torch.ones(len(places)), dropout) if dropout else None
        features = torch.from_numpy(self.features[places]).long()
        sums = weights(features, torch.from_numpy(offsets), per_sample_weights=factors).squeeze(1)
        is_candidate = torch.arange(int(counts.max())) < torch.from_numpy(counts)[:, None]
        return torch.full(is_candidate.shape, -torch.inf).masked_scatter(is_candidate, sums)


def fit(rows: Rows, held_out: Rows) -> tuple[numpy.ndarray, float]:
    """Learn the weights of the sites, print how good they are, and return them as whole numbers with their scale."""
    torch.manual_seed(0)
    weights = torch.nn.EmbeddingBag(1 << BITS, 1, mode="sum")
    torch.nn.init.zeros_(weights.weight)
    optimizer = torch.optim.Adagrad(weights.parameters(), lr=LEARNING_RATE, weight_decay=WEIGHT_DECAY)
    for _ in range(EPOCHS):
        for batch in torch.randperm(len(rows.counts)).split(BATCH):
            logits = rows.logits(weights, batch.numpy(), DROPOUT)
            loss = functional.cross_entropy(logits, torch.zeros(len(batch), dtype=torch.long))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    with torch.no_grad():
        scale = float(weights.weight.abs().max()) / 127
        whole = (weights.weight / scale).round()
        weights.weight.copy_(whole * scale)
        _print_quality(weights, held_out)
    return whole.squeeze(1).to(torch.int8).numpy(), scale


def _print_quality(weights: torch.nn.EmbeddingBag, rows: Rows) -> None:
    parts = torch.arange(len(rows.counts)).split(BATCH)
    shares = [row for part in parts for row in rows.logits(weights, part.numpy()).softmax(1)]
    by_kind = defaultdict[str, list[torch.Tensor]](list)
    for kind, row in zip(rows.kinds, shares, strict=True):
        by_kind[kind].append(row)
    for kind, members in sorted(by_kind.items(), key=lambda item: -len(item[1])):
        right = sum(int(row.argmax()) == 0 for row in members) / len(members)
        print(f"{kind:<16} {len(members):6,} choices, first: {right:6.1%}")
    tenths = defaultdict[int, list[tuple[float, bool]]](list)
    for row in shares:
        for place, share in enumerate(row[row > 0].tolist()):
            tenths[min(9, int(10 * share))].append((share, place == 0))
    for _, pairs in sorted(tenths.items()):
        predicted, observed = (sum(values) / len(pairs) for values in zip(*pairs, strict=True))
        print(f"{len(pairs):6,} candidates with a mean probability of {predicted:.1%}: {observed:.1%} react")


class Counts:
    """The counts of groups that stay by kinds of reactions, of bonds and of molecules."""

    def __init__(self) -> None:
        self._num_atoms, self._staying = 0, Counter[int]()
        self._staying_by_kind = defaultdict[int, Counter[int]](Counter)
        self._kinds, self._kind_atoms = Counter[int](), Counter[int]()
        self._molecules, self._halves = Counter[str](), Counter[tuple[int, int, int]]()

    def add(self, reactants: Any, product: Any, changed: Sequence[Change], near: Environments) -> None:
        """Count a reaction."""
        numbers, places = {atom.GetAtomMapNum() for atom in product.GetAtoms()}, {change.before for change in changed}
        atoms = [atom for atom in reactants.GetAtoms() if atom.GetAtomMapNum() in numbers - {0}]
        staying = set[int]()
        for atom in atoms:
            if atom.GetIdx() not in places and could_react(atom):
                staying.update(environment_keys(atom, near.numbers[atom.GetIdx()]))
        self._num_atoms += len(atoms)
        self._staying.update(staying)
        for kind in kinds_of_change(changed, reactants, product):
            self._kinds[kind] += 1
            self._kind_atoms[kind] += len(atoms)
            self._staying_by_kind[kind].update(staying)
        for molecule in (*Chem.GetMolFrags(reactants, asMols=True), product):
            self._add_molecule(molecule)

    def _add_molecule(self, molecule: Any) -> None:
        molecule = without_maps(molecule)
        smiles = Chem.MolToSmiles(molecule, isomericSmiles=False)
        self._molecules[smiles] += 1
        if self._molecules[smiles] == 1:
            self._halves.update({(half.rest, half.atom, half.end) for half in half_bonds(molecule)})

    def absences(self) -> Iterator[tuple[int, int, int, float, int]]:
        """Yield the kind and the environment of each absence, with the numbers of [`~judging.unseen.Absence`]."""
        common = [(key, count) for key, count in self._staying.items() if count >= LEAST_RECORDED]
        for kind, total in self._kinds.items():
            # larger molecules have more groups
            share = self._kind_atoms[kind] / self._num_atoms
            for key, count in common if total >= LEAST_KINDS else ():
                expected, recorded = count * share, self._staying_by_kind[kind][key]
                if expected >= LEAST_EXPECTED and ratio(recorded, expected) < NOTED_RATIO:
                    yield kind, key, recorded, expected, total

    def bonds(self) -> Iterator[tuple[int, int, int, int]]:
        """Yield the half bonds with the numbers of molecules that have them."""
        return ((*half, count) for half, count in self._halves.items())

    def known(self) -> Iterator[int]:
        """Yield the numbers of the small molecules that several reactions have."""
        for smiles, count in self._molecules.items():
            if count >= LEAST_USED and Chem.MolFromSmiles(smiles, sanitize=False).GetNumAtoms() <= MOST_KNOWN:
                yield molecule_key(smiles)


def tensors_of(reactions: Iterable[tuple[str, Any, Any]]) -> dict[str, numpy.ndarray]:
    """Return what is learned from reactions, those of [`mapped_reactions`]."""
    rows, held_out, counts = Rows(), Rows(), Counts()
    with Progress("reading", None, "reactions") as bar:
        for smiles, reactants, product in reactions:
            bar.update()
            if reactants.GetNumAtoms() <= MOST_ATOMS:
                changed, is_test = changes(reactants, product), is_held_out(smiles)
                near = Environments(reactants, environments(without_maps(reactants)))
                for choice in choices(reactants, product, changed):
                    (held_out if is_test else rows).add(choice, near)
                if not is_test:
                    counts.add(reactants, product, changed, near)
    rows.close()
    held_out.close()
    weights, scale = fit(rows, held_out)
    absences = sorted(counts.absences())
    return {
        "sites.weight": weights,
        "sites.scale": numpy.array(scale, numpy.float32),
        "unseen.kinds": numpy.array([kind for kind, *_ in absences], numpy.uint32),
        "unseen.environments": numpy.array([key for _, key, *_ in absences], numpy.uint64),
        "unseen.counts": numpy.array([values for _, _, *values in absences], numpy.float32),
        "unseen.bonds": numpy.array(sorted(counts.bonds()), numpy.uint32),
        "unseen.known": numpy.array(sorted(counts.known()), numpy.uint32),
    }


def main(argv: Sequence[str] | None = None) -> None:
    """Learn, and write the file.

    Raises:
        ValueError, OSError: a file cannot be read.
    """
    arguments = build_parser().parse_args(argv)
    tensors = tensors_of(mapped_reactions(arguments.reactions, arguments.known, arguments.exclude))
    with atomic_write(arguments.out) as part:
        save_file(tensors, part)
    print(f"Saved to {arguments.out}.")


if __name__ == "__main__":
    sys.exit(run_script("shipped_learned", main))
