"""Files of DirectMultiStep 1.1.3: settings read from keys and shapes, the way back, and files that do not fit."""

import pytest
import torch

from weftformer import WeftConfig
from weftformer.conversion import SOURCES, convert

from .references.directmultistep import DENSE, SPARSE, both, build, preset_of, published, saved

DMS = SOURCES["dms"]
ALIKE = ("flex_20M", "explorer_19M")  # in every shape
QUICK = ("flash_20M", "explorer_19M")
# the package's way to its own files
pytestmark = pytest.mark.filterwarnings("ignore:path is deprecated")


def two_layers(name):
    """Return the recipe at a small size."""
    return both(published(name), hid_dim=64, n_layers=2)


def shapes(config):
    """Return weights that are only shapes, to have the published sizes in no time."""
    with torch.device("meta"):
        return build(config, "meta").state_dict()


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=() if name in QUICK else pytest.mark.integration) for name in (*DENSE, *SPARSE)],
)
def test_published_shapes_tell_the_preset(name):
    config, preset = published(name), preset_of(name)
    weights, fields = shapes(config), WeftConfig.from_preset(preset).to_dict()
    if name in ALIKE:
        with pytest.raises(ValueError, match=r"dms-flex-20m and dms-explorer-19m.*`--preset`"):
            convert(weights, DMS)
    else:
        assert convert(weights, DMS).config.to_dict() == fields
    assert convert(weights, DMS, preset=preset).config.to_dict() == fields
    assert convert(weights, DMS, source_config=saved(config)).config.to_dict() == fields


@pytest.mark.parametrize("fields", [{"ff_activation": "relu"}, {"top_k": 1}], ids=str)
def test_what_weft_has_once_has_to_agree_in_both_stacks(fields):
    config = two_layers("flex_20M")
    ((name, value),) = fields.items()
    setattr(config.decoder, name, value)
    with pytest.raises(ValueError, match=name):
        convert(build(config).state_dict(), DMS, source_config=saved(config))
