"""PyTorch's own transformer: what is peculiar to it. `test_parity.py` compares outputs, gradients and weights."""

import pytest
import torch

from weftformer.conversion import SOURCES, convert, export

from .references.torch_transformer import HEADS, WIDTH, build, draw, reference

TORCH = SOURCES["torch"]
FIELDS = {"encoder_attention_heads": HEADS, "decoder_attention_heads": HEADS}


@pytest.mark.dtype(torch.float64)
@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_the_fast_path_of_inference():
    """Without gradients torch runs its encoder's layers as one kernel over nested tensors, with zeros for the pads."""
    one = reference("transformer")
    inputs, there, here = draw("transformer")
    pads = there["src_key_padding_mask"]
    there |= {"memory_key_padding_mask": pads, "memory_mask": None}
    del here["encoder_attention_mask"]  # then it is the source's
    with torch.no_grad():
        states = one.module.encoder(inputs["inputs_embeds"], src_key_padding_mask=pads)
        # it ran, and skipped the pads
        assert torch.equal(states[pads], one.module.encoder.norm.bias.expand_as(states[pads]))
        found = one.converted().build()(**inputs, **here)
        torch.testing.assert_close(found.encoder_last_hidden_state[~pads], states[~pads], atol=1e-12, rtol=0)
        expected = one.module(*inputs.values(), **there)
        torch.testing.assert_close(found.last_hidden_state, expected, atol=1e-12, rtol=0)


@pytest.mark.parametrize("mixed", [False, True])
def test_no_value_is_rounded(mixed):
    weights = {key: tensor.double() + 1e-12 for key, tensor in build("encoder").state_dict().items()}
    if mixed:
        weights["layers.0.norm1.bias"] = weights["layers.0.norm1.bias"].float()
    model = convert(weights, TORCH, overrides=FIELDS).build()
    # the embeddings too, which the source does not have
    assert {parameter.dtype for parameter in model.parameters()} == {torch.float64}
    back = {key.removeprefix("encoder."): tensor for key, tensor in export(model, TORCH).items()}
    assert all(torch.equal(back[key], tensor.double()) for key, tensor in weights.items())


def test_only_the_embeddings_are_new():
    conversion = convert(build("transformer").state_dict(), TORCH, overrides=FIELDS | {"vocab_size": 11})
    assert conversion.found.new == ["model.shared.weight"]
    first, second, third = (conversion.build(seed).shared.weight for seed in (0, 0, 1))
    assert first.shape == (11, WIDTH) and torch.equal(first, second) and not torch.equal(first, third)


@pytest.mark.parametrize("given", [*FIELDS, None])
def test_heads_have_to_be_given(given):
    missing = [name for name in FIELDS if name != given]
    with pytest.raises(ValueError, match=f"do not contain {' and '.join(missing)}: give .*--heads N"):
        convert(build("transformer").state_dict(), TORCH, overrides={given: HEADS} if given else {})
