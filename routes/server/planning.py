"""Routes as a task of the server: POST /plan with its form, POST /expand, and the page on which a route is built."""

# no `from __future__ import annotations`: FastAPI reads the annotations of functions whose classes are local

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cache
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, create_model
from pydantic.json_schema import SkipJsonSchema

from ...common.options import request_fields
from ...serving.endpoint import Checked, Endpoint, JsonEndpoint, StreamEndpoint, one_or_more
from ...serving.limits import Limits, check_time
from ..drawing.svg import route_svg
from ..family import disable_padding
from ..judging import JudgedStep, Library, library_of, shipped_library
from ..pages.page import answer_html, card_html, page_style
from ..planning.expansion import last_row, proposal_row
from ..planning.planner import RoutePlanner
from ..planning.pool import ROWS, PlanPool
from ..planning.requests import PlanRequest, about_routes, default_steps, expansion_request, no_material_because
from ..planning.settings import RULES, Constraints, PlanSettings
from ..planning.stock_search import LISTED_STEPS, MAX_CONCURRENT_EXPANSIONS
from ..plans import Candidate, Plan
from ..stock.stock import Stock, with_own
from ..tree import Route
from .building import build_endpoint

_MOST_STEPS = 32
# Each SMILES of a target needs its own search.
_MOST_AUGMENTATIONS = 16
_MOST_ROUTES = 100
# The molecules that a person has, and the molecules and reactions that are not wanted, while a route is built.
_MOST_WISHES = 100
# The included model reads targets of up to 300 tokens. RDKit takes a second for the worst text of 2,000 characters.
_MOST_SMILES = 600
_EXPANDS = "Reactions that make a molecule, one on each line: those of the library and of the model in one list."
_EXPANSION = (
    "beams",
    "max_new_tokens",
    "on_salt",
    "have",
    "forbidden",
    "forbidden_substructures",
    "kept_substructures",
)
_EXAMPLE = {"targets": "O=C(Nc1ccccc1)c1ccc(F)cc1", "max_routes": 3}
_FORM = {
    "targets": "Target molecules (SMILES), one per line", "n_steps": "Steps", "beams": "Beams",
    "starting_material": "Starting material (SMILES)", "required_leaf": "Required starting material (SMILES)",
    "num_routes": "Number of routes", "time_limit": "Seconds per target",
    "only_purchasable": "Only purchasable routes", "max_price": "Highest price",
}  # fmt: skip
_OF_STOCK = ("only_purchasable", "max_price")


class RouteTask:
    """Plans routes.

    Args:
        planner: a planner with a model trained on routes.
        stock: the purchasable molecules. Candidates then list missing ones.
        max_new_tokens: largest number of new tokens (default: three quarters of the model's positions, because the
            beginning of a route, which names the target, takes the rest).
        library: the recorded transformations. Requests cannot choose them.
    """

    def __init__(
        self,
        planner: RoutePlanner,
        stock: Stock | None = None,
        max_new_tokens: int | None = None,
        library: Library | None = None,
    ):
        self.planner, self.model, self.stock = planner, planner.model, stock
        self.library = shipped_library() if library is None else library
        positions = self.model.config.max_target_positions
        self.max_new_tokens = min(max_new_tokens or positions * 3 // 4, positions)
        disable_padding(planner.tokenizer)
        self.takes_steps = self.model.config.num_condition_features > 0
        self.takes_material = no_material_because(self.model) is None
        self.example = _EXAMPLE if stock is None else _EXAMPLE | {"num_routes": 3, "only_purchasable": True}
        self.public_example = self.example

    @classmethod
    def load(
        cls,
        model: Any,
        tokenizer: Any,
        max_new_tokens: int | None = None,
        *,
        stock: Stock | None = None,
        library: str | None = None,
    ) -> "RouteTask":
        """Make the task of a loaded model.

        Args:
            model, tokenizer, max_new_tokens, stock: as in [`RouteTask`].
            library: the file of a user's own reactions, as in [`PlanSettings`].
        """
        transformations = shipped_library() if library is None else library_of(library)
        transformations.propose("CCO", 1)  # reading it takes longer than an answer may take
        return cls(RoutePlanner(model, tokenizer), stock, max_new_tokens, transformations)

    def requests(
        self,
        targets: list[str],
        settings: PlanSettings,
        *,
        n_steps: list[int] | None = None,
        budget: float | None = None,
        **options: Any,
    ) -> list[PlanRequest]:
        """Check a request.

        Args:
            targets, settings: as in [`RoutePlanner.stream`].
            n_steps: the numbers of steps to try for each target.
            budget: seconds for a search to the stock if the settings have no time limit (default: the budget of the
                settings).
            options: `starting_material` and `on_error`, as in [`RoutePlanner.stream`].

        Returns:
            A request for each target.

        Raises:
            ValueError: a target or a setting is invalid; the message has the reason.
        """
        numbers: Any = None if n_steps is None else [tuple(sorted(set(n_steps)))] * len(targets)
        settings = self._within_limits(settings)
        stock = settings.stock_of(self.stock)
        requests = self.planner.requests(targets, settings, n_steps=numbers, stock=stock, **options)
        if budget is None or settings.time_limit is not None:
            return requests
        within_budget = replace(settings, time_limit=budget)
        return [
            replace(request, settings=within_budget) if request.searches_steps else request for request in requests
        ]

    def expansion(
        self, smiles: str, settings: PlanSettings, n: int, report: Callable[[Candidate], None]
    ) -> PlanRequest:
        """Check a request for the reactions of a molecule. The arguments are those of [`RoutePlanner.expand`].

        Raises:
            ValueError: the molecule or a setting is invalid; the message has the reason.
        """
        ranks = set[int]()

        def report_once(candidate: Candidate) -> None:
            # after an error in a batch, its members are computed again
            if candidate.rank not in ranks:
                ranks.add(candidate.rank)
                report(candidate)

        settings = self._within_limits(settings)
        return expansion_request(self.model, self.planner.tokenizer, smiles, settings, n, report_once)

    def _within_limits(self, settings: PlanSettings) -> PlanSettings:
        length = settings.max_new_tokens or self.max_new_tokens
        return replace(settings, max_new_tokens=length, library=self.library)

    def count_tokens(self, plan: Plan) -> int:
        """Return the number of tokens of all candidates."""
        return sum(len(self.planner.tokenizer.tokenize(candidate.text)) for candidate in plan.candidates)

    def pool_key(self, request: PlanRequest) -> PlanSettings:
        """Return the settings of the search, which requests of one pool have in common."""
        return request.settings.for_search

    def rows(self, request: PlanRequest) -> int:
        """Return the number of rows of the searches that a pool runs at once for a request."""
        beams = request.settings.beams
        return beams * min(len(request.jobs) or MAX_CONCURRENT_EXPANSIONS, max(1, ROWS // beams))

    def open_pool(self, key: PlanSettings, watch: Callable[[], None]) -> PlanPool:
        """Return a pool of requests with these settings, for a [`Batcher`]."""
        return PlanPool(self.model, self.planner.tokenizer, key, key.stock_of(self.stock), watch=watch)

    def stock_with(self, have: Sequence[str]) -> Stock | None:
        """Return the stock with molecules that a user has, given as canonical SMILES."""
        return with_own(self.stock, have)

    def describe(self) -> dict[str, Any]:
        """Return facts about the model, the stock and the training data, for the page."""
        facts: dict[str, Any] = {
            "stock": str(self.stock) if self.stock is not None else "none: purchasable molecules are unknown",
        }
        facts |= {f"training data: {key.replace('_', ' ')}": value for key, value in about_routes(self.model).items()}
        if self.takes_steps:
            facts["steps tried by default"] = default_steps(self.model)
        return facts | {"largest number of new tokens": self.max_new_tokens}

    def endpoints(self, limits: Limits) -> list[Endpoint]:
        """Return the endpoints within the limits of a server."""
        max_length = min(limits.max_characters, _MOST_SMILES)
        smiles = Annotated[str, StringConstraints(min_length=1, max_length=max_length)]
        target = Annotated[str, StringConstraints(max_length=max_length)]
        reaction = Annotated[str, StringConstraints(min_length=1, max_length=3 * max_length)]
        # the other half of the time is for waiting and drawing
        budget = min(limits.max_time_limit, limits.timeout_s / 2)
        largest = {
            "beams": limits.max_beams, "num_augmentations": _MOST_AUGMENTATIONS, "seed": (1 << 32) - 1,
            "max_new_tokens": self.max_new_tokens, "time_limit": min(limits.max_time_limit, limits.timeout_s),
            "num_routes": _MOST_ROUTES,
        }  # fmt: skip
        limit = "seconds per target, after which the routes found are kept"
        texts = {"time_limit": f"{limit} (default: {budget:g} for a search to the stock)"}
        fields = request_fields(PlanSettings, largest, smiles, _MOST_WISHES, texts)
        fields |= request_fields(Constraints, {}, reaction, _MOST_WISHES)
        del fields["enforce_limits"], fields["library"]
        return [
            _plan_endpoint(self, limits, fields, smiles=smiles, target=target, budget=budget),
            _expand_endpoint(self, fields, target),
            build_endpoint(self, smiles, reaction, _MOST_WISHES, limits),
        ]


def _plan_endpoint(
    task: RouteTask, limits: Limits, fields: dict[str, Any], *, smiles: Any, target: Any, budget: float
) -> Endpoint:
    """Return the endpoint POST /plan.

    Args:
        task, limits: the planner and the limits of the server.
        fields: the fields of the settings.
        smiles, target: the types of molecules and targets.
        budget: seconds for a search to the stock.
    """
    steps = one_or_more(Annotated[int, Field(ge=1, le=task.planner.most_steps)], _MOST_STEPS) | None
    materials = smiles | list[smiles | None] | None

    def offered(kind: Any, is_offered: bool) -> Any:
        """Leave fields that the model refuses out of the schema."""
        return kind if is_offered else Annotated[kind, SkipJsonSchema()]

    class Targets(BaseModel):
        model_config = ConfigDict(extra="forbid", strict=True)
        targets: one_or_more(target, limits.max_inputs) = Field(  # type: ignore[valid-type]
            description="SMILES of a molecule, or a list."
        )
        n_steps: offered(steps, task.takes_steps) = Field(  # type: ignore[valid-type]
            None,
            description="Longest path of the routes, in reactions. Each number of a list is tried (default: a search "
            "to the stock if there is one, else 1 to 5).",
        )
        starting_material: offered(materials, task.takes_material) = Field(  # type: ignore[valid-type]
            None, description="SMILES of a starting material, or a list with one (or null) for each target."
        )
        allow: list[Literal[tuple(RULES)]] = Field(  # type: ignore[valid-type]
            [],
            max_length=len(RULES),
            description="Rules to switch off, to allow unreadable molecules, molecules made from themselves, or "
            "reactions whose reactants lack atoms or are far larger than the product.",
        )
        max_routes: int | None = Field(
            None,
            ge=1,
            description="Largest number of distinct routes per target (default: all candidates, failed ones too).",
        )
        svg: bool = Field(False, description="Add a drawing to each route.")

    class PlanAnswer(BaseModel):
        plans: list[dict[str, Any]] = Field(
            description="For each target: `target`, `solved`, `problem` and the ranked `candidates`, as in "
            '"weftformer routes plan --json", with the names of their reactions.'
        )

    def check(values: dict[str, Any], report: Any) -> list[Checked]:
        """Unreadable molecules in the settings are refused like unreadable targets."""
        options = {name: values.pop(name) for name in ("targets", "n_steps", "starting_material")}
        settings = PlanSettings.from_options(values)
        requests = task.requests(settings=settings, budget=budget, on_error="skip", **options)
        return [(request, request.problem) for request in requests]

    return JsonEndpoint(
        path="/plan", title="Plan a synthesis", summary="Ranked synthesis routes to target molecules.",
        request=create_model("PlanRequest", __base__=Targets, **fields), check=check, respond=_plan_rows,
        model=PlanAnswer, respond_html=_plans_html, style=page_style(), count_tokens=task.count_tokens,
        form={name: label for name, label in _FORM.items() if task.stock is not None or name not in _OF_STOCK},
    )  # fmt: skip


def _expand_endpoint(task: RouteTask, fields: dict[str, Any], target: Any) -> Endpoint:
    """Return the endpoint POST /expand, a stream of reactions. The arguments are those of [`_plan_endpoint`]."""

    class Molecule(BaseModel):
        model_config = ConfigDict(extra="forbid", strict=True)
        smiles: target = Field(description="SMILES of the molecule to make.")
        n: int = Field(20, ge=1, le=LISTED_STEPS, description="Largest number of reactions.")
        html: bool = Field(False, description="Add the card of the page to each reaction.")

    def check(values: dict[str, Any], report: Callable[[Candidate], None]) -> list[Checked]:
        return [(task.expansion(values["smiles"], PlanSettings.from_options(values), values["n"], report), None)]

    def row(body: Any, candidate: Candidate) -> dict[str, Any]:
        return proposal_row(candidate) | ({"html": card_html(candidate)} if body.html else {})

    request = create_model("ExpandRequest", __base__=Molecule, **{name: fields[name] for name in _EXPANSION})
    return StreamEndpoint(path="/expand", summary=_EXPANDS, request=request, check=check, row=row, last_row=last_row)


def _plans(body: Any, answers: Sequence[Plan | None], problems: Sequence[str | None]) -> list[Plan]:
    return [
        plan or Plan(target, problem=problem)
        for target, plan, problem in zip(body.targets, answers, problems, strict=True)
    ]


def _plan_rows(
    body: Any, answers: Sequence[Plan | None], problems: Sequence[str | None], end: float
) -> dict[str, Any]:
    """Return the plans with the names of their reactions, and drawings if requested. Equal routes share a drawing."""

    @cache
    def drawing(
        route: Route, missing: tuple[str, ...] | None, steps: tuple[JudgedStep, ...], common: tuple[str, ...]
    ) -> str:
        return route_svg(route, missing=missing, steps=steps, common=common)

    def entry(candidate: Candidate) -> dict[str, Any]:
        check_time(end)
        row = candidate.to_dict()
        if body.svg and candidate.route is not None:
            row["svg"] = drawing(candidate.route, candidate.missing, candidate.steps, candidate.common)
        return row

    rows = []
    for plan in _plans(body, answers, problems):
        candidates = plan.candidates if body.max_routes is None else plan.distinct[: body.max_routes]
        row = replace(plan, candidates=[]).to_dict()
        rows.append(row | {"solved": plan.solved, "candidates": [entry(candidate) for candidate in candidates]})
    return {"plans": rows}


def _plans_html(body: Any, answers: Sequence[Plan | None], problems: Sequence[str | None], end: float) -> str:
    """Return the routes of each target, drawn."""

    def timely() -> Iterator[Plan]:
        for plan in _plans(body, answers, problems):
            check_time(end)
            yield plan

    return answer_html(timely())
