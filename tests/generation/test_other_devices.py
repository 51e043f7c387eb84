"""The fast path on another device than the CPU, without such a device: "meta" raises where devices meet."""

import pytest
import torch
import torch.fx.experimental._config as shapes

import weftformer
from weftformer import WeftForConditionalGeneration
from weftformer.modeling import generation
from weftformer.modeling.decoding import dispatch
from weftformer.modeling.decoding.cache import DecodingCache
from weftformer.modeling.decoding.step import DecodeStep
from weftformer.modeling.generation import RefuseNonFiniteScores

KINDS = ["rotary", "learned", "sparse", "relative", "additive"]


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

    for name, made_up in {
        "tolist": lambda tensor: torch.zeros(tensor.shape, dtype=tensor.dtype).tolist(),
        "item": lambda tensor: 0,
        "__int__": lambda tensor: 0,
        "__bool__": lambda tensor: True,
    }.items():
        real = getattr(torch.Tensor, name)
        monkeypatch.setattr(
            torch.Tensor, name, lambda one, real=real, made_up=made_up: made_up(one) if one.is_meta else real(one)
        )
    monkeypatch.setattr(RefuseNonFiniteScores, "look", lambda self: None)
    monkeypatch.setattr(DecodeStep, "step", counted)
    monkeypatch.setattr(DecodingCache, "SHARE_EVERY", 4)
    with shapes.patch(meta_nonzero_assume_all_nonzero=True):
        yield seen


@pytest.mark.parametrize("prefix", [1, 20], ids=["own prefixes", "a shared prefix"])
@pytest.mark.parametrize("beams", [1, 3])
@pytest.mark.parametrize("kind", KINDS)
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
    assert steps_on_meta[0].compiled is None


def test_the_fast_path_of_another_device_is_off_by_default(build):
    model = build("rotary").to("meta")
    assert "`fast_decoding` was not called" in dispatch.reason_against_model(model)
    for _ in range(2):
        assert weftformer.fast_decoding(model) is model
        assert dispatch.reason_against_model(model) is None and not dispatch.is_compiled(model)
    weftformer.fast_decoding(model, compile=False)
    assert dispatch.reason_against_model(model) is not None
    split = build("rotary", tie_word_embeddings=False)
    split.lm_head.to("meta")
    with pytest.raises(ValueError, match="weights are on cpu and meta"):
        weftformer.fast_decoding(split)


def test_beams_leave_keys_and_values_of_their_source_in_place(build, source):
    """The plain path of beam search reorders the cache of the target alone, and writes the same."""
    model: WeftForConditionalGeneration = build("rotary")
    request = {"num_beams": 3, "max_new_tokens": 12, "min_new_tokens": 12, "return_dict_in_generate": True}
    found = model.generate(source, cache_implementation="dynamic", **request)
    assert torch.equal(found.sequences, model.generate(source, use_cache=False, **request).sequences)
    before = [layer.keys for layer in found.cache.cross_attention_cache.layers]
    order = torch.arange(len(found.sequences)).flip(0)
    model._reorder_cache(found.cache, order)
    assert all(
        layer.keys is keys for layer, keys in zip(found.cache.cross_attention_cache.layers, before, strict=True)
    )


def test_attention_of_cudnn_is_off_while_a_gpu_generates(build, source, monkeypatch):
    """Each token is a new length. The setting is the process's own, so it is restored."""
    model, seen = build("rotary"), []
    monkeypatch.setattr(type(model), "device", torch.device("cuda"))

    def fails(*args, **kwargs):
        seen.append(torch.backends.cuda.cudnn_sdp_enabled())
        raise EnoughStepsError

    monkeypatch.setattr(type(model), "_prepare_generation_config", fails)
    before = torch.backends.cuda.cudnn_sdp_enabled()
    try:
        for is_on in (True, False):
            torch.backends.cuda.enable_cudnn_sdp(is_on)
            with pytest.raises(EnoughStepsError):
                model.generate(source)
            assert torch.backends.cuda.cudnn_sdp_enabled() == is_on
    finally:
        torch.backends.cuda.enable_cudnn_sdp(before)
    assert seen == [False, False]


def test_overlapping_requests_share_the_setting_of_cudnn():
    """The last one to end restores it, in whichever thread it runs."""
    before = torch.backends.cuda.cudnn_sdp_enabled()
    first, second = generation._without_cudnn, generation._without_cudnn
    with first:
        first.__enter__()
        assert not torch.backends.cuda.cudnn_sdp_enabled()
        second.__exit__()
        assert not torch.backends.cuda.cudnn_sdp_enabled()
    assert torch.backends.cuda.cudnn_sdp_enabled() == before
