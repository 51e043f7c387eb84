"""From target molecules to ranked routes."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import replace
from numbers import Integral
from os import PathLike
from typing import Any

from tqdm.auto import tqdm
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

from ...tokenization import PRODUCT_LENGTH, SOURCE_LENGTH, encode_source
from ..molecules import drawn_smiles, one_molecule
from ..plans import IMPOSSIBLE, Candidate, Plan, pooled, ranked
from ..shipped import MODEL
from ..stock import Stock
from .constraints import Constraints
from .search import Job, RouteSearch

_logger = logging.getLogger(__name__)

# Tried in turn, and pooled, when a model that is told the number of steps is not.
DEFAULT_STEPS = range(1, 6)
# Beams of one batch, when its size is left to the planner: more of them take more memory and save little time.
ROWS = 80

Steps = int | range | None


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
                itself, and reactants have all atoms of their product; `NO_CONSTRAINTS` for none). They need the grammar.
                A search that finds no such route has one candidate, whose `problem` says why.
            impossible: routes that cannot be, as without constraints most are: ranked "behind" all others, "keep" the place
                of their score, or "drop" out.
            max_new_tokens: bound on what the model writes (default: what its positions allow).
            batch_size: searches run at once (default: as many as have 80 beams together).
            progress: show a bar.
            on_error: "raise", or "skip" to plan the other targets where one cannot be; its `Plan.problem` says why.

        Returns:
            A plan for each target, in their order.

        Raises:
            ValueError: a target is no molecule, several, or too long, or holds a character that the model does not know, or
                its starting material is or does (with `on_error="raise"`); or a setting does not fit.
        """
        plans: dict[int, Plan] = dict(
            self.stream(
                targets, n_steps=n_steps, starting_material=starting_material, stock=stock, beams=beams,
                texts=texts, seed=seed, ranking=ranking, grammar=grammar, constraints=constraints, impossible=impossible, max_new_tokens=max_new_tokens,
                batch_size=batch_size, progress=progress, on_error=on_error,
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
        if impossible not in IMPOSSIBLE:
            raise ValueError(f"impossible={impossible!r} is not allowed: choose one of {', '.join(IMPOSSIBLE)}.")
        if on_error not in ("raise", "skip"):
            raise ValueError(f'on_error={on_error!r} is not allowed: choose "raise" or "skip".')
        if isinstance(targets, str):
            raise ValueError(f"targets={targets!r} is one text: give a list of SMILES.")
        for name, value in (("batch_size", batch_size), ("texts", texts)):
            if value is not None and value < 1:
                raise ValueError(f"{name}={value} is not allowed: give at least 1.")
        run = RouteSearch(self.model, self.tokenizer, beams=beams, stock=stock, **search)
        jobs, problems = self._jobs(targets, self._steps(n_steps, len(targets)), starting_material, on_error)
        if texts > 1:
            jobs = {index: self._from_texts(found, texts, seed) for index, found in jobs.items()}
        batch_size = batch_size or max(1, ROWS // beams)
        return self._run(list(targets), jobs, problems, run, batch_size, stock, impossible, progress)

    def _run(
        self,
        targets: list[str],
        jobs: dict[int, list[Job]],
        problems: dict[int, str],
        run: RouteSearch,
        batch_size: int,
        stock: Stock | None,
        impossible: Any,
        progress: bool,
    ) -> Iterator[tuple[int, Plan]]:
        for index, problem in problems.items():
            yield index, Plan(targets[index], [], problem)
        # Longest first: rows of one batch are alike in length, and a batch too large for the memory fails at once.
        order = sorted(jobs, key=lambda index: -len(jobs[index][0].smiles))
        waiting = [(index, job) for index in order for job in jobs[index]]
        left = {index: len(jobs[index]) for index in order}
        found: dict[int, list[Candidate]] = {index: [] for index in order}
        with tqdm(total=len(waiting), desc="planning", unit="search", disable=not progress) as bar:
            for start in range(0, len(waiting), batch_size):
                batch = waiting[start : start + batch_size]
                for (index, _), candidates in zip(batch, run([job for _, job in batch]), strict=True):
                    found[index] += candidates
                    left[index] -= 1
                    if not left[index]:
                        candidates = found.pop(index)
                        several = len({one.smiles for one in jobs[index]}) > 1
                        best = ranked(pooled(candidates) if several else candidates, stock, impossible)
                        yield index, Plan(jobs[index][0].smiles, best)
                bar.update(len(batch))

    @property
    def about(self) -> dict[str, Any]:
        """What the model says of the routes that it was trained on; nothing where it was saved without."""
        return getattr(self.model.generation_config, "routes", None) or {}

    @property
    def default_steps(self) -> Sequence[int]:
        """The numbers of steps that are tried where none is asked for: 1 to 5, of these what was trained on."""
        fewest, most = self.about.get("steps", (1, 5))
        return [steps for steps in DEFAULT_STEPS if fewest <= steps <= most] or [int(fewest)]

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
    ) -> tuple[dict[int, list[Job]], dict[int, str]]:
        """The searches of each target that can be planned, and what is wrong with each that cannot."""
        if starting_material is None or isinstance(starting_material, str):
            # one for all: what is wrong with it is wrong for every target
            material = None if starting_material is None else one_molecule(starting_material)
            materials: list[str | None] = [material] * len(targets)
        else:
            materials = list(starting_material)
        if len(materials) != len(targets):
            raise ValueError(f"{len(materials)} starting materials for {len(targets)} targets: give one for each.")
        if any(materials) and self.model.config.max_source_positions <= PRODUCT_LENGTH:
            raise ValueError(
                f"This model reads no starting material: its source of {self.model.config.max_source_positions} "
                "tokens has room for the target alone. Leave `starting_material` out."
            )
        jobs: dict[int, list[Job]] = {}
        problems: dict[int, str] = {}
        for index, (target, material) in enumerate(zip(targets, materials, strict=True)):
            try:
                smiles = one_molecule(target)
                begin = None if material is None else one_molecule(material)
                self._check_source(smiles, begin)
            except ValueError as error:
                if on_error == "raise":
                    raise
                problems[index] = str(error)
            else:
                jobs[index] = [Job(smiles, count, begin) for count in steps[index]]
        return jobs, problems

    def _steps(self, n_steps: Steps | Sequence[Steps], count: int) -> list[Sequence[int | None]]:
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
        fewest, most = self.about.get("steps", (None, None))
        outside = sorted({number for steps in tried for number in steps if most and not fewest <= number <= most})
        if outside:
            _logger.warning(
                "The model was trained on routes of %d to %d steps: it has not learned what %s steps mean.",
                fewest, most, ", ".join(map(str, outside)),
            )  # fmt: skip
        return tried
