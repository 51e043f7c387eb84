"""What is shown is what the model computed: weights of the right layer and head, experts of the right token, no pads."""

import pytest
import torch

from weftformer.demo import look
from weftformer.modeling.moe import Router
from weftformer.tokenization import encode_route, encode_source

TEXT = "one two three"


@pytest.fixture
def ids(text_task):
    source = text_task.tokenizer(TEXT)["input_ids"]
    return source, [text_task.model.config.decoder_start_token_id, *text_task.tokenizer("two one")["input_ids"]]


def test_the_weights_are_those_of_each_layer_and_head(text_task, ids):
    source, target = ids
    found = look(text_task.model, text_task.tokenizer, source, target)
    text_task.model.set_attn_implementation("eager")
    try:
        outputs = text_task.model(
            torch.tensor([source]), decoder_input_ids=torch.tensor([target[:-1]]), output_attentions=True
        )
    finally:
        text_task.model.set_attn_implementation("sdpa")
    expected = torch.stack([layer[0] for layer in outputs.cross_attentions])
    torch.testing.assert_close(found.attention_LHTS, expected)
    assert found.attention_LHTS.shape == (2, 4, len(target) - 1, len(source))
    assert expected.std(dim=(0, 1)).max() > 0.01  # layers and heads differ, or the next lines could not fail
    torch.testing.assert_close(found.attention(1, 2), expected[1, 2])
    torch.testing.assert_close(found.attention(1), expected[1].mean(dim=0))
    torch.testing.assert_close(found.attention(head=3), expected[:, 3].mean(dim=0))
    torch.testing.assert_close(found.attention(), expected.mean(dim=(0, 1)))


def test_tokens_are_shown_as_text(text_task, ids):
    found = look(text_task.model, text_task.tokenizer, *ids)
    assert "".join(found.source) == "one␣two␣three</s>"
    assert "".join(found.read) == "<s>two␣one" and "".join(found.written) == "two␣one</s>"
    # half of a letter is no text: it keeps its name
    half = text_task.tokenizer("é")["input_ids"]
    assert len(half) == 3 and look(text_task.model, text_task.tokenizer, half, ids[1]).source[:2] == ["Ã", "©"]


def test_the_experts_are_those_that_the_router_chose(text_task, ids):
    chosen = []
    routers = [module for module in text_task.model.modules() if isinstance(module, Router)]
    hooks = [
        router.register_forward_hook(lambda module, inputs, output: chosen.append((output[0], output[2])))
        for router in routers
    ]
    try:
        found = look(text_task.model, text_task.tokenizer, *ids)
    finally:
        for hook in hooks:
            hook.remove()
    assert [layer.layer for layer in found.encoder] == [0] and [layer.layer for layer in found.decoder] == [1]
    for layer, (logits, experts), tokens in zip(
        (*found.encoder, *found.decoder), chosen, (found.source, found.read), strict=True
    ):
        assert layer.ids_NK.tolist() == experts.tolist() and len(experts) == len(tokens)
        torch.testing.assert_close(layer.probs_NK, logits.softmax(dim=-1).topk(2).values)


def test_pads_in_the_middle_of_a_source_are_left_out(route_task):
    tokenizer = route_task.planner.tokenizer
    source = encode_source(tokenizer, "CCO", "C=C")
    target = [tokenizer.bos_token_id, *encode_route(tokenizer, "{'smiles':'CCO'}")]
    found = look(route_task.model, tokenizer, source, target, [1.0])
    assert "".join(found.source) == "<SOS>CCO?<SOS>C=C?" and len(source) > 140
    assert "".join(found.written) == "{'smiles':'CCO'}?"
    torch.testing.assert_close(found.attention().sum(dim=-1), torch.ones(len(target) - 1))
    assert found.encoder == found.decoder == []  # dense
    other = look(route_task.model, tokenizer, source, target, [4.0])
    assert not torch.allclose(found.attention(), other.attention())  # it is told the number of steps


def test_the_model_is_left_as_it_was(text_task, ids):
    look(text_task.model, text_task.tokenizer, *ids)
    assert text_task.model.config._attn_implementation == "sdpa"
    with pytest.raises(ValueError):
        look(text_task.model, text_task.tokenizer, [10**6], ids[1])
    assert text_task.model.config._attn_implementation == "sdpa"
