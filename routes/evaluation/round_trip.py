"""Checks reactions with a forward model: does it predict the product from the reactants?

A planner proposes reactants for a product. A second model, trained on the same kind of reactions in the other
direction, predicts the product of these reactants. If it is the original product, the reaction made the round trip
(Schwaller et al. 2020, doi:10.1039/C9SC05704H). This is evidence, not proof: the second model knows only reactions
like those it was trained on. The reactants are aligned with the product that is checked, as in the rows of
`weftformer routes prepare --forward`. A prediction from any other text would be harder.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from os import PathLike
from typing import Any

from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

from ..chemistry.alignment import aligned_route
from ..chemistry.molecules import read_molecule
from ..family import TextSettings, TextTask, load, to_device
from ..files.reaction_lines import Reaction
from ..plans import Plan
from ..shipped import FORWARD_MODEL
from ..tree import Route


class ForwardModel:
    """Predicts products with a text model that was trained on rows of `weftformer routes prepare --forward`.

    Args:
        model (`PreTrainedModel`): the model.
        tokenizer (`PreTrainedTokenizerBase`): its tokenizer.
        beams: the width of the beam search, and the number of predictions for each reaction.
        batch_size: the number of reactions that are predicted at once.

    Raises:
        ValueError: a number is below 1.
    """

    def __init__(self, model: Any, tokenizer: Any, *, beams: int = 5, batch_size: int = 16):
        if min(beams, batch_size) < 1:
            raise ValueError(f"beams={beams} and batch_size={batch_size} must be at least 1.")
        self.model, self.tokenizer = model, tokenizer
        self.beams, self.batch_size = beams, batch_size
        self._task = TextTask(model, tokenizer)

    @classmethod
    def from_pretrained(
        cls, folder_or_hub_id: str | PathLike | None = None, *, beams: int = 5, batch_size: int = 16, **kwargs
    ) -> ForwardModel:
        """Load model and tokenizer from one folder or Hub repository, or the included ones. `kwargs` are arguments of
        the model's `from_pretrained`.
        """
        folder_or_hub_id = folder_or_hub_id or FORWARD_MODEL
        model = load(AutoModelForSeq2SeqLM, folder_or_hub_id, **kwargs)
        return cls(model, load(AutoTokenizer, folder_or_hub_id), beams=beams, batch_size=batch_size)

    def ranks(self, reactions: Iterable[Reaction]) -> list[int | None]:
        """Return the rank of the product of each reaction among the predictions.

        Args:
            reactions: products and sorted reactants, canonical SMILES.

        Returns:
            The ranks, counted from 1, and 0 for a product that is not predicted. None if a molecule cannot be read or
            is too long for the model.
        """
        reactions, ranks = list(reactions), dict[Reaction, int]()
        distinct = sorted(set(reactions), key=lambda reaction: (len(reaction[0]), reaction))
        for start in range(0, len(distinct), self.batch_size):
            ranks |= self._predict(distinct[start : start + self.batch_size])
        return [ranks.get(reaction) for reaction in reactions]

    def _predict(self, batch: Sequence[Reaction]) -> dict[Reaction, int]:
        inputs = {reaction: input for reaction in batch if (input := self._encode(reaction)) is not None}
        if not inputs:
            return {}
        # a product is hardly longer than all its reactants together
        longest = min(max(len(input.ids) for input in inputs.values()) + 20, self.model.config.max_target_positions)
        settings = TextSettings(self.beams, longest - 1, candidates=self.beams)
        outputs = self._task.generate([replace(input, settings=settings) for input in inputs.values()])
        return {reaction: _rank(reaction[0], texts) for reaction, texts in zip(inputs, outputs, strict=True)}

    def _encode(self, reaction: Reaction) -> Any | None:
        """Return the reactants as in training, or None if the model cannot read them. The batch decides how many
        tokens are generated.
        """
        product, reactants = reaction
        try:
            text = aligned_route(Route(product, tuple(map(Route, reactants))), product)
            return self._task.encode(text.last_reaction.partition(">>")[0], TextSettings(self.beams, 1))
        except ValueError:
            return None

    def with_forward_ranks(self, plan: Plan) -> Plan:
        """Return the plan with the rank of the product of each reaction of each route."""
        steps = [step for candidate in plan.candidates for step in candidate.steps]
        ranks = iter(self.ranks(Reaction(step.product, tuple(sorted(step.reactants))) for step in steps))
        candidates = [
            replace(candidate, steps=tuple(replace(step, forward_rank=next(ranks)) for step in candidate.steps))
            for candidate in plan.candidates
        ]
        return replace(plan, candidates=candidates)


def load_forward(model: str | None, device: str | None = None, dtype: str = "auto") -> ForwardModel | None:
    """Load the model that predicts products, on a device.

    Args:
        model: the folder or Hub id, or "none" for no model. Defaults to the included model.
        device: as in [`~hub.loading.to_device`].
        dtype: the precision of the weights, as in `from_pretrained`.

    Raises:
        ValueError, OSError: there is no such model or device.
    """
    if model == "none":
        return None
    forward = ForwardModel.from_pretrained(model, dtype=dtype)
    to_device(forward.model, device)
    return forward


def _rank(product: str, texts: Iterable[Sequence[Any]]) -> int:
    """Return the rank of a product among the predicted molecules, or 0."""
    # a subword tokenizer may insert spaces
    molecules = filter(None, (read_molecule(text.replace(" ", "")) for text, *_ in texts))
    predictions = list(dict.fromkeys(molecule.canonical for molecule in molecules))
    return predictions.index(product) + 1 if product in predictions else 0
