"""Selection biases move once an optimizer step, and code is put where it is pushed from, whatever wraps the model."""

from types import SimpleNamespace

import pytest
import torch
from peft import LoraConfig, get_peft_model

from weftformer import WeftConfig, WeftForConditionalGeneration
from weftformer.hub.export import flat_files
from weftformer.training import PushCodeCallback, RouterBiasCallback

RATE = 0.01


@pytest.fixture
def model():
    torch.manual_seed(0)
    config = WeftConfig(
        vocab_size=20, d_model=16, encoder_layers=1, decoder_layers=1, encoder_attention_heads=2,
        decoder_attention_heads=2, encoder_ffn_dim=16, decoder_ffn_dim=16, decoder_mlp_layer_types="sparse",
        num_experts=4, router_bias_update_rate=RATE,
    )  # fmt: skip
    return WeftForConditionalGeneration(config).train()


def _forward(model):
    ids = torch.randint(3, 20, (4, 6))
    model(input_ids=ids, labels=ids)


def _biases(model):
    return torch.cat([router.selection_bias for router in model.routers()])


def _step(wrapped):
    RouterBiasCallback().on_optimizer_step(None, None, None, model=wrapped, optimizer=None)


def test_against_the_load_of_all_batches_since_the_last_step(model):
    for _ in range(3):
        _forward(model)
    (router,) = model.routers()
    load = router.expert_load.clone()
    assert load.sum() == 3 * 4 * 6 * model.config.num_experts_per_tok
    _step(model)
    assert torch.equal(_biases(model), RATE * torch.sign(load.mean() - load))
    assert router.expert_load.sum() == 0


@pytest.mark.parametrize(
    "wrap",
    [
        torch.nn.DataParallel,
        lambda model: torch.compile(model, backend="eager"),
        lambda model: get_peft_model(model, LoraConfig(target_modules=["q_proj"])),
    ],
    ids=["parallel", "compiled", "peft"],
)
def test_through_wrappers(model, wrap):
    _forward(model)
    _step(wrap(model))
    assert _biases(model).abs().max() == RATE


def test_nothing_to_do_for_a_dense_model():
    config = WeftConfig(vocab_size=8, d_model=8, encoder_layers=1, decoder_layers=1, encoder_attention_heads=2,
                        decoder_attention_heads=2, encoder_ffn_dim=8, decoder_ffn_dim=8)  # fmt: skip
    model = WeftForConditionalGeneration(config)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    _step(model)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


@pytest.mark.parametrize(
    ("wrap", "is_first", "has_code"),
    [
        (torch.nn.DataParallel, True, True),
        (torch.nn.DataParallel, False, False),
        (lambda model: torch.compile(model, backend="eager"), True, True),
        # what is pushed is the adapter, which names no code
        (lambda model: get_peft_model(model, LoraConfig(target_modules=["q_proj"])), True, False),
    ],
    ids=["parallel", "not the first process", "compiled", "peft"],
)
def test_the_code_of_the_model_is_put_where_it_is_pushed_from(wrap, is_first, has_code, model, tmp_path):
    args, state = SimpleNamespace(output_dir=str(tmp_path)), SimpleNamespace(is_world_process_zero=is_first)
    PushCodeCallback().on_push_begin(args, state, None, model=wrap(model))
    assert {path.name for path in tmp_path.iterdir()} == (set(flat_files()) if has_code else set())
