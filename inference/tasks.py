"""What a server can be asked: routes to targets, or texts for texts. Inputs are checked before they wait for others."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch.nn.utils.rnn import pad_sequence
from transformers import AutoConfig, AutoModelForSeq2SeqLM, AutoTokenizer, LogitsProcessor

from ..configuration import WeftConfig
from ..modeling.decoding import ContinuousSearch, reason_against
from ..routes.planning.search import RouteSearch
from ..tokenization import build_route_tokenizer
from ..tokenization.checks import encode_checked, shown
from .batching import Unwanted

if TYPE_CHECKING:
    from ..routes import Constraints, Plan, RoutePlanner, Stock
    from ..routes.planning.planner import RunningPlans
    from ..routes.scoring.round_trip import ForwardModel

# Tokens that a text model writes at most, where nobody says how many.
_TEXT_TOKENS = 256
# Rows whose logits are in memory together when texts are scored.
_SCORED_ROWS = 8
# Candidates whose reactions are predicted before it is asked again whether anybody waits.
_JUDGED_CANDIDATES = 16


def _settle(tokenizer: Any) -> None:
    """A tokenizer saved with padding or truncation is changed by its first call without; later calls, from several threads at
    once, must find nothing to change. For that reason batches are padded here and not by the tokenizer."""
    tokenizer("")


class WhileWanted(LogitsProcessor):
    """Ends a generation that nobody waits for. (A stopping criterion would be asked about every candidate of a beam search.)"""

    # what `RouteSearch` asks: it looks at no row
    reads_rows = False

    def __init__(self, is_wanted: Callable[[], bool]):
        self.is_wanted = is_wanted

    def __call__(self, input_ids: torch.LongTensor, scores: torch.FloatTensor) -> torch.FloatTensor:
        if not self.is_wanted():
            raise Unwanted
        return scores

    def keep_sources(self, sources: list[int], beams: int) -> None:
        """Sources may leave the batch."""


@dataclass(frozen=True)
class RouteSettings:
    """What works of one batch have in common. No two works have the same number `alone`; works of any batch have None."""

    beams: int
    ranking: str
    grammar: bool
    constraints: Constraints | None
    impossible: str
    max_new_tokens: int
    texts: int = 1
    seed: int = 0
    time_limit: float | None = None
    salts: str = "refuse"
    expand_leaves: int = 0
    per_reaction: int | None = None
    alone: int | None = None


@dataclass(frozen=True)
class RouteWork:
    target: str
    n_steps: tuple[int, ...] | None
    starting_material: str | None
    settings: RouteSettings


@dataclass(frozen=True)
class RouteKey:
    """What works of one pool have in common."""

    beams: int
    ranking: str
    grammar: bool
    constraints: Constraints | None


class RoutePool:
    """Works whose plans are searched together; they join and leave between steps.

    Args:
        plans: the search.
        takes_steps: whether the model is told the number of steps.
    """

    def __init__(self, plans: RunningPlans, takes_steps: bool):
        self.plans, self.takes_steps = plans, takes_steps
        self.remove, self.step = plans.remove, plans.step

    def __len__(self) -> int:
        return len(self.plans)

    def add(self, key: Hashable, work: RouteWork) -> None:
        settings = work.settings
        self.plans.add(
            key, work.target, n_steps=work.n_steps if self.takes_steps else None, starting_material=work.starting_material,
            texts=settings.texts, seed=settings.seed, impossible=settings.impossible,
            max_new_tokens=settings.max_new_tokens, time_limit=settings.time_limit, salts=settings.salts,
            per_reaction=settings.per_reaction,
        )  # fmt: skip


class RouteTask:
    """Plans routes.

    Args:
        planner: with a model trained on routes.
        stock: what can be bought; candidates then say what it lacks.
        max_new_tokens: bound on what the model writes (default: three quarters of its positions; the beginning of a
            route, which names the target, takes the rest).
        forward: says of each route how many of its reactions it predicts the product of.
    """

    path = "/plan"

    def __init__(
        self,
        planner: RoutePlanner,
        stock: Stock | None = None,
        max_new_tokens: int | None = None,
        forward: ForwardModel | None = None,
    ):
        self.planner, self.model, self.stock, self.forward = planner, planner.model, stock, forward
        self._numbers = count()
        # whether works of each number of beams and ranking can be pooled
        self._pooled: dict[tuple[int, str], bool] = {}
        positions = self.model.config.max_target_positions
        self.max_new_tokens = min(max_new_tokens or positions * 3 // 4, positions)
        _settle(planner.tokenizer)
        self.takes_steps = self.model.config.num_condition_features > 0

    def works(
        self,
        targets: list[str],
        *,
        n_steps: list[int] | None = None,
        starting_material: str | list[str | None] | None = None,
        beams: int = 10,
        ranking: str = "log_probability",
        grammar: bool = True,
        constraints: Constraints | None = None,
        impossible: str = "behind",
        max_new_tokens: int | None = None,
        texts: int = 1,
        seed: int = 0,
        time_limit: float | None = None,
        salts: str = "refuse",
        expand_leaves: int = 0,
        per_reaction: int | None = None,
    ) -> list[RouteWork]:
        """Check a request.

        Args:
            targets, and the others: as in [`RoutePlanner.plan`], `n_steps` the numbers that are tried for each target.

        Returns:
            A work for each target.

        Raises:
            ValueError: what is wrong with a target or a setting.
        """
        from ..routes.molecules import drawn_smiles
        from ..routes.planning.planner import one_target

        tried: Any = None if n_steps is None else [tuple(sorted(set(n_steps)))] * len(targets)
        # the planner checks what it is given at once, and searches when it is asked for the first plan
        self.planner.stream(
            targets, n_steps=tried, starting_material=starting_material, beams=beams, ranking=ranking, grammar=grammar,
            constraints=constraints, impossible=impossible, stock=self.stock, texts=texts, seed=seed,
            time_limit=time_limit, salts=salts, expand_leaves=expand_leaves, per_reaction=per_reaction,
        )  # fmt: skip
        search = RouteSearch(self.model, self.planner.tokenizer, beams=beams)
        if not isinstance(starting_material, list):
            starting_material = [starting_material] * len(targets)
        works = []
        for target, material in zip(targets, starting_material, strict=True):
            smiles, _ = one_target(target, salts)
            several = [smiles]
            if texts > 1:
                several = drawn_smiles(smiles, texts, seed, rooted=bool(self.planner.about.get("aligned")))
            room = min((found for found in map(search.room, several) if found > 0), default=0)
            if room < 1:
                raise ValueError(f"{shown(target)} is too long: the model has no room for a route to it.")
            # a batch has the room of its longest text: with it in the settings, neighbours have the same
            settings = RouteSettings(
                beams, ranking, grammar, constraints, impossible, min(max_new_tokens or self.max_new_tokens, room),
                texts, seed, time_limit, salts, expand_leaves, per_reaction,
                # the planner takes these one after the other: a batch of them would only make some wait for the others
                None if time_limit is None and not expand_leaves else next(self._numbers),
            )  # fmt: skip
            steps = (tried[0] if tried else tuple(self.planner.default_steps)) if self.takes_steps else None
            works.append(RouteWork(target, steps, material, settings))
        return works

    def compute(self, works: Sequence[RouteWork], is_wanted: Callable[[], bool]) -> Iterator[tuple[int, Plan]]:
        """The index and the plan of each work, as searches end."""
        settings = works[0].settings
        steps: Any = [work.n_steps for work in works] if self.takes_steps else None
        found = self.planner.stream(
            [work.target for work in works], n_steps=steps,
            starting_material=[work.starting_material for work in works], stock=self.stock, beams=settings.beams,
            ranking=settings.ranking, grammar=settings.grammar, constraints=settings.constraints,
            impossible=settings.impossible, max_new_tokens=settings.max_new_tokens, texts=settings.texts, seed=settings.seed,
            time_limit=settings.time_limit, salts=settings.salts, expand_leaves=settings.expand_leaves,
            per_reaction=settings.per_reaction, logits_processor=[WhileWanted(is_wanted)], progress=False,
        )  # fmt: skip
        for index, plan in found:
            yield index, plan if self.forward is None else self._judged(plan, self.forward, is_wanted)

    def pool_key(self, work: RouteWork) -> RouteKey | None:
        """What works of one pool have in common, None for a work that is computed in a batch."""
        settings = work.settings
        if self.forward is not None or settings.expand_leaves:
            return None
        kind = settings.beams, settings.ranking
        if kind not in self._pooled:
            self._pooled[kind] = self.planner.running(beams=settings.beams, ranking=settings.ranking) is not None
        if not self._pooled[kind]:
            return None
        return RouteKey(settings.beams, settings.ranking, settings.grammar, settings.constraints)

    def open_pool(self, key: RouteKey) -> RoutePool:
        """A pool of works of this key."""
        plans = self.planner.running(stock=self.stock, **vars(key))
        assert plans is not None
        return RoutePool(plans, self.takes_steps)

    def _judged(self, plan: Plan, forward: ForwardModel, is_wanted: Callable[[], bool]) -> Plan:
        """The plan with the feasibility of each route, some at a time: it is given up when nobody waits any more."""
        candidates = []
        for start in range(0, len(plan.candidates), _JUDGED_CANDIDATES):
            if not is_wanted():
                raise Unwanted
            part = replace(plan, candidates=plan.candidates[start : start + _JUDGED_CANDIDATES])
            candidates += forward.judged(part).candidates
        return replace(plan, candidates=candidates)


@dataclass(frozen=True)
class Sampling:
    """How tokens are drawn, as in transformers' `GenerationConfig`; `top_k=0` leaves all tokens in."""

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0


@dataclass(frozen=True)
class TextSettings:
    beams: int
    max_new_tokens: int
    sampling: Sampling | None = None
    candidates: int = 1


@dataclass(frozen=True)
class TextWork:
    ids: tuple[int, ...]
    conditions: tuple[float, ...]
    settings: TextSettings


class Written(NamedTuple):
    """A text, and the logarithm of the probability that the model gives it, its end included (None where nobody asked)."""

    text: str
    score: float | None = None


class TextPool:
    """Works whose texts are written together; they join and leave between steps.

    Args:
        task: the task.
        beams: width of the search.
    """

    def __init__(self, task: TextTask, beams: int):
        self.task = task
        self.search = ContinuousSearch(task.model, num_beams=beams)
        self._waiting: dict[Hashable, TextWork] = {}
        self._running: dict[int, Hashable] = {}  # by ticket

    def __len__(self) -> int:
        return len(self._waiting) + len(self._running)

    def add(self, key: Hashable, work: TextWork) -> None:
        self._waiting[key] = work

    def remove(self, key: Hashable) -> None:
        if self._waiting.pop(key, None) is None:
            (ticket,) = [ticket for ticket, own in self._running.items() if own == key]
            self.search.remove([ticket])
            del self._running[ticket]

    def step(self) -> list[tuple[Hashable, str]]:
        if self._waiting:
            works = list(self._waiting.values())
            tickets = self.search.add(self.task._inputs(works), [work.settings.max_new_tokens for work in works])
            self._running |= dict(zip(tickets, self._waiting, strict=True))
            self._waiting.clear()
        found = self.search.step()
        texts = [[*one.prompt, *one.sequences[0]] for one in found]
        written = self.task.tokenizer.batch_decode(texts, skip_special_tokens=True) if texts else []
        return [(self._running.pop(one.ticket), text) for one, text in zip(found, written, strict=True)]


class TextTask:
    """Writes a text for a text.

    Args:
        model: a `WeftForConditionalGeneration`.
        tokenizer: the tokenizer it was trained with.
        max_new_tokens: bound on what the model writes (default: 256, or what its positions allow).
    """

    path = "/translate"

    def __init__(self, model: Any, tokenizer: Any, max_new_tokens: int | None = None):
        self.model, self.tokenizer = model.eval(), tokenizer
        positions = model.config.max_target_positions
        self.max_new_tokens = min(max_new_tokens or _TEXT_TOKENS, positions)
        # whether works of each number of beams can be pooled
        self._pooled: dict[int, bool] = {}
        _settle(tokenizer)

    def works(
        self, texts: list[str], *, beams: int = 4, max_new_tokens: int | None = None, conditions: Sequence[float] = ()
    ) -> list[TextWork]:
        """Check a request.

        Args:
            texts: what to translate.
            beams: width of the search.
            max_new_tokens: bound on what the model writes.
            conditions: the numbers that the model is told beside each text, as many as it was trained with.

        Returns:
            A work for each text.

        Raises:
            ValueError: a text is too long or holds a character that the vocabulary lacks, or the conditions are too many
                or too few.
        """
        self.check_conditions(len(conditions))
        settings = TextSettings(beams, max_new_tokens or self.max_new_tokens)
        return [self.work(text, settings, conditions) for text in texts]

    def check_conditions(self, count: int) -> None:
        """Refuse a number of conditions that the model was not trained with.

        Raises:
            ValueError: naming both numbers.
        """
        features = self.model.config.num_condition_features
        if count != features:
            raise ValueError(f"This model takes {features} conditions with a text: got {count}.")

    def work(self, text: str, settings: TextSettings, conditions: Sequence[float] = ()) -> TextWork:
        """One text, checked.

        Raises:
            ValueError: the text is too long or holds a character that the vocabulary lacks.
        """
        ids = encode_checked(self.tokenizer, text, max_length=self.model.config.max_source_positions)
        return TextWork(tuple(ids), tuple(conditions), settings)

    def compute(self, works: Sequence[TextWork], is_wanted: Callable[[], bool]) -> Iterator[tuple[int, str]]:
        """The index and the translation of each work."""
        yield from ((index, best.text) for index, (best, *_) in enumerate(self.write(works, is_wanted)))

    def pool_key(self, work: TextWork) -> int | None:
        """The number of beams, which works of one pool have in common; None for a work that is computed in a batch."""
        settings = work.settings
        if settings.sampling is not None or settings.candidates != 1:
            return None
        if settings.beams not in self._pooled:
            self._pooled[settings.beams] = reason_against(self.model, num_beams=settings.beams) is None
        return settings.beams if self._pooled[settings.beams] else None

    def open_pool(self, key: int) -> TextPool:
        """A pool of works of this number of beams."""
        return TextPool(self, key)

    @torch.no_grad()
    def write(
        self, works: Sequence[TextWork], is_wanted: Callable[[], bool] | None = None, *, with_scores: bool = False
    ) -> list[list[Written]]:
        """The texts for each work, all computed as one batch.

        Args:
            works: of equal settings.
            is_wanted: whether anybody still waits; once it says no, [`Unwanted`] is raised.
            with_scores: whether each text is read once more to say how probable it is.

        Returns:
            For each work as many texts as its settings ask for, best first (drawn ones in the order of their scores, where
            there are any).
        """
        inputs, settings = self._inputs(works), works[0].settings
        sampling = settings.sampling
        sequences = self.model.generate(
            **inputs,
            num_beams=settings.beams,
            num_return_sequences=settings.candidates,
            do_sample=sampling is not None,
            max_new_tokens=settings.max_new_tokens,
            max_length=None,
            logits_processor=[] if is_wanted is None else [WhileWanted(is_wanted)],
            **({} if sampling is None else vars(sampling)),
        )
        texts = self.tokenizer.batch_decode(sequences, skip_special_tokens=True)
        scores = (
            self._log_probabilities(inputs, sequences, settings.candidates) if with_scores else [None] * len(texts)
        )
        written = [Written(text, score) for text, score in zip(texts, scores, strict=True)]
        several = [
            written[start : start + settings.candidates] for start in range(0, len(written), settings.candidates)
        ]
        if with_scores and sampling is not None:
            several = [sorted(one, key=lambda found: -(found.score or 0.0)) for one in several]
        return several

    def _inputs(self, works: Sequence[TextWork]) -> dict[str, torch.Tensor]:
        rows = [torch.tensor(work.ids) for work in works]
        source_ids = pad_sequence(rows, batch_first=True, padding_value=self.tokenizer.pad_token_id)
        mask = pad_sequence([torch.ones_like(row) for row in rows], batch_first=True)
        inputs = {"input_ids": source_ids, "attention_mask": mask}
        if works[0].conditions:
            inputs["condition_values"] = torch.tensor([work.conditions for work in works])
        return {name: value.to(self.model.device) for name, value in inputs.items()}

    def _log_probabilities(
        self, inputs: dict[str, torch.Tensor], sequences: torch.Tensor, candidates: int
    ) -> list[float]:
        """Log-probability of each sequence (rows, tokens), from its second token to its first end."""
        ends = torch.as_tensor(self.model.generation_config.eos_token_id, device=sequences.device)
        scores: list[float] = []
        sources = {name: value.repeat_interleave(candidates, dim=0) for name, value in inputs.items()}
        # some rows at a time: the logits of all would take more memory than the search did
        for start in range(0, len(sequences), _SCORED_ROWS):
            rows = slice(start, start + _SCORED_ROWS)
            read, written = sequences[rows, :-1], sequences[rows, 1:]
            part = {name: value[rows] for name, value in sources.items()}
            logits = self.model(**part, decoder_input_ids=read, use_cache=False).logits
            log_p = logits.float().log_softmax(-1).gather(-1, written.unsqueeze(-1)).squeeze(-1)
            is_end = torch.isin(written, ends).int()
            scores += log_p.masked_fill(is_end.cumsum(1) > is_end, 0.0).sum(1).tolist()
        return scores


def load_task(
    folder_or_hub_id: str,
    stock: Stock | None = None,
    max_new_tokens: int | None = None,
    forward: ForwardModel | None = None,
) -> RouteTask | TextTask:
    """Load a model with its tokenizer; one that writes in the vocabulary of routes is asked for routes.

    Raises:
        ValueError: a stock or a forward model is given for a model that writes no routes, or the model is of another family. OSError: there
            is no such model.
    """
    model_type = AutoConfig.from_pretrained(folder_or_hub_id).model_type
    if model_type != WeftConfig.model_type:
        raise ValueError(f"{folder_or_hub_id} is a {model_type} model: `weftformer convert` makes a Weft model of it.")
    tokenizer = AutoTokenizer.from_pretrained(folder_or_hub_id)
    model = AutoModelForSeq2SeqLM.from_pretrained(folder_or_hub_id)
    if tokenizer.get_vocab() == build_route_tokenizer().get_vocab():
        from ..routes import RoutePlanner

        return RouteTask(RoutePlanner(model, tokenizer), stock, max_new_tokens, forward)
    for what, given in (("stock", stock), ("forward model", forward)):
        if given is not None:
            raise ValueError(
                f"A {what} is for models that write routes, and the vocabulary of {folder_or_hub_id} is of text."
            )
    return TextTask(model, tokenizer, max_new_tokens)
