"""The user's own stopping criteria end a generation in the same step on the fast path as in transformers."""

import time
from string import ascii_letters

import pytest
import torch
from tokenizers import Tokenizer, decoders, models
from transformers import PreTrainedTokenizerFast, StoppingCriteria, StoppingCriteriaList
from transformers.generation import EosTokenCriteria, MaxLengthCriteria, MaxTimeCriteria

from .test_decoding import assert_same, both_ways


class Writes(StoppingCriteria):
    """Ends the rows that have just written one of these tokens."""

    def __init__(self, *tokens):
        self.tokens = torch.tensor(tokens)

    def __call__(self, input_ids, scores, **kwargs):
        return torch.isin(input_ids[:, -1], self.tokens)


class Sure(StoppingCriteria):
    """Ends all rows once the last scores of some row are far apart; reads the scores of all steps."""

    def __call__(self, input_ids, scores, **kwargs):
        assert len(scores) == input_ids.shape[1] - 1
        is_sure = scores[-1].softmax(dim=-1).amax() > 0.6
        return is_sure.expand(len(input_ids))


class OwnEnds(EosTokenCriteria):
    """A subclass of transformers' criterion, with an exception added by the user."""

    def __call__(self, input_ids, scores, **kwargs):
        return super().__call__(input_ids, scores, **kwargs) & (input_ids.shape[1] > 4)


def tokenizer():
    """A letter for each token."""
    letters = {"<pad>": 0, "<s>": 1, "</s>": 2} | {letter: index for index, letter in enumerate(ascii_letters[:28], 3)}
    backend = Tokenizer(models.BPE(vocab=letters, merges=[]))
    backend.decoder = decoders.Fuse()
    return PreTrainedTokenizerFast(tokenizer_object=backend, pad_token="<pad>", eos_token="</s>")


CRITERIA = {
    "tokens": lambda: [Writes(5, 8, 9)],
    "every token": lambda: [Writes(*range(31))],
    "no time": lambda: [MaxTimeCriteria(0.0, initial_timestamp=time.time() - 1)],
    "scores": lambda: [Sure()],
    "two": lambda: [Writes(5, 8), MaxLengthCriteria(max_length=7)],
    "transformers' ends": lambda: [EosTokenCriteria(eos_token_id=[5, 6, 8])],
    "transformers' ends, as others": lambda: [OwnEnds(eos_token_id=[5, 6, 8])],
    "transformers' length": lambda: [MaxLengthCriteria(max_length=6)],
}
SEARCHES = {
    "greedy": {},
    "sampling": {"do_sample": True},
    "beams": {"num_beams": 3, "num_return_sequences": 2},
    "beams, never early": {"num_beams": 3, "early_stopping": "never", "length_penalty": 1.5},
    "beams that sample": {"num_beams": 3, "do_sample": True},
    "another search": {"num_beams": 3, "custom_generate": "sqrt_length"},
}


def sequences(model, source, steps, **request):
    """Return the sequences, which must be the same on both paths."""
    fast, plain = both_ways(model, {"input_ids": source}, {"eos_token_id": [2, 4]} | request, steps)
    assert_same(fast, plain)
    return fast.sequences


@pytest.mark.parametrize(
    ("search", "criteria"),
    [(search, one) for search in SEARCHES for one in CRITERIA if search in ("greedy", "beams") or one == "tokens"]
    + [("beams that sample", "scores"), ("another search", "no time")],
)
def test_both_paths_end_alike(build, source, steps, criteria, search):
    given = StoppingCriteriaList(CRITERIA[criteria]())
    sequences(build("rotary"), source, steps, stopping_criteria=given, **SEARCHES[search])


# transformers passes the tokenizer to its own searches only
@pytest.mark.parametrize("search", ["greedy", "beams"])
def test_both_paths_end_alike_at_strings(build, source, steps, search):
    model = build("rotary")
    request = {"tokenizer": tokenizer(), "min_new_tokens": 8, **SEARCHES[search]}
    free = sequences(model, source, steps, **request)
    strings = ["".join(tokenizer().convert_ids_to_tokens(free[0, 3:5].tolist())), "k"]
    ended = sequences(model, source, steps, stop_strings=strings, **request)
    assert not torch.equal(ended, free)
