"""Write the included stock of `weftformer.routes.shipped`.

`python -m weftformer.routes.recipes.shipped_stock uspto-*.jsonl.gz` writes a table of molecules that suppliers list,
from recorded reactions: `reactions` counts those that use the molecule, in any salt or charge, and `zinc` is 1 if
molbloom's filter of the molecules in stock of ZINC20 has it. 7% of the molecules that are not in stock count as
present there.

A molecule is kept if it is small for the number of reactions that use it. The thresholds below are from reading
samples of 200 by eye, with the share of each size that the filter has. Of the last sample, 94% were taken for
molecules that suppliers list. `listed.smi` has more of them, and labelled reagents. Amino acids with common protecting
groups are kept if a reaction uses them or ZINC20 has them. Ions are written as the salt on the label. It takes a core
ten minutes. Add `--sample 200` to print molecules for another reading.
"""

import argparse
import csv
import gzip
import io
import random
import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

import molbloom
from rdkit import Chem

from weftformer.common.atomic import atomic_write
from weftformer.routes.chemistry.forms import neutral_form
from weftformer.routes.chemistry.groups import unstable_kind
from weftformer.routes.chemistry.molecules import canonical_smiles
from weftformer.routes.chemistry.reagents import named_salts
from weftformer.routes.files import read_canonical
from weftformer.routes.shipped import STOCK
from weftformer.routes.stock.offers import LABELLED
from weftformer.scripts.cli import run_script

FILTER = "zinc-instock-mini"  # of molbloom
# The largest size, in heavy atoms besides protecting groups, of molecules that so many reactions use or more: of those
# in ZINC20, and of the others.
IN_ZINC = {1: 12, 2: 14, 3: 16, 10: 18}
NOT_IN_ZINC = {3: 10, 5: 13, 10: 15, 100: 22}
# Others that so many reactions make for each that uses them are intermediates.
MADE_PER_USE = 0.2
# Groups that suppliers add to small molecules, with the atoms by which they make a molecule larger.
GROUPS = {
    "CC(C)(C)OC(=O)[#7,#8]": 7,  # Boc and tert-butyl carbonates
    "O=C([#7])OCC1c2ccccc2-c2ccccc21": 17,  # Fmoc
    "O=C([#7])OCc1ccccc1": 10,  # Cbz
    "B1OC(C)(C)C(C)(C)O1": 6,  # pinacol boronates, as boronic acids
    "O[Si](C)(C)C(C)(C)C": 7,  # TBS
    "[Sn](CCCC)(CCCC)CCCC": 12,  # tributylstannanes
    "P(c1ccccc1)(c1ccccc1)c1ccccc1": 17,  # phosphonium salts and ylides
    "C(F)(F)F": 2,
}
# Amino acids that suppliers list with many protecting groups, of both hands and as alcohols: the side chains of common
# ones, some of them protected, and what is between the nitrogen and the acid of cyclic ones.
SIDE_CHAINS = (
    "C", "C(C)C", "CC(C)C", "[C@@H](C)CC", "Cc1ccccc1", "Cc1ccc(O)cc1", "Cc1c[nH]c2ccccc12", "CO", "[C@@H](C)O",
    "CS", "CCSC", "CC(N)=O", "CCC(N)=O", "CC(=O)O", "CCC(=O)O", "CCCCN", "CCCN", "CCCNC(=N)N", "Cc1c[nH]cn1", "CC",
    "CCC", "C(C)(C)C", "CC(C)(C)C", "c1ccccc1", "CCc1ccccc1", "CC1CCCCC1", "C1CCCCC1", "C1CC1", "CC1CC1", "CC=C",
    "CC#C", "CC(=O)OC(C)(C)C", "CCC(=O)OC(C)(C)C", "CC(=O)OC", "CCC(=O)OC", "CC(=O)OCc1ccccc1", "CCC(=O)OCc1ccccc1",
    "CCCCNC(=O)OC(C)(C)C", "CCCCNC(=O)OCc1ccccc1", "CCCNC(=O)OC(C)(C)C", "COC(C)(C)C", "COCc1ccccc1",
    "[C@@H](C)OC(C)(C)C", "[C@@H](C)OCc1ccccc1", "Cc1ccc(OC(C)(C)C)cc1", "Cc1ccc(OCc2ccccc2)cc1", "Cc1ccc(OC)cc1",
    "Cc1ccc(F)cc1", "Cc1ccc(Cl)cc1", "Cc1ccc(Br)cc1", "Cc1ccc(I)cc1", "Cc1cccnc1", "Cc1ccc2ccccc2c1", "CSCc1ccccc1",
)  # fmt: skip
CYCLIC = "1CC[C@H]1", "1CCC[C@H]1", "1CCCC[C@H]1", "1C[C@H](O)C[C@H]1"
AMINES = "N", "CC(C)(C)OC(=O)N", "O=C(OCc1ccccc1)N", "O=C(OCC1c2ccccc2-c2ccccc21)N"
ENDS = "C(=O)O", "C(=O)OC", "C(=O)OCC", "C(=O)OC(C)(C)C", "C(=O)OCc1ccccc1", "C(=O)N", "CO"
# Molecules that nobody can sell, or that are made where they are used, besides those that a step must not use.
UNSTABLE = (
    "[OX2H,SX2H,NX3;!$(N[C,S]=[O,S])][CX4][Cl,Br,I]",  # halides beside a hydroxy group or an amine
    "[OX2H][CX4;!$(CC(F)(F)F)][NX3;!$(N[C,S]=[O,S,N])]",  # hemiaminals
    "[OX2H][CX4;!R;!$(CC(F)F);!$(CC(Cl)Cl);!$(CC=O)][OX2;!$(O[O,S]);!$(OC=O)]",  # hemiacetals
    "[OX2H]C(=O)[NX3,OX2H0]",  # carbamic acids and half esters of carbonic acid
    "[OX2H][CX3;!$(C=O);!$(C-C=O)]=[CX3;!R;!$(C-C=O);!$(C-C#N)]",  # enols
    "[#3,#12,#30]-[#6].[OX2H,SX2H,NX3&H1,NX3&H2]",  # organometallics with an acidic group
    "[#6]-[#30;+,$([#30][Cl,Br,I])]",  # and zinc reagents with one group
    "[#6][N+]#N",  # diazonium salts
    "[CX3](=O)N=[N+]=[N-]",  # acyl azides
    "FF",  # elemental fluorine
    "[O-2]",
    "[O-][O-]",
    "[O-][CX4][O-]",  # orthoesters that were read as ions
)
# Organometallic reagents and alkoxides are listed if so many reactions use them.
REACTIVE, LEAST_OF_REACTIVE = ("[#3,#11,#12,#19]-[#6]", "[O-][CX4]"), 5
ISOTOPE = re.compile(r"\[\d")
# The cation of a metal, without what it comes with.
CATION = re.compile(r"\[[A-Z][a-z]?\+\d?\]")
# The counter-ions of ions on labels.
COUNTER_IONS = ("[K+]", "[Na+]", "[Li+]", "[Br-]", "[Cl-]", "[I-]", "F[B-](F)(F)F", "F[P-](F)(F)(F)(F)F")
LISTED = Path(__file__).with_name("listed.smi")


class Entry(NamedTuple):
    """A molecule of the stock.

    Args:
        smiles: the canonical SMILES of the molecule without counter-ions.
        reactions: the number of recorded reactions that use it.
        is_in_zinc: whether the filter has it.
    """

    smiles: str
    reactions: int
    is_in_zinc: bool


def count(files: Iterable[Path]) -> tuple[Counter[str], Counter[str]]:
    """Return the numbers of distinct reactions that use and that make each molecule, in any salt or charge."""
    reactions = {
        (step.smiles, step.reactants) for file in files for route in read_canonical(file) for step in route.steps()
    }
    uses, makes = Counter[str](), Counter[str]()
    for product, reactants in reactions:
        makes[neutral_form(product)] += 1
        uses.update({neutral_form(reactant) for reactant in reactants})
    return uses, makes


@cache
def _pattern(smarts: str) -> Chem.Mol:
    return Chem.MolFromSmarts(smarts)


def size_of(molecule: Chem.Mol) -> int:
    """Return the number of heavy atoms besides protecting groups."""
    atoms = (number * len(molecule.GetSubstructMatches(_pattern(group))) for group, number in GROUPS.items())
    return molecule.GetNumHeavyAtoms() - sum(atoms)


@cache
def listed() -> frozenset[str]:
    """Return molecules that suppliers list, whatever the thresholds: those of the file, and amino acids."""
    lines = LISTED.read_text(encoding="utf-8").splitlines()
    texts = [line.split()[0] for line in lines if not line.startswith("#")]
    for residue in (*(f"[C@@H]({chain})" for chain in SIDE_CHAINS), *CYCLIC):
        mirror = residue.replace("@@", "!").replace("@", "@@").replace("!", "@")
        texts += [f"{amine}{hand}{end}" for amine in AMINES for hand in (residue, mirror) for end in ENDS]
    return frozenset(neutral_form(Chem.CanonSmiles(text)) for text in texts)


def is_listed(entry: Entry, num_made: int) -> bool:
    """Return whether suppliers list a molecule, by the thresholds.

    Args:
        entry: the molecule.
        num_made: the number of reactions that make it.
    """
    if entry.smiles in listed():
        return bool(ISOTOPE.search(entry.smiles)) or entry.reactions > 0 or entry.is_in_zinc
    if CATION.fullmatch(entry.smiles):
        return False
    molecule = Chem.MolFromSmiles(entry.smiles)
    if "." in entry.smiles and any(atom.GetSymbol() == "C" for atom in molecule.GetAtoms()):
        return False  # a mixture, or a salt of two organic ions
    if unstable_kind(entry.smiles) or any(molecule.HasSubstructMatch(_pattern(smarts)) for smarts in UNSTABLE):
        return False
    is_reactive = any(molecule.HasSubstructMatch(_pattern(smarts)) for smarts in REACTIVE)
    if (is_reactive or ISOTOPE.search(entry.smiles)) and entry.reactions < LEAST_OF_REACTIVE:
        return False
    if not entry.is_in_zinc and num_made > MADE_PER_USE * entry.reactions:
        return False
    sizes = IN_ZINC if entry.is_in_zinc else NOT_IN_ZINC
    return size_of(molecule) <= max((size for least, size in sizes.items() if entry.reactions >= least), default=0)


def entries_of(files: Iterable[Path]) -> list[Entry]:
    """Return the molecules of the stock, sorted."""
    uses, makes = count(files)
    uses.update(dict.fromkeys(listed(), 0))  # they have an entry without a use too
    entries = (entry for entry in with_zinc(uses) if is_listed(entry, makes[entry.smiles]))
    return labels(entries)


def labels(entries: Iterable[Entry]) -> list[Entry]:
    """Return entries with the salts on their labels, sorted. Of several notations, that in most reactions counts."""
    by_smiles = {
        canonical_smiles(salt_of(entry.smiles)): entry
        for entry in sorted(entries, key=lambda entry: (entry.reactions, entry.smiles))
    }
    return sorted(entry._replace(smiles=smiles) for smiles, entry in by_smiles.items())


def with_zinc(uses: Mapping[str, int]) -> Iterator[Entry]:
    """Yield molecules with the numbers of reactions that use them, sorted, and whether the filter has them."""
    for smiles, reactions in sorted(uses.items()):
        yield Entry(smiles, reactions, molbloom.buy(smiles, catalog=FILTER))


def salt_of(smiles: str) -> str:
    """Return the salt that has an ion on its label: one with a common name if there is one. Return other molecules as
    they are.
    """
    ion = Chem.MolFromSmiles(smiles)
    charge = Chem.GetFormalCharge(ion)
    if not charge or "." in smiles:
        return smiles
    for atom in ion.GetAtoms():
        atom.SetIsotope(0)
    plain = Chem.MolToSmiles(Chem.RemoveHs(ion))
    partners = (salt.split(".") for salt in named_salts() if plain in salt.split("."))
    opposite = [counter for counter in COUNTER_IONS if ("+" in counter) != (charge > 0)]
    named = (partner for salt in partners for partner in salt if partner in opposite)
    partner = min(named, key=COUNTER_IONS.index, default="[Br-]" if charge > 0 else "[Na+]")
    return Chem.CanonSmiles(".".join([smiles, *[partner] * abs(charge)]))


def write(entries: Iterable[Entry], out: Path) -> None:
    """Write a gzipped table. The same molecules give the same file."""
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    table.writerow(["smiles", "reactions", "zinc"])
    for smiles, reactions, is_in_zinc in entries:
        is_labelled = not is_in_zinc and ISOTOPE.search(smiles)
        table.writerow([smiles, reactions, "1" if is_in_zinc else LABELLED if is_labelled else ""])
    with atomic_write(out) as temporary:
        temporary.write_bytes(gzip.compress(text.getvalue().encode(), mtime=0))


def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m weftformer.routes.recipes.shipped_stock", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)  # fmt: skip
    add = parser.add_argument
    add("reactions", type=Path, nargs="+", metavar="FILE", help="recorded reactions")
    add("--out", type=Path, default=STOCK, metavar="FILE", help="file of the stock (default: %(default)s)")
    add("--sample", type=int, default=0, metavar="N", help="print so many molecules, drawn at random")
    return parser


def main(argv: Sequence[str] | None = None) -> None:
    """Write the stock.

    Raises:
        ValueError, OSError: the reactions cannot be read.
    """
    arguments = build_parser().parse_args(argv)
    entries = entries_of(arguments.reactions)
    write(entries, arguments.out)
    for entry in random.Random(0).sample(entries, min(arguments.sample, len(entries))):
        print(entry.smiles, entry.reactions, "in ZINC20" if entry.is_in_zinc else "")
    print(
        f"{len(entries):,} molecules are in {arguments.out}, {sum(entry.is_in_zinc for entry in entries):,} in ZINC20."
    )


if __name__ == "__main__":
    sys.exit(run_script("shipped_stock", main))
