"""What may follow a text; `test_constraints.py` writes all small routes."""

import torch

from weftformer.routes import NO_CONSTRAINTS
from weftformer.routes.planning.constraints import ConstrainedGrammar


def plain(tokenizer, limits):
    return ConstrainedGrammar(tokenizer, limits, NO_CONSTRAINTS)


def ids_of(tokenizer, text):
    return tokenizer(text, add_special_tokens=False)["input_ids"]


def allowed(processor, rows):
    scores = processor(torch.tensor(rows), torch.zeros(len(rows), len(processor.texts)))
    return [{processor.texts[i] or "end" for i in row.isfinite().nonzero()[:, 0].tolist()} for row in scores]


def test_allowed_tokens_after_each_prefix(tokenizer):
    start = tokenizer.bos_token_id
    for text, expected in (
        ("", {"{"}), ("{", {"'smiles':"}), ("{'smiles':", {"'"}), ("{'smiles':'C'", {"}", ","}), ("{'smiles':'C'}", {"end"}),
        ("{'smiles':'C','children':[{'smiles':'O'}", {",", "]"}), ("{'smiles':'C','children':[{'smiles':'O'", {"}", ","}),
        ("{'smiles':'C','children':[{'smiles':'O','children':[{'smiles':'O'", {"}"}), ("{'smiles':'C\\", {"\\"}),
    ):  # fmt: skip
        assert allowed(plain(tokenizer, [2]), [[start, *ids_of(tokenizer, text)]]) == [expected], text
    (inside,) = allowed(plain(tokenizer, [2]), [[start, *ids_of(tokenizer, "{'smiles':'C")]])
    assert {"C", "[", "]", "(", "\\", "'"} <= inside and not inside & {"{", "}", ",", "end", "'children':"}
    (begun,) = allowed(plain(tokenizer, [2]), [[start, *ids_of(tokenizer, "{'smiles':'")]])
    assert "'" not in begun and "C" in begun


def test_rows_with_pads_in_front_and_wider_scores(tokenizer):
    processor = plain(tokenizer, [1])
    row = [tokenizer.pad_token_id, tokenizer.bos_token_id, *ids_of(tokenizer, "{'smiles':'C'")]
    scores = processor(torch.tensor([row]), torch.zeros(1, 60))
    assert scores.shape == (1, 60) and scores[0, 53:].isneginf().all() and scores.isfinite().sum() == 2
    # after the end of a route, whatever follows is no matter
    ended = [
        tokenizer.bos_token_id,
        *ids_of(tokenizer, "{'smiles':'C'}"),
        tokenizer.eos_token_id,
        tokenizer.pad_token_id,
    ]
    assert len(allowed(plain(tokenizer, [1]), [ended])[0]) > 40
