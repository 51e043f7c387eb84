"""Check targets, starting materials and numbers of steps before any search, and turn them into requests."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from numbers import Integral
from typing import Any

from transformers.utils import logging

from ..chemistry.matching import SearchTooLong
from ..chemistry.molecules import (
    canonical_smiles,
    drawn_smiles,
    is_axially_chiral,
    largest_organic_part,
    lost_configuration,
    one_molecule,
    unpaired_electrons,
)
from ..family import PRODUCT_LENGTH, encode_source, shown
from ..plans import Candidate
from ..tree import MAX_DEPTH
from .model_search import Job, beginning, step_job
from .settings import PlanSettings, contains

_logger = logging.get_logger(__name__)

# Numbers of steps that are tried, with all routes pooled, if a model that reads the number of steps is given none.
DEFAULT_STEPS = range(1, 6)
# The longest path allowed for a model that does not say what it was trained on, and the smallest number of tokens of a
# reaction: `,'children':[{'smiles':'C'}]`, with a token for each key.
MOST_STEPS = 20
_TOKENS_OF_A_REACTION = 9
# The number of beams allowed for each token of the vocabulary. A step of the search chooses its beams among that many
# texts for each beam. The 53 tokens of DirectMultiStep allow 1,060 beams, and 50 are usual.
BEAMS_OF_A_TOKEN = 20

Steps = int | range | Sequence[int] | None


@dataclass(frozen=True)
class PlanRequest:
    """A target to plan, or the reason why it cannot be planned.

    Args:
        target: the canonical SMILES, or the given text if there is a problem.
        jobs: the searches for whole routes; empty if single steps are searched.
        settings: the settings of the plan.
        remarks: notes for the reader of its plan.
        problem: the reason why the target cannot be planned.
        num_proposals: the largest number of reactions from each source, if they are wanted instead of routes.
        report: called with each of these reactions when it is found.
    """

    target: str
    jobs: tuple[Job, ...] = ()
    settings: PlanSettings = field(default_factory=PlanSettings)
    remarks: tuple[str, ...] = ()
    problem: str | None = None
    num_proposals: int | None = None
    report: Callable[[Candidate], None] | None = field(default=None, compare=False)

    @property
    def searches_steps(self) -> bool:
        """Whether single steps are searched until everything is in the stock."""
        return self.problem is None and not self.jobs


def make_requests(
    model: Any,
    tokenizer: Any,
    targets: Sequence[str],
    settings: PlanSettings,
    *,
    n_steps: Steps | Sequence[Steps] = None,
    starting_material: str | Sequence[str | None] | None = None,
    on_error: str = "raise",
    stock: Any = None,
) -> list[PlanRequest]:
    """Read and check targets and settings.

    Args:
        model, tokenizer: they determine the possible settings.
        targets, settings, and the others: as in [`RoutePlanner.plan`].

    Returns:
        A request for each target.

    Raises:
        ValueError: as in [`RoutePlanner.plan`].
    """
    if isinstance(targets, str):
        raise ValueError(f"targets={targets!r} is a string: give a list of SMILES.")
    if on_error not in ("raise", "skip"):
        raise ValueError(f"on_error={on_error!r} is not allowed: choose one of raise, skip.")
    if settings.enforce_limits:
        _check_beams(tokenizer, settings.beams)
    steps = _steps(model, n_steps, len(targets), settings.enforce_limits)
    materials = _materials(model, starting_material, len(targets))
    is_told = n_steps is not None or any(materials)
    reason = None if settings.direct or stock is None else whole_routes_because(model, settings, is_told)
    switch = () if reason is None else (f"The model wrote whole routes, without a search to the stock: {reason}.",)
    if stock is None or reason is not None:
        settings = replace(settings, direct=True)
    requests = []
    for target, numbers, begin in zip(targets, steps, materials, strict=True):
        try:
            smiles, remarks = one_target(target, settings.on_salt)
            _check_substructures(smiles, settings)
            begin = None if begin is None else one_molecule(begin)
            remarks += _source_remarks(model, tokenizer, smiles, begin, settings)
        except ValueError as error:
            # some messages quote the canonical SMILES: add the one that was given
            problem = str(error) if shown(target) in str(error) else f"{shown(target)}: {error}"
            if on_error == "raise":
                raise ValueError(problem) from error
            requests.append(PlanRequest(target, settings=settings, problem=problem))
        else:
            texts = source_texts(model, tokenizer, smiles, settings, begin) if settings.direct else ()
            jobs = tuple(Job(text, count, begin, settings.max_new_tokens) for text in texts for count in numbers)
            requests.append(PlanRequest(smiles, jobs, settings, (*remarks, *switch)))
    return requests


def expansion_request(
    model: Any, tokenizer: Any, target: str, settings: PlanSettings, n: int, report: Any = None
) -> PlanRequest:
    """Check a molecule whose reactions are wanted, and return the request. The arguments are those of
    [`RoutePlanner.expand`].

    Raises:
        ValueError: as in [`RoutePlanner.expand`].
    """
    if n < 1:
        raise ValueError(f"n={n} is not allowed: give at least 1.")
    if settings.enforce_limits:
        _check_beams(tokenizer, settings.beams)
    settings = replace(settings, direct=False, ranking="log_probability")
    smiles, remarks = one_target(target, settings.on_salt)
    _check_substructures(smiles, settings)
    unread = _source_remarks(model, tokenizer, smiles, None, settings)
    if not writes_steps(model):
        unread = ("The model does not write single steps, so only recorded transformations were searched.",)
    jobs = () if unread else (step_job(model, smiles, settings.max_new_tokens),)
    return PlanRequest(smiles, jobs, settings, (*remarks, *unread), num_proposals=n, report=report)


def writes_steps(model: Any) -> bool:
    """Return whether the model writes single steps."""
    lowest, highest = about_routes(model).get("steps", (1, None))
    return lowest <= 1 if model.config.num_condition_features else highest == 1


def whole_routes_because(model: Any, settings: PlanSettings, is_told: bool) -> str | None:
    """Return why the model has to write whole routes, although there is a stock to search to, or None.

    Args:
        model: the model.
        settings: the settings.
        is_told: whether a number of steps or a starting material is given, which only whole routes have.
    """
    reasons = {
        "a number of steps or a starting material is given": is_told,
        "the model does not write single steps": not writes_steps(model),
        "a search needs the grammar": not settings.grammar,
        "there are several SMILES of each target": settings.num_augmentations > 1,
        "the ranking is for whole routes": settings.ranking != "log_probability",
        "a starting material is required": settings.rules.required_leaf is not None,
    }
    return next((reason for reason, applies in reasons.items() if applies), None)


def one_target(target: str, on_salt: str) -> tuple[str, tuple[str, ...]]:
    """Return the canonical SMILES to plan, and remarks about it.

    Args:
        target: SMILES, as it was given.
        on_salt: "error" or "strip", as in [`PlanSettings`].

    Raises:
        ValueError: the target is not a molecule, or is several molecules and `on_salt` is "error".
    """
    smiles = canonical_smiles(target)
    remarks = _drawing_remarks(target, smiles)
    if "." not in smiles:
        return smiles, remarks
    if on_salt == "error":
        raise ValueError(
            f"{target!r} is {smiles.count('.') + 1} molecules, a salt or a mixture: give one of them. `on_salt=strip` "
            "plans its largest organic part."
        )
    part = largest_organic_part(smiles)
    return part, (
        f"{target} is {smiles.count('.') + 1} molecules: {part}, its largest organic part, was planned.",
        *remarks,
    )


def _check_substructures(smiles: str, settings: PlanSettings) -> None:
    """Refuse substructures that take too long to search, as they are likely to do in precursors too."""
    try:
        rules = settings.rules
        contains(smiles, (*rules.forbidden_substructures, *rules.kept_substructures, *rules.broken_substructures))
    except SearchTooLong as error:
        raise ValueError(
            f"substructures take too long to search in {shown(smiles)}: give fewer or smaller ones."
        ) from error


def _drawing_remarks(target: str, smiles: str) -> tuple[str, ...]:
    """Return remarks about what the drawing of a target may not say as it was meant."""
    remarks = []
    if symbols := unpaired_electrons(smiles):
        remarks.append(
            f"{smiles} has unpaired electrons ({', '.join(symbols)}): an atom in brackets has only the hydrogens "
            "that are written, such as [cH]."
        )
    if remark := lost_configuration(target):
        remarks.append(remark)
    if is_axially_chiral(target):
        remarks.append(
            f"The axial chirality of {smiles} is not planned: the routes are to the mixture of atropisomers."
        )
    return tuple(remarks)


def check_source(model: Any, tokenizer: Any, smiles: str, starting_material: str | None = None) -> None:
    """Check that the model can read a target.

    Raises:
        ValueError: the target or its starting material is too long or contains a character outside the vocabulary.
    """
    room = model.config.max_source_positions
    if starting_material is None and about_routes(model).get("starting_material") is not False:
        room = min(room, PRODUCT_LENGTH)  # the other positions are for starting materials
    encode_source(tokenizer, smiles, starting_material, source_length=room)
    if len(beginning(tokenizer, smiles)) > model.config.max_target_positions:
        raise ValueError(f"{shown(smiles)} is too long: the model has no room for a route to it.")


def _source_remarks(
    model: Any, tokenizer: Any, smiles: str, starting_material: str | None, settings: PlanSettings
) -> tuple[str, ...]:
    """Check that the model can read a target. A search to the stock continues without the model, and a remark gives
    the reason.

    Raises:
        ValueError: as in [`check_source`].
    """
    try:
        check_source(model, tokenizer, smiles, starting_material)
    except ValueError as error:
        if settings.direct:
            raise
        return (
            "The model cannot read the target, so only recorded transformations were searched for the last step: "
            f"{error}",
        )
    return ()


def source_texts(
    model: Any, tokenizer: Any, smiles: str, settings: PlanSettings, starting_material: str | None = None
) -> Iterator[str]:
    """Yield the SMILES of a target to search, except those that are too long or outside the vocabulary."""
    for text in drawn_smiles(smiles, settings.num_augmentations, settings.seed):
        try:
            check_source(model, tokenizer, text, starting_material)
        except ValueError:
            continue
        yield text


def about_routes(model: Any) -> dict[str, Any]:
    """Return the facts about the training routes that the model was saved with; empty for other models."""
    return getattr(model.generation_config, "routes", None) or {}


def default_steps(model: Any) -> list[int]:
    """Return the numbers of steps that are tried by default: 1 to 5, limited to the training range."""
    lowest, highest = about_routes(model).get("steps", (1, 5))
    return [steps for steps in DEFAULT_STEPS if lowest <= steps <= highest] or [int(lowest)]


def most_steps(model: Any) -> int:
    """Return the longest allowed path, in reactions.

    It is twice the longest path of training, 20 if that is unknown, and at most what the positions have room for.
    """
    _, longest = about_routes(model).get("steps", (None, None))
    room = max(1, model.config.max_target_positions // _TOKENS_OF_A_REACTION)
    return min(room, 2 * int(longest) if longest else MOST_STEPS, MAX_DEPTH)


def _check_beams(tokenizer: Any, beams: int) -> None:
    limit = BEAMS_OF_A_TOKEN * len(tokenizer)
    if beams > limit:
        raise ValueError(
            f"{beams:,} beams exceed the limit of {limit:,}: 10 to 50 are usual. Plan without limits to allow more."
        )


def _materials(model: Any, starting_material: str | Sequence[str | None] | None, count: int) -> Sequence[str | None]:
    """Return the starting material of each target."""
    if isinstance(starting_material, str):
        # one for all targets: an error in it concerns every target
        starting_material = [one_molecule(starting_material)] * count
    materials = [None] * count if starting_material is None else list(starting_material)
    if len(materials) != count:
        raise ValueError(f"{len(materials)} starting materials for {count} targets: give one for each.")
    if any(materials) and (reason := no_material_because(model)):
        raise ValueError(
            f"{reason} Leave `starting_material` out, or set `required_leaf`, which works with any model."
        )
    return materials


def no_material_because(model: Any) -> str | None:
    """Return why the model cannot read a starting material, as a sentence; None if it can, or if that is unknown."""
    room = model.config.max_source_positions
    if room <= PRODUCT_LENGTH:
        return f"This model does not support a starting material: its {room} source tokens hold the target only."
    if about_routes(model).get("starting_material") is False:
        return "This model was trained without a starting material and does not support one."
    return None


def _steps(model: Any, n_steps: Any, count: int, is_bounded: bool) -> list[Sequence[int | None]]:
    """Return the numbers of steps to try for each target."""
    if model.config.num_condition_features == 0:
        if n_steps is not None:
            raise ValueError("This model was trained without the number of steps: leave `n_steps` out.")
        return [[None]] * count
    several = n_steps is not None and not isinstance(n_steps, Integral | range)
    options: list[Any] = list(n_steps) if several else [n_steps] * count
    numbers = [
        default_steps(model) if steps is None else [int(steps)] if isinstance(steps, Integral) else steps
        for steps in options
    ]
    if len(numbers) != count or any(len(steps) == 0 or min(steps) < 1 for steps in numbers):
        raise ValueError(
            f"n_steps={n_steps!r} is not allowed: give a number of at least 1, a range of such numbers, "
            "or a list with one of these for each target."
        )
    longest = max((number for steps in numbers for number in steps), default=0)
    bound = most_steps(model)
    if is_bounded and n_steps is not None and longest > bound:
        raise ValueError(
            f"{longest} steps exceed the limit of this model, {bound}. Plan without limits to allow more."
        )
    lowest, highest = about_routes(model).get("steps", (None, None))
    outside = sorted({number for steps in numbers for number in steps if highest and not lowest <= number <= highest})
    if outside:
        _logger.warning_once(
            "The model was trained on routes of %d to %d steps and has not seen %s steps.",
            lowest, highest, ", ".join(map(str, outside)),
        )  # fmt: skip
    return numbers
