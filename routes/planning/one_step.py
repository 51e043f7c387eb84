"""One step backwards: the library and a Weft as syntheseus' model of reactions."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from os import PathLike
from typing import Any

from syntheseus import BackwardReactionModel, Bag, Molecule, SingleProductReaction
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

from ..chemistry.molecules import canonical_or_given
from ..family import load
from ..plans import Candidate
from ..shipped import MODEL
from .merging import Reactants, merged
from .model_search import RouteSearch, step_job
from .requests import source_texts
from .settings import PlanSettings
from .stock_search import log_probabilities, own_reactants

# A probability of exp(-700) is still a number above 0, whose logarithm is finite.
_LEAST = -700.0


class WeftReactionModel(BackwardReactionModel):
    """The recorded transformations and a route model that writes single steps, for the searches and evaluations of
    syntheseus (https://github.com/microsoft/syntheseus). Their reactions are in one list, as in [`merged`].

    Args:
        model (`WeftForConditionalGeneration`): a model trained on routes or reactions.
        tokenizer (`PreTrainedTokenizerBase`): the tokenizer it was trained with.
        beams: the width of the beam search, and the most reactions of a text.
        num_augmentations: the number of SMILES of each molecule that are searched, as in [`PlanSettings`]. The
            probability that the model gives to a reaction is its mean over these searches.
        library: a user's own reactions, as in [`PlanSettings`].
        use_library: whether the library proposes reactions. Otherwise, the model does so alone.
        batch_size: the number of texts whose beams are searched at once.
        **kwargs: arguments of `BackwardReactionModel`, such as `use_cache`.
    """

    def __init__(
        self,
        model: Any,
        tokenizer: Any,
        *,
        beams: int = 10,
        num_augmentations: int = 1,
        batch_size: int = 16,
        library: Any = None,
        use_library: bool = True,
        **kwargs: Any,
    ):
        super().__init__(default_num_results=beams, **kwargs)
        self.model, self.tokenizer = model.eval(), tokenizer
        self.settings = PlanSettings(beams=beams, num_augmentations=num_augmentations, library=library)
        self.library = self.settings.transformations if use_library else None
        self.batch_size = batch_size
        self._search = RouteSearch(model, tokenizer, self.settings)

    @classmethod
    def from_pretrained(cls, folder_or_hub_id: str | PathLike[str] | None = None, **kwargs: Any) -> WeftReactionModel:
        """Load model and tokenizer from one folder or Hub repository, or the included ones.

        Args:
            folder_or_hub_id: the folder or repository (default: the model that comes with the package).
            kwargs: arguments of the class.
        """
        folder_or_hub_id = folder_or_hub_id or MODEL
        parts = (load(kind, folder_or_hub_id) for kind in (AutoModelForSeq2SeqLM, AutoTokenizer))
        return cls(*parts, **kwargs)

    def get_parameters(self) -> Any:
        """Return an iterator over the parameters, which syntheseus counts."""
        return self.model.parameters()

    def _get_reactions(self, inputs: list[Molecule], num_results: int) -> list[Sequence[SingleProductReaction]]:
        smiles = [canonical_or_given(molecule.smiles) for molecule in inputs]
        texts = [list(source_texts(self.model, self.tokenizer, name, self.settings)) for name in smiles]
        candidates = iter(self._candidates([text for variants in texts for text in variants]))
        reactions: list[Sequence[SingleProductReaction]] = []
        for product, name, variants in zip(inputs, smiles, texts, strict=True):
            probabilities: Counter[Reactants] = Counter()
            for _ in variants:
                best: dict[Reactants, float] = {}
                for candidate in next(candidates):
                    if candidate.route is not None and candidate.route.children:
                        best.setdefault(
                            candidate.route.reactants, math.exp(max(candidate.score, _LEAST)) / len(variants)
                        )
                probabilities.update(best)
            shares: dict[Reactants, float] = dict(probabilities.most_common())
            if self.library is not None:
                of_library = log_probabilities(self.library, name, self.settings.rules)
                proposals = {reactants: math.log(share) for reactants, share in shares.items()}
                shares = merged(of_library, proposals, own_reactants(self.library, name))
            reactions.append([_reaction(product, *reaction) for reaction in list(shares.items())[:num_results]])
        return reactions

    def _candidates(self, texts: Sequence[str]) -> list[list[Candidate]]:
        """Return the candidates of each text, best first."""
        results: list[list[Candidate]] = [[] for _ in texts]
        waiting = list(enumerate(texts))
        tickets: dict[int, int] = {}
        while waiting or tickets:
            joining = waiting[: self.batch_size - len(tickets)]
            del waiting[: len(joining)]
            if joining:
                jobs = [step_job(self.model, text) for _, text in joining]
                tickets |= zip(self._search.add(jobs), [place for place, _ in joining], strict=True)
            for ticket, candidates in self._search.step():
                results[tickets.pop(ticket)] = candidates
        return results


def _reaction(product: Molecule, reactants: Sequence[str], probability: float) -> SingleProductReaction:
    return SingleProductReaction(
        product=product,
        reactants=Bag(Molecule(smiles, make_rdkit_mol=False) for smiles in reactants),
        metadata={"log_probability": math.log(probability), "probability": probability},
    )
