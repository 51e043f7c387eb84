"""Every mode of `generate` for every kind of model, against a reference or another way to the same answer."""

import torch

from .conftest import CLOSE, END, START


def next_scores(model, given, prefix):
    """Return log-probabilities of the next token from a full forward pass without a cache. The end is not allowed."""
    logits = model(**given, decoder_input_ids=prefix, use_cache=False).logits[:, -1]
    scores = logits.log_softmax(dim=-1)
    scores[:, END] = -torch.inf
    return scores


def reference_beams(model, given, steps, beams):
    """Search one row with beams, without a cache or an end: (sequences (beams, 1 + steps), summed scores)."""
    prefixes, totals = torch.full((1, 1), START), torch.zeros(1)
    for _ in range(steps):
        rows = {name: value.expand(len(prefixes), -1) for name, value in given.items()}
        scores = next_scores(model, rows, prefixes) + totals[:, None]
        totals, chosen = scores.flatten().topk(beams)
        parents, tokens = chosen // scores.shape[1], chosen % scores.shape[1]
        prefixes = torch.cat([prefixes[parents], tokens[:, None]], dim=-1)
    return prefixes, totals


@torch.no_grad()
def test_beam_search_equals_a_loop_without_cache(model, inputs, alone):
    output = model.generate(
        **inputs, num_beams=3, num_return_sequences=3, min_new_tokens=6, max_new_tokens=6, length_penalty=0.5,
        return_dict_in_generate=True, output_scores=True,
    )  # fmt: skip
    for row in range(4):
        sequences, totals = reference_beams(model, alone(inputs, row), 6, 3)
        assert torch.equal(output.sequences[3 * row : 3 * row + 3], sequences)
        torch.testing.assert_close(output.sequences_scores[3 * row : 3 * row + 3], (totals / 6**0.5).float(), **CLOSE)
