"""Rules of chemistry and requests of the user, enforced while a route is written.

[`ConstrainedGrammar`] rules out a token that would break a rule. It ends a text that can no longer become a route, so
that another beam takes its place. The other texts keep the model's log-probability.

A rule is checked only where it can be broken. RDKit reads a SMILES where it may end. That takes a hundred times as
long as all the rest, so it is only done where the end is likely enough to be chosen, and the results are cached.
Atoms are compared where a list of reactants may end.

Shape suffixes: W rows (the beams of all sources), V tokens of the vocabulary, B sources, S beams of each.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any, NamedTuple, cast

import numpy as np
import torch
from transformers import LogitsProcessor

from ..chemistry.faults import atoms_fault, molecule_fault
from ..chemistry.matching import SearchTooLong, bounded_search
from ..chemistry.molecules import (
    KNOWN,
    Molecule,
    canonical_reaction,
    is_among,
    is_beyond_repair,
    read_molecule,
    structure,
)
from ..stock.stock import Stock
from .grammar import START, RouteGrammar, State, advance, depth_limits
from .settings import NO_CONSTRAINTS, Constraints, might_contain, substructure

# Added to the score of the end token when a text is given up. No text has a log-probability as low as this.
GIVEN_UP = -1e6
# The number of masks that are kept. The rows of a search need some hundreds.
_MOST_MASKS = 1 << 14

# A text that lacks atoms of its product could go on with reactants for ever. Of the 51,366 recorded
# reactions of PaRoutes n1 and n5, USPTO-50K and USPTO-15K, none has more than 4 reactants, or reactants with more than
# 45 heavy atoms that its product does not have.
MOST_REACTANTS = 5
MOST_OTHER_ATOMS = 50
_ATOM = re.compile(r"\[[^\]]*|Cl|Br|[BCNOPSFIbcnops]")


class Frame(NamedTuple):
    """A list of reactants that is open.

    Args:
        path: the molecules from the target down to the product of this list.
        reactants: the reactants written so far.
        above: the list that contains the product.
    """

    path: tuple[str, ...]
    reactants: tuple[str, ...] = ()
    above: Frame | None = None


class Text(NamedTuple):
    """The state of a text in the grammar and in the rules.

    Args:
        state: None once the text has ended, or was given up.
        molecule: the SMILES that is being written, or that was written last.
        frame: the innermost open list of reactants; None within the target.
        has_leaf: whether the text contains the required leaf.
        broken: the rule of [`Constraints`] because of which the text cannot become a route.
    """

    state: State | None
    molecule: str = ""
    frame: Frame | None = None
    has_leaf: bool = False
    broken: str | None = None


ENDED = Text(None)


def broken_by_user(smiles: str, rules: Constraints) -> str | None:
    """Return the rule of the user that forbids a molecule other than the target, or None."""
    molecule = read_molecule(smiles) if rules.forbidden_molecules else None  # reading takes longer than all the rest
    if molecule is not None and is_among(molecule, filter(None, map(read_molecule, rules.forbidden_molecules))):
        return "forbidden"
    if rules.forbidden_substructures and might_contain(smiles, rules.forbidden_substructures):
        return "forbidden_substructures"
    return None


def is_forbidden(product: str, reactants: Iterable[str], rules: Constraints) -> bool:
    """Return whether the user forbids a reaction: the reaction itself, or the bond that it forms."""
    reactants = list(reactants)
    if rules.forbidden_reactions and canonical_reaction(reactants, product) in rules.forbidden_reactions:
        return True
    return any(
        _count(product, bond) > sum(_count(part, bond) for part in reactants) for bond in rules.kept_substructures
    )


@lru_cache(KNOWN)
def _count(smiles: str, smarts: str) -> int:
    """Return how often a molecule has a substructure, 0 if it cannot be read or the search takes too long."""
    molecule = read_molecule(smiles)
    try:
        matches = (
            ()
            if molecule is None
            else structure(molecule.canonical).GetSubstructMatches(substructure(smarts), bounded_search())
        )
    except SearchTooLong:
        return 0
    return len(matches)


@lru_cache(KNOWN)
def _room(product: str, reactants: tuple[str, ...]) -> int | None:
    """Return the number of heavy atoms that further reactants may have, None if RDKit cannot read the product."""
    molecule, *parts = map(read_molecule, (product, *reactants))
    if molecule is None:
        return None
    return sum(molecule.atoms.values()) + MOST_OTHER_ATOMS - sum(sum(part.atoms.values()) for part in parts if part)


class ConstrainedGrammar(LogitsProcessor):
    """Rules out tokens that break a rule or cannot continue a route, and ends texts that can no longer become a route.

    A text that is given up ends with [`GIVEN_UP`] added to its score, which puts it below every other text. The
    grammar is a processor of `generate`, or the [`IncrementalProcessor`] of a search that sources join and leave.

    Args:
        tokenizer: the tokenizer of the routes. Start and pad tokens may come before a route.
        limits: for each source, the largest number of reactions on a path, or None for no limit.
        constraints: the rules.
        stock: the purchasable molecules, for `only_purchasable`.
    """

    def __init__(
        self,
        tokenizer: Any,
        limits: Sequence[int | None],
        constraints: Constraints,
        stock: Stock | None = None,
    ):
        self.grammar = RouteGrammar(tokenizer)
        self.texts = self.grammar.texts
        self.rules, self.stock = constraints, stock
        leaf = constraints.required_leaf
        self.required_leaf = None if leaf is None else read_molecule(leaf)
        # whether a rule looks at single molecules
        self.asks_molecules = constraints != replace(
            NO_CONSTRAINTS,
            atoms_supplied=constraints.atoms_supplied,
            size_limited=constraints.size_limited,
            required_leaf=constraints.required_leaf,
        )
        self.quote = self.texts.index("'")
        self.mask = lru_cache(_MOST_MASKS)(self._mask)
        self.begin(limits)

    def begin(self, limits: Sequence[int | None]) -> ConstrainedGrammar:
        """Begin another search. Consecutive searches share a grammar, because it keeps its masks."""
        self.limits = depth_limits(limits)
        # the numbers of the sources that have not left, in the order in which they came
        self.numbers = list(range(len(limits)))
        self.came = len(limits)
        # For the rows of the previous step: the row of each text of a source, the first row with the same text, the
        # state of the text, its log-probability, and the scores of the next token.
        self.rows: dict[tuple[int, bytes], int] = {}
        self.firsts: list[int] = []
        self.written: list[Text] = []
        self.totals_W = np.zeros(0)
        self.scores_WV = np.zeros((0, 0), np.float32)
        return self

    def select_sources(self, sources: Sequence[int], beams: int) -> None:
        """Continue with some sources, in this order. The others have left the search."""
        self.limits = [self.limits[source] for source in sources]
        self.numbers = [self.numbers[source] for source in sources]

    def join(self, limits: Sequence[int | None]) -> None:
        """Let sources join a search that calls [`step`]."""
        self.limits = [*self.limits, *depth_limits(limits)]
        self.numbers += range(self.came, self.came + len(limits))
        self.came += len(limits)

    # The state of a text after one more token

    def after(self, text: Text, token: int, limit: int) -> Text:
        """Return the state of the text with one more token."""
        if text.state is None:  # the text has ended or was given up
            return ENDED
        characters = None if token >= len(self.texts) else self.texts[token]
        if characters is None:
            if token in self.grammar.skipped and text.state == START:
                return text
            return text._replace(state=None)
        for character in characters:
            text = self._after(text, character, limit)
        return text

    def _after(self, text: Text, character: str, limit: int) -> Text:
        before = text.state
        state = advance(before, character, limit)
        if before is None or state is None:
            return text._replace(state=None)
        if before.literal:
            return text._replace(state=state)
        if before.place == "smiles":
            return self._in_smiles(text, character, state, limit)
        if before.place == "molecule":
            return self._behind_molecule(text, character, state)
        return self._in_list(text, character, state)

    def _in_smiles(self, text: Text, character: str, state: State, limit: int) -> Text:
        if character == "'":
            return self._with_molecule(text, state, limit)
        if self._is_too_large(text):
            return text._replace(state=None, broken="size_limited")
        return Text(state, text.molecule + character, text.frame, text.has_leaf)

    def _behind_molecule(self, text: Text, character: str, state: State) -> Text:
        if character == ",":  # its reactants follow
            path = text.frame.path if text.frame else ()
            return Text(state, frame=Frame((*path, text.molecule), above=text.frame), has_leaf=text.has_leaf)
        if self._must_go_on(text):
            return text._replace(state=None, broken="only_purchasable")
        return text._replace(state=state, has_leaf=text.has_leaf or self._is_required(text.molecule))

    def _in_list(self, text: Text, character: str, state: State) -> Text:
        if character == "]":
            rule = self._broken_by_end(text)
            above = text.frame.above if text.frame else None
            return text._replace(state=None if rule else state, frame=above, broken=rule)
        # the next reactant
        if self.rules.size_limited and text.frame is not None and len(text.frame.reactants) >= MOST_REACTANTS:
            return text._replace(state=None, broken="size_limited")
        return Text(state, frame=text.frame, has_leaf=text.has_leaf)

    def _with_molecule(self, text: Text, state: State, limit: int) -> Text:
        if rule := self._broken_by_molecule(text, limit):
            return text._replace(state=None, broken=rule)
        frame = text.frame and text.frame._replace(reactants=(*text.frame.reactants, text.molecule))
        return text._replace(state=state, frame=frame)

    # The rules

    def _broken_by_molecule(self, text: Text, limit: int) -> str | None:
        """Return the rule that a molecule breaks if it ends here, or None if it may end."""
        fault = molecule_fault(text.molecule, text.frame.path if text.frame else ())
        if fault and getattr(self.rules, fault.rule):
            return fault.rule
        if text.frame is None or read_molecule(text.molecule) is None:
            return None  # the target, or a molecule of which nothing is known
        assert text.state is not None
        if text.state.depth >= limit and self._must_be_bought(text.molecule):
            return "only_purchasable"
        return broken_by_user(text.molecule, self.rules)

    def _is_too_large(self, text: Text) -> bool:
        """Return whether the reactant being written has more atoms than its reaction has room for."""
        if text.frame is None or not self.rules.size_limited:
            return False
        room = _room(text.frame.path[-1], text.frame.reactants)
        # each atom has at least one character, so most molecules need no count
        return room is not None and len(text.molecule) >= room and len(_ATOM.findall(text.molecule)) > room

    def _must_be_bought(self, smiles: str) -> bool:
        """Return whether a molecule may not be a leaf."""
        return self.rules.only_purchasable and smiles not in cast(Stock, self.stock)

    def _must_go_on(self, text: Text) -> bool:
        return text.frame is not None and self._must_be_bought(text.molecule)

    def _is_required(self, smiles: str) -> bool:
        leaf = None if self.required_leaf is None else read_molecule(smiles)
        return leaf is not None and is_among(leaf, (cast(Molecule, self.required_leaf),))

    def _broken_by_end(self, text: Text) -> str | None:
        """Return the rule that a list of reactants breaks if it ends here, or None if it may end."""
        frame = text.frame
        if frame is None:
            return None
        if self.rules.atoms_supplied and atoms_fault(frame.path[-1], frame.reactants):
            return "atoms_supplied"
        if is_forbidden(frame.path[-1], frame.reactants, self.rules):
            return "forbidden"
        is_last = frame.above is None
        return "required_leaf" if self.required_leaf is not None and is_last and not text.has_leaf else None

    def _broken_by_close(self, text: Text) -> str | None:
        """Return the rule that a text breaks if its molecule or its list of reactants ends here."""
        if cast(State, text.state).place == "molecule":
            return "only_purchasable" if self._must_go_on(text) else None
        return None if cast(State, text.state).place == "smiles" else self._broken_by_end(text)

    # The tokens that may follow a text

    def _key(self, text: Text, limit: int, may_end: bool) -> tuple:
        """Return a key of a text. The same tokens may follow all texts with the same key."""
        state = text.state
        if state is None:
            return (text.broken is not None,)
        if state.literal or state.place == "end":
            return state, limit
        return state, limit, may_end if state.place == "smiles" else self._broken_by_close(text) is None

    def _mask(self, key: tuple) -> np.ndarray:
        """Return the mask to add to the scores of all tokens after a text with this key."""
        if len(key) == 1:  # given up, or ended: anything may follow the end
            return self._end_alone() if key[0] else np.zeros(len(self.texts), np.float32)
        state, limit = key[:2]
        mask = self.grammar.allowed(state, limit).copy()
        if len(key) == 3 and not key[2]:
            # a token may have several characters: those after the first are checked when it is written
            close = {"smiles": "'", "molecule": "}", "child": "]"}[state.place]
            mask[[(characters or "").startswith(close) for characters in self.texts]] = -np.inf
        return mask if np.isfinite(mask).any() else self._end_alone()

    def _end_alone(self) -> np.ndarray:
        mask = np.full(len(self.texts), -np.inf, np.float32)
        mask[self.grammar.end] = GIVEN_UP
        return mask

    def __call__(self, input_ids: torch.LongTensor, scores: torch.FloatTensor) -> torch.FloatTensor:
        ids_WT: np.ndarray = input_ids.cpu().contiguous().numpy()
        beams = max(1, len(ids_WT) // len(self.limits))
        rows: dict[tuple[int, bytes], int] = {}
        parents: list[int] = []
        for index, row in enumerate(ids_WT):
            # sources may be the same target with different numbers of steps: same texts, but different scores
            source, whole = self.numbers[index // beams], row.tobytes()
            rows.setdefault((source, whole), index)
            parents.append(self.rows.get((source, whole[: -row.itemsize]), -1))
        self.rows = rows
        prompts = {row: ids_WT[row].tolist() for row, parent in enumerate(parents) if parent < 0}
        return cast(torch.FloatTensor, self.step(parents, ids_WT[:, -1].tolist(), prompts, scores))

    def step(
        self, parents: list[int], tokens: list[int], prompts: dict[int, list[int]], scores: torch.Tensor
    ) -> torch.Tensor:
        """Return the scores with the tokens that break a rule ruled out, see
        [`~modeling.decoding.IncrementalProcessor`].
        """
        beams = max(1, len(parents) // len(self.limits))
        # of rows with the same text, only the first counts
        rows: dict[tuple[int, int], int] = {}
        self.firsts = [
            rows.setdefault((-1 - row // beams, 0) if parent < 0 else (self.firsts[parent], token), row)
            for row, (parent, token) in enumerate(zip(parents, tokens, strict=True))
        ]
        firsts = list(rows.values())
        raw_WV = scores.detach().to(device="cpu", dtype=torch.float32).numpy()[:, : len(self.texts)]
        limits = [self.limits[index // beams] for index in range(len(parents))]
        totals_W = self._advance(parents, tokens, prompts, limits)
        ends = [self._may_end(text) for text in self.written]
        keys = [self._key(*row) for row in zip(self.written, limits, [end is True for end in ends], strict=True)]
        masks_WV = np.stack([self.mask(key) for key in keys])
        while likely := self._likely_ends(ends, totals_W[:, None] + raw_WV, masks_WV, firsts, beams):
            for index in likely:
                ends[index] = self._ends_well(index, limits[index])
                if ends[index]:
                    masks_WV[index, self.quote] = 0.0
                elif self.written[index].broken:  # given up: other rows take its place
                    masks_WV[index] = self._end_alone()
        # a text that is given up can only end, whatever its scores are
        found_WV = np.where(masks_WV[:, [self.grammar.end]] == GIVEN_UP, masks_WV, raw_WV + masks_WV)
        self.totals_W, self.scores_WV = totals_W, found_WV
        tensor = torch.from_numpy(found_WV)
        if tensor.shape[1] < scores.shape[1]:  # the model also scores ids that the tokenizer does not have
            tensor = torch.nn.functional.pad(tensor, (0, scores.shape[1] - tensor.shape[1]), value=float("-inf"))
        return tensor.to(device=scores.device, dtype=scores.dtype)

    def _advance(
        self, parents: list[int], tokens: list[int], prompts: dict[int, list[int]], limits: list[int]
    ) -> np.ndarray:
        """Read the last token of each row, and return the log-probability of each row."""
        texts: list[Text] = []
        totals_W = np.zeros(len(parents))
        for index, (parent, last) in enumerate(zip(parents, tokens, strict=True)):
            if parent < 0:  # the first step
                text = Text(START)
                for token in prompts[index]:
                    text = self.after(text, token, limits[index])
            else:
                text = self.after(self.written[parent], last, limits[index])
                if last < self.scores_WV.shape[1]:
                    totals_W[index] = self.totals_W[parent] + self.scores_WV[parent, last]
            texts.append(text)
        self.written = texts
        return totals_W

    def _may_end(self, text: Text) -> bool | None:
        """Return whether the SMILES being written may end, or None if that depends on its molecule."""
        if text.state is None or text.state.place != "smiles" or text.state.literal or text.state.empty:
            return False
        return None if self.asks_molecules else True

    def _ends_well(self, index: int, limit: int) -> bool:
        """Return whether the molecule that a row is writing may end here. Give up a row that cannot be completed."""
        text = self.written[index]
        if self._broken_by_molecule(text, limit) is None:
            return True
        if self.rules.readable and read_molecule(text.molecule) is None and is_beyond_repair(text.molecule):
            self.written[index] = text._replace(state=None, broken="readable")
        return False

    def _likely_ends(
        self,
        ends: list[bool | None],
        totals_WV: np.ndarray,
        masks_WV: np.ndarray,
        firsts: list[int],
        beams: int,
    ) -> list[int]:
        """Return the rows whose molecule has to be read: its end may be among the tokens that the search takes next.

        A search takes at most 2 S next tokens of a source. An end that is not checked stays ruled out, because so many
        others are above it that no search takes it. It makes no difference what was read before, for whichever source.
        """
        rows = [index for index, end in enumerate(ends) if end is None]
        if not rows:
            return []
        best_WV = totals_WV + masks_WV
        # all beams of a source are the same at first, so only one counts; rows that have ended do not count
        counts = np.zeros(len(best_WV), bool)
        counts[[row for row in firsts if self.written[row].state is not None]] = True
        best_WV[~counts] = -np.inf
        best_BC = best_WV.reshape(-1, beams * best_WV.shape[1])
        least_B = np.partition(best_BC, -2 * beams, axis=1)[:, -2 * beams]
        return [index for index in rows if totals_WV[index, self.quote] >= least_B[index // beams]]
