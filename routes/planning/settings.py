"""All settings of a planner in one object, which Python, the commands, the server and the page construct.

This module imports neither torch nor RDKit: commands build their options from the fields, and `--help` stays fast.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from functools import cached_property, lru_cache
from os import PathLike
from typing import Any

from ...common.options import check_options, option
from ...common.rules import NotAllowed

# How beams are searched and scored: settings of `generate`. A length_penalty of 0 ranks by the whole log-probability:
# any division by the length would prefer longer routes.
RANKINGS: dict[str, dict[str, Any]] = {
    "log_probability": {"length_penalty": 0.0},
    "sqrt_length": {"custom_generate": "sqrt_length"},
}
EVIDENCE = ("textbook", "recorded", "any")
# The rules for all routes: their names in options, and the fields of `Constraints`.
RULES = {"unreadable": "readable", "cycles": "acyclic", "missing-atoms": "atoms_supplied", "oversized": "size_limited"}


@lru_cache(256)
def substructure(smarts: str) -> Any:
    """Return RDKit's pattern.

    Raises:
        ValueError: RDKit cannot read it, or it has several parts.
    """
    from rdkit import Chem, rdBase

    with rdBase.BlockLogs():
        pattern = Chem.MolFromSmarts(smarts) if smarts else None
    if pattern is None:
        raise ValueError(f"{smarts!r} is not a substructure (SMARTS) that RDKit can read.")
    # A dot separates parts, also within `$(...)`; behind a `|`, it is part of a number. RDKit tries all combinations
    # of parts: 20 atoms that fit anywhere have 20! of them.
    if "." in smarts.partition("|")[0]:
        raise ValueError(
            f"{smarts!r} has several parts: give a connected substructure. Give several substructures one by one."
        )
    return pattern


def contains(smiles: str, substructures: tuple[str, ...]) -> bool:
    """Return whether a molecule contains one of these substructures.

    Raises:
        SearchTooLong: the search takes too long.
    """
    from rdkit import Chem

    from ..chemistry.matching import bounded_search

    molecule, search = Chem.MolFromSmiles(smiles), bounded_search(maxMatches=1)
    return any(molecule.HasSubstructMatch(substructure(smarts), search) for smarts in substructures)


@lru_cache(1 << 13)
def might_contain(smiles: str, substructures: tuple[str, ...]) -> bool:
    """Return whether a molecule contains one of these substructures, or the search takes too long."""
    from ..chemistry.matching import SearchTooLong

    try:
        return contains(smiles, substructures)
    except SearchTooLong:
        return True


@dataclass(frozen=True)
class Constraints:
    """Rules for the routes of a search. The first four apply by default; a user chooses the others.

    Args:
        readable: molecules are SMILES that RDKit reads, of molecules that can exist and be isolated.
        acyclic: no molecule is made from itself.
        atoms_supplied: the reactants of a reaction have every heavy atom of its product, except those of one common
            reagent (`faults.REAGENTS`).
        size_limited: a reaction has at most 5 reactants, with at most 50 heavy atoms more than the product has.
        only_purchasable: routes begin from molecules of the stock only; every other molecule is made in its turn.
        required_leaf: SMILES of a molecule that has to be a starting material of every route.
        forbidden: SMILES of molecules that must not occur, except as the target, and of reactions (`C.O>>CO`).
        forbidden_substructures: SMARTS that no molecule but the target may contain, each connected, without dots. A
            molecule in which the search for them takes too long counts as one that contains them.
        kept_substructures: SMARTS of bonds that no step may form, so that starting materials bring them.
        broken_substructures: SMARTS of bonds that no starting material may have, so that a step forms them.

    Raises:
        ValueError: RDKit cannot read a molecule or a substructure, or a substructure has several parts, separated by
            dots.
    """

    readable: bool = True
    acyclic: bool = True
    atoms_supplied: bool = True
    size_limited: bool = True
    only_purchasable: bool = option(False, "only routes from molecules of the stock")
    required_leaf: str | None = option(None, "only routes with this starting material", metavar="SMILES")
    forbidden: tuple[str, ...] = option(
        (), "only routes without this molecule or reaction (repeatable)", flag="--forbid", metavar="SMILES"
    )
    forbidden_substructures: tuple[str, ...] = option(
        (), "only routes without this connected substructure, except in the target (repeatable)",
        flag="--forbid-substructure", metavar="SMARTS",
    )  # fmt: skip
    kept_substructures: tuple[str, ...] = option(
        (), "a bond to keep: no step forms this connected substructure (repeatable)", flag="--keep", metavar="SMARTS"
    )
    broken_substructures: tuple[str, ...] = option(
        (), "a bond to break: no starting material has this connected substructure (repeatable)",
        flag="--break", metavar="SMARTS",
    )  # fmt: skip

    def __post_init__(self) -> None:
        # canonical, and hashable when lists were given
        if self.required_leaf is not None or self.forbidden:
            from ..chemistry.molecules import canonical_reaction, canonical_smiles, one_molecule, plain_smiles
        if self.required_leaf is not None:
            object.__setattr__(self, "required_leaf", one_molecule(self.required_leaf))
        forbidden = []
        for smiles in self.forbidden:
            reactants, arrow, product = smiles.partition(">>")
            if arrow:
                forbidden.append(canonical_reaction([canonical_smiles(reactants)], canonical_smiles(product)))
            else:
                forbidden.append(canonical_smiles(plain_smiles(smiles)))
        object.__setattr__(self, "forbidden", tuple(forbidden))
        for name in ("forbidden_substructures", "kept_substructures", "broken_substructures"):
            object.__setattr__(self, name, tuple(getattr(self, name)))
        for smarts in (*self.forbidden_substructures, *self.kept_substructures, *self.broken_substructures):
            substructure(smarts)

    @cached_property
    def forbidden_molecules(self) -> tuple[str, ...]:
        """The molecules that must not occur."""
        return tuple(smiles for smiles in self.forbidden if ">>" not in smiles)

    @cached_property
    def forbidden_reactions(self) -> frozenset[str]:
        """The reactions that must not occur, as `canonical_reaction` writes them."""
        return frozenset(self.forbidden).difference(self.forbidden_molecules)

    @property
    def is_empty(self) -> bool:
        """Whether there are no rules: routes must only be well-formed."""
        return self == NO_CONSTRAINTS


NO_CONSTRAINTS = Constraints(readable=False, acyclic=False, atoms_supplied=False, size_limited=False)


@dataclass(frozen=True)
class PlanSettings:
    """Settings for the search and ranking of routes.

    Args:
        beams: width of the search, and number of candidates per target (and per number of steps and augmentation).
        num_augmentations: number of SMILES of each target, each of which is searched. Their routes are pooled, each
            once with its best score. The first SMILES is canonical, and the others begin at other atoms. A small
            target has fewer.
        seed: seed of these SMILES.
        ranking: "log_probability" puts routes first whose steps are all recorded, then purchasable ones, then those
            without unproductive steps, such as protections, then by log-probability (per step for whole
            routes). "sqrt_length" is the search of DirectMultiStep, which divides the log-probability by the square
            root of the length, including the forced start, and ranks by this score alone.
        grammar: allow only tokens that continue a well-formed route, no deeper than the number of steps.
        constraints: rules for every route (default: `Constraints()`: RDKit reads all molecules, none is made from
            itself, reactants and a common reagent have all atoms of their product and are not far larger;
            `NO_CONSTRAINTS` for none). They need the grammar. A search that finds no such route returns one candidate,
            whose `problem` gives the reason.
        max_new_tokens: largest number of new tokens (default: as many as the model has positions).
        max_expansions: number of molecules after which the search of a target to the stock ends: those whose reactions
            the model proposes. The library proposes reactions of four times as many.
        time_limit: seconds for each target (default: none). The search then
            ends with the finished routes and a remark in `Plan.remarks`. Whole routes with a time limit are searched
            one target after the other, not together.
        on_salt: what happens to a target of several molecules: "error" refuses it, "strip" plans its largest organic
            part, neutralised where hydrogen atoms allow it. `Plan.remarks` names the planned part.
        direct: let the model write whole routes, like DirectMultiStep, instead of a search to the stock. Whole
            routes are also written without a stock, with a number of steps, a starting material, a required leaf,
            several SMILES of a target or another ranking, and if the model cannot write single steps.
        have: SMILES of molecules that count as in the stock, such as those in your own store.
        max_price: the highest price of a starting material, in the unit of the stock. A molecule without a price may
            be bought.
        evidence: what each step of a route needs to solve a target: "textbook", a recorded reaction with the same
            transformation or a named one of textbooks; "recorded", a recorded one, so that textbooks are left out; or
            "any", nothing. Routes without it are ideas, and rank behind all others.
        num_routes: number of purchasable routes after which the search for a target ends.
        per_reaction: largest number of distinct routes with the same last reaction (default: 3 in a search to the
            stock, all of whole routes).
        library: a `Library` with a user's own reactions, or the file that `weftformer routes library` has made, which
            is read at once. They are proposed, judged and shown like the included ones, and are proposed first.
        enforce_limits: refuse paths of more than `RoutePlanner.most_steps` reactions and more than
            `RoutePlanner.most_beams` beams, with which a search is slow and useless.

    Raises:
        ValueError: a setting is not allowed; the message names the allowed values.
        OSError: the library cannot be read.
    """

    beams: int = option(10, "width of the search", least=1)
    num_augmentations: int = option(1, "search from N SMILES of each target: N times slower, more routes", least=1)
    seed: int = option(0, "seed for drawing the SMILES of targets", least=0)
    ranking: str = option(
        "log_probability", "log_probability, or sqrt_length as in DirectMultiStep",
        choices=tuple(RANKINGS), metavar="SCORE",
    )  # fmt: skip
    grammar: bool = option(
        True, "allow only well-formed routes (required for all rules)",
        off="let the model write any text, without rules",
    )  # fmt: skip
    constraints: Constraints | None = None
    max_new_tokens: int | None = option(None, "largest number of tokens of a route", least=1)
    max_expansions: int = option(25, "molecules of a target that the model expands", least=1)
    time_limit: float | None = option(
        None,
        "seconds per target, after which the routes found are kept (default: no limit)",
        metavar="SECONDS",
    )
    on_salt: str = option(
        "error",
        "a salt or mixture: error, or strip to its largest organic part",
        choices=("error", "strip"),
        metavar="WHAT",
    )
    direct: bool = option(False, "let the model write whole routes, like DirectMultiStep, without a search")
    have: tuple[str, ...] = option((), "a molecule that you have, besides the stock (repeatable)", metavar="SMILES")
    max_price: float | None = option(None, "no starting material with a higher price in the stock", metavar="PRICE")
    evidence: str = option(
        "textbook", "steps of a solved route: textbook (or recorded), recorded, or any",
        choices=EVIDENCE, metavar="KIND",
    )  # fmt: skip
    num_routes: int = option(10, "stop the search after N purchasable routes per target", least=1)
    per_reaction: int | None = option(
        None, "at most N routes with the same last reaction (default: 3 in a search to the stock)", least=1
    )
    library: str | Any | None = option(
        None, "own reactions besides the included ones, made by `weftformer routes library`", metavar="FILE"
    )
    enforce_limits: bool = option(
        True, "refuse numbers of steps and beams that are slow and useless",
        flag="--no-limits", off="allow any number of steps and beams",
    )  # fmt: skip

    def __post_init__(self) -> None:
        check_options(self)
        if self.have:
            from ..chemistry.molecules import canonical_smiles, plain_smiles
        if isinstance(self.library, str | PathLike):
            from ..judging import library_of

            object.__setattr__(self, "library", library_of(self.library))
        have = sorted(canonical_smiles(plain_smiles(smiles)) for smiles in self.have)
        object.__setattr__(self, "have", tuple(have))
        if self.time_limit is not None and not 0 < self.time_limit < float("inf"):
            raise NotAllowed("time_limit", self.time_limit, "give a number of seconds above 0.")
        if self.max_price is not None and not self.max_price >= 0:
            raise NotAllowed("max_price", self.max_price, "give a number of at least 0.")
        if not self.grammar and not self.rules.is_empty:
            raise ValueError("Constraints need the grammar: do not switch it off, or leave out the constraints.")

    @classmethod
    def from_options(cls, options: dict[str, Any]) -> PlanSettings:
        """Make settings from flat options, as in a command or a request.

        Args:
            options: fields of `PlanSettings` and `Constraints`, `allow` with names of [`RULES`] to switch off, and
                others, which are ignored.

        Raises:
            ValueError: a setting is not allowed, or a molecule or a substructure cannot be read.
            OSError: the library cannot be read.
        """
        switched_off: dict[str, Any] = {RULES[name]: False for name in options.get("allow", ())}
        rules = Constraints(**switched_off)
        changes = {field.name: options[field.name] for field in fields(Constraints) if field.name in options}
        constraints: Constraints | None = replace(rules, **changes)
        settings = {field.name: options[field.name] for field in fields(cls) if field.name in options}
        if constraints == (Constraints() if settings.get("grammar", True) else rules):
            constraints = None  # the options add no constraints
        return cls(**settings | {"constraints": constraints})

    @property
    def rules(self) -> Constraints:
        """The constraints, or the default ones."""
        if self.constraints is None:
            return Constraints() if self.grammar else NO_CONSTRAINTS
        return self.constraints

    @property
    def transformations(self) -> Any:
        """The `Library` of transformations: with those of the user, or the included one."""
        from ..judging import shipped_library

        library: Any = shipped_library() if self.library is None else self.library
        return library.without_textbook if self.evidence == "recorded" else library

    @property
    def for_search(self) -> PlanSettings:
        """The settings that targets of one search share; all others are at their defaults."""
        # a search to the stock continues from molecules that are not in it
        rules = self.rules if self.direct else replace(self.rules, only_purchasable=False)
        return PlanSettings(
            beams=self.beams, ranking=self.ranking, grammar=self.grammar, constraints=rules, direct=self.direct,
            have=self.have, library=self.library, max_price=self.max_price,
            evidence="recorded" if self.evidence == "recorded" else "textbook",
        )  # fmt: skip

    def stock_of(self, stock: Any) -> Any:
        """Return a `Stock` of what may be bought: that of a [`StockLike`], or None, with the user's own molecules, and
        without those that cost too much or have a bond to break.
        """
        from ..stock.stock import as_stock, with_own

        is_limited = stock is not None and (self.max_price is not None or self.rules.broken_substructures)
        return with_own(as_stock(stock), self.have, self._accepts if is_limited else None)

    def _accepts(self, offer: Any) -> bool:
        is_cheap = self.max_price is None or offer.price is None or offer.price <= self.max_price
        return is_cheap and not might_contain(offer.smiles, self.rules.broken_substructures)

    def check_stock(self, stock: Any) -> None:
        """Check that there is a stock if the settings need one.

        Raises:
            ValueError: there is none.
        """
        if stock is None and self.rules.only_purchasable:
            raise ValueError("Purchasable routes (only_purchasable) need a stock: give one.")
