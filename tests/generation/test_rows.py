"""The answer to a row does not depend on other rows, on the places of its pads, or on the form of its input."""

import pytest
import torch

from .conftest import CLOSE, END, FEW, KINDS, PAD, PADDED, PREFIX, few_kinds


def same(found, expected):
    assert torch.equal(found[0], expected[0])
    torch.testing.assert_close(found[1], expected[1], **CLOSE)


def test_row_alone_equals_row_in_batch(model, inputs, run, alone):
    sequences, logits = run(model, 6, **inputs)
    for row in range(4):
        same(run(model, 6, **alone(inputs, row)), (sequences[row : row + 1], logits[row : row + 1]))


def test_pads_in_the_middle_keep_their_positions(model, inputs, run, alone):
    """Product, pads, starting material: what follows the pads stands where it stood."""
    whole = alone(inputs, 3)
    compact = dict(whole, input_ids=whole["input_ids"][:, whole["input_ids"][0] != PAD])
    places = (whole["input_ids"][0] != PAD).nonzero()[:, 0]
    same(run(model, 6, **compact, position_ids=places), run(model, 6, **whole))


def test_beams_of_row_alone_equal_beams_in_batch(model, inputs, alone):
    settings = {"num_beams": 3, "num_return_sequences": 2, "max_new_tokens": 6}
    settings |= {"return_dict_in_generate": True, "output_scores": True}
    batch = model.generate(**inputs, **settings)
    for row in range(4):
        single = model.generate(**alone(inputs, row), **settings)
        length = single.sequences.shape[1]
        found = batch.sequences[2 * row : 2 * row + 2]
        assert torch.equal(found[:, :length], single.sequences)
        # transformers fills with the end where the pad's id is 0
        assert torch.isin(found[:, length:], torch.tensor([PAD, END])).all()
        torch.testing.assert_close(batch.sequences_scores[2 * row : 2 * row + 2], single.sequences_scores, **CLOSE)


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
def test_padded_prefixes_equal_prefixes_alone(model, inputs, run, alone, settings):
    sequences, logits = run(model, 5, **inputs, **PADDED, **settings)
    assert torch.equal(sequences[:, :4], PREFIX)
    for row in range(4):
        prefix = PREFIX[row : row + 1, PREFIX[row] != PAD]
        single, expected = run(model, 5, **alone(inputs, row), decoder_input_ids=prefix, **settings)
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
