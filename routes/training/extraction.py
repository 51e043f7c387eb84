"""Builds a library of transformations from recorded reactions. Those without atom maps get some, or are left out.

Templates are rdchiral's, with neighbours of one bond (Coley et al. 2019, doi 10.1021/acs.jcim.9b00286). A template is
kept only if it turns the product of its own reaction into the recorded reactants, and if [`is_sound`].
"""

from __future__ import annotations

import contextlib
import gzip
import io
import itertools
import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from rdchiral import template_extractor
from rdkit import Chem, rdBase

from ...common.atomic import atomic_write
from ...common.progress import Progress
from ...common.tables import find_column, named_errors, read_table, text_of
from ...common.workers import WorkerProcesses
from ..chemistry.changes import without_maps
from ..chemistry.molecules import canonical_or_given, canonical_smiles, joined
from ..chemistry.reagents import compounds
from ..files.entries import REACTION_COLUMNS
from ..files.reaction_lines import read_reaction
from ..judging.library import difference
from ..judging.library_files import named, shipped_library
from ..judging.templates import mapped_step, patterns
from ..judging.transformation import CLASSES, EXAMPLES, Example, Row, Transformation, most_common_sets
from ..tree import ATOM_MAP
from .mapping import with_maps

# rdchiral takes minutes or does not end beyond these numbers of reactants and characters, and for a few other
# reactions, which are given up after so many seconds.
_MOST_REACTANTS, _MOST_PRODUCT, _MOST_TEMPLATE = 6, 900, 700
_MOST_SECONDS = 10.0
# The maps of a Mitsunobu or Chan-Lam reaction are wrong if an arene loses its oxygen atom to an alcohol or a boronic
# acid.
_LOST_HYDROXYL = re.compile(r"(^|[.>(])O-\[c;")
# The number of atoms on the way from one side of a six-membered ring to the other.
_ACROSS_A_RING = 4
# The atomic numbers of atoms that leave a carbon atom with inversion: oxygen and the halogens.
_LEAVING = (8, 9, 17, 35, 53)
# The marks of stereochemistry in the SMARTS of an atom.
_HAND = re.compile(r"@+;?|[;&]@+")
# The numbers of the classes of USPTO-50K. A `class` may also be that of another system.
_CLASSES = frozenset(map(str, CLASSES))
# The reasons for which a reaction is left out.
NO_MAPS, SEVERAL, UNREADABLE = "uncertain atom maps", "several products", "not readable"
NO_TEMPLATE = "no template reproduces the reactants"


class Record(NamedTuple):
    """A recorded reaction.

    Args:
        mapped: its reaction SMILES with atom maps, without agents. No other atoms of the reactants have numbers than
            those that are in the product. Empty if it has no atom maps: `reactants` may then have reagents among them.
        product: canonical SMILES.
        reactants: canonical SMILES of the molecules that give atoms, as [`joined`] returns them.
        reaction_class: one of the ten classes of USPTO-50K, or None.
        source: the number of its patent or its id, or None.
        agents: SMILES of the molecules that give no atom.
    """

    mapped: str
    product: str
    reactants: str
    reaction_class: int | None = None
    source: str | None = None
    agents: tuple[str, ...] = ()


class Problem(NamedTuple):
    """A reaction that cannot be used: its id, or else its row counted from 1, and the reason."""

    name: str
    reason: str


class Template(NamedTuple):
    """The template of a reaction and its core, as in [`Transformation`]."""

    smarts: str
    core: str


def record_of(reaction: str, **facts: Any) -> Record:
    """Return a reaction as a record.

    Args:
        reaction: the reaction SMILES. Its agents may be between the two `>`, or among the reactants.
        **facts: other arguments of [`Record`]. `agents` are added to those of the reaction.

    Raises:
        ValueError: RDKit cannot read a molecule, or there are several products.
    """
    reactants, agents, product = read_reaction(reaction)
    numbers = set(ATOM_MAP.findall(product))
    if "." in product:
        raise ValueError(SEVERAL)
    if not numbers:
        facts["agents"] = (*(facts.get("agents") or ()), *agents)
        return Record("", canonical_smiles(product), joined(ATOM_MAP.sub("", part) for part in reactants), **facts)

    sources = [part for part in (*reactants, *agents) if not numbers.isdisjoint(ATOM_MAP.findall(part))]
    idle = [ATOM_MAP.sub("", part) for part in (*reactants, *agents) if part not in sources]
    facts["agents"] = tuple(dict.fromkeys((*(facts.get("agents") or ()), *idle)))
    # a number that only the reactants have would make its atom part of the core
    maps = ".".join(ATOM_MAP.sub(lambda match: match[0] if match[1] in numbers else "", part) for part in sources)
    bare = joined(ATOM_MAP.sub("", part) for part in sources)
    return Record(f"{maps}>>{product}", canonical_smiles(ATOM_MAP.sub("", product)), bare, **facts)


def read_records(path: str | Path) -> Iterator[Record | Problem]:
    """Yield the reactions of a file, and those that cannot be used, with the reason.

    Args:
        path: a table with a column of reaction SMILES, JSON lines, or lines of reaction SMILES, gzipped or not. A row
            may also have `class`, `id` and `agents`.

    Raises:
        OSError: the file cannot be read.
        ValueError: it is damaged, or is no such file.
    """
    columns = ("mapped", *REACTION_COLUMNS)
    with open(path, "rb") as file, named_errors(path):
        table, lines = read_table(text_of(file, str(path)), columns)
        rows: Iterable[Any] = (
            (dict(zip(table.header, row, strict=False)) for row in table.rows)
            if table is not None
            else (json.loads(line) if line.lstrip().startswith("{") else {"mapped": line} for line in lines)
        )
        for place, row in enumerate(rows, 1):
            column = find_column(list(row), columns)
            if column is None:
                raise ValueError(f"{path} has no column with reactions: call it `reaction_smiles`.")
            facts = {name.strip().lower(): cell for name, cell in row.items()}
            number, agents = str(facts.get("class")), facts.get("agents") or ()
            source = None if facts.get("id") in (None, "") else str(facts["id"])
            try:
                yield record_of(
                    str(list(row.values())[column] or ""),
                    reaction_class=int(number) if number in _CLASSES else None,
                    source=source,
                    agents=tuple(agents.split(".") if isinstance(agents, str) else agents),
                )
            except ValueError as error:
                yield Problem(source or f"row {place}", SEVERAL if str(error) == SEVERAL else UNREADABLE)


class Extraction:
    """Maps atoms and extracts templates, in one process or several."""

    def mapped(self, record: Record) -> list[Record | None]:
        """Return a record with atom maps, or None if they are uncertain."""
        if record.mapped:
            return [record]
        reactants = record.reactants.split(".")
        for parts in (reactants, [*reactants, *record.agents]):
            if reaction := with_maps(record.product, parts, shipped_library()):
                result = record_of(reaction, reaction_class=record.reaction_class, source=record.source)
                sources = set(result.reactants.split("."))
                agents = (part for part in (*record.agents, *parts) if canonical_or_given(part) not in sources)
                return [result._replace(agents=tuple(dict.fromkeys(agents)))]
        return [None]

    def template(self, record: Record) -> list[Template | None]:
        """Return the template of a record, or None if none reproduces its reactants."""
        smarts = _template_of(record.mapped)
        step = mapped_step(smarts, record.product, record.reactants) if smarts else None
        if smarts is None or step is None:
            return [None]
        return [Template(smarts, core_of(smarts))]


def _template_of(mapped: str) -> str | None:
    reactants, product = mapped.split(">>")
    if reactants.count(".") >= _MOST_REACTANTS or len(product) > _MOST_PRODUCT:
        return None
    reaction = {"_id": 0, "reactants": reactants, "products": product}
    # rdchiral prints what it cannot extract
    with rdBase.BlockLogs(), contextlib.redirect_stdout(io.StringIO()):
        try:
            smarts = (template_extractor.extract_from_reaction(reaction) or {}).get("reaction_smarts")
        except (ValueError, KeyError, RuntimeError, IndexError):
            return None
    return smarts if smarts and len(smarts) <= _MOST_TEMPLATE and is_sound(smarts) else None


def is_sound(smarts: str) -> bool:
    """Return whether a template keeps the stereochemistry of atoms it does not change, and takes no atom from where
    none is given.

    Others come from reactants that were drawn flat, or from wrong maps.
    """
    product, parts = patterns(smarts)
    before = {number: centre for part in parts for number, centre in _centres(part).items()}
    for number, (bonds, handedness) in _centres(product).items():
        old_bonds, old_handedness = before.get(number, (None, None))
        if bonds == old_bonds and handedness != old_handedness:
            return False
    reactants = smarts.split(">>")[1]
    if _LOST_HYDROXYL.search(reactants) and ("B(" in reactants or re.search(r"\[C:\d+\]-\[OH;D1", reactants)):
        return False
    return not (any(map(_gives_no_carbon, parts)) or _moves_on_ring(product, parts) or _retains(product, parts))


def _moves_on_ring(product: Any, parts: Sequence[Any]) -> bool:
    """Return whether a group leaves an atom of an aromatic ring, and another comes to another atom of the ring.

    Most such records have the wrong isomer as their product.
    """
    after = {atom.GetAtomMapNum(): _symbol(atom) for atom in product.GetAtoms() if atom.GetIsAromatic()}
    for part in parts:
        places: dict[str, list[int]] = {"D2 D3": [], "D3 D2": []}  # atoms of which degree before and after
        for atom in part.GetAtoms():
            if atom.GetIsAromatic() and atom.GetAtomicNum() == 6:
                degrees = re.findall(r"\bD\d", f"{_symbol(atom)} {after.get(atom.GetAtomMapNum(), '')}")
                places.setdefault(" ".join(degrees), []).append(atom.GetIdx())
        for gains, loses in itertools.product(places["D2 D3"], places["D3 D2"]):
            if 0 < len(Chem.GetShortestPath(part, gains, loses)) <= _ACROSS_A_RING:
                return True
    return False


def _retains(product: Any, parts: Sequence[Any]) -> bool:
    """Return whether a nucleophile replaces the halogen or oxygen atom at a stereocentre with retention.

    One substitution inverts the centre. Records with retention have two, or a wrong drawing.
    """
    after = {atom.GetAtomMapNum(): atom for atom in product.GetAtoms() if atom.GetAtomMapNum()}
    for part in parts:
        for atom in part.GetAtoms():
            now = after.get(atom.GetAtomMapNum())
            if now is None or atom.GetAtomicNum() != 6 or not (int(atom.GetChiralTag()) and int(now.GetChiralTag())):
                continue
            old, new = ([other.GetAtomMapNum() for other in side.GetNeighbors()] for side in (atom, now))
            leaves = [other for other in atom.GetNeighbors() if other.GetAtomMapNum() not in new]
            comes = [number for number in new if number not in old]
            if len(leaves) != 1 or len(comes) != 1 or leaves[0].GetAtomicNum() not in _LEAVING:
                continue
            old = [comes[0] if number == leaves[0].GetAtomMapNum() else number for number in old]
            swaps = sum(old.index(first) > old.index(second) for first, second in itertools.combinations(new, 2))
            if (swaps % 2 == 0) == (atom.GetChiralTag() == now.GetChiralTag()):
                return True
    return False


def _centres(pattern: Any) -> dict[int, tuple[list[tuple[int, str]], int | None]]:
    """Return the bonds and the handedness of the mapped atoms of a pattern."""
    centres = {}
    for atom in pattern.GetAtoms():
        bonds = [(bond.GetOtherAtom(atom).GetAtomMapNum(), bond.GetSmarts()) for bond in atom.GetBonds()]
        numbers, tag = [number for number, _ in bonds], int(atom.GetChiralTag())
        swaps = sum(number > other for place, number in enumerate(numbers) for other in numbers[place + 1 :])
        centres[atom.GetAtomMapNum()] = sorted(bonds), (tag + swaps) % 2 if tag else None
    centres.pop(0, None)  # atoms without a number
    return centres


def _gives_no_carbon(part: Any) -> bool:
    """Return whether a reactant of a template gives a carbon atom that it would keep.

    A maps program that finds no source of a carbon takes it from the base or the solvent: a carbonate, butyllithium,
    tert-butoxide, triethylamine, ether or toluene. There, a bond breaks that does not break: that of the atom to a
    saturated or aromatic carbon, or that of a methyl group to carbon, to the nitrogen of an amine or to silicon.
    """
    for atom in part.GetAtoms():
        if atom.GetAtomicNum() != 6 or not atom.GetAtomMapNum():
            continue
        bonds = atom.GetBonds()
        neighbours = [bond.GetOtherAtom(atom) for bond in bonds]
        oxygens = [neighbour for neighbour in neighbours if neighbour.GetAtomicNum() == 8]
        if len(oxygens) == 3 and any("-" in oxygen.GetSmarts() for oxygen in oxygens):
            return True
        for bond, neighbour in zip(bonds, neighbours, strict=True):
            if neighbour.GetAtomMapNum() or bond.GetSmarts() not in ("-", ""):
                continue
            beyond = [far.GetAtomicNum() for far in neighbour.GetNeighbors() if far.GetIdx() != atom.GetIdx()]
            is_methyl, number = len(neighbours) == 1, neighbour.GetAtomicNum()
            if number == 6:
                is_unsaturated = any(outer.GetSmarts() in ("=", "#") for outer in neighbour.GetBonds())
                has_halogen = not {9, 17, 35, 53}.isdisjoint(beyond)
                if is_methyl or neighbour.GetIsAromatic() or not (is_unsaturated or has_halogen):
                    return True
            is_amine = number == 7 and "+" not in neighbour.GetSmarts() and set(beyond) <= {6}
            if is_methyl and (is_amine or number == 14):
                return True
    return False


def core_of(smarts: str) -> str:
    """Return the core of a template as reaction SMARTS.

    It has the atoms that change and those that leave, the neighbours of changing heteroatoms, the heteroatoms beside
    changing carbon atoms, and those with a multiple bond to one of these neighbours. So an amide is not an amine, but
    an alkyl and an aryl group beside a changing carbon atom are the same. The core says nothing of stereochemistry.
    """
    product, reactants = patterns(smarts)
    sides: list[Any] = [product, *reactants]
    before, after = _environments(reactants), _environments([product])
    changes = {number for number in {*before, *after} if before.get(number) != after.get(number)}
    ends = [(atom, bond) for side in sides for atom in side.GetAtoms() for bond in atom.GetBonds()]
    near, core = set[int](), set[int]()
    for atom, bond in ends:
        other = bond.GetOtherAtom(atom)
        is_hetero = other.GetAtomicNum() != 6 and not other.GetIsAromatic()
        if atom.GetAtomMapNum() in changes and (is_hetero or atom.GetAtomicNum() != 6):
            near.add(other.GetAtomMapNum())
    for atom, bond in ends:
        other, is_multiple = bond.GetOtherAtom(atom), bond.GetSmarts() in ("=", "#")
        if atom.GetAtomMapNum() in near - changes and other.GetAtomicNum() != 6 and is_multiple:
            core.add(other.GetAtomMapNum())
    core |= changes | near
    numbers = dict[int, int]()
    text = _smarts_of(product, core, numbers)
    parts = sorted((_smarts_of(part, core), index) for index, part in enumerate(reactants))
    return f"{text}>>{'.'.join(_smarts_of(reactants[index], core, numbers) for _, index in parts)}"


def _symbol(atom: Any) -> str:
    """Return the SMARTS of an atom without its number and its handedness."""
    return _HAND.sub("", re.sub(r":\d+\]$", "]", atom.GetSmarts()))


def _plain(bond: Any) -> str:
    return re.sub(r"[/\\]", "-", bond.GetSmarts())


def _environments(side: Sequence[Any]) -> dict[int, Any]:
    """Return the symbol and the bonds of each atom with a number, by its number."""
    return {
        atom.GetAtomMapNum(): (
            _symbol(atom),
            sorted((bond.GetOtherAtom(atom).GetAtomMapNum(), _plain(bond)) for bond in atom.GetBonds()),
        )
        for pattern in side
        for atom in pattern.GetAtoms()
        if atom.GetAtomMapNum()
    }


def _smarts_of(pattern: Any, core: set[int], numbers: dict[int, int] | None = None) -> str:
    """Write some atoms of a pattern in an order that does not depend on their numbers.

    Args:
        pattern: the pattern.
        core: the numbers of the atoms to write. Atoms without a number are written, too.
        numbers: the new numbers, which grow in the order of the text. No number is written without them.
    """
    atoms = [atom.GetIdx() for atom in pattern.GetAtoms() if atom.GetAtomMapNum() in core or not atom.GetAtomMapNum()]
    old = [atom.GetAtomMapNum() for atom in pattern.GetAtoms()]
    symbols = [symbol if symbol[0] == "[" else f"[{symbol}]" for symbol in map(_symbol, pattern.GetAtoms())]
    bare = without_maps(pattern)
    bare.UpdatePropertyCache(strict=False)
    Chem.FastFindRings(bare)
    text = Chem.MolFragmentToSmiles(
        bare, atoms, atomSymbols=symbols, bondSymbols=list(map(_plain, pattern.GetBonds())), isomericSmiles=False
    )
    if numbers is not None:
        order = iter(bare.GetPropsAsDict(True, True)["_smilesAtomOutputOrder"])

        def numbered(match: re.Match[str]) -> str:
            if not (number := old[next(order)]):
                return match.group()
            return f"{match.group()[:-1]}:{numbers.setdefault(number, len(numbers) + 1)}]"

        text = re.sub(r"\[[^\]]*\]", numbered, text)
    return f"({text})" if "." in text else text


def build(records: Iterable[Record], templates: Iterable[Template | None]) -> Iterator[Row]:
    """Yield the transformations of records, the most common first, each with its difference of atoms.

    `templates` has the template of each record.
    """
    by_template: dict[tuple[str, str, str], list[Record]] = {}
    for record, template in zip(records, templates, strict=True):
        if template is not None:
            place = difference(record.product, record.reactants), template.smarts, template.core
            by_template.setdefault(place, []).append(record)
    for (key, smarts, core), members in sorted(by_template.items(), key=lambda item: (-len(item[1]), item[0])):
        classes = Counter(record.reaction_class for record in members if record.reaction_class is not None)
        examples = [Example(f"{record.reactants}>>{record.product}", record.source) for record in members]
        examples.sort(key=lambda example: (example.source is None, len(example.smiles)))
        reagents = Counter(filter(None, (" ".join(compounds(record.agents)) for record in members)))
        number = next((number for number, _ in classes.most_common(1)), None)
        facts: Any = {"core": core, "reagents": most_common_sets(reagents)}
        yield key, Transformation(smarts, len(members), number, tuple(examples[:EXAMPLES]), **facts)


def write(rows: Iterable[Row], path: str | Path) -> None:
    """Write a library atomically."""
    # without the name and the time, so that the same rows give the same bytes
    with atomic_write(path) as part, part.open("wb") as raw, gzip.GzipFile("", "wb", fileobj=raw, mtime=0) as stream:
        for key, transformation in rows:
            row: list[Any] = [key, transformation.smarts, transformation.count, transformation.reaction_class]
            row += [transformation.examples, transformation.name, transformation.core]
            row += [transformation.reagents, transformation.textbook]
            while not row[-1]:
                row.pop()
            stream.write((json.dumps(row, separators=(",", ":")) + "\n").encode())


def extracted(records: Sequence[Record], workers: int = 1, progress: bool = True) -> Iterator[Template | None]:
    """Yield the template of each record, or None if none reproduces its reactants."""
    return _in_processes(Extraction.template, "extracting", records, workers, progress)


def _in_processes(
    method: Callable[[Extraction, Record], list[Any]],
    title: str,
    records: Sequence[Record],
    workers: int,
    progress: bool,
) -> Iterator[Any]:
    """Yield the results of a method of [`Extraction`] for each record, or None where it takes too long."""
    with (
        WorkerProcesses(Extraction(), workers, _MOST_SECONDS) as processes,
        Progress(title, len(records), "reactions", is_shown=progress) as bar,
    ):
        for result in processes.map(method, records):
            yield result
            bar.update(1)


def make_library(path: str | Path, workers: int = 1, progress: bool = True) -> tuple[list[Row], dict[str, list[str]]]:
    """Make a library from a file of reactions.

    Args:
        path: the file, see [`read_records`].
        workers: the number of processes.
        progress: whether to show the progress.

    Returns:
        The rows of the library, for [`write`], and the ids or rows of the reactions that were left out, by reason.

    Raises:
        OSError: the file cannot be read.
        ValueError: it is damaged, or none of its reactions gives a transformation.
    """
    problems, records, names = dict[str, list[str]](), list[Record](), list[str]()
    for place, record in enumerate(read_records(path), 1):
        if isinstance(record, Problem):
            problems.setdefault(record.reason, []).append(record.name)
        else:
            records.append(record)
            names.append(record.source or f"row {place}")
    if not records:
        raise ValueError(f"{path}: there is no reaction that can be read.")
    if not all(record.mapped for record in records):
        mapped = list(_in_processes(Extraction.mapped, "mapping", records, workers, progress))
        if None in mapped:
            problems[NO_MAPS] = [name for name, record in zip(names, mapped, strict=True) if record is None]
        names = [name for name, record in zip(names, mapped, strict=True) if record is not None]
        records = list(filter(None, mapped))
    templates = list(extracted(records, workers, progress))
    if None in templates:
        problems[NO_TEMPLATE] = [name for name, template in zip(names, templates, strict=True) if template is None]
    rows = named(build(records, templates), shipped_library())
    if not rows:
        reasons = " or ".join(reason for reason in (NO_MAPS, NO_TEMPLATE) if reason in problems)
        raise ValueError(f"{path}: {reasons} for any of its reactions. Are the reactions and their atom maps right?")
    return rows, problems
