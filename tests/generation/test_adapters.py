"""Adapters of PEFT affect every generated token."""

import pytest
import torch

peft = pytest.importorskip("peft")

REQUESTS = [{"num_beams": 1}, {"num_beams": 3}]
LENGTH = {"min_new_tokens": 8, "max_new_tokens": 8}


def lora(**settings):
    return peft.LoraConfig(task_type="SEQ_2_SEQ_LM", r=2, **settings)


# Kind of model, adapter.
ADAPTERS = {
    "attention": ("rotary", lora(target_modules=["q_proj", "v_proj"])),
    "DoRA of the feed-forward": ("rotary", lora(target_modules=["up_proj", "down_proj"], use_dora=True)),
    "experts": ("sparse", lora(target_modules=[], target_parameters=["experts.down_proj"])),
    "one shared table": ("rotary", lora(target_modules=["shared"])),
    "all tables": ("rotary", lora(target_modules=["q_proj"], modules_to_save=["embed_tokens", "lm_head"])),
    "shared table trained": ("rotary", lora(target_modules=["q_proj"], modules_to_save=["shared"])),
    "tokens": ("larger target", lora(target_modules=["q_proj"], trainable_token_indices={"embed_tokens": [5, 6, 9]})),
    "norms and head": ("rotary", lora(target_modules=["q_proj"], modules_to_save=["final_layer_norm", "lm_head"])),
    "prefix": ("rotary", peft.PrefixTuningConfig(task_type="SEQ_2_SEQ_LM", num_virtual_tokens=3)),
}


def adapted(build, name):
    kind, settings = ADAPTERS[name]
    model = peft.get_peft_model(build(kind, **({"num_key_value_heads": 2} if name == "prefix" else {})), settings)
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    generator = torch.Generator().manual_seed(4)
    with torch.no_grad():
        for parameter in trained:
            parameter.add_(torch.randn(parameter.shape, generator=generator) * 0.3)
    return model.eval()


def written(model, source, request, **settings):
    return model.generate(input_ids=source, attention_mask=(source != 0).long(), **LENGTH, **request, **settings)


FAST = ("attention", "experts", "shared table trained", "prefix")


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in FAST else pytest.mark.integration) for name in ADAPTERS]
)
def test_adapters_change_both_paths_alike(build, source, name):
    model, plain = adapted(build, name), build(ADAPTERS[name][0])
    # a prefix is a cache
    reference = {"cache_implementation": "dynamic"} if name == "prefix" else {"use_cache": False}
    for request in REQUESTS:
        found = written(model, source, request)
        assert torch.equal(found, written(model, source, request, **reference))
        assert not torch.equal(found, written(plain, source, request))
