"""From target molecules to ranked routes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from os import PathLike
from typing import Any, cast

from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

from ...common.progress import Progress
from ..family import load
from ..plans import Candidate, Plan
from ..shipped import MODEL, STOCK
from ..stock.stock import Stock, StockLike, as_stock
from ..tree import Route
from .pool import PlanPool
from .requests import BEAMS_OF_A_TOKEN, PlanRequest, Steps, expansion_request, make_requests, most_steps
from .settings import PlanSettings


class RoutePlanner:
    """Plans routes with a model that writes them and the route tokenizer.

    Args:
        model: a `WeftForConditionalGeneration` trained on routes.
        tokenizer: the tokenizer it was trained with.
        stock: the purchasable molecules of plans that are given no others: a `Stock`, its file or name, or SMILES.
    """

    def __init__(self, model: Any, tokenizer: Any, stock: StockLike | None = None):
        self.model = model.eval()
        self.tokenizer, self.stock = tokenizer, as_stock(stock)

    @classmethod
    def from_pretrained(
        cls, folder_or_hub_id: str | PathLike | None = None, *, stock: StockLike | None = None, **kwargs
    ) -> RoutePlanner:
        """Load model and tokenizer from one folder or Hub repository, or the included ones.

        Args:
            folder_or_hub_id: the folder or repository (default: the model that comes with the package).
            stock: the purchasable molecules of plans that are given no others, as for the class (default: the included
                ones with the included model, else none).
            kwargs: arguments of the model's `from_pretrained`.
        """
        if folder_or_hub_id is None:
            folder_or_hub_id, stock = MODEL, Stock.from_file(STOCK, progress=False) if stock is None else stock
        model = load(AutoModelForSeq2SeqLM, folder_or_hub_id, **kwargs)
        return cls(model, load(AutoTokenizer, folder_or_hub_id), stock)

    def plan(self, targets: Sequence[str], settings: PlanSettings | None = None, **options: Any) -> list[Plan]:
        """Return ranked candidates for each target.

        Args:
            targets: SMILES; canonicalised first.
            settings: how routes are searched and ranked (default: `PlanSettings()`).
            options: arguments of [`stream`], and fields of [`PlanSettings`], which override those in `settings`.

        Returns:
            A plan for each target, in their order.

        Raises:
            ValueError: a target or its starting material is not a single molecule, is too long, or contains a
                character outside the vocabulary (with `on_error="raise"`); or a setting is not allowed.
        """
        plans = dict(self.stream(targets, settings, **options))
        return [plans[index] for index in range(len(plans))]

    def stream(
        self,
        targets: Sequence[str],
        settings: PlanSettings | None = None,
        *,
        n_steps: Steps | Sequence[Steps] = None,
        starting_material: str | Sequence[str | None] | None = None,
        stock: StockLike | None = None,
        batch_size: int | None = None,
        progress: bool = True,
        on_error: str = "skip",
        watch: Callable[[], None] | None = None,
        on_first: Callable[[Any, Route], None] | None = None,
        **changes: Any,
    ) -> Iterator[tuple[int, Plan]]:
        """Like [`plan`], but yield each target when its search ends: first targets that cannot be planned, then the
        longest.

        Args:
            targets: SMILES. They and the settings are checked at once, before the first search.
            settings: how routes are searched and ranked (default: `PlanSettings()`).
            n_steps: longest path of the routes, in reactions: a number; a range of numbers, each of which is tried
                with all routes pooled and ranked together; a list of these, one for each target; or None for
                1 to 5, limited to the training range. Must be None for a model without this condition.
            starting_material: SMILES of a required starting material, for a model trained with one; or a list,
                one (or None) for each target.
            stock: the purchasable molecules; candidates then list their missing starting materials (default: those of
                the planner).
            batch_size: number of concurrent searches. Those for whole routes wait until all running ones have ended
                (default: 80 beams in total, 160 in a search to the stock).
            progress: show the progress as a bar in a terminal, else as a line every ten seconds.
            on_error: "skip" to plan the other targets if one cannot be read, whose `Plan.problem` has the reason; or
                "raise".
            watch: called before each token; an exception in it ends the search.
            on_first: called with the index of a target and its first route to the stock, if its search then continues.
            changes: fields of [`PlanSettings`], which override those in `settings`.

        Returns:
            An iterator over the index of a target and its plan.

        Raises:
            ValueError: as in [`plan`].
        """
        settings = replace(settings or PlanSettings(), **changes)
        if batch_size is not None and batch_size < 1:
            raise ValueError(f"batch_size={batch_size} is not allowed: give at least 1.")
        sold = settings.stock_of(self.stock if stock is None else stock)
        requests = self.requests(
            targets, settings, n_steps=n_steps, starting_material=starting_material, stock=sold, on_error=on_error
        )
        common = next((request.settings for request in requests if request.problem is None), settings)
        pool = PlanPool(self.model, self.tokenizer, common.for_search, sold, batch_size, watch, together=True)
        pool.on_first = on_first
        return self._run(requests, common, pool, progress)

    def expand(
        self,
        smiles: str,
        n: int = 20,
        settings: PlanSettings | None = None,
        *,
        stock: StockLike | None = None,
        on_found: Callable[[Candidate], None] | None = None,
        **changes: Any,
    ) -> Plan:
        """Return reactions that make a molecule: those of the library and those that the model proposes, in one list.
        Their scores are log-probabilities. The reactions of a user's own library come first.

        Args:
            smiles: SMILES of the molecule.
            n: largest number of reactions.
            settings: of these, an expansion reads `beams`, `constraints`, `have`, `on_salt` and `max_new_tokens`.
            stock: the purchasable molecules; the reactions then list missing reactants and offers (default: those of
                the planner).
            on_found: called with each reaction.
            changes: fields of [`PlanSettings`], which override those in `settings`.

        Returns:
            A plan whose candidates are routes of one step. `Candidate.reactions` and `Candidate.steps` have the
            name, the evidence, the examples and the remarks of each.

        Raises:
            ValueError: as in [`plan`], or `n` is below 1.
        """
        settings = replace(settings or PlanSettings(), **changes)
        [(_, plan)] = self.expansions([smiles], n, settings, stock=stock, on_found=on_found, on_error="raise")
        return plan

    def expansions(
        self,
        targets: Sequence[str],
        n: int,
        settings: PlanSettings,
        *,
        stock: StockLike | None = None,
        batch_size: int | None = None,
        on_found: Callable[[Candidate], None] | None = None,
        on_error: str = "skip",
    ) -> Iterator[tuple[int, Plan]]:
        """Like [`expand`] for many molecules, but yield each when its search ends. With `on_error="skip"`, a molecule
        that cannot be read has a `Plan.problem`.
        """
        requests = []
        for target in targets:
            try:
                requests.append(expansion_request(self.model, self.tokenizer, target, settings, n, on_found))
            except ValueError as error:
                if on_error == "raise":
                    raise
                requests.append(PlanRequest(target, settings=settings, problem=str(error)))
        search = replace(settings, direct=False, ranking="log_probability")
        sold = settings.stock_of(self.stock if stock is None else stock)
        pool = PlanPool(self.model, self.tokenizer, search.for_search, sold, batch_size, together=len(targets) > 1)
        return self._run(requests, search, pool, progress=False)

    def requests(
        self, targets: Sequence[str], settings: PlanSettings, *, stock: Stock | None = None, **options: Any
    ) -> list[PlanRequest]:
        """Read and check targets, for a [`PlanPool`].

        Args:
            targets, settings: as in [`stream`].
            stock: the purchasable molecules, or None. That of the planner is not used.
            options: `n_steps`, `starting_material` and `on_error`, as in [`stream`].

        Raises:
            ValueError: as in [`plan`].
        """
        settings.check_stock(stock)
        return make_requests(self.model, self.tokenizer, targets, settings, stock=stock, **options)

    @staticmethod
    def _run(
        requests: list[PlanRequest], settings: PlanSettings, pool: PlanPool, progress: bool
    ) -> Iterator[tuple[int, Plan]]:
        for index, request in enumerate(requests):
            if request.problem is not None:
                yield index, Plan(request.target, [], request.problem)
        # Longest first: rows of one batch are alike in length, and a batch too large for the memory fails at once.
        indices = [index for index, request in enumerate(requests) if request.problem is None]
        indices.sort(key=lambda index: -len(requests[index].target))
        # a target with a time limit is searched alone; in a search to the stock, other targets do not use up its limit
        one_by_one = settings.direct and settings.time_limit is not None
        groups = [[index] for index in indices] if one_by_one else [indices]
        with Progress("planning", len(indices), "targets", is_shown=progress) as bar:
            for group in groups:
                for index in group:
                    pool.add(index, requests[index])
                while len(pool):
                    plans = pool.step()
                    bar.update(len(plans))
                    yield from cast(list[tuple[int, Plan]], plans)

    @property
    def most_steps(self) -> int:
        """The longest allowed path, in reactions.

        It is twice the longest path of training, 20 if that is unknown, and at most what its positions have
        room for.
        """
        return most_steps(self.model)

    @property
    def most_beams(self) -> int:
        """The largest allowed number of beams, 20 for each token of the vocabulary."""
        return BEAMS_OF_A_TOKEN * len(self.tokenizer)
