"""One step backwards: a Weft as syntheseus' model of reactions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from os import PathLike
from typing import TYPE_CHECKING, Any

from syntheseus import BackwardReactionModel, Bag, Molecule, SingleProductReaction

from .search import Job, RouteSearch
from .settings import PlanSettings
from .targets import check_source

if TYPE_CHECKING:
    from ..plans import Candidate


class WeftReactionModel(BackwardReactionModel):
    """
    A route model that writes single steps, for the searches and evaluations of syntheseus
    (https://github.com/microsoft/syntheseus).

    Args:
        model (`WeftForConditionalGeneration`):
            A model trained on routes or reactions.
        tokenizer (`PreTrainedTokenizerBase`):
            The tokenizer it was trained with.
        beams (`int`, *optional*, defaults to 10):
            The width of the beam search, and the most reactions of a molecule.
        batch_size (`int`, *optional*, defaults to 16):
            The number of molecules whose beams are searched at once.
        kwargs:
            Arguments of `BackwardReactionModel`, such as `use_cache`.
    """

    def __init__(self, model: Any, tokenizer: Any, *, beams: int = 10, batch_size: int = 16, **kwargs: Any):
        super().__init__(default_num_results=beams, **kwargs)
        self.model, self.tokenizer, self.batch_size = model.eval(), tokenizer, batch_size
        self._n_steps = 1 if model.config.num_condition_features else None
        self._search = RouteSearch(model, tokenizer, PlanSettings(beams=beams))

    @classmethod
    def from_pretrained(cls, folder_or_hub_id: str | PathLike[str] | None = None, **kwargs: Any) -> WeftReactionModel:
        """Load model and tokenizer from one folder or Hub repository, or the included ones.

        Args:
            folder_or_hub_id: the folder or repository (default: the model that comes with the package).
            kwargs: arguments of the class.
        """
        from .planner import RoutePlanner

        planner = RoutePlanner.from_pretrained(folder_or_hub_id)
        return cls(planner.model, planner.tokenizer, **kwargs)

    def get_parameters(self) -> Any:
        """Return an iterator over the parameters, which syntheseus counts."""
        return self.model.parameters()

    def _get_reactions(self, inputs: list[Molecule], num_results: int) -> list[Sequence[SingleProductReaction]]:
        found: list[Sequence[SingleProductReaction]] = [[] for _ in inputs]
        waiting = list(enumerate(inputs))
        tickets: dict[int, int] = {}
        while waiting or tickets:
            joining: list[tuple[int, Molecule]] = []
            while waiting and len(tickets) + len(joining) < self.batch_size:
                place, molecule = waiting.pop(0)
                if self._reads(molecule.smiles):
                    joining.append((place, molecule))
            if joining:
                jobs = [Job(molecule.smiles, self._n_steps) for _, molecule in joining]
                none = [None] * len(jobs)
                tickets |= zip(self._search.add(jobs, none, none), [place for place, _ in joining], strict=True)
            for ticket, candidates in self._search.step():
                place = tickets.pop(ticket)
                found[place] = self._reactions(inputs[place], candidates)[:num_results]
        return found

    def _reads(self, smiles: str) -> bool:
        try:
            check_source(self.model, self.tokenizer, smiles)
        except ValueError:
            return False
        return True

    @staticmethod
    def _reactions(product: Molecule, candidates: list[Candidate]) -> list[SingleProductReaction]:
        return [
            SingleProductReaction(
                product=product,
                reactants=Bag(Molecule(child.smiles, make_rdkit_mol=False) for child in one.route.children),
                metadata={"log_probability": one.score, "probability": math.exp(one.score)},
            )
            for one in candidates
            if one.route is not None and one.route.children
        ]
