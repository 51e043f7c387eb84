"""Check reactions from the other side: does a model that reads the reactants predict the product?

A planner proposes reactants for a product. A second model, trained on the same kind of reactions in the other direction,
says what these reactants give. If that is the product again, the reaction made the round trip (Schwaller et al. 2020,
doi:10.1039/C9SC05704H). This is evidence and no proof: the second model knows only reactions like those it was trained on.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import torch
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

from ...hub.loading import load
from ..data.forward_pairs import Reaction, reactions_of
from ..molecules import KNOWN, canonical_smiles
from ..plans import Plan
from ..tree import Route


class ForwardModel:
    """
    Predicts products with a text model that was trained on pairs of `weftformer routes prepare-reactions`.

    The last 65,536 predictions are remembered, because the candidates of a target share reactions.

    Args:
        model (`PreTrainedModel`):
            The model.
        tokenizer (`PreTrainedTokenizerBase`):
            Its tokenizer.
        beams (`int`, *optional*, defaults to 5):
            The width of the beam search, and the number of predictions of each reaction.
        batch_size (`int`, *optional*, defaults to 16):
            The number of reactions that are predicted at once.

    Raises:
        ValueError: a number is below 1.
    """

    def __init__(self, model: Any, tokenizer: Any, *, beams: int = 5, batch_size: int = 16):
        if min(beams, batch_size) < 1:
            raise ValueError(f"beams={beams} and batch_size={batch_size} must be at least 1.")
        self.model, self.tokenizer = model.eval(), tokenizer
        self.beams, self.batch_size = beams, batch_size
        self._known: dict[tuple[str, ...], list[str]] = {}

    @classmethod
    def from_pretrained(cls, folder_or_hub_id: str, *, beams: int = 5, batch_size: int = 16, **kwargs) -> ForwardModel:
        """Load model and tokenizer from one folder or Hub repository. `kwargs` are arguments of the model's `from_pretrained`."""
        model = load(AutoModelForSeq2SeqLM, folder_or_hub_id, **kwargs)
        return cls(model, load(AutoTokenizer, folder_or_hub_id), beams=beams, batch_size=batch_size)

    def predict(self, reactants: Iterable[tuple[str, ...]]) -> list[list[str]]:
        """
        Predict the products of reactions.

        Args:
            reactants (`Iterable[tuple[str, ...]]`):
                The canonical SMILES of the reactants of each reaction, sorted, as [`reactions_of`] gives them.

        Returns:
            `list[list[str]]`: the canonical SMILES of the predicted products of each reaction, best first. Predictions
            that RDKit cannot read are left out.
        """
        asked = list(reactants)
        new = sorted({one for one in asked if one not in self._known}, key=lambda one: (sum(map(len, one)), one))
        for start in range(0, len(new), self.batch_size):
            batch = new[start : start + self.batch_size]
            self._known |= dict(zip(batch, self._predict(batch), strict=True))
        found = [self._known[one] for one in asked]
        for oldest in list(self._known)[:-KNOWN]:
            del self._known[oldest]
        return found

    @torch.inference_mode()
    def _predict(self, batch: Sequence[tuple[str, ...]]) -> list[list[str]]:
        inputs = self.tokenizer([".".join(one) for one in batch], return_tensors="pt", padding=True)
        written = self.model.generate(
            input_ids=inputs.input_ids.to(self.model.device),
            attention_mask=inputs.attention_mask.to(self.model.device),
            num_beams=self.beams,
            num_return_sequences=self.beams,
            # a product is hardly longer than all its reactants together
            max_new_tokens=min(inputs.input_ids.shape[1] + 20, self.model.config.max_target_positions - 1),
        )
        texts = self.tokenizer.batch_decode(written, skip_special_tokens=True)
        return [
            _readable(texts[start : start + self.beams]) for start in range(0, len(batch) * self.beams, self.beams)
        ]

    def ranks(self, reactions: Iterable[Reaction]) -> list[int | None]:
        """
        Return where the product of each reaction stands among the predictions.

        Args:
            reactions (`Iterable[Reaction]`):
                Products and reactants, as [`reactions_of`] gives them.

        Returns:
            `list[int or None]`: the rank, counted from 1, or None if the product is not predicted.
        """
        asked = list(reactions)
        predicted = self.predict(reactants for _, reactants in asked)
        return [
            found.index(product) + 1 if product in found else None
            for (product, _), found in zip(asked, predicted, strict=True)
        ]

    def feasibility(self, routes: Sequence[Route], top: int = 1) -> list[float | None]:
        """
        Return the share of the reactions of each route that make the round trip.

        Args:
            routes (`Sequence[Route]`):
                The routes.
            top (`int`, *optional*, defaults to 1):
                The number of predictions among which the product must be.

        Returns:
            `list[float or None]`: the shares. None for a route without a reaction, or with a molecule that RDKit cannot
            read.
        """
        found = [_reactions(route) for route in routes]
        ranks = iter(self.ranks(reaction for reactions in found for reaction in reactions))
        shares: list[float | None] = []
        for reactions in found:
            places = [next(ranks) for _ in reactions]
            is_right = [place is not None and place <= top for place in places]
            shares.append(sum(is_right) / len(is_right) if is_right else None)
        return shares

    def judged(self, plan: Plan) -> Plan:
        """Return the plan with the `feasibility` of each route, the share of its reactions that make the round trip."""
        routes = [candidate.route for candidate in plan.candidates if candidate.route is not None]
        shares = iter(self.feasibility(routes))
        candidates = [
            candidate if candidate.route is None else replace(candidate, feasibility=next(shares))
            for candidate in plan.candidates
        ]
        return replace(plan, candidates=candidates)


def _reactions(route: Route) -> list[Reaction]:
    try:
        return list(reactions_of(route))
    except ValueError:
        return []


def _readable(texts: Iterable[str]) -> list[str]:
    found: dict[str, None] = {}
    for text in texts:
        try:
            # a tokenizer of sub-words may put spaces between them
            found.setdefault(canonical_smiles(text.replace(" ", "")))
        except ValueError:
            continue
    return list(found)
