"""Features of all models: tables in one, two or three places, resizing, initial weights, number formats."""

import copy
import pickle

import pytest
import torch
from transformers import PreTrainedConfig, PreTrainedModel, Seq2SeqTrainingArguments

from weftformer import WeftForConditionalGeneration
from weftformer.training import WeftTrainer

from ..models import IDS, KINDS, LABELS, SPARSE, tiny_model

APART, OWN_HEAD = {"share_encoder_decoder_embeddings": False}, {"tie_word_embeddings": False}
VOCABULARIES = APART | {"decoder_vocab_size": 23}
# name: (fields, tables that are one and the same)
SHARING = {
    "one table": ({}, {"encoder", "decoder", "head"}),
    "one table, own head": (OWN_HEAD, {"encoder", "decoder"}),
    "two tables, tied head": (APART, {"decoder", "head"}),
    "two vocabularies, tied head": (VOCABULARIES, {"decoder", "head"}),
    "two vocabularies, own head": (VOCABULARIES | OWN_HEAD, set()),
}


def tables(model):
    return {
        "encoder": model.model.encoder.embed_tokens.weight,
        "decoder": model.model.decoder.embed_tokens.weight,
        "head": model.lm_head.weight,
    }


def check_sharing(model, together):
    found = tables(model)
    for first in found:
        for second in found:
            same = first == second or {first, second} <= together
            assert (found[first] is found[second]) == same, (first, second)
    if {"encoder", "decoder"} <= together:  # one weight, which each stack has too, as in BART
        assert model.model.shared.weight is found["encoder"]
        for owner in (model.model, model.get_encoder(), model.get_decoder()):
            assert any(weight is found["encoder"] for weight in owner.parameters())
            assert any("embed_tokens" in name for name in owner.state_dict())


def check_works(model):
    """Loss, gradients, and the last id of every table can be read."""
    source, target = model.config.vocab_size, model.config.target_vocab_size
    ids, labels = IDS.clone(), LABELS.clone()
    ids[0, 0], labels[0, 0] = source - 1, target - 1
    model.zero_grad()
    output = model(input_ids=ids, labels=labels)
    assert output.logits.shape == (2, 5, target) and output.loss.isfinite()
    output.loss.backward()
    for name, table in tables(model).items():
        assert table.shape[0] == (source if name == "encoder" else target), name
        assert table.grad is not None and table.grad[-1].abs().sum() > 0, name
    assert model.lm_head.out_features == target


def check_resized(model, before, together, sizes, folder):
    """Check the sizes of all tables in model and configuration, the kept rows, and all of it again after saving."""
    for name, table in tables(model).items():
        kept = min(len(table), len(before[name]))
        assert torch.equal(table[:kept], before[name][:kept]), name
    model.save_pretrained(folder)
    for one in (model, WeftForConditionalGeneration.from_pretrained(folder)):
        config = one.config
        assert config.vocab_size == config.get_text_config(encoder=True).vocab_size == sizes[0]
        assert config.target_vocab_size == config.get_text_config(decoder=True).vocab_size == sizes[1]
        check_sharing(one, together)
        check_works(one)


@pytest.mark.parametrize("size", [37, 19], ids=["grow", "shrink"])
@pytest.mark.parametrize("case", SHARING)
def test_resizing_changes_every_table_and_the_head(build, tmp_path, case, size):
    fields, together = SHARING[case]
    model = build(lm_head_bias=size == 37, **fields)
    before = {name: table.detach().clone() for name, table in tables(model).items()}
    separate = model.config.target_vocab_size != model.config.vocab_size
    model.resize_token_embeddings(size - 2, pad_to_multiple_of=size)  # rounds up
    check_resized(model, before, together, (size, 23 if separate else size), tmp_path)
    if separate:
        model.resize_decoder_token_embeddings(size)
        check_resized(model, before, together, (size, size), tmp_path)
        loaded = WeftForConditionalGeneration.from_pretrained(tmp_path)
        loaded.resize_token_embeddings(40)  # two of equal size stay two
        assert [len(table) for table in tables(loaded).values()] == [40, size, size]
    else:
        with pytest.raises(ValueError, match="share one vocabulary"):
            model.resize_decoder_token_embeddings(40)


def test_initial_weights_follow_glorot(small):
    torch.manual_seed(0)
    wide = {"d_model": 64, "encoder_ffn_dim": 192, "decoder_mlp_layer_types": "sparse", "mlp_bias": True,
            "lm_head_bias": True, "tie_word_embeddings": False, "attention_bias": True}  # fmt: skip
    model = WeftForConditionalGeneration(small(**wide))
    assert model.lm_head.weight.std().item() == pytest.approx((2 / (64 + 29)) ** 0.5, rel=0.1)
    layer = model.model.encoder.layers[0]
    assert layer.mlp.up_proj.weight.std().item() == pytest.approx((2 / 256) ** 0.5, rel=0.05)
    assert layer.self_attn.q_proj.weight.std().item() == pytest.approx((2 / 128) ** 0.5, rel=0.05)
    assert model.model.shared.weight.std().item() == pytest.approx(64**-0.5, rel=0.1)
    experts = model.model.decoder.layers[0].mlp.experts
    assert experts.gate_up_proj.std().item() == pytest.approx((2 / (64 + 48)) ** 0.5, rel=0.05)
    for name, parameter in model.named_parameters():
        if name.endswith("bias"):
            assert torch.equal(parameter, torch.zeros_like(parameter)), name
        elif "norm" in name:
            assert torch.equal(parameter, torch.ones_like(parameter)), name


def test_replaced_table_is_one_weight_in_all_places(build):
    for fields, together in (SHARING["one table"], SHARING["one table, own head"]):
        model = build(**fields)
        table = torch.nn.Embedding(29, 16, padding_idx=3).double().requires_grad_(False)
        model.set_input_embeddings(table)
        model.tie_weights()
        assert model.get_input_embeddings() is table
        for stack in (model.get_encoder(), model.get_decoder()):
            assert stack.embed_tokens.weight is table.weight and stack.embed_tokens.padding_idx == 3
        check_sharing(model.half().float(), together)
        assert not table.weight.requires_grad


@pytest.mark.parametrize("case", SHARING)
def test_functional_call_leaves_the_model_unchanged(build, case):
    """Whatever is computed with other weights, as `torch.func` does for gradients of samples and for ensembles."""
    fields, together = SHARING[case]
    model, call = build(**fields), {"input_ids": IDS, "labels": LABELS}
    zeros = {name: torch.zeros_like(weight) for name, weight in model.named_parameters()}
    assert not torch.func.functional_call(model, zeros, kwargs=call).logits.any()
    for one in (model, copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        check_sharing(one, together)
        check_works(one)


TRANSFORMED = KINDS | {
    "balanced": SPARSE | {"router_bias_update_rate": 0.1, "dropout": 0.0, "attention_dropout": 0.0},
    "limited capacity": SPARSE | {"expert_capacity_factor": 1.0},
}


@pytest.mark.parametrize("kind", TRANSFORMED)
def test_transforms_of_torch_func_give_what_a_loop_gives(kind):
    """Gradients of samples, as for differential privacy, and the scores of an ensemble."""
    models = [tiny_model(**TRANSFORMED[kind], random=True, seed=seed).train(kind == "balanced") for seed in range(2)]
    model, batch = models[0], {"input_ids": IDS, "attention_mask": (IDS != 0).long(), "labels": LABELS}
    batch |= {"decoder_attention_mask": LABELS.ne(-100).long(), "position_ids": torch.arange(6).expand(2, 6)}
    weights = {name: weight.detach() for name, weight in model.named_parameters()}

    def loss(weights, **row):
        row = {name: value[None] for name, value in row.items()}
        return torch.func.functional_call(model, weights, kwargs=row).loss

    per_row = torch.func.vmap(torch.func.grad(lambda weights, row: loss(weights, **row)), in_dims=(None, 0))
    found = per_row(weights, batch)
    for row in range(2):
        model.zero_grad()
        model(**{name: value[row : row + 1] for name, value in batch.items()}).loss.backward()
        for name, weight in model.named_parameters():
            if weight.grad is not None:
                torch.testing.assert_close(found[name][row], weight.grad, rtol=1e-3, atol=1e-5)
    with torch.no_grad():
        stacked, buffers = torch.func.stack_module_state(models)
        scores = torch.func.vmap(lambda *state: torch.func.functional_call(model, state, kwargs=batch).logits)(
            stacked, buffers
        )
        torch.testing.assert_close(scores, torch.stack([one(**batch).logits for one in models]), rtol=1e-4, atol=1e-4)


# settings, and whether they can be saved: greedy search ignores some, and JSON has no tuples as keys
SETTINGS = [
    ({"sequence_bias": {(5,): -9.0, (6, 7): 2.0}}, True),
    ({"exponential_decay_length_penalty": (3, 1.5), "num_beams": 2}, True),
    ({"bad_words_ids": [[5], [5, 6]], "eos_token_id": [2, 3, 4], "cache_implementation": "static"}, True),
    ({"temperature": 0.5}, False),
    ({"num_return_sequences": 2}, False),
]


@pytest.mark.parametrize(("settings", "is_saved"), SETTINGS, ids=str)
def test_settings_that_are_saved_write_the_same_after_loading(build, tmp_path, settings, is_saved):
    model = build(init_std=0.3)
    vars(model.generation_config).update({"max_length": 10, **settings})
    if is_saved:
        model.save_pretrained(tmp_path)
        models = model, WeftForConditionalGeneration.from_pretrained(tmp_path)
        first, second = (one.generate(torch.arange(3, 15).view(2, 6), disable_compile=True) for one in models)
        assert torch.equal(first, second)
        return
    for save in (
        model.save_pretrained,
        lambda folder: WeftTrainer(model, Seq2SeqTrainingArguments(folder, report_to="none")),
    ):
        with pytest.raises(ValueError):  # before a training, too
            save(tmp_path)


class Outer(PreTrainedModel):
    """A model of somebody else around a Weft, whose constructor ends as all of transformers do."""

    def __init__(self, text):
        super().__init__(PreTrainedConfig())
        self.text = text
        self.bridge = torch.nn.Linear(4, 4)
        self.post_init()

    def _init_weights(self, module):
        if isinstance(module, (torch.nn.Linear, torch.nn.Embedding)):
            torch.nn.init.normal_(module.weight)


def _set_tables(model):
    width = model.config.d_model
    model.set_input_embeddings(torch.nn.Embedding(35, width))
    if not model.config.tie_word_embeddings:
        model.set_output_embeddings(torch.nn.Linear(width, 35, bias=False))
    model.tie_weights()


CHANGES = {
    "nothing": lambda model: None,
    "resized": lambda model: model.resize_token_embeddings(44),
    "target resized": lambda model: model.config.has_two_vocabularies and model.resize_decoder_token_embeddings(44),
    "set": _set_tables,
}


@pytest.mark.parametrize("loads", [False, True], ids=["built", "loaded"])
@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("kind", SHARING)
def test_trained_weights_survive_the_constructor_of_a_model_around(build, tmp_path, kind, change, loads):
    model = build(**SHARING[kind][0])
    if loads:
        model.save_pretrained(tmp_path)
        model = type(model).from_pretrained(tmp_path)
    CHANGES[change](model)
    before = {name: weight.clone() for name, weight in model.state_dict().items()}
    Outer(model)
    for name, weight in model.state_dict().items():
        assert torch.equal(weight, before[name]), name


def test_experts_removed_in_place(build, tmp_path):
    model = build(**SPARSE, num_experts=4)

    def prune(blocks, rows):
        for block in blocks:
            for name, weight in [*block.experts.named_parameters(recurse=False)]:
                setattr(block.experts, name, torch.nn.Parameter(weight[rows].detach().clone()))
            classifier = block.router.classifier
            classifier.weight = torch.nn.Parameter(classifier.weight[rows].detach().clone())
            block.experts.num_experts = block.router.num_experts = len(rows)

    blocks = [layer.mlp for stack in (model.model.encoder, model.model.decoder) for layer in stack.layers]
    prune(blocks[:1], [0, 2, 3])
    with pytest.raises(ValueError, match="3, 4 experts"):
        model.save_pretrained(tmp_path)
    prune(blocks[1:], [0, 2, 3])
    with pytest.raises(ValueError, match=r"has num_experts=4, but the model has 3.*`model\.config\.num_experts` to 3"):
        model.save_pretrained(tmp_path)
    model.config.num_experts = 3
    model.save_pretrained(tmp_path)
    loaded = type(model).from_pretrained(tmp_path)
    torch.testing.assert_close(*(one(input_ids=IDS, labels=LABELS).logits for one in (loaded, model)))
