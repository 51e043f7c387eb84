"""Stopping criteria of the user's own: the fast path ends a generation where transformers' own loops end it."""

import time
from string import ascii_letters

import pytest
import torch
from tokenizers import Tokenizer, decoders, models
from transformers import PreTrainedTokenizerFast, StoppingCriteria, StoppingCriteriaList
from transformers.generation import EosTokenCriteria, MaxLengthCriteria, MaxTimeCriteria

from .conftest import CLOSE


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
    """A kind of transformers' own, with an exception of the user's."""

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


def assert_both_paths_end_alike(model, source, steps, **request):
    settings = {"max_new_tokens": 12, "return_dict_in_generate": True, "output_scores": True, "eos_token_id": [2, 4]}
    outputs = []
    for cache in ({}, {"cache_implementation": "dynamic"}):
        torch.manual_seed(3)
        criteria = StoppingCriteriaList(request["criteria"]())
        rest = {name: value for name, value in request.items() if name != "criteria"}
        outputs.append(model.generate(source, stopping_criteria=criteria, **(settings | rest), **cache))
    fast, plain = outputs
    assert torch.equal(fast.sequences, plain.sequences)
    for name in ("sequences_scores", "beam_indices"):
        if getattr(plain, name, None) is not None:
            torch.testing.assert_close(getattr(fast, name), getattr(plain, name), **CLOSE)
    assert len(fast.scores or ()) == len(plain.scores or ())
    assert fast.past_key_values.get_seq_length() == plain.past_key_values.get_seq_length()
    assert bool(steps) == (fast.past_key_values.get_seq_length() > 1)
    steps.clear()
    return fast.sequences


@pytest.mark.parametrize(
    ("search", "criteria"),
    [(search, one) for search in SEARCHES for one in CRITERIA if search in ("greedy", "beams") or one == "tokens"]
    + [("beams that sample", "scores"), ("another search", "no time")],
)
def test_both_paths_end_alike(build, source, steps, criteria, search):
    assert_both_paths_end_alike(build("rotary"), source, steps, criteria=CRITERIA[criteria], **SEARCHES[search])


# transformers hands its tokenizer to no search but its own
@pytest.mark.parametrize("search", ["greedy", "beams"])
def test_both_paths_end_alike_at_strings(build, source, steps, search):
    model = build("rotary")
    request = {"criteria": list, "tokenizer": tokenizer(), "min_new_tokens": 8, **SEARCHES[search]}
    free = assert_both_paths_end_alike(model, source, steps, **request)
    strings = ["".join(tokenizer().convert_ids_to_tokens(free[0, 3:5].tolist())), "k"]
    ended = assert_both_paths_end_alike(model, source, steps, stop_strings=strings, **request)
    assert not torch.equal(ended, free)
