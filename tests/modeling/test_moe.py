"""Routers, experts and the block, against their formulas."""

import copy
import pickle

import pytest
import torch
from transformers.integrations import moe as moe_integration

from weftformer import WeftForConditionalGeneration
from weftformer.modeling import moe
from weftformer.modeling.losses import expert_load
from weftformer.modeling.moe import ExpertsBase, NoisyTopKRouter, Router, SparseFeedForward

from ..models import assert_same_gradients

pytestmark = pytest.mark.dtype(torch.float64)

TOKENS = 9
# torch has no grouped_mm of 64 bits
GROUPED = pytest.param("grouped_mm", marks=pytest.mark.dtype(torch.float32))
SORTED = pytest.param("sorted", marks=pytest.mark.dtype(torch.float32))
BACKENDS = ["eager", "batched_mm", GROUPED, SORTED]


def tolerance_of(output):
    # in 32 bits 3e-6 were seen
    return 1e-10 if output.dtype == torch.float64 else 5e-5


def assert_close(found, expected):
    tolerance = tolerance_of(expected)
    torch.testing.assert_close(found, expected, atol=tolerance, rtol=tolerance)


def mixed(experts, tokens, ids, weights, gated, bias):
    """Add up all experts, from the raw parameters. An index past the last expert adds nothing."""
    name, total = "gate_up_proj" if gated else "up_proj", torch.zeros_like(tokens)
    for index in range(experts.num_experts):
        hidden = tokens @ getattr(experts, name)[index].T + (getattr(experts, f"{name}_bias")[index] if bias else 0)
        gate, up = hidden.chunk(2, dim=-1) if gated else (hidden, 1)
        output = (gate * gate.sigmoid() * up) @ experts.down_proj[index].T
        output = output + (experts.down_proj_bias[index] if bias else 0)
        total = total + (weights * (ids == index)).sum(1, keepdim=True) * output
    return total


@pytest.fixture
def block(small, lopsided, monkeypatch):
    def make(seed=0, implementation="eager", ffn_dim=12, **fields):
        if implementation == "sorted":  # the way of "grouped_mm" for many rows on a CPU
            monkeypatch.setattr(moe, "_SORTED_ROWS", 0)
            implementation = "grouped_mm"
        config = small(**fields)
        config._experts_implementation = implementation
        return lopsided(SparseFeedForward(config, ffn_dim), seed)

    return make


@pytest.fixture
def router(small, lopsided):
    def make(router_class=Router, **fields):
        return lopsided(router_class(small(**fields)))

    return make


@pytest.fixture
def tokens():
    return torch.randn(TOKENS, 16, generator=torch.Generator().manual_seed(1))


# --- experts


@pytest.mark.parametrize("implementation", BACKENDS)
@pytest.mark.parametrize("bias", [False, True], ids=["no bias", "bias"])
@pytest.mark.parametrize("gated", [False, True], ids=["plain", "gated"])
def test_backends_equal_the_loop(block, tokens, gated, bias, implementation):
    experts = block(implementation=implementation, is_gated_act=gated, mlp_bias=bias).experts
    names = {name for name, _ in experts.named_parameters()}
    up = "gate_up_proj" if gated else "up_proj"
    assert names == {up, "down_proj"} | ({f"{up}_bias", "down_proj_bias"} if bias else set())
    tokens.requires_grad_()
    ids = torch.randint(0, 3, (TOKENS, 2))  # nobody goes to the last expert
    weights = torch.rand(TOKENS, 2, requires_grad=True)
    output, expected = experts(tokens, ids, weights), mixed(experts, tokens, ids, weights, gated, bias)
    leaves = [tokens, weights, *experts.parameters()]
    assert_same_gradients(output, expected, leaves, tolerance_of(output))


# --- the routers


def chosen(logits, k, renormalise=True, bias=0.0):
    """Return the weights and ids of each token by the definition, largest first."""
    probs = logits.exp() / logits.exp().sum(-1, keepdim=True)
    ids = (probs + bias).argsort(dim=-1, descending=True)[:, :k]
    weights = probs.gather(1, ids)
    return weights / weights.sum(-1, keepdim=True) if renormalise else weights, ids


# class, experts of a token, whether their weights are made to sum to 1, biases, noise or balance, whether in training
ROUTERS = [
    (Router, 1, True, False, "training", True),
    (Router, 2, False, True, "training", False),
    (Router, 2, True, True, "training", True),
    (Router, 4, False, False, "training", False),
    (NoisyTopKRouter, 2, True, True, "training", True),
    (NoisyTopKRouter, 2, True, False, "always", False),
    (NoisyTopKRouter, 2, True, True, "training", False),
    (Router, 2, False, False, "balanced", True),
]


@pytest.mark.parametrize(("router_class", "k", "renormalise", "bias", "noise", "training"), ROUTERS)
def test_router_equals_its_definition(router, tokens, router_class, k, renormalise, bias, noise, training):
    """The noise is that of DirectMultiStep, also in the order of random numbers."""
    fields = {"num_experts_per_tok": k, "norm_topk_prob": renormalise, "router_bias": bias}
    fields |= {"router_bias_update_rate": 1e-3} if noise == "balanced" else {"router_noise": noise}
    module = router(router_class, **fields).train(training)
    if noise == "balanced":  # changes the ids, but not the weights
        module.selection_bias.copy_(torch.tensor([-2.0, 0.0, 0.0, 2.0]))
    torch.manual_seed(11)
    logits, weights, ids = module(tokens)
    expected = tokens @ module.classifier.weight.T + (module.classifier.bias if bias else 0.0)
    if router_class is NoisyTopKRouter and (training or noise == "always"):
        torch.manual_seed(11)
        scale = (1 + (tokens @ module.noise.weight.T + (module.noise.bias if bias else 0.0)).exp()).log()
        expected = expected + torch.randn(TOKENS, 4) * scale
    assert_close(logits, expected)
    wanted_weights, wanted_ids = chosen(
        expected, k, renormalise, module.selection_bias if noise == "balanced" else 0.0
    )
    assert torch.equal(ids, wanted_ids)
    assert_close(weights, wanted_weights)


@pytest.mark.dtype(torch.float32)
@pytest.mark.parametrize("router_class", [Router, NoisyTopKRouter])
def test_routing_stays_in_float32_under_bfloat16_and_autocast(router, tokens, router_class):
    def routed(module, tokens):
        torch.manual_seed(3)
        return module(tokens)

    module = router(router_class, router_bias=True, router_noise="always")
    expected = routed(module, tokens)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert (tokens @ module.classifier.weight.T).dtype == torch.bfloat16
        for got, wanted in zip(routed(module, tokens), expected, strict=True):
            assert got.dtype == wanted.dtype and torch.equal(got, wanted)
    half = tokens.to(torch.bfloat16)
    found = routed(module.to(torch.bfloat16), half)
    assert found[0].dtype == found[1].dtype == torch.float32
    for got, wanted in zip(found, routed(module.float(), half.float()), strict=True):
        assert torch.equal(got, wanted)  # the same rounded numbers, all arithmetic in fp32


# --- capacity


def stubbed(router, ids, **fields):
    """Run a router of three experts whose logits send each token to the given experts."""
    module = router(num_experts=3, norm_topk_prob=False, num_experts_per_tok=len(ids[0]), **fields)
    logits = torch.zeros(len(ids), 3)
    for row, choices in zip(logits, ids, strict=True):
        for place, expert in enumerate(choices):
            row[expert] = 4.0 - place
    module._logits = lambda tokens: logits
    return module(torch.zeros(len(ids), 16))


def test_capacity_drops_the_last_tokens_of_a_full_expert(router):
    """Six tokens, two experts each, three experts: capacity int(6 * 2 / 3 * 0.95) = 3."""
    ids = [(0, 1), (0, 2), (0, 1), (1, 0), (0, 1), (1, 2)]
    _, kept, chosen_ids = stubbed(router, ids, expert_capacity_factor=0.95)
    assert chosen_ids.tolist() == [list(pair) for pair in ids]
    # expert 0 is full after token 2, expert 1 after token 3 (tokens 0, 2, 3); expert 2 never
    assert (kept > 0).int().tolist() == [[1, 1], [1, 1], [1, 1], [1, 0], [0, 0], [0, 1]]
    _, free, _ = stubbed(router, ids)
    assert torch.equal(kept[kept > 0], free[kept > 0])  # what stays is not weighed anew


# --- the bias that balances


IDS = torch.tensor([[0, 1], [0, 1], [0, 3]])  # loads 3, 2, 0, 1
MOVED = [-0.5, -0.5, 0.5, 0.5]  # by half a step of 0.5


@pytest.mark.parametrize("is_compiled", [False, pytest.param(True, marks=pytest.mark.integration)])
def test_optimizer_step_moves_the_bias_of_its_router(router, is_compiled):
    module, frozen = router(router_bias_update_rate=0.5), router(router_bias_update_rate=0.5).requires_grad_(False)
    optimizer = torch.optim.AdamW([*module.parameters(), *frozen.parameters()], lr=0.1)
    for parameter in module.parameters():
        parameter.grad = torch.ones_like(parameter)
    for one in (frozen, module):
        one.count_load(expert_load(IDS[:2], 4))
    torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))]).step()  # of something else that learns in the same process
    assert module.expert_load.tolist() == [2.0, 2.0, 0.0, 0.0] and not module.selection_bias.any()
    module.count_load(expert_load(IDS[2:], 4))
    (torch.compile(optimizer.step, backend="eager") if is_compiled else optimizer.step)()
    assert module.selection_bias.tolist() == MOVED and not module.expert_load.any()
    module.update_selection_bias()  # by hand as well: the load of a step counts once
    optimizer.step()
    assert module.selection_bias.tolist() == MOVED
    assert not frozen.expert_load.any() and not frozen.selection_bias.any()


def test_bias_of_a_classifier_that_an_adapter_trains_stays(router):
    """The adapter is saved with the parameters of the classifier only: a bias that moved would be lost."""
    peft = pytest.importorskip("peft")
    parent = torch.nn.ModuleDict({"router": router(router_bias_update_rate=0.5), "layer": torch.nn.Linear(2, 2)})
    settings = peft.LoraConfig(target_modules=["layer"], modules_to_save=["classifier"])
    module = peft.get_peft_model(parent, settings).router
    optimizer = torch.optim.SGD([parameter for parameter in module.parameters() if parameter.requires_grad])
    assert optimizer.param_groups[0]["params"]
    module.count_load(expert_load(IDS, 4))
    optimizer.step()
    assert not module.selection_bias.any()


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda module: pickle.loads(pickle.dumps(module))])
def test_copies_have_biases_of_their_own(router, copied):
    module = router(router_bias_update_rate=0.5)
    twin = copied(module)
    for one in (module, twin):
        one.count_load(expert_load(IDS, one.num_experts))
    torch.optim.SGD(twin.parameters()).step()
    assert twin.selection_bias.tolist() == MOVED and not module.selection_bias.any()


@pytest.mark.dtype(torch.float32)
def test_bias_and_load_stay_in_float32_in_a_cast_model(router):
    """In bfloat16 a count stops at 256, and a bias of 1 never moves by 1e-3."""
    module = router(router_bias_update_rate=1e-3)
    assert set(module.state_dict()) == {"classifier.weight", "selection_bias"}  # the count is not saved
    value = torch.tensor([1.0 + 1e-6, 0.1, -0.3, 0.0])
    module.selection_bias.copy_(value)
    module = module.to(torch.bfloat16)
    assert module.classifier.weight.dtype != torch.float32
    assert module.selection_bias.dtype == module.expert_load.dtype == torch.float32
    assert torch.equal(module.selection_bias, value)
    for _ in range(300):
        module.count_load(expert_load(torch.tensor([[0, 1]]), module.num_experts))
    assert module.expert_load.tolist() == [300.0, 300.0, 0.0, 0.0]
    module.to("meta").count_load(torch.ones(4))
    assert module.selection_bias.is_meta and module.expert_load.is_meta


# --- pads


PADS = torch.tensor([[1, 1, 0, 1, 0], [1, 0, 0, 0, 0]]).bool()


def counted_rows(monkeypatch, experts):
    """Record the number of rows that these experts compute in each call of one of them or, in groups, of a projection."""
    rows, one_expert, grouped = [], experts._expert, moe_integration._grouped_mm

    def looped(tokens_SD, *projections):
        rows.append(len(tokens_SD))
        return one_expert(tokens_SD, *projections)

    def in_groups(input, weight, offs):
        rows.append(int(offs[-1]))
        return grouped(input, weight, offs)

    monkeypatch.setattr(experts, "_expert", looped)
    monkeypatch.setattr(moe_integration, "_grouped_mm", in_groups)
    return rows


@pytest.mark.parametrize("implementation", [*BACKENDS, "mine"])
def test_pads_are_not_computed(block, implementation, monkeypatch):
    monkeypatch.setitem(
        moe_integration.ALL_EXPERTS_FUNCTIONS, "mine", lambda experts, *given: ExpertsBase.forward(experts, *given)
    )
    module = block(implementation=implementation, ffn_dim=16, num_experts_per_tok=3)
    rows = counted_rows(monkeypatch, module.experts)
    states = torch.randn(2, 5, 16)
    expected = module(states)
    rows.clear()
    if implementation == "mine":  # which may not know the id of pads
        assert_close(module(states, PADS), expected)
        return
    output = module(states.masked_fill(~PADS[..., None], torch.nan), PADS)
    assert_close(output[PADS], expected[PADS])
    assert (output[~PADS] == 0).all() or implementation == "batched_mm"
    assert sum(rows) == 3 * PADS.sum() * {"eager": 1, "batched_mm": 0, "grouped_mm": 2, "sorted": 1}[implementation]
    assert torch.equal(module(states, torch.zeros_like(PADS)), torch.zeros_like(states))


def test_capacity_counts_pads(block):
    module = block(expert_capacity_factor=0.9)
    states = torch.randn(2, 5, 16)
    assert torch.equal(module(states, PADS), module(states))
    assert module(states)[~PADS].abs().max() > 1e-2


@pytest.mark.parametrize("training", [False, True])
def test_rows_of_a_padded_batch_equal_rows_alone(build, training, monkeypatch):
    """Rows with pads behind and between them, against each row by itself."""
    model = build(encoder_mlp_layer_types="sparse", decoder_mlp_layer_types=["dense", "sparse"]).train(training)
    ids = torch.tensor([[5, 6, 0, 0, 7, 8], [9, 10, 11, 0, 0, 0]])
    labels = torch.tensor([[4, 5, -100, 7, 8], [8, 9, 3, -100, -100]])
    stacks = (model.model.encoder, model.model.decoder)
    counted = [counted_rows(monkeypatch, stack.layers[1].mlp.experts) for stack in stacks]
    mask = torch.arange(5) < torch.tensor([[5], [3]])
    output = model(input_ids=ids, attention_mask=ids.ne(0), labels=labels, decoder_token_mask=mask)
    assert [sum(rows) for rows in counted] == [2 * 7, 2 * 8]
    for row, length, source in ((0, 5, 6), (1, 3, 3)):
        one = ids[row : row + 1, :source]
        alone = model(input_ids=one, attention_mask=one.ne(0), labels=labels[row : row + 1, :length])
        assert_close(output.logits[row, :length], alone.logits[0])


# --- the block as a whole


@pytest.mark.dtype(torch.float32)
@pytest.mark.parametrize(
    "fields", [{"moe_intermediate_size": 7}, {"decoder_ffn_dim": 20}, {"d_model": 20, "head_dim": 4}], ids=str
)
def test_widths_of_grouped_mm(small, fields):
    """torch would end in "strides should be multiple of 16 bytes", in the default implementation."""
    even = {"encoder_ffn_dim": 20, "decoder_ffn_dim": 24, "decoder_mlp_layer_types": "sparse"}
    assert WeftForConditionalGeneration(small(**even)).config._experts_implementation == "grouped_mm"
    model = WeftForConditionalGeneration(small(**(even | fields)))
    assert model.config._experts_implementation == "eager"
    with pytest.raises(ValueError, match=f"not {next(iter(fields.values()))}"):
        model.set_experts_implementation("grouped_mm")


@pytest.mark.dtype(torch.float32)
def test_float64_experts_take_the_loop(small, tmp_path):
    """torch would end in "Expected mat_a to be Float32", in the default implementation."""
    model = WeftForConditionalGeneration(small(encoder_mlp_layer_types="sparse", encoder_ffn_dim=24))
    model.save_pretrained(tmp_path)
    loaded = WeftForConditionalGeneration.from_pretrained(tmp_path, dtype=torch.float64)
    assert loaded.config._experts_implementation == "eager"
    with pytest.raises(ValueError, match="float64"):
        loaded.set_experts_implementation("grouped_mm")
    call = {"input_ids": torch.tensor([[3, 4, 5]]), "labels": torch.tensor([[6, 7]])}
    found = model.eval().double()(**call)
    assert model.config._experts_implementation == "grouped_mm" and found.logits.dtype == torch.float64
    torch.testing.assert_close(found.logits, loaded(**call).logits, atol=1e-10, rtol=1e-10)
