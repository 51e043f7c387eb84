"""Adapters of PEFT affect every generated token."""

import copy

import pytest
import torch

peft = pytest.importorskip("peft")

REQUESTS = [{"num_beams": 1}, {"num_beams": 3}]
LENGTH = {"min_new_tokens": 8, "max_new_tokens": 8}
TIED = {"tie_word_embeddings": True}


def lora(**settings):
    return peft.LoraConfig(task_type="SEQ_2_SEQ_LM", r=2, **settings)


# Kind of model, adapter, fields of the configuration.
ADAPTERS = {
    "attention": ("rotary", lora(target_modules=["q_proj", "v_proj"])),
    "DoRA of the feed-forward": ("rotary", lora(target_modules=["up_proj", "down_proj"], use_dora=True)),
    "experts": ("sparse", lora(target_modules=[], target_parameters=["experts.down_proj"])),
    "one shared table": ("rotary", lora(target_modules=["shared"])),
    "all tables": ("rotary", lora(target_modules=["q_proj"], modules_to_save=["embed_tokens", "lm_head"])),
    "shared table trained": ("rotary", lora(target_modules=["q_proj"], modules_to_save=["shared"])),
    "tokens": ("larger target", lora(target_modules=["q_proj"], trainable_token_indices={"embed_tokens": [5, 6, 9]})),
    "tokens only": ("rotary", peft.TrainableTokensConfig(task_type="SEQ_2_SEQ_LM", token_indices=[5, 6, 9])),
    "tokens of a tied head": ("rotary", lora(target_modules=["q_proj"], trainable_token_indices=[5, 6, 9]), TIED),
    "tokens only, of a tied head": (
        "rotary", peft.TrainableTokensConfig(task_type="SEQ_2_SEQ_LM", token_indices=[5, 6, 9]), TIED
    ),
    "tokens of a shared table": ("rotary", lora(target_modules=["q_proj"], trainable_token_indices=[5, 6, 9])),
    "norms and head": ("rotary", lora(target_modules=["q_proj"], modules_to_save=["final_layer_norm", "lm_head"])),
    "IA3": ("rotary", peft.IA3Config(
        task_type="SEQ_2_SEQ_LM", target_modules=["v_proj", "down_proj"], feedforward_modules=["down_proj"])),
    "prefix": (
        "rotary", peft.PrefixTuningConfig(task_type="SEQ_2_SEQ_LM", num_virtual_tokens=3), {"num_key_value_heads": 2}
    ),
}  # fmt: skip


def plain_model(build, name):
    kind, _, *fields = ADAPTERS[name]
    return build(kind, **(fields[0] if fields else {}))


def adapted(build, name):
    model = peft.get_peft_model(plain_model(build, name), ADAPTERS[name][1])
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    generator = torch.Generator().manual_seed(4)
    with torch.no_grad():
        for parameter in trained:
            parameter.add_(torch.randn(parameter.shape, generator=generator) * 0.3)
    return model.eval()


def written(model, source, request, **settings):
    return model.generate(input_ids=source, attention_mask=(source != 0).long(), **LENGTH, **request, **settings)


FAST = ("attention", "experts", "shared table trained", "tokens only", "prefix")


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in FAST else pytest.mark.integration) for name in ADAPTERS]
)
def test_adapters_change_both_paths_alike(build, source, name):
    model, plain = adapted(build, name), plain_model(build, name)
    # a prefix is a cache
    reference = {"cache_implementation": "dynamic"} if name == "prefix" else {"use_cache": False}
    for request in REQUESTS:
        found = written(model, source, request)
        assert torch.equal(found, written(model, source, request, **reference))
        assert not torch.equal(found, written(plain, source, request))


# the head is untied from the table that an adapter of its own changes
MERGED = [name for name in ADAPTERS if name != "prefix"]
MERGED_FAST = ("tokens only, of a tied head", "tokens of a shared table", "IA3")


@pytest.mark.filterwarnings("ignore:Input and output embeddings are no longer tied", "ignore:Model has")
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in MERGED_FAST else pytest.mark.integration) for name in MERGED]
)
def test_adapters_are_merged_and_loaded_as_they_are(build, source, name, tmp_path):
    batch = {"input_ids": source, "labels": source[:, :6]}
    plain = plain_model(build, name)
    expected = plain(**batch).logits
    begun = peft.get_peft_model(plain_model(build, name), ADAPTERS[name][1]).eval()
    torch.testing.assert_close(begun(**batch).logits, expected)
    model = adapted(build, name)
    expected = model(**batch).logits
    model.save_pretrained(tmp_path)
    torch.testing.assert_close(peft.PeftModel.from_pretrained(plain, tmp_path).eval()(**batch).logits, expected)
    torch.testing.assert_close(model.merge_and_unload()(**batch).logits, expected)


@pytest.mark.parametrize(
    "settings",
    [
        {"trainable_token_indices": [5, 6]},
        {"trainable_token_indices": {"lm_head": [5, 6]}},
        {"modules_to_save": ["embed_tokens"], "ensure_weight_tying": True},
    ],
    ids=["tokens of a tied table", "tokens of the head", "tied table"],
)
def test_adapter_that_leaves_out_the_bias_of_the_head_is_refused(build, source, settings):
    def adapt(model):
        return peft.get_peft_model(model, lora(target_modules=["q_proj"], **settings)).eval()

    model = build("rotary", lm_head_bias=True, **TIED)
    with pytest.raises(ValueError, match=r"bias of the head.*modules_to_save"):
        adapt(copy.deepcopy(model))
    model.lm_head.bias.data.zero_()
    expected = model(input_ids=source, labels=source).logits
    torch.testing.assert_close(adapt(model)(input_ids=source, labels=source).logits, expected)
