"""Masks: literal pictures of the tokens that see each other, and the use of masks in the model."""

import pytest
import torch
from torch.nn.attention.flex_attention import BlockMask, create_mask
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS

from weftformer.modeling.attention import new_cache
from weftformer.modeling.masks import bidirectional_mask, decoder_mask

from ..models import IDS

pytestmark = pytest.mark.dtype(torch.float64)

IMPLEMENTATIONS = ["eager", "sdpa", "flex_attention"]
MASKED_VALUES = [float("-inf"), torch.finfo(torch.float32).min, -1e30, -1e9, -1e4]


def picture(text):
    """Return the rows of a mask, with '#' where a query sees a key."""
    return torch.tensor([[c == "#" for c in row] for row in text.split()])


def seen(mask, batch, queries, keys):
    """Return a mask of any implementation as (B, H or 1, L, M), True where a query sees a key."""
    if isinstance(mask, BlockMask):
        return create_mask(mask.mask_mod, batch, 1, queries, keys, device="cpu")
    if mask.dtype != torch.bool:
        assert set(mask.unique().tolist()) <= {0.0, torch.finfo(mask.dtype).min, float("-inf")}
        mask = mask == 0
    return mask.expand(batch, -1, queries, keys)


@pytest.fixture
def config_of(small):
    def make(implementation, **fields):
        config = small(**fields)
        config._attn_implementation = implementation
        return config

    return make


def filled_cache(config):
    cache = new_cache(config).self_attention_cache
    cache.update(torch.zeros(2, 4, 2, 4), torch.zeros(2, 4, 2, 4), 0)
    return cache


def not_causal(config):
    config.is_causal = False
    return config


STATES = torch.zeros(2, 4, 16)
# the mask that a stack builds, the tokens that are no pads, and who sees whom in the two rows
PICTURES = {
    "encoder": (
        lambda config, mask: bidirectional_mask(config, STATES, mask),
        [[1, 0, 1, 0], [0, 1, 1, 1]], ["#.#. " * 4, ".### " * 4]),
    "decoder": (
        lambda config, mask: decoder_mask(config, STATES, mask, None),
        [[1, 1, 0, 1], [0, 0, 1, 1]], ["#... ##.. ##.. ##.#", ".... .... ..#. ..##"]),
    "cached": (
        lambda config, mask: decoder_mask(config, STATES[:, :3], mask, filled_cache(config)),
        [[0, 1, 1, 1, 1], [1, 1, 1, 1, 0]], [".##.. .###. .####", "###.. ####. ####."]),
    "not causal": (
        lambda config, mask: decoder_mask(not_causal(config), STATES[:, :3], mask, None),
        [[1, 1, 1], [1, 0, 1]], ["### " * 3, "#.# " * 3]),
    "cross": (
        lambda config, mask: bidirectional_mask(config, STATES[:, :3], mask, STATES),
        [[1, 0, 1, 1], [1, 1, 0, 0]], ["#.## " * 3, "##.. " * 3]),
}  # fmt: skip


@pytest.mark.parametrize(
    ("case", "implementation"),
    [*((case, one) for case in PICTURES for one in IMPLEMENTATIONS), ("cross", "flash_attention_2")],
)
def test_masks_equal_pictures(config_of, eager_flex, case, implementation):
    build_mask, mask, pictures = PICTURES[case]
    expected = torch.stack([picture(one) for one in pictures])[:, None]
    result = build_mask(config_of(implementation), torch.tensor(mask))
    assert torch.equal(seen(result, 2, *expected.shape[2:]), expected)


def test_sdpa_without_pads_has_no_mask(config_of):
    """Only without a mask does SDPA take all of its fast kernels."""
    config = config_of("sdpa")
    assert bidirectional_mask(config, STATES, None) is None
    assert decoder_mask(config, STATES, None, None) is None
    assert bidirectional_mask(config, STATES[:, :3], None, STATES) is None


@pytest.mark.parametrize("value", MASKED_VALUES)
def test_additive_masks_of_usual_constants(config_of, value):
    shown = picture("#.# ... ##.")[None, None]
    given = torch.zeros(1, 1, 3, 3).masked_fill(~shown, value)
    given[..., 0, 0] = 0.5
    expected = given.masked_fill(~shown, float("-inf"))
    for implementation in IMPLEMENTATIONS:
        result = bidirectional_mask(config_of(implementation), torch.zeros(1, 3, 16), given)
        assert torch.equal(result, expected)


def test_flash_refuses_4d_masks(config_of):
    config, mask = config_of("flash_attention_2"), torch.ones(1, 1, 3, 3, dtype=torch.bool)
    for given in ((bidirectional_mask, config, STATES, mask), (decoder_mask, config, STATES, mask, None)):
        with pytest.raises(ValueError, match="flash_attention_2"):
            given[0](*given[1:])


TARGET = torch.tensor([[1, 4, 5, 6], [1, 7, 8, 9]])


def given_masks(form, heads, batch=2):
    """Draw 4-D masks for encoder, decoder and cross-attention, each with a row that sees nothing."""
    generator = torch.Generator().manual_seed(3)
    shapes = {"attention_mask": (6, 6), "decoder_attention_mask": (4, 4), "encoder_attention_mask": (4, 6)}
    masks = {}
    for name, (queries, keys) in shapes.items():
        shown = torch.rand(batch, heads, queries, keys, generator=generator) > 0.4
        shown[..., 0] = True
        shown[:, :, 2] = False
        masks[name] = shown
        if form == "additive":
            bias = torch.randn(shown.shape, generator=generator)
            masks[name] = bias.masked_fill(~shown, torch.finfo(torch.float32).min)
    return masks


@pytest.mark.parametrize("implementation", ["sdpa", "flex_attention"])
@pytest.mark.parametrize(
    ("form", "kind", "heads", "batch"),
    [
        ("boolean", "rotary", 1, 2),
        ("boolean", "bucketed", 4, 1),
        ("additive", "relative", 4, 2),
        ("additive", "rotary", 4, 1),
    ],
)
def test_4d_masks_of_all_implementations_are_equal(build, eager_flex, form, kind, heads, batch, implementation):
    fields = {"self_attention_position_type": kind, "cross_attention_position_type": kind, "num_key_value_heads": 2}
    masks, call = given_masks(form, heads, batch), {"input_ids": IDS, "decoder_input_ids": TARGET}
    model = build(**fields)
    expected = model(**call, **masks).logits
    assert expected.isfinite().all()
    logits = build(attention=implementation, **fields)(**call, **masks).logits
    torch.testing.assert_close(logits, expected, atol=1e-10, rtol=1e-10)
    for name, mask in masks.items():  # each of the three counts, and each head of it
        for other in (None, mask[:, :1]) if heads > 1 else (None,):
            assert (model(**call, **masks | {name: other}).logits - expected).abs().max() > 1e-3, name


def test_a_mask_function_of_the_user_gets_the_configuration(config_of, monkeypatch):
    received = []
    monkeypatch.setitem(
        ALL_MASK_ATTENTION_FUNCTIONS._global_mapping, "eager", lambda **given: received.append(given["config"])
    )
    config = config_of("eager")
    bidirectional_mask(config, STATES, torch.tensor([[1, 1, 1, 0]]).bool().expand(STATES.shape[0], -1))
    assert received == [config]
