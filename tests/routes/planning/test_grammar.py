"""Whatever the model would like to write, a route comes out."""

import random

import pytest
import torch

from weftformer.routes import NO_CONSTRAINTS, Route
from weftformer.routes.planning.constraints import ConstrainedGrammar
from weftformer.routes.planning.grammar import START, advance
from weftformer.tokenization import build_route_tokenizer

ROUTE = Route("CC(=O)OC", (Route("CC(=O)O", (Route("CC=O"), Route("O"))), Route("CO")))


@pytest.fixture(scope="module")
def tokenizer():
    return build_route_tokenizer()


def plain(tokenizer, limits):
    return ConstrainedGrammar(tokenizer, limits, NO_CONSTRAINTS)


def ids_of(tokenizer, text):
    return tokenizer(text, add_special_tokens=False)["input_ids"]


def allowed(processor, rows):
    scores = processor(torch.tensor(rows), torch.zeros(len(rows), len(processor.texts)))
    return [{processor.texts[i] or "end" for i in row.isfinite().nonzero()[:, 0].tolist()} for row in scores]


def test_characters_lead_to_a_route_or_nowhere():
    for text, fits in (
        (ROUTE.to_string(), True), ("{'smiles':'C\\\\C'}", True), ("{'smiles':'C\\C'}", False), ("{'smiles':''}", False),
        ("{'smiles':'C','children':[]}", False), ("{'smiles':'C'}}", False), ("{'smiles':'C'},", False),
        ("{'smiles':'C','children':[{'smiles':'O'}],", False), ("{'smiles':'C' }", False),
    ):  # fmt: skip
        state = START
        for character in text:
            state = advance(state, character)
        assert (state is not None and state.place == "end" and not state.literal) == fits, text


def test_what_may_follow_is_what_the_grammar_says(tokenizer):
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


@pytest.mark.parametrize("limit", [1, 2, 3, 5, None])
def test_random_walks_are_routes_no_deeper_than_asked(tokenizer, limit):
    rng, depths = random.Random(1), set()
    for _ in range(40):
        processor, ids = plain(tokenizer, [limit]), [tokenizer.bos_token_id]
        while ids[-1] != tokenizer.eos_token_id:
            scores = processor(torch.tensor([ids]), torch.zeros(1, 53))[0]
            choices = scores.isfinite().nonzero()[:, 0].tolist()
            # closing more often than opening, or the walk would not end
            weights = [
                1 if processor.texts[i] == "," else 30 if processor.texts[i] in ("'", "}", "]") else 3 for i in choices
            ]
            ids.append(rng.choices(choices, weights)[0])
        depths.add(Route.from_string(tokenizer.decode(ids, skip_special_tokens=True)).depth)
    assert len(depths) > 1 and max(depths) <= (limit or 64)


def test_beams_that_change_places_keep_their_states(tokenizer):
    processor, start = plain(tokenizer, [1, 3]), tokenizer.bos_token_id
    first = [[start, *ids_of(tokenizer, "{'smiles':'")]] * 4
    allowed(processor, first)
    one = [[*row, *ids_of(tokenizer, character)] for row, character in zip(first, "CNOS", strict=True)]
    allowed(processor, one)
    quote = ids_of(tokenizer, "'")
    mixed = [[*one[1], *quote], [*one[1], *ids_of(tokenizer, "C")], [*one[3], *quote], [*one[2], *quote]]
    found = allowed(processor, mixed)
    assert found[0] == {"}", ","} and "'" in found[1] and found[2] == found[3] == {"}", ","}
    # the text after the end of a route is padding, and whatever follows is no matter
    whole = [[start, *ids_of(tokenizer, "{'smiles':'C'}"), tokenizer.eos_token_id, tokenizer.pad_token_id]]
    assert len(allowed(plain(tokenizer, [1]), whole)[0]) > 40


def test_rows_with_pads_in_front_and_wider_scores(tokenizer):
    processor = plain(tokenizer, [1])
    row = [tokenizer.pad_token_id, tokenizer.bos_token_id, *ids_of(tokenizer, "{'smiles':'C'")]
    scores = processor(torch.tensor([row]), torch.zeros(1, 60))
    assert scores.shape == (1, 60) and scores[0, 53:].isneginf().all() and scores.isfinite().sum() == 2
