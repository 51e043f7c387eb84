"""PyTorch's own transformer: what is peculiar to it. `test_parity.py` compares outputs, gradients and weights."""

import pytest
import torch

from weftformer.conversion import SOURCES, convert, export

from .references.torch_transformer import HEADS, WIDTH, build

TORCH = SOURCES["torch"]
FIELDS = {"encoder_attention_heads": HEADS, "decoder_attention_heads": HEADS}


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
