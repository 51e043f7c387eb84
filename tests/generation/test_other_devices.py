"""The fast path on another device than the CPU, without such a device: "meta" raises where devices meet."""

import pytest
import torch
import torch.fx.experimental._config as shapes

import weftformer
from weftformer.modeling.decoding.cache import DecodingCache
from weftformer.modeling.decoding.step import DecodeStep
from weftformer.modeling.generation import RefuseNonFiniteScores


class EnoughStepsError(Exception):
    pass


@pytest.fixture
def steps_on_meta(monkeypatch):
    """Values that the search reads are made up: numbers are 0, and conditions hold. Counts steps, and ends after 10."""
    seen = []
    step = DecodeStep.step

    def counted(self, *args, **kwargs):
        seen.append(self)
        if len(seen) > 10:
            raise EnoughStepsError
        return step(self, *args, **kwargs)

    made_up = {
        "tolist": lambda tensor: torch.zeros(tensor.shape, dtype=tensor.dtype).tolist(),
        "item": lambda tensor: 0, "__int__": lambda tensor: 0, "__bool__": lambda tensor: True,
    }  # fmt: skip
    for name, value in made_up.items():
        real = getattr(torch.Tensor, name)
        monkeypatch.setattr(torch.Tensor, name, lambda tensor, real=real, value=value:
                            value(tensor) if tensor.is_meta else real(tensor))  # fmt: skip
    monkeypatch.setattr(RefuseNonFiniteScores, "raise_if_nonfinite", lambda self: None)
    monkeypatch.setattr(DecodeStep, "step", counted)
    monkeypatch.setattr(DecodingCache, "SHARE_EVERY", 4)
    with shapes.patch(meta_nonzero_assume_all_nonzero=True):
        yield seen


CASES = [
    ("rotary", 1, 1),
    ("rotary", 3, 20),
    ("learned", 3, 1),
    ("sparse", 3, 1),
    ("relative", 3, 20),
    ("additive", 1, 20),
]


@pytest.mark.parametrize(("kind", "beams", "prefix"), CASES)
def test_steps_and_search_stay_on_the_device(build, steps_on_meta, kind, beams, prefix):
    model = build(kind)
    if kind == "sparse":
        model.set_experts_implementation("batched_mm")  # grouped products on "meta" take 16 bits alone
    model.to("meta").tie_weights()
    ids = torch.ones(2, 6, dtype=torch.long, device="meta")
    start = torch.ones(2, prefix, dtype=torch.long, device="meta")
    request = {"attention_mask": torch.ones_like(ids), "num_beams": beams, "max_new_tokens": 13}
    weftformer.fast_decoding(model)
    with pytest.raises(EnoughStepsError):
        model.generate(ids, decoder_input_ids=start, **request)
