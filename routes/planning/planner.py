"""From target molecules to ranked routes."""

from __future__ import annotations

import logging
import time
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from numbers import Integral
from os import PathLike
from typing import Any, cast

from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

from ...common.progress import Progress
from ...tokenization import PRODUCT_LENGTH, SOURCE_LENGTH, encode_source
from ..molecules import canonical_smiles, drawn_smiles, largest_organic_part, one_molecule
from ..plans import IMPOSSIBLE, NOTHING_FOUND, Candidate, Plan, pooled, ranked
from ..shipped import MODEL
from ..stock import Stock
from ..tree import MAX_DEPTH
from .constraints import Constraints
from .hybrid import LeafExpansion
from .running import Searches
from .search import Deadline, Job, RouteSearch, RunningRoutes
from .spelling import check_spelling

_logger = logging.getLogger(__name__)

# Tried in turn, and pooled, when a model that is told the number of steps is not.
DEFAULT_STEPS = range(1, 6)
# Beams of one batch, when its size is left to the planner: more of them take more memory and save little time.
ROWS = 80

# The longest path that may be asked for where the model does not say what it was trained on, and the tokens that a reaction
# of a route takes at least: `,'children':[{'smiles':'C'}]`, with a token for each key.
MOST_STEPS = 20
_TOKENS_OF_A_REACTION = 9
# Beams that may be asked for, for each token of the vocabulary: a step of the search chooses its beams among that many texts
# for each beam. With the 53 tokens of DirectMultiStep it is 1,060, where 50 are usual.
_BEAMS_OF_A_TOKEN = 20

# What becomes of a target that is several molecules.
SALTS = ("refuse", "strip")

Steps = int | range | None


@dataclass(frozen=True)
class _Wishes:
    """What is done with the candidates of a target, and how long it may take; as in [`RoutePlanner.plan`]."""

    stock: Stock | None
    impossible: Any
    per_reaction: int | None
    time_limit: float | None
    expand_leaves: int
    only_purchasable: bool
    never: tuple[str, ...]


class RoutePlanner:
    """Plans routes with a model that writes them and the route tokenizer.

    Args:
        model: a `WeftForConditionalGeneration` trained on routes.
        tokenizer: the tokenizer it was trained with.
    """

    def __init__(self, model: Any, tokenizer: Any):
        self.model = model.eval()
        self.tokenizer = tokenizer

    @classmethod
    def from_pretrained(cls, folder_or_hub_id: str | PathLike | None = None, **kwargs) -> RoutePlanner:
        """Load model and tokenizer from one folder or Hub repository, or those that come with Weft.

        Args:
            folder_or_hub_id: the folder or repository (default: the model that comes with the package).
            kwargs: arguments of the model's `from_pretrained`.
        """
        if folder_or_hub_id is None:
            folder_or_hub_id = MODEL
        model = AutoModelForSeq2SeqLM.from_pretrained(folder_or_hub_id, **kwargs)
        return cls(model, AutoTokenizer.from_pretrained(folder_or_hub_id))

    def plan(
        self,
        targets: Sequence[str],
        *,
        n_steps: Steps | Sequence[Steps] = None,
        starting_material: str | Sequence[str | None] | None = None,
        stock: Stock | None = None,
        beams: int = 10,
        texts: int = 1,
        seed: int = 0,
        ranking: str = "log_probability",
        grammar: bool = True,
        constraints: Constraints | None = None,
        impossible: str = "behind",
        max_new_tokens: int | None = None,
        batch_size: int | None = None,
        progress: bool = True,
        on_error: str = "raise",
        time_limit: float | None = None,
        salts: str = "refuse",
        expand_leaves: int = 0,
        per_reaction: int | None = None,
        bounded: bool = True,
    ) -> list[Plan]:
        """Ranked candidates for each target.

        Args:
            targets: SMILES; canonicalised first.
            n_steps: longest path of the wanted routes, in reactions: a number; a range of numbers, each of which is tried
                and what they find pooled and ranked together; a list of these, one for each target; or None for
                1 to 5, of these what the model was trained on. Must be None for a model that is not told it.
            starting_material: SMILES of a molecule the routes should begin from, for a model trained with one; or a list,
                one (or None) for each target.
            stock: what can be bought; candidates then say which of their starting materials it lacks.
            beams: width of the search, and candidates for each target (and number of steps, and text).
            texts: SMILES of each target that are searched from; what they find is pooled, each route once with its best score.
                The first is canonical. The others begin at other atoms, for a model that was trained on aligned texts, and
                are random SMILES for another. A small target has fewer.
            seed: of the draw of these texts.
            ranking: "log_probability", or "sqrt_length" for the search of DirectMultiStep, which divides it by the root of
                the length with the forced beginning.
            grammar: let only tokens through that continue a well-formed route, no deeper than `n_steps`.
            constraints: what else every route has to be (default: `Constraints()`, molecules are read, none is made from
                itself, reactants have all atoms of their product and are not far larger; `NO_CONSTRAINTS` for none). They
                need the grammar.
                A search that finds no such route has one candidate, whose `problem` says why.
            impossible: routes that cannot be, as without constraints most are: ranked "behind" all others, "keep" the place
                of their score, or "drop" out.
            max_new_tokens: bound on what the model writes (default: what its positions allow).
            batch_size: searches run at once (default: as many as have 80 beams together).
            progress: show how far it is: a bar in a terminal, else a line every ten seconds.
            on_error: "raise", or "skip" to plan the other targets where one cannot be; its `Plan.problem` says why.
            time_limit: seconds for each target. When they are over, the search ends with the routes that are finished, and
                `Plan.remarks` says so. Targets are then searched one after the other, not together.
            salts: what becomes of a target of several molecules: "refuse" it, or "strip" it to its largest organic part,
                without charges where hydrogen can take them away. `Plan.remarks` says what was planned.
            expand_leaves: how often a starting material that the stock lacks becomes a target in its turn, with the same
                numbers of steps, and the routes are joined ([`LeafExpansion`] says how they are scored). Routes from molecules
                of the stock alone are then ranked first. With `only_purchasable`, all others are left out; a `required_leaf`
                is not made.
            per_reaction: most distinct routes with the same last reaction (default: all).
            bounded: refuse steps and beams that lead to minutes of search for nothing: paths of more than
                [`most_steps`] and more than [`most_beams`] beams.

        Returns:
            A plan for each target, in their order.

        Raises:
            ValueError: a target is no molecule, several, or too long, or holds a character that the model does not know, or
                its starting material is or does (with `on_error="raise"`); or a setting does not fit.
        """
        plans: dict[int, Plan] = dict(
            self.stream(
                targets, n_steps=n_steps, starting_material=starting_material, stock=stock, beams=beams,
                texts=texts, seed=seed, ranking=ranking, grammar=grammar, constraints=constraints,
                impossible=impossible, max_new_tokens=max_new_tokens, batch_size=batch_size, progress=progress, on_error=on_error, time_limit=time_limit, salts=salts,
                expand_leaves=expand_leaves, per_reaction=per_reaction, bounded=bounded,
            )
        )  # fmt: skip
        return [plans[index] for index in range(len(plans))]

    def stream(
        self,
        targets: Sequence[str],
        *,
        n_steps: Steps | Sequence[Steps] = None,
        starting_material: str | Sequence[str | None] | None = None,
        stock: Stock | None = None,
        beams: int = 10,
        texts: int = 1,
        seed: int = 0,
        impossible: str = "behind",
        batch_size: int | None = None,
        progress: bool = True,
        on_error: str = "raise",
        time_limit: float | None = None,
        salts: str = "refuse",
        expand_leaves: int = 0,
        per_reaction: int | None = None,
        bounded: bool = True,
        **search: Any,
    ) -> Iterator[tuple[int, Plan]]:
        """[`plan`], target by target as their searches end: those that cannot be planned first, then the longest.

        Args:
            targets, and the others: as in [`plan`]; they are checked at once, before the first search.

        Returns:
            An iterator over the index of a target and its plan.

        Raises:
            ValueError: as in [`plan`].
        """
        if isinstance(targets, str):
            raise ValueError(f"targets={targets!r} is one text: give a list of SMILES.")
        _check_choices(impossible=impossible, on_error=on_error, salts=salts)
        _check_numbers(
            {"batch_size": batch_size, "texts": texts, "per_reaction": per_reaction}, time_limit, expand_leaves, stock
        )
        if bounded:
            self._check_beams(beams)
        tried = self._steps(n_steps, len(targets), bounded)
        runs, asked = self._searches(search | {"beams": beams, "stock": stock}, expand_leaves)
        jobs, problems, remarks = self._jobs(targets, tried, starting_material, on_error, salts)
        if texts > 1:
            jobs = {index: self._from_texts(found, texts, seed) for index, found in jobs.items()}
        never = () if asked.required_leaf is None else (asked.required_leaf,)
        wishes = _Wishes(stock, impossible, per_reaction, time_limit, expand_leaves, asked.only_purchasable, never)
        batch_size = batch_size or max(1, ROWS // beams)
        return self._run(list(targets), jobs, problems, remarks, runs, batch_size, wishes, progress)

    def _searches(
        self, settings: dict[str, Any], expand_leaves: int
    ) -> tuple[tuple[RouteSearch, RouteSearch], Constraints]:
        """The search for the targets, that for what is made in its turn, and what is asked of the routes."""
        asked = settings.pop("constraints", None)
        make = partial(RouteSearch, self.model, self.tokenizer, **settings)
        if not expand_leaves or asked is None:
            run = make(constraints=asked)
            return (run, run), asked or Constraints()
        # what is not in stock is made afterwards, and a molecule that every route begins from is there before
        run = make(constraints=replace(asked, only_purchasable=False))
        below = run
        if asked.required_leaf is not None:
            below = make(constraints=replace(asked, only_purchasable=False, required_leaf=None))
        return (run, below), asked

    def _run(
        self,
        targets: list[str],
        jobs: dict[int, list[Job]],
        problems: dict[int, str],
        remarks: dict[int, str],
        runs: tuple[RouteSearch, RouteSearch],
        batch_size: int,
        wishes: _Wishes,
        progress: bool,
    ) -> Iterator[tuple[int, Plan]]:
        for index, problem in problems.items():
            yield index, Plan(targets[index], [], problem)
        run, below = runs
        # Longest first: rows of one batch are alike in length, and a batch too large for the memory fails at once.
        order = sorted(jobs, key=lambda index: -len(jobs[index][0].smiles))
        one_by_one = wishes.time_limit is not None or wishes.expand_leaves > 0
        groups = [[index] for index in order] if one_by_one else [order]
        with Progress("planning", sum(map(len, jobs.values())), "searches", is_shown=progress) as bar:
            for group in groups:
                deadline = None if wishes.time_limit is None else run.deadline(wishes.time_limit)
                found = self._searched({index: jobs[index] for index in group}, run, batch_size, deadline, bar)
                for index, candidates, seconds in found:
                    begun = time.monotonic()
                    several = len({one.smiles for one in jobs[index]}) > 1
                    candidates = pooled(candidates) if several else candidates
                    if wishes.expand_leaves:
                        candidates = self._expanded(candidates, jobs[index], below, batch_size, deadline, wishes)
                    told = [remarks[index]] if index in remarks else []
                    if deadline is not None and deadline.is_over:
                        told.append(_out_of_time(wishes.time_limit))
                    plan = self._plan(jobs[index][0].smiles, candidates, wishes, told)
                    yield index, replace(plan, seconds=seconds + time.monotonic() - begun)

    def _searched(
        self,
        jobs: dict[int, list[Job]],
        run: RouteSearch,
        batch_size: int,
        deadline: Deadline | None,
        bar: Progress | None = None,
    ) -> Iterator[tuple[int, list[Candidate], float]]:
        """The candidates of each target as its last search ends, and its part of the seconds."""
        pool = run.running()
        if pool is None:
            yield from self._in_batches(jobs, run, batch_size, deadline, bar)
            return
        searches, shown = Searches(pool, batch_size, together=True), 0
        for index, found in jobs.items():
            searches.add(index, found, lambda: deadline)
        while len(searches):
            over = searches.step()
            if bar is not None and searches.ended > shown:
                bar.update(searches.ended - shown)
                shown = searches.ended
            for one in over:
                yield cast(int, one.key), one.candidates, one.seconds

    def _in_batches(
        self,
        jobs: dict[int, list[Job]],
        run: RouteSearch,
        batch_size: int,
        deadline: Deadline | None,
        bar: Progress | None,
    ) -> Iterator[tuple[int, list[Candidate], float]]:
        """The same, one batch after the other."""
        waiting = [(index, job) for index, found in jobs.items() for job in found]
        left = {index: len(found) for index, found in jobs.items()}
        candidates: dict[int, list[Candidate]] = {index: [] for index in jobs}
        seconds = dict.fromkeys(jobs, 0.0)
        for start in range(0, len(waiting), batch_size):
            batch = waiting[start : start + batch_size]
            begun = time.monotonic()
            if deadline is not None and deadline.has_passed:
                deadline.is_over = True
                found = run.out_of_time([job for _, job in batch])
            else:
                found = run([job for _, job in batch], deadline)
            share = (time.monotonic() - begun) / len(batch)
            if bar is not None:
                bar.update(len(batch))
            for (index, _), those in zip(batch, found, strict=True):
                candidates[index] += those
                seconds[index] += share
                left[index] -= 1
            for index in dict.fromkeys(index for index, _ in batch):
                if not left[index]:
                    yield index, candidates.pop(index), seconds[index]

    def running(
        self,
        *,
        beams: int,
        grammar: bool = True,
        constraints: Constraints | None = None,
        stock: Stock | None = None,
        ranking: str = "log_probability",
    ) -> RunningPlans | None:
        """A search that targets join and leave between steps, for a server; None where the model or the ranking allows none.

        Args:
            beams, and the others: as in [`plan`].
        """
        (run, _), _ = self._searches(
            {"beams": beams, "grammar": grammar, "constraints": constraints, "stock": stock, "ranking": ranking}, 0
        )
        pool = run.running()
        return None if pool is None else RunningPlans(self, pool, stock)

    def _expanded(
        self,
        candidates: list[Candidate],
        jobs: list[Job],
        run: RouteSearch,
        batch_size: int,
        deadline: Deadline | None,
        wishes: _Wishes,
    ) -> list[Candidate]:
        """The candidates, and routes in which what the stock lacks is made; each once."""
        steps = list(dict.fromkeys(job.n_steps for job in jobs))

        def search(molecules: Sequence[str]) -> list[list[Candidate]]:
            asked = {
                index: [Job(smiles, count) for count in steps]
                for index, smiles in enumerate(molecules)
                if self._is_readable(smiles)
            }
            found = {index: those for index, those, _ in self._searched(asked, run, batch_size, deadline)}
            return [found.get(index, []) for index in range(len(molecules))]

        def is_over() -> bool:
            if deadline is not None and deadline.has_passed:
                deadline.is_over = True
            return deadline is not None and deadline.is_over

        assert wishes.stock is not None
        best = sorted(candidates, key=lambda candidate: -candidate.score)
        expansion = LeafExpansion(
            search, wishes.stock, depth=wishes.expand_leaves, is_over=is_over, never=wishes.never
        )
        return pooled(expansion(best))

    def _is_readable(self, smiles: str) -> bool:
        """Whether the model can be asked for routes to a molecule."""
        try:
            self._check_source(one_molecule(smiles), None)
        except ValueError:
            return False
        return True

    def _plan(self, target: str, candidates: list[Candidate], wishes: _Wishes, remarks: list[str]) -> Plan:
        best = ranked(
            candidates,
            wishes.stock,
            wishes.impossible,
            per_reaction=wishes.per_reaction,
            purchasable_first=wishes.expand_leaves > 0,
        )
        if wishes.expand_leaves and wishes.only_purchasable:
            bought = [candidate for candidate in best if candidate.route is None or candidate.purchasable]
            if len(bought) < len(best) and not any(candidate.route for candidate in bought):
                why = (
                    f"no route begins from molecules of the stock alone (only_purchasable), also where its starting "
                    f"materials were made in their turn, {wishes.expand_leaves} deep"
                )
                bought.append(Candidate("", float("-inf"), None, problem=NOTHING_FOUND + why))
            # numbered again, without those that are left out
            best = ranked(bought, wishes.stock, "keep", purchasable_first=True)
        if not best and candidates:
            remarks = [*remarks, f"All {len(candidates)} routes are impossible, and were left out."]
        return Plan(target, best, remarks=tuple(remarks))

    @property
    def about(self) -> dict[str, Any]:
        """What the model says of the routes that it was trained on; nothing where it was saved without."""
        return getattr(self.model.generation_config, "routes", None) or {}

    @property
    def default_steps(self) -> Sequence[int]:
        """The numbers of steps that are tried where none is asked for: 1 to 5, of these what was trained on."""
        fewest, most = self.about.get("steps", (1, 5))
        return [steps for steps in DEFAULT_STEPS if fewest <= steps <= most] or [int(fewest)]

    @property
    def most_steps(self) -> int:
        """The longest path that may be asked for, in reactions.

        It is twice the longest that the model was trained on, 20 where it does not say, and no more than its positions have
        room for.
        """
        return min(bound for bound, _ in self._step_bounds())

    @property
    def most_beams(self) -> int:
        """The number of beams that may be asked for, 20 for each token of the vocabulary."""
        return _BEAMS_OF_A_TOKEN * len(self.tokenizer)

    def _check_beams(self, beams: int) -> None:
        if beams > self.most_beams:
            raise ValueError(
                f"{beams:,} beams are above the bound of {self.most_beams:,}, {_BEAMS_OF_A_TOKEN} for each of the "
                f"{len(self.tokenizer)} tokens of the vocabulary: time and memory grow with each beam, and 10 to 50 are usual. "
                "`--no-bounds` (`bounded=False` in Python) lifts the bound."
            )

    def _step_bounds(self) -> list[tuple[int, str]]:
        positions = self.model.config.max_target_positions
        bounds = [(max(1, positions // _TOKENS_OF_A_REACTION), f"what its {positions} positions have room for")]
        _, longest = self.about.get("steps", (None, None))
        if longest:
            bounds.append((2 * int(longest), f"twice the longest path that it was trained on, {longest}"))
        else:
            bounds.append((MOST_STEPS, "for a model that does not say what it was trained on"))
        return [*bounds, (MAX_DEPTH, "for any route")]

    def _from_texts(self, jobs: list[Job], texts: int, seed: int) -> list[Job]:
        """The searches of a target from each of its texts, those left out that are too long or that the model cannot spell."""
        found = []
        for text in drawn_smiles(jobs[0].smiles, texts, seed, rooted=bool(self.about.get("aligned"))):
            try:
                self._check_source(text, jobs[0].starting_material)
            except ValueError:
                continue
            found += [replace(job, smiles=text) for job in jobs]
        return found

    def _check_source(self, smiles: str, starting_material: str | None) -> None:
        for text in (smiles, starting_material):
            if text is not None:
                check_spelling(self.tokenizer, text)
        room = self.model.config.max_source_positions
        encode_source(
            self.tokenizer,
            smiles,
            starting_material,
            product_length=min(PRODUCT_LENGTH, room),
            source_length=min(SOURCE_LENGTH, room),
        )

    def _jobs(
        self,
        targets: Sequence[str],
        steps: list[Sequence[int | None]],
        starting_material: str | Sequence[str | None] | None,
        on_error: str,
        salts: str,
    ) -> tuple[dict[int, list[Job]], dict[int, str], dict[int, str]]:
        """The searches of each target that can be planned, what is wrong with each that cannot, and what was made of some."""
        if starting_material is None or isinstance(starting_material, str):
            # one for all: what is wrong with it is wrong for every target
            material = None if starting_material is None else one_molecule(starting_material)
            materials: list[str | None] = [material] * len(targets)
        else:
            materials = list(starting_material)
        if len(materials) != len(targets):
            raise ValueError(f"{len(materials)} starting materials for {len(targets)} targets: give one for each.")
        if any(materials):
            self._check_reads_materials()
        jobs: dict[int, list[Job]] = {}
        problems: dict[int, str] = {}
        remarks: dict[int, str] = {}
        for index, (target, material) in enumerate(zip(targets, materials, strict=True)):
            try:
                smiles, remark = one_target(target, salts)
                begin = None if material is None else one_molecule(material)
                self._check_source(smiles, begin)
            except ValueError as error:
                # some speak of the canonical SMILES: the one that was given is named too
                problem = str(error) if target in str(error) else f"{target!r}: {error}"
                if on_error == "raise":
                    raise ValueError(problem) from error
                problems[index] = problem
            else:
                jobs[index] = [Job(smiles, count, begin) for count in steps[index]]
                if remark:
                    remarks[index] = remark
        return jobs, problems, remarks

    def _check_reads_materials(self) -> None:
        """Refuse a starting material where the model is known to have been trained without.

        What a folder says in `generation_config.json` decides. One that says nothing, such as a converted or an older one, is
        taken at its word that its source has room for two molecules, with a warning.
        """
        way_out = (
            "Leave `starting_material` out. `--required-leaf` (`Constraints(required_leaf=...)` in Python) makes every route "
            "begin from a molecule, with any model."
        )
        room, is_trained = self.model.config.max_source_positions, self.about.get("starting_material")
        if room <= PRODUCT_LENGTH:
            raise ValueError(
                f"This model reads no starting material: its source of {room} tokens has room for the target alone. {way_out}"
            )
        if is_trained is False:
            raise ValueError(f"This model was trained without a starting material and cannot read one. {way_out}")
        if is_trained is None:
            _logger.warning(
                "The model does not say whether it was trained with a starting material: without, it cannot read one. "
                "`--required-leaf` (`required_leaf` of the constraints) makes every route begin from a molecule, with any model."
            )

    def _steps(self, n_steps: Steps | Sequence[Steps], count: int, bounded: bool) -> list[Sequence[int | None]]:
        """For each target the numbers of steps to try."""
        if self.model.config.num_condition_features == 0:
            if n_steps is not None:
                raise ValueError("This model was trained without the number of steps: leave `n_steps` out.")
            return [[None]] * count
        several = n_steps is not None and not isinstance(n_steps, Integral | range)
        wanted: list[Any] = list(n_steps) if several else [n_steps] * count  # type: ignore[arg-type]
        tried = [
            self.default_steps if steps is None else [int(steps)] if isinstance(steps, Integral) else steps
            for steps in wanted
        ]
        if len(tried) != count or any(len(steps) == 0 or min(steps) < 1 for steps in tried):
            raise ValueError(
                f"n_steps={n_steps!r} is not allowed: give a number of at least 1, a range of such numbers, "
                "or a list with one of these for each target."
            )
        longest = max((number for steps in tried for number in steps), default=0)
        bound, why = min(self._step_bounds())
        if bounded and n_steps is not None and longest > bound:
            raise ValueError(
                f"{longest} steps are above the bound of {bound}, {why}: the model would write until it has no room left. "
                "`--no-bounds` (`bounded=False` in Python) lifts the bound."
            )
        fewest, most = self.about.get("steps", (None, None))
        outside = sorted({number for steps in tried for number in steps if most and not fewest <= number <= most})
        if outside:
            _logger.warning(
                "The model was trained on routes of %d to %d steps: it has not learned what %s steps mean.",
                fewest, most, ", ".join(map(str, outside)),
            )  # fmt: skip
        return tried


class RunningPlans:
    """Plans of targets that join and leave a running search. Each is what [`RoutePlanner.plan`] gives for it alone.

    Args:
        planner: the planner.
        pool: the search.
        stock: what can be bought.
    """

    def __init__(self, planner: RoutePlanner, pool: RunningRoutes, stock: Stock | None):
        self.planner, self.stock = planner, stock
        self._searches = Searches(pool, max(1, ROWS // pool.search.beams))
        # of each target: its SMILES, what is done with its candidates, and what has to be said of it
        self._targets: dict[Hashable, tuple[list[Job], _Wishes, list[str]]] = {}

    def __len__(self) -> int:
        return len(self._targets)

    def add(
        self,
        key: Hashable,
        target: str,
        *,
        n_steps: Steps | Sequence[int] = None,
        starting_material: str | None = None,
        texts: int = 1,
        seed: int = 0,
        impossible: str = "behind",
        max_new_tokens: int | None = None,
        time_limit: float | None = None,
        salts: str = "refuse",
        per_reaction: int | None = None,
    ) -> None:
        """Let a target join.

        Args:
            key: what names it.
            target, and the others: as in [`RoutePlanner.plan`], `n_steps` the numbers that are tried. The time limit begins with
                the first step.

        Raises:
            ValueError: as in [`RoutePlanner.plan`].
        """
        planner, search = self.planner, self._searches.pool.search
        tried = planner._steps([n_steps], 1, bounded=False)  # type: ignore[list-item]
        jobs, _, remarks = planner._jobs([target], tried, starting_material, "raise", salts)
        own = planner._from_texts(jobs[0], texts, seed) if texts > 1 else jobs[0]
        wishes = _Wishes(self.stock, impossible, per_reaction, time_limit, 0, False, ())
        self._searches.add(key, own, lambda: search.deadline(time_limit), max_new_tokens)
        self._targets[key] = own, wishes, list(remarks.values())

    def remove(self, key: Hashable) -> None:
        """Let a target leave that nobody wants any more."""
        self._searches.remove(key)
        del self._targets[key]

    def step(self) -> list[tuple[Hashable, Plan]]:
        """Write a token of each text. Return the plans whose searches are over."""
        plans = []
        for found in self._searches.step():
            jobs, wishes, told = self._targets.pop(found.key)
            begun = time.monotonic()
            several = len({one.smiles for one in jobs}) > 1
            candidates = pooled(found.candidates) if several else found.candidates
            if found.deadline is not None and found.deadline.is_over:
                told = [*told, _out_of_time(wishes.time_limit)]
            plan = self.planner._plan(jobs[0].smiles, candidates, wishes, told)
            plans.append((found.key, replace(plan, seconds=found.seconds + time.monotonic() - begun)))
        return plans


def _out_of_time(time_limit: float | None) -> str:
    return f"The time limit of {time_limit:g} s ended the search: these are the routes that were finished."


def _check_choices(**given: str) -> None:
    allowed = {"impossible": IMPOSSIBLE, "on_error": ("raise", "skip"), "salts": SALTS}
    for name, value in given.items():
        if value not in allowed[name]:
            raise ValueError(f"{name}={value!r} is not allowed: choose one of {', '.join(allowed[name])}.")


def _check_numbers(
    counts: dict[str, int | None], time_limit: float | None, expand_leaves: int, stock: Stock | None
) -> None:
    for name, value in counts.items():
        if value is not None and value < 1:
            raise ValueError(f"{name}={value} is not allowed: give at least 1.")
    if time_limit is not None and not 0 < time_limit < float("inf"):
        raise ValueError(f"time_limit={time_limit} is not allowed: give a number of seconds above 0.")
    if expand_leaves < 0:
        raise ValueError(f"expand_leaves={expand_leaves} is not allowed: give at least 0.")
    if expand_leaves and stock is None:
        raise ValueError(f"expand_leaves={expand_leaves} needs a stock: what it lacks is made in its turn.")


def one_target(target: str, salts: str) -> tuple[str, str | None]:
    """The canonical SMILES to plan, and what has to be said of it.

    Args:
        target: SMILES, as it was given.
        salts: "refuse" or "strip", as in [`RoutePlanner.plan`].

    Raises:
        ValueError: the target is no molecule, or several and `salts` is "refuse".
    """
    smiles = canonical_smiles(target)
    if "." not in smiles:
        return smiles, None
    if salts == "refuse":
        raise ValueError(
            f"{target!r} is {smiles.count('.') + 1} molecules, a salt or a mixture: give one of them. `--salts strip` "
            '(`salts="strip"` in Python) plans its largest organic part.'
        )
    part = largest_organic_part(smiles)
    return part, f"{target} is {smiles.count('.') + 1} molecules: {part}, its largest organic part, was planned."
