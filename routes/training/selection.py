"""The selection of single routes for a data set: each route becomes rows, or is dropped for a reason."""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import cached_property
from typing import Any, NamedTuple

from ..chemistry.alignment import aligned_routes
from ..chemistry.molecules import canonical_route, hash64, read_molecule
from ..family import PRODUCT_LENGTH, build_route_tokenizer, encode_route, source_text
from ..files.entries import Entry
from ..files.formats import NoRoute
from ..tree import Route
from .arguments import Preparation
from .rows import route_rows

# The reasons for leaving a route out, in the order of the checks.
REASONS = {
    "not_parsable": "not parsable",
    "no_route": "an entry without a route",
    "no_reaction": "no reaction",
    "unreadable_molecule": "a molecule that RDKit cannot read",
    "cyclic": "a molecule is made from itself",
    "mixture": "target is a salt or a mixture",
    "unknown_character": "a character outside the vocabulary",
    "long_target": "route too long",
    "long_source": "source too long",
    "excluded": "excluded",
    "duplicate": "duplicate",
}


class Outcome(NamedTuple):
    """The result for one route.

    Args:
        place: the place of the route in its file.
        reason: the key in `REASONS` for which the route is dropped, or None.
        why: an explanation of the reason.
        route: the hash of the canonical route, independent of the order of the children.
        keys: the hashes that exclude the route. For a file of routes to exclude, the hashes that the route excludes.
        rows: the rows of the route.
    """

    place: str
    reason: str | None = None
    why: str = ""
    route: int = 0
    keys: tuple[int, ...] = ()
    rows: Sequence[dict[str, Any]] = ()


class Selection:
    """Decides about routes one by one.

    Args:
        settings: the rules.
    """

    def __init__(self, settings: Preparation):
        self.settings = settings

    @cached_property
    def _tokenizer(self) -> Any:
        return build_route_tokenizer("weft")  # each process has its own

    def rows(self, entry: Entry) -> list[Outcome]:
        """Return an outcome for each route of an entry. An entry without a route has one outcome."""
        outcomes = []
        for part in entry.parts():
            if isinstance(part.route, Route):
                outcomes += self._outcomes(part.place, part.route)
            elif part.route is not None and not isinstance(part.route, NoRoute):
                why = str(part.route).removeprefix(f"{part.place}: ")
                outcomes.append(Outcome(part.place, "not_parsable", why))
        return outcomes or [Outcome(entry.place, "no_route")]

    def keys(self, entry: Entry) -> list[Outcome]:
        """Return only the exclusion keys of each route of an entry. An unreadable target excludes nothing."""
        try:
            routes = list(entry.routes())
        except ValueError as error:
            return [Outcome(entry.place, "not_parsable", str(error))]
        # a model of products must not learn any reaction of an excluded route
        parts = [part for route in routes for part in (route, *(route.sub_routes() if self.settings.forward else ()))]
        molecules = filter(None, map(read_molecule, dict.fromkeys(part.smiles for part in parts)))
        return [Outcome(entry.place, keys=(hash64(molecule.canonical),)) for molecule in molecules]

    def _outcomes(self, place: str, route: Route) -> list[Outcome]:
        """Return the outcomes of the route and of its parts that the settings include."""
        if not route.children:
            return [Outcome(place, "no_reaction", route.smiles)]
        try:
            whole = canonical_route(route)
        except ValueError as error:
            return [Outcome(place, "unreadable_molecule", str(error))]
        if smiles := whole.repeated():
            return [Outcome(place, "cyclic", smiles)]
        parts = whole.sub_routes()
        above = parts if self.settings.exclude_by == "made" else [] if self.settings.forward else parts[:1]
        overlap: dict[Route, str] = {}
        if not self.settings.forward:
            targets = enumerate(parts if self.settings.sub_routes else parts[:1])
            overlap = {part: f"{place}, sub-route {number}" if number else place for number, part in targets}
        if self.settings.forward or self.settings.single_steps:
            for number, part in enumerate(parts, 1):
                overlap.setdefault(part.last_step(), f"{place}, reaction {number}" if len(parts) > 1 else place)
        outcomes = []
        for part, part_place in overlap.items():
            keys = tuple({hash64(other.smiles) for other in (part, *above)})
            outcomes.append(self._outcome(part_place, part)._replace(keys=keys))
        return outcomes

    def _outcome(self, place: str, route: Route) -> Outcome:
        settings = self.settings
        key = hash64(route.canonical().to_string())
        # The draws depend only on the seed and the route, not on the routes before it or on the process.
        rng = random.Random(f"{settings.seed} {key}")
        if "." in route.smiles:
            return Outcome(place, "mixture", route.smiles)
        if settings.forward:
            pairs = [text.last_reaction.split(">>") for text in aligned_routes(route, settings.aligned or 1, rng)]
            rows = [{"source": reactants, "target": product, "n_steps": 1} for reactants, product in pairs]
            return Outcome(place, route=key, rows=rows)
        reasons = [(row, self._reason_against(row)) for row in route_rows(route, rng, settings)]
        rows = [row for row, reason in reasons if reason is None]
        if not rows and (first := reasons[0][1]) is not None:
            return Outcome(place, *first)
        return Outcome(place, route=key, rows=rows)

    def _reason_against(self, row: dict[str, Any]) -> tuple[str, str] | None:
        """Return why a row does not fit the vocabulary or the lengths, a key of `REASONS` and a text, or None."""
        longest = self.settings.max_source_length
        try:
            # if the vocabulary has the characters of the route, it has those of its source
            length = len(encode_route(self._tokenizer, row["target"]))
        except ValueError as error:
            return "unknown_character", str(error)
        if length > self.settings.max_target_length:
            return "long_target", f"{length} tokens, at most {self.settings.max_target_length} are allowed"
        try:
            lengths = {"product_length": min(PRODUCT_LENGTH, longest), "source_length": longest}
            source_text(row["source"], row.get("starting_material"), **lengths)
        except ValueError as error:
            return "long_source", str(error)
        return None
