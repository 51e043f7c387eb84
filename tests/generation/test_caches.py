"""Every cache gives the same results as none, and generation can continue from a cache."""

import pytest
import torch

from .conftest import CLOSE, PAD


@pytest.mark.parametrize(
    "settings", [{"cache_implementation": "static"}, {"cache_implementation": "dynamic"}], ids=str
)
def test_caches_equal_no_cache(model, inputs, run, settings):
    sequences, logits = run(model, 8, **inputs, use_cache=False)
    # twice: a static cache is as long as the longest request so far
    for steps in (8, 5):
        found, scores = run(model, steps, **inputs, **settings)
        assert torch.equal(found, sequences[:, : 1 + steps])
        torch.testing.assert_close(scores, logits[:, :steps], **CLOSE)


@torch.no_grad()
def test_steps_of_any_size_equal_one_forward(model, inputs):
    ids = torch.randint(3, 23, (4, 6), generator=torch.Generator().manual_seed(2))
    real = torch.ones(4, 6, dtype=torch.long)
    real[1, :1] = real[2, :2] = 0  # on the left, as many as two of the pieces hold
    expected = model(**inputs, decoder_input_ids=ids, decoder_attention_mask=real, use_cache=False).logits
    states = model.get_encoder()(**inputs)
    mask, cache, found, start, lengths = inputs["input_ids"] != PAD, None, [], 0, []
    projection = model.model.decoder.layers[0].encoder_attn.v_proj
    handle = projection.register_forward_hook(lambda module, args, output: lengths.append(args[0].shape[1]))
    for piece in (2, 3, 1):
        output = model(
            encoder_outputs=states,
            attention_mask=mask,
            decoder_input_ids=ids[:, start : start + piece],
            decoder_attention_mask=real[:, : start + piece],
            cache=cache,
            use_cache=True,
        )
        cache, start = output.cache, start + piece
        found.append(output.logits)
    handle.remove()
    assert lengths == [9]  # the source is projected once
    torch.testing.assert_close(torch.cat(found, dim=1)[real.bool()], expected[real.bool()], rtol=1e-10, atol=1e-10)
