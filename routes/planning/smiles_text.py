"""Whether what is written can still become a SMILES: brackets, branches, ring bonds, and what may stand after what.

It lets through every text that RDKit parses (https://www.rdkit.org/docs/RDKit_Book.html, and the grammar of
http://opensmiles.org), and rules out a text as soon as no further character can mend it. It does not count bonds, nor look
for rings that are aromatic: RDKit does at the end of a molecule.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple

_ORGANIC = frozenset("BCNOPSFIbcnops*")
_BONDS = frozenset("-=#:/\\~$")
_DIGITS = frozenset("0123456789")
# After these a bond, a branch, a ring bond or the end may come.
_ATOM_ENDS = frozenset(["atom", "C", "B", ")"])
# An atom in brackets, closed or not: whole up to its symbol, of which the first letter may be all there is.
_BRACKET = re.compile(
    r"\[\d*([A-Z][a-z]?|[a-z]{1,2}|\*|#\d{1,3})"
    r"(?:@(?:@|[TASO]|(?:TH|AL|SP|TB|OH)\d{0,2})?)?(?:H\d*)?(?:\+\+?\d*|--?\d*)?(?::\d*)?"
)
_BEGUN = re.compile(r"\[\d*(?:[A-IK-PR-Zast]|#)?")
_PERCENT = re.compile(r"%(?:\d|\(\d{0,5})?")


class Smiles(NamedTuple):
    """How far a SMILES is written. Atoms are counted from 0.

    Args:
        last: what stands last: "atom", "C" or "B" (which an l or r may follow), ")", "(", "bond", "" at the start and after a
            dot, or the text of a bracket or a ring number that is not closed.
        atom: the atom that the next bond starts from, -1 where none does: at the start and after a dot.
        size: atoms so far.
        bonded: atoms that `atom` is known to be bonded to: no ring bond may go there again.
        branches: `atom` and `bonded` where each open branch began.
        rings: number and atom of each open ring bond.
    """

    last: str = ""
    atom: int = -1
    size: int = 0
    bonded: frozenset[int] = frozenset()
    branches: tuple[tuple[int, frozenset[int]], ...] = ()
    rings: tuple[tuple[int, int], ...] = ()

    @property
    def is_closed(self) -> bool:
        """Whether it may end here, as far as brackets, branches, ring bonds and bonds tell."""
        return not self.branches and not self.rings and self.last in _ATOM_ENDS

    @property
    def kind(self) -> tuple[str, bool, str]:
        """What the next character depends on: of two texts that agree in it, the same characters may follow."""
        barred = "".join(str(number) for number, atom in self.rings if number < 10 and self._is_bonded(atom))
        return self.last, bool(self.branches), barred

    def _is_bonded(self, atom: int) -> bool:
        return atom == self.atom or atom in self.bonded

    def _next_atom(self, last: str) -> Smiles:
        bonded = frozenset[int]() if self.atom < 0 else frozenset([self.atom])
        return Smiles(last, self.size, self.size + 1, bonded, self.branches, self.rings)

    def _ring(self, number: int) -> Smiles | None:
        """A ring bond opened, or closed: not to the atom itself, nor to one that it is bonded to."""
        for index, (other, atom) in enumerate(self.rings):
            if other == number:
                if self._is_bonded(atom):
                    return None
                rings = self.rings[:index] + self.rings[index + 1 :]
                return self._replace(last="atom", rings=rings, bonded=self.bonded | {atom})
        return self._replace(last="atom", rings=tuple(sorted((*self.rings, (number, self.atom)))))


NOTHING = Smiles()


def kind_allows(kind: tuple[str, bool, str], character: str) -> bool:
    """Whether a character may follow where [`Smiles.kind`] is this."""
    last, has_branch, barred = kind
    rings = tuple((int(number), 0) for number in barred)
    branches = ((0, frozenset[int]()),) if has_branch else ()
    return advance_smiles(Smiles(last, 0, 1, frozenset(), branches, rings), character) is not None


def advance_smiles(smiles: Smiles, character: str) -> Smiles | None:
    """One character more, None where no SMILES goes on with it."""
    last = smiles.last
    if last.startswith("["):
        return _in_bracket(smiles, character)
    if last.startswith("%"):
        return _in_number(smiles, character)
    if last in ("bond-", "<"):  # a dative bond has two characters
        if character == {"bond-": ">", "<": "-"}[last]:
            return smiles._replace(last="bond")
        if last == "<":
            return None
        last = "bond"
    if character == "[":
        return smiles._replace(last="[")
    if character in _ORGANIC:
        return smiles._next_atom(character if character in "CB" else "atom")
    if (last, character) in (("C", "l"), ("B", "r")):
        return smiles._replace(last="atom")
    is_after_atom = last in _ATOM_ENDS
    if character in _DIGITS or character == "%":
        if not (is_after_atom or (last == "bond" and smiles.atom >= 0)):
            return None
        return smiles._replace(last="%") if character == "%" else smiles._ring(int(character))
    if character in _BONDS or character == "<":
        if not is_after_atom and last != "(":
            return None
        return smiles._replace(last={"-": "bond-", "<": "<"}.get(character, "bond"))
    if not is_after_atom:
        return None
    if character == "(":
        return smiles._replace(last="(", branches=(*smiles.branches, (smiles.atom, smiles.bonded)))
    if character == ")" and smiles.branches:
        atom, bonded = smiles.branches[-1]
        return smiles._replace(last=")", atom=atom, bonded=bonded, branches=smiles.branches[:-1])
    return smiles._replace(last="", atom=-1, bonded=frozenset()) if character == "." else None


@lru_cache(1 << 14)
def _is_bracket(text: str) -> bool:
    """Whether a bracket that is not closed may become one."""
    found = _BRACKET.fullmatch(text)
    return (found is not None and _is_symbol(found[1])) or _BEGUN.fullmatch(text) is not None


@lru_cache(1 << 14)
def _is_atom(text: str) -> bool:
    """Whether a bracket may be closed here."""
    found = _BRACKET.fullmatch(text)
    return found is not None and _is_symbol(found[1]) and not text.endswith((":", "@T", "@A", "@S", "@O"))


def _is_symbol(text: str) -> bool:
    return text.startswith("#") or text in _symbols()


@lru_cache(1)
def _symbols() -> frozenset[str]:
    from rdkit import Chem

    table = Chem.GetPeriodicTable()
    elements = (table.GetElementSymbol(number) for number in range(1, 119))
    return frozenset([*elements, "*", "b", "c", "n", "o", "p", "s", "se", "as", "te", "si"])


def _in_bracket(smiles: Smiles, character: str) -> Smiles | None:
    if character == "]":
        return smiles._next_atom("atom") if _is_atom(smiles.last) else None
    text = smiles.last + character
    return smiles._replace(last=text) if _is_bracket(text) else None


def _in_number(smiles: Smiles, character: str) -> Smiles | None:
    text = smiles.last + character
    if re.fullmatch(r"%\d\d|%\(\d+\)", text):
        return smiles._ring(int(text.strip("%()")))
    return smiles._replace(last=text) if _PERCENT.fullmatch(text) else None
