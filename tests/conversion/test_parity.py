"""Every source: the original and the Weft model with its weights give the same outputs, gradients and texts.

And the weights come back bit for bit. `references/` has the originals; what is peculiar to one source has a file of
its own.
"""

from copy import copy, deepcopy

import pytest
import torch
from torch.func import functional_call

from weftformer.conversion import convert, export, read_weights
from weftformer.conversion.source import _PREFIX_IN_MODEL, NO_ATTENTION_POSITIONS

from .references import (
    Reference,
    bart,
    directmultistep,
    largest_error,
    notebook,
    seq2seq,
    symm,
    t5,
    torch_transformer,
    tutorial,
)

MODULES = {
    module.__name__.rpartition(".")[2]: module
    for module in (tutorial, notebook, seq2seq, directmultistep, symm, torch_transformer, bart, t5)
}
CASES = {f"{kind}: {name}": make for kind, module in MODULES.items() for name, make in module.CASES.items()}
TEXTS = [f"{kind}: {name}" for kind, module in MODULES.items() for name in module.TEXTS]
pytestmark = [
    pytest.mark.dtype(torch.float64),
    pytest.mark.filterwarnings("ignore:path is deprecated"),  # directmultistep's way to its own files
    pytest.mark.filterwarnings("ignore:enable_nested_tensor is True"),  # the fast path needs what not all cases have
    pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors"),
    pytest.mark.filterwarnings("ignore:Support for mismatched key_padding_mask"),  # boolean beside an additive mask
]


# What the constructor or the configuration of a source decides.
CHOSEN = {
    "torch": ("norm_first", "norm_eps", "activation_function"),
    "bart": ("activation_function",),
    "t5": ("norm_eps", "activation_function"),
    "symm": ("norm_first", "norm_eps", "activation_function", *NO_ATTENTION_POSITIONS),
}


@pytest.fixture(params=CASES, scope="module")
def reference(request) -> Reference:
    torch.set_default_dtype(torch.float64)
    return CASES[request.param]()


def test_the_way_back_is_exact(reference):  # first, for a call rounds the routers of NLLB-MoE to 32 bits
    weights = reference.module.state_dict()
    back = export(reference.model, reference.kind, reference.settings.get("source_config"))
    back = {name.removeprefix(reference.prefix): tensor for name, tensor in back.items()}
    assert weights.keys() - back.keys() == set(reference.absent) and back.keys() <= weights.keys()
    for name, tensor in back.items():
        skipped = reference.unread if "embed_positions" in name else 0
        assert not tensor[:skipped].any()
        rtol = 0 if reference.is_exact else 1e-12
        torch.testing.assert_close(tensor[skipped:], weights[name][skipped:], rtol=rtol, atol=0, msg=name)


def test_what_the_source_cannot_compute_is_not_exported(reference):
    config = reference.model.config
    changes = {
        "norm_type": "rmsnorm" if config.norm_type == "stdnorm" else "stdnorm", "norm_first": not config.norm_first,
        "self_attention_position_type": "rotary", "cross_attention_position_type": "rotary", "norm_eps": 0.1,
        "activation_function": "tanh",
    }  # fmt: skip
    for field in changes.keys() - set(CHOSEN.get(reference.source, ())):
        model = copy(reference.model)
        model.config = deepcopy(config)
        setattr(model.config, field, changes[field])
        with pytest.raises(ValueError, match=field):
            export(model, reference.kind, reference.settings.get("source_config"))


def test_outputs_are_the_same(reference):
    model = reference.model
    with torch.no_grad():
        expected = reference.expected()
        assert expected.std() > 0.1  # else equal outputs would say nothing
        for attention in ("sdpa", "eager"):
            model.set_attn_implementation(attention)
            assert largest_error(reference.found(model), expected) <= reference.tolerance


@pytest.mark.integration
def test_gradients_are_the_same(reference):
    """Of every parameter of the original: the Weft model runs with what the table makes of them."""
    module = reference.module
    parameters = {name: one for name, one in module.named_parameters() if one.requires_grad}
    parameters |= {name: module.get_buffer(name).requires_grad_() for name in reference.buffers}
    conversion = reference.converted(parameters)
    prefix = _PREFIX_IN_MODEL[conversion.model_class]
    weights = {name.removeprefix(prefix): tensor for name, tensor in conversion.found.weights.items()}
    model, expected = conversion.build(), reference.expected()
    found = reference.found(lambda **inputs: functional_call(model, weights, kwargs=inputs))
    # another weight for each output, so that no error can cancel; small ones, which make gradients of about one
    weight = 0.25 * torch.randn(expected.shape, generator=torch.Generator().manual_seed(4))
    wanted, got = (
        torch.autograd.grad((one * weight).sum(), list(parameters.values()), allow_unused=True, materialize_grads=True)
        for one in (expected, found)
    )
    for name, one, other in zip(parameters, got, wanted, strict=True):
        if reference.pad is not None and ("shared" in name or "embed_tokens" in name):
            rows = torch.arange(len(one)) != reference.pad
            one, other = one[rows], other[rows]
        # some are zero but for rounding, as those of a key's bias are
        assert (one - other).abs().max() <= 5 * reference.tolerance * other.abs().max().clamp(min=1.0), name


@pytest.mark.parametrize(
    ("name", "rates"), [("tutorial: added", (0.1, 0.1, 0.0)), ("notebook: a length a row", (0.1, 0.0, 0.1))]
)
def test_dropout_is_that_of_the_original(name, rates):
    config = CASES[name]().converted().config
    assert (config.dropout, config.activation_dropout, config.attention_dropout) == rates


@pytest.mark.parametrize("name", [name for name in TEXTS if name.startswith(("bart", "t5"))])
def test_a_folder_that_transformers_saved_gives_the_same(name, tmp_path):
    """It has one copy of what is tied, and the fields that say what is. Its source is found."""
    reference = CASES[name]()
    reference.module.save_pretrained(tmp_path)
    weights, held = read_weights(tmp_path), reference.converted()
    assert len(weights) < len(reference.module.state_dict()) or not reference.module.config.tie_word_embeddings
    saved = convert(tmp_path)
    assert saved.source is reference.kind and saved.config.to_dict() == held.config.to_dict()
    assert saved.found.weights.keys() == held.found.weights.keys()
    assert all(torch.equal(tensor, held.found.weights[key]) for key, tensor in saved.found.weights.items())


@pytest.mark.parametrize("name", TEXTS)
def test_cached_decoding_writes_what_the_original_writes(name):
    reference = CASES[name]()
    with torch.no_grad():
        expected = reference.written(reference.module)
        found = reference.converted().build().generate(**reference.generation)
    assert found.tolist() == expected.tolist()
    assert len(expected.unique()) > 5
