"""All settings of a planner in one object, which Python, the commands, the server, the pipeline and the page make.

Nothing here imports torch or RDKit: a command has its options from the fields, and its help waits for nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, fields, replace
from functools import lru_cache
from typing import Any

from ...common.options import NotAllowed, check_options

# How beams are searched and scored: settings of `generate`. A length_penalty of 0 ranks by the whole log-probability: any
# division by the length would prefer longer routes.
RANKINGS: dict[str, dict[str, Any]] = {
    "log_probability": {"length_penalty": 0.0},
    "sqrt_length": {"custom_generate": "sqrt_length"},
}
# Seconds of a search to the stock where nobody says how many.
BUDGET = 60.0
# Rules for all routes by the names that options call them, as fields of `Constraints`.
RULES = {"unreadable": "readable", "cycles": "acyclic", "missing-atoms": "atoms_supplied", "oversized": "size_limited"}


def option(default: Any, text: str, **more: Any) -> Any:
    """A field with its help and, in `more`, `choices` and `least`, and for a command its `flag`, `metavar`, and help if it switches `off`."""
    return field(default=default, metadata={"help": text, **more})


def _canonical(smiles: str) -> str:
    from ..molecules import read_molecule, unreadable

    molecule = read_molecule(smiles)
    if molecule is None:
        raise ValueError(unreadable(smiles))
    return molecule.canonical


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
    # A dot separates parts, also within `$(...)`; behind a `|` it is one of a number. RDKit tries all combinations of parts: 20
    # atoms that fit anywhere have 20! of them.
    if "." in smarts.partition("|")[0]:
        raise ValueError(
            f"{smarts!r} is a substructure of several parts: give one that is connected. Several substructures are forbidden "
            "one by one."
        )
    return pattern


@dataclass(frozen=True)
class Constraints:
    """Rules for the routes of a search. The first four are for all routes; what follows is asked for by name.

    Args:
        readable: molecules are SMILES that RDKit reads.
        acyclic: no molecule is made from itself.
        atoms_supplied: the reactants of a reaction have every heavy atom of its product.
        size_limited: a reaction has at most 5 reactants, with at most 50 heavy atoms more than the product has.
        only_purchasable: routes begin from molecules of the stock only: what is not there goes on to its reactants.
        required_leaf: SMILES of a molecule that has to be a starting material of every route.
        forbidden: SMILES of molecules that must not occur; the target may.
        forbidden_substructures: SMARTS of what no molecule but the target may hold, each connected, without dots.

    Raises:
        ValueError: RDKit cannot read a molecule or a substructure, or a substructure has several parts, separated by dots.
    """

    readable: bool = True
    acyclic: bool = True
    atoms_supplied: bool = True
    size_limited: bool = True
    only_purchasable: bool = option(False, "only routes that begin from molecules of the stock")
    required_leaf: str | None = option(
        None, "only routes that begin from this molecule, among others", metavar="SMILES"
    )
    forbidden: tuple[str, ...] = option(
        (), "only routes without this molecule (repeatable)", flag="--forbid", metavar="SMILES"
    )
    forbidden_substructures: tuple[str, ...] = option(
        (), "only routes without this connected substructure, the target apart (repeatable)",
        flag="--forbid-substructure", metavar="SMARTS",
    )  # fmt: skip

    def __post_init__(self) -> None:
        # canonical, and hashable when lists were given
        if self.required_leaf is not None:
            from ..molecules import one_molecule

            object.__setattr__(self, "required_leaf", one_molecule(self.required_leaf))
        object.__setattr__(self, "forbidden", tuple(map(_canonical, self.forbidden)))
        object.__setattr__(self, "forbidden_substructures", tuple(self.forbidden_substructures))
        for smarts in self.forbidden_substructures:
            substructure(smarts)

    @property
    def is_empty(self) -> bool:
        """Whether there is no rule: routes have to be well-formed and no more."""
        return self == NO_CONSTRAINTS


NO_CONSTRAINTS = Constraints(readable=False, acyclic=False, atoms_supplied=False, size_limited=False)


def rules_without(names: Iterable[str]) -> Constraints:
    """Return the rules for all routes, without those of [`RULES`] that are named."""
    switched_off: dict[str, Any] = {RULES[name]: False for name in names}
    return Constraints(**switched_off)


@dataclass(frozen=True)
class PlanSettings:
    """How routes are searched and ranked.

    Args:
        beams: width of the search, and candidates for each target (and number of steps, and augmentation).
        num_augmentations: SMILES of each target that are searched from; what they find is pooled, each route once with its best
            score. The first is canonical. The others begin at other atoms, for a model that was trained on aligned texts, and
            are random SMILES for another. A small target has fewer.
        seed: of the draw of these SMILES.
        ranking: "log_probability", or "sqrt_length" for the search of DirectMultiStep, which divides it by the root of
            the length with the forced beginning.
        grammar: let only tokens through that continue a well-formed route, no deeper than the number of steps.
        constraints: what else every route has to be (default: `Constraints()`, molecules are read, none is made from
            itself, reactants have all atoms of their product and are not far larger; `NO_CONSTRAINTS` for none). They
            need the grammar. A search that finds no such route has one candidate, whose `problem` says why.
        on_impossible: what becomes of routes that cannot be, as without constraints most are: "rank_last", behind all others,
            "keep" the place of their score, or "drop".
        max_new_tokens: bound on what the model writes (default: what its positions allow).
        time_limit: seconds for each target. When they are over, the search ends with the routes that are finished, and
            `Plan.remarks` says so. A planner then searches targets one after the other, not together.
        on_salt: what becomes of a target of several molecules: an "error", or "strip" it to its largest organic part,
            without charges where hydrogen can take them away. `Plan.remarks` says what was planned.
        direct: let the model write whole routes, as DirectMultiStep does, instead of a search for routes to the stock. It is so too
            where there is no stock, where a number of steps or a starting material is asked for, and with a model that writes no
            single steps.
        num_routes: routes to the stock after which the search for a target ends.
        per_reaction: most distinct routes with the same last reaction (default: all).
        enforce_limits: refuse steps and beams that lead to minutes of search for nothing: paths of more than
            `RoutePlanner.most_steps` reactions and more than `RoutePlanner.most_beams` beams.

    Raises:
        ValueError: a setting is not allowed; the message says what is.
    """

    beams: int = option(10, "width of the search", least=1)
    num_augmentations: int = option(
        1, "SMILES of each target to search from: N times as long, and more is found", least=1
    )
    seed: int = option(0, "of the draw of these SMILES", least=0)
    ranking: str = option(
        "log_probability", "how candidates are scored: sqrt_length is DirectMultiStep's way",
        choices=tuple(RANKINGS), metavar="SCORE",
    )  # fmt: skip
    grammar: bool = option(
        True, "write nothing but well-formed routes; without it no rule holds",
        off="let the model write what it likes: no rule holds then",
    )  # fmt: skip
    constraints: Constraints | None = None
    on_impossible: str = option(
        "rank_last",
        "routes that break a rule all the same: rank_last, keep, or drop",
        choices=("rank_last", "keep", "drop"),
        metavar="WHAT",
    )
    max_new_tokens: int | None = option(
        None, "longest text of a route: a model that has learned little writes on and on", least=1
    )
    time_limit: float | None = option(
        None,
        "seconds for each target; what is found by then is kept (default: 60 for a search to the stock)",
        metavar="SECONDS",
    )
    on_salt: str = option(
        "error",
        "a target of several molecules: error, or strip to its largest organic part",
        choices=("error", "strip"),
        metavar="WHAT",
    )
    direct: bool = option(
        False, "let the model write whole routes, without a search to the stock: DirectMultiStep's way"
    )
    num_routes: int = option(10, "purchasable routes after which the search for a target ends", least=1)
    per_reaction: int | None = option(None, "at most N routes with the same last reaction", least=1)
    enforce_limits: bool = option(
        True, "refuse numbers of steps and beams that lead to minutes of search for nothing",
        flag="--no-limits", off="take any number of steps and beams",
    )  # fmt: skip

    def __post_init__(self) -> None:
        check_options(self)
        if self.time_limit is not None and not 0 < self.time_limit < float("inf"):
            raise NotAllowed("time_limit", self.time_limit, "give a number of seconds above 0.")
        if not self.grammar and not self.rules.is_empty:
            raise ValueError(
                "Constraints need the grammar: leave out `grammar=False` (`--no-grammar`), or what is asked of the routes."
            )

    @classmethod
    def from_options(cls, options: dict[str, Any]) -> PlanSettings:
        """Make settings of flat options, as a command or a request has them.

        Args:
            options: fields of `PlanSettings` and `Constraints`, `allow` with names of [`RULES`] to switch off, and others, which
                are left alone.

        Raises:
            ValueError: a setting is not allowed, or a molecule or a substructure cannot be read.
        """
        rules = rules_without(options.get("allow", ()))
        asked = {one.name: options[one.name] for one in fields(Constraints) if one.name in options}
        constraints: Constraints | None = replace(rules, **asked)
        own = {one.name: options[one.name] for one in fields(cls) if one.name in options}
        if constraints == (Constraints() if own.get("grammar", True) else rules):
            constraints = None  # nothing was asked for
        return cls(**own | {"constraints": constraints})

    @property
    def rules(self) -> Constraints:
        """The constraints, or what they are by default."""
        if self.constraints is None:
            return Constraints() if self.grammar else NO_CONSTRAINTS
        return self.constraints

    @property
    def for_search(self) -> PlanSettings:
        """What targets have in common that are searched together; all else is at its default."""
        # a search to the stock takes apart what is not in it
        rules = self.rules if self.direct else replace(self.rules, only_purchasable=False)
        return PlanSettings(
            beams=self.beams, ranking=self.ranking, grammar=self.grammar, constraints=rules, direct=self.direct
        )

    @property
    def budget(self) -> float:
        """Seconds that a search to the stock takes at most."""
        return BUDGET if self.time_limit is None else self.time_limit

    def check_stock(self, stock: Any) -> None:
        """Check that there is a stock where the settings need one.

        Raises:
            ValueError: there is none.
        """
        if stock is None and self.rules.only_purchasable:
            raise ValueError("Routes from purchasable molecules alone (only_purchasable) need a stock: give one.")
