"""From target molecules to ranked routes: encode, search with a forced beginning, read what comes out as data."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import torch
from torch.nn.utils.rnn import pad_sequence
from tqdm.auto import tqdm
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

from ..tokenization import encode_source
from .candidates import Candidate, Plan, ranked
from .grammar import RouteGrammar
from .molecules import one_molecule
from .stock import Stock
from .tree import Route

# Tried in turn, and pooled, when a model that is told the number of steps is not.
DEFAULT_STEPS = (1, 2, 3, 4, 5)
# How beams are searched and scored: settings of `generate`. A length_penalty of 0 ranks by the whole log-probability: any
# division by the length would prefer longer routes.
RANKINGS: dict[str, dict[str, Any]] = {
    "log_probability": {"length_penalty": 0.0},
    "sqrt_length": {"custom_generate": "sqrt_length"},
}


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
    def from_pretrained(cls, folder_or_hub_id: str, **kwargs) -> RoutePlanner:
        """Load model and tokenizer from one folder or Hub repository; `kwargs` go to the model."""
        model = AutoModelForSeq2SeqLM.from_pretrained(folder_or_hub_id, **kwargs)
        return cls(model, AutoTokenizer.from_pretrained(folder_or_hub_id))

    def plan(
        self,
        targets: Sequence[str],
        *,
        n_steps: int | Sequence[int] | None = None,
        starting_material: str | None = None,
        beams: int = 5,
        ranking: str = "log_probability",
        stock: Stock | None = None,
        grammar: bool = True,
        max_new_tokens: int | None = None,
        batch_size: int = 16,
        progress: bool = True,
        on_error: str = "raise",
    ) -> list[Plan]:
        """Ranked candidates for each target.

        Args:
            targets: SMILES; canonicalised first.
            n_steps: longest path of the wanted routes, in reactions: one number, a number for each target (a list as
                long as `targets`), or None to try 1 to 5 and pool. Must be None for a model that is not told it.
            starting_material: SMILES of a molecule the routes should begin from, for a model trained with one.
            beams: width of the search, and candidates for each target (and number of steps).
            ranking: "log_probability", or "sqrt_length" for the search of DirectMultiStep, which divides it by the root of
                the length with the forced beginning.
            stock: what can be bought; candidates then say which of their starting materials it lacks.
            grammar: let only tokens through that continue a well-formed route, no deeper than `n_steps`.
            max_new_tokens: bound on what the model writes (default: what its positions allow).
            batch_size: targets searched at once. progress: show a bar.
            on_error: "raise", or "skip" to plan the other targets where one cannot be; its `Plan.problem` says why.

        Raises:
            ValueError: a target is no molecule, several, or too long, or holds a character that the model does not know
                (with `on_error="raise"`); the starting material is, or `n_steps`, `ranking` or `on_error` does not fit.
        """
        if on_error not in ("raise", "skip"):
            raise ValueError(f'on_error={on_error!r} is not allowed: choose "raise" or "skip".')
        if ranking not in RANKINGS:
            raise ValueError(f"ranking={ranking!r} is not allowed: choose one of {', '.join(RANKINGS)}.")
        material = None if starting_material is None else one_molecule(starting_material)
        smiles, problems = self._readable(targets, material, on_error)
        jobs = [job for job in self._jobs(smiles, n_steps) if problems[job[0]] is None]
        found: list[list[Candidate]] = [[] for _ in smiles]
        # Longest first: rows of one batch are alike in length, and a batch too large for the memory fails at once.
        jobs.sort(key=lambda job: -len(smiles[job[0]]))
        with tqdm(total=len(jobs), desc="planning", unit="search", disable=not progress) as bar:
            for start in range(0, len(jobs), batch_size):
                batch = jobs[start : start + batch_size]
                results = self._search(
                    [(smiles[index], steps) for index, steps in batch],
                    material,
                    beams,
                    ranking,
                    grammar,
                    max_new_tokens,
                )
                for (index, _), candidates in zip(batch, results, strict=True):
                    found[index] += candidates
                bar.update(len(batch))
        plans = []
        for target, candidates, problem in zip(smiles, found, problems, strict=True):
            plans.append(Plan(target, ranked(candidates, stock), problem))
        return plans

    def _readable(
        self, targets: Sequence[str], material: str | None, on_error: str
    ) -> tuple[list[str], list[str | None]]:
        """Canonical SMILES of each target (as it was given, where that fails), and what is wrong with it."""
        smiles, problems = list(targets), cast(list[str | None], [None] * len(targets))
        for index, target in enumerate(targets):
            try:
                canonical = one_molecule(target)
                encode_source(self.tokenizer, canonical, material)
                smiles[index] = canonical
            except ValueError as error:
                if on_error == "raise":
                    raise
                problems[index] = str(error)
        return smiles, problems

    def _jobs(self, smiles: list[str], n_steps: int | Sequence[int] | None) -> list[tuple[int, int | None]]:
        """One search for each target and number of steps to try."""
        if self.model.config.num_condition_features == 0:
            if n_steps is not None:
                raise ValueError("This model was trained without the number of steps: leave `n_steps` out.")
            return [(index, None) for index in range(len(smiles))]
        if n_steps is None:
            return [(index, steps) for index in range(len(smiles)) for steps in DEFAULT_STEPS]
        steps_of = [n_steps] * len(smiles) if isinstance(n_steps, int) else list(n_steps)
        if len(steps_of) != len(smiles) or any(steps < 1 for steps in steps_of):
            raise ValueError(
                f"n_steps={n_steps!r} is not allowed: give a number of at least 1, or one for each target."
            )
        return list(enumerate(steps_of))

    def _search(
        self,
        jobs: list[tuple[str, int | None]],
        material: str | None,
        beams: int,
        ranking: str,
        grammar: bool,
        max_new_tokens: int | None,
    ) -> list[list[Candidate]]:
        tokenizer, config, device = self.tokenizer, self.model.config, self.model.device
        sources = [encode_source(tokenizer, smiles, material) for smiles, _ in jobs]
        starts = [self._beginning(smiles) for smiles, _ in jobs]
        source_ids = _pad(sources, tokenizer.pad_token_id, side="right").to(device)
        start_ids = _pad(starts, tokenizer.pad_token_id, side="left").to(device)
        start_mask = _pad([[1] * len(start) for start in starts], 0, side="left").to(device)
        length = start_ids.shape[1]
        room = config.max_target_positions + 1 - length
        inputs: dict[str, torch.Tensor] = {}
        if jobs[0][1] is not None:
            inputs["condition_values"] = torch.tensor([[float(steps or 0)] for _, steps in jobs], device=device)
        output = self.model.generate(
            input_ids=source_ids,
            decoder_input_ids=start_ids,
            decoder_attention_mask=start_mask,
            num_beams=beams,
            num_return_sequences=beams,
            do_sample=False,
            **({} if beams == 1 and ranking == "log_probability" else RANKINGS[ranking]),
            max_new_tokens=room if max_new_tokens is None else min(max_new_tokens, room),
            max_length=None,
            return_dict_in_generate=True,
            output_scores=True,
            output_logits=True,
            logits_processor=[RouteGrammar(tokenizer, [steps for _, steps in jobs])] if grammar else [],
            **inputs,
        )
        texts = [self._read(row) for row in output.sequences.tolist()]
        candidates = [
            self._candidate(text, score, jobs[index // beams][1])
            for index, (text, score) in enumerate(zip(texts, self._scores(output, length).tolist(), strict=True))
        ]
        return [candidates[start : start + beams] for start in range(0, len(candidates), beams)]

    def _scores(self, output: Any, length: int) -> torch.Tensor:
        """Log-probability of each sequence after its forced beginning."""
        if getattr(output, "sequences_scores", None) is not None:
            return output.sequences_scores
        # the model's own logits: what the grammar rules out is not to make the rest likelier
        steps = self.model.compute_transition_scores(output.sequences, output.logits, normalize_logits=True)
        # what stands behind the end is padding
        ended = (output.sequences[:, length:] == self.tokenizer.eos_token_id).cumsum(dim=1)
        after = torch.nn.functional.pad(ended[:, :-1], (1, 0)).bool()
        return steps.masked_fill(after, 0.0).sum(dim=1)

    def _beginning(self, smiles: str) -> list[int]:
        """What every route of this target begins with: forced, so that the search spends itself on the reactants."""
        whole = Route(smiles, (Route("C"),)).to_string()
        text = whole[: whole.rindex("C'")]
        return [self.tokenizer.bos_token_id, *self.tokenizer(text, add_special_tokens=False)["input_ids"]]

    def _read(self, ids: list[int]) -> str:
        """Ids to text: without pads and start in front, up to the end."""
        while ids and ids[0] in (self.tokenizer.pad_token_id, self.tokenizer.bos_token_id):
            ids = ids[1:]
        if self.tokenizer.eos_token_id in ids:
            ids = ids[: ids.index(self.tokenizer.eos_token_id)]
        return "".join(self.tokenizer.convert_ids_to_tokens(ids))

    @staticmethod
    def _candidate(text: str, score: float, n_steps: int | None) -> Candidate:
        try:
            return Candidate(text, score, n_steps, route=Route.from_string(text))
        except ValueError as error:
            return Candidate(text, score, n_steps, problem=str(error))


def _pad(rows: list[list[int]], value: int, side: str) -> torch.Tensor:
    return pad_sequence([torch.tensor(row) for row in rows], batch_first=True, padding_value=value, padding_side=side)
