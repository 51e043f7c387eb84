"""Rows as a search has them; `test_constraints.py` writes all small routes."""

import torch

from weftformer.routes import NO_CONSTRAINTS
from weftformer.routes.planning.constraints import ConstrainedGrammar


def test_rows_with_pads_in_front_and_wider_scores(tokenizer):
    def ids_of(text):
        return tokenizer(text, add_special_tokens=False)["input_ids"]

    def scores_after(row, width):
        return ConstrainedGrammar(tokenizer, [1], NO_CONSTRAINTS)(torch.tensor([row]), torch.zeros(1, width))

    scores = scores_after([tokenizer.pad_token_id, tokenizer.bos_token_id, *ids_of("{'smiles':'C'")], 60)
    assert scores.shape == (1, 60) and scores[0, 53:].isneginf().all() and scores.isfinite().sum() == 2
    # after the end of a route, whatever follows is no matter
    ended = [tokenizer.bos_token_id, *ids_of("{'smiles':'C'}"), tokenizer.eos_token_id, tokenizer.pad_token_id]
    assert scores_after(ended, len(tokenizer)).isfinite().sum() > 40
