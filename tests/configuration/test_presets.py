"""The named sizes. `tests/conversion/test_sources.py` compares those of DirectMultiStep with its own files."""

from functools import cache

import pytest
import torch
from torch import nn

from weftformer import WeftConfig, WeftForConditionalGeneration
from weftformer.configuration import PRESETS
from weftformer.configuration.derived import NUMBERS


@cache
def build(name: str) -> WeftForConditionalGeneration:
    with torch.device("meta"):
        return WeftForConditionalGeneration(WeftConfig.from_preset(name))


def parameters(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


def test_transformer_base_has_the_published_number_of_parameters():
    d, ffn = 512, 2048
    attention, norm, feed_forward = 4 * (d * d + d), 2 * d, 2 * d * ffn + ffn + d
    expected = 37000 * d + 6 * (attention + feed_forward + 2 * norm) + 6 * (2 * attention + feed_forward + 3 * norm)
    assert parameters(build("transformer-base")) == expected
    assert expected / 1e6 == pytest.approx(63, abs=2)  # "65" in their table 3, with positions and a larger vocabulary


@pytest.mark.parametrize("name", PRESETS)
def test_presets_build_and_equal_their_file(name, tmp_path):
    config = WeftConfig.from_preset(name)
    config.save_pretrained(tmp_path)
    loaded, given = WeftConfig.from_pretrained(tmp_path).to_diff_dict(), config.to_diff_dict()
    assert loaded | {"auto_map": None} == given | {"auto_map": None}
    assert parameters(build(name)) > 1e6
    assert all(isinstance(getattr(config.get_text_config(decoder=True), field), int) for field in NUMBERS)
