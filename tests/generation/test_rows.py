"""The answer to a row does not depend on other rows, on the places of its pads, or on the form of its input."""

import pytest
import torch

from .conftest import CLOSE, END, FEW, KINDS, PAD, PADDED, PREFIX, START, few_kinds, row_of


def same(found, expected):
    assert torch.equal(found[0], expected[0])
    torch.testing.assert_close(found[1], expected[1], **CLOSE)


def test_row_alone_equals_row_in_batch(model, inputs, run):
    sequences, logits = run(model, 6, **inputs)
    for row in range(4):
        same(run(model, 6, **row_of(inputs, row)), (sequences[row : row + 1], logits[row : row + 1]))


def test_pads_in_the_middle_keep_their_positions(model, inputs, run):
    """Product, pads, starting material: what follows the pads stands where it stood."""
    whole = row_of(inputs, 3)
    compact = dict(whole, input_ids=whole["input_ids"][:, whole["input_ids"][0] != PAD])
    places = (whole["input_ids"][0] != PAD).nonzero()[:, 0]
    same(run(model, 6, **compact, position_ids=places), run(model, 6, **whole))


def reference_beams(model, given, steps, beams):
    """Search one row with beams, without a cache or an end: (sequences (beams, 1 + steps), summed scores)."""
    prefixes, totals = torch.full((1, 1), START), torch.zeros(1)
    for _ in range(steps):
        rows = {name: value.expand(len(prefixes), -1) for name, value in given.items()}
        logits = model(**rows, decoder_input_ids=prefixes, use_cache=False).logits[:, -1]
        scores = logits.log_softmax(dim=-1).index_fill(1, torch.tensor(END), -torch.inf) + totals[:, None]
        totals, chosen = scores.flatten().topk(beams)
        parents, tokens = chosen // scores.shape[1], chosen % scores.shape[1]
        prefixes = torch.cat([prefixes[parents], tokens[:, None]], dim=-1)
    return prefixes, totals


@torch.no_grad()
def test_beams_in_batch_equal_a_loop_over_the_row_without_cache(model, inputs):
    output = model.generate(
        **inputs, num_beams=3, num_return_sequences=3, min_new_tokens=6, max_new_tokens=6, length_penalty=0.5,
        return_dict_in_generate=True, output_scores=True,
    )  # fmt: skip
    for row in range(4):
        rows = slice(3 * row, 3 * row + 3)
        sequences, totals = reference_beams(model, row_of(inputs, row), 6, 3)
        same((output.sequences[rows], output.sequences_scores[rows]), (sequences, (totals / 6**0.5).float()))


@few_kinds
def test_mask_is_inferred_from_pads_and_hides_tokens(model, inputs, run):
    mask = inputs["input_ids"] != PAD
    inferred = run(model, 5, **inputs)
    same(inferred, run(model, 5, **inputs, attention_mask=mask.long()))
    _, blind = run(model, 5, **inputs, attention_mask=torch.ones_like(inputs["input_ids"]))
    assert not torch.allclose(blind[:, 0], inferred[1][:, 0], atol=1e-2)
    behind = inputs | {"input_ids": inputs["input_ids"].masked_fill(~mask, 17)}
    same(inferred, run(model, 5, **behind, attention_mask=mask))


@pytest.mark.parametrize(
    ("model", "settings"),
    [
        *((kind, {}) for kind in KINDS),
        *((kind, settings) for kind in FEW for settings in ({"cache_implementation": "static"}, {"num_beams": 3})),
    ],
    indirect=["model"],
    ids=str,
)
def test_padded_prefixes_equal_prefixes_alone(model, inputs, run, settings):
    sequences, logits = run(model, 5, **inputs, **PADDED, **settings)
    assert torch.equal(sequences[:, :4], PREFIX)
    for row in range(4):
        prefix = PREFIX[row : row + 1, PREFIX[row] != PAD]
        single, expected = run(model, 5, **row_of(inputs, row), decoder_input_ids=prefix, **settings)
        assert torch.equal(sequences[row, 4:], single[0, prefix.shape[1] :])
        if "num_beams" not in settings:  # the logits of beams are in the order of their ranks at each step
            torch.testing.assert_close(logits[row], expected[0], **CLOSE)


def test_source_of_pads_is_finite_and_changes_no_other_row(model, inputs, run):
    sequences, logits = run(model, 4, **inputs)
    empty = dict(inputs, input_ids=inputs["input_ids"].clone())
    empty["input_ids"][2] = PAD
    found, scores = run(model, 4, **empty)
    others = [0, 1, 3]
    same((found[others], scores[others]), (sequences[others], logits[others]))
    assert torch.isfinite(scores[2]).all()


@torch.no_grad()
def test_steps_of_any_size_equal_one_forward(model, inputs):
    ids = torch.randint(3, 23, (4, 6), generator=torch.Generator().manual_seed(2))
    real = torch.ones(4, 6, dtype=torch.long)
    real[1, :1] = real[2, :2] = 0  # on the left, as many as two of the pieces hold
    expected = model(**inputs, decoder_input_ids=ids, decoder_attention_mask=real, use_cache=False).logits
    call = {"encoder_outputs": model.get_encoder()(**inputs), "attention_mask": inputs["input_ids"] != PAD}
    cache, found, lengths = None, [], []
    projection = model.model.decoder.layers[0].encoder_attn.v_proj
    handle = projection.register_forward_hook(lambda module, args, output: lengths.append(args[0].shape[1]))
    for start, end in ((0, 2), (2, 5), (5, 6)):
        target = {"decoder_input_ids": ids[:, start:end], "decoder_attention_mask": real[:, :end]}
        output = model(**call, **target, cache=cache, use_cache=True)
        cache = output.cache
        found.append(output.logits)
    handle.remove()
    assert lengths == [9]  # the source is projected once
    torch.testing.assert_close(torch.cat(found, dim=1)[real.bool()], expected[real.bool()], rtol=1e-10, atol=1e-10)
