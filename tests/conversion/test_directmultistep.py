"""DirectMultiStep 1.1.3 itself, with random weights, and the Weft model made of them: the same numbers and gradients.

Every preset's recipe at a small size, and at the published sizes in the slow run.
"""

from types import SimpleNamespace

import pytest
import torch
import yaml
from torch import nn

from weftformer.conversion import SOURCES, convert
from weftformer.conversion.table import to_weft

DMS, PAD = SOURCES["dms"], 52
DENSE = ("flash_10M", "flash_20M", "deep_40M")
SPARSE = ("flex_20M", "wide_40M", "explorer_19M", "explorer_xl_50M")
MODES = {
    "deterministic": {},
    "published": {"router_noise": "always", "expert_capacity_factor": 1.0, "expert_capacity_mode": "always"},
}
CASES = [(name, "deterministic") for name in DENSE] + [(name, mode) for name in SPARSE for mode in MODES]
# the package's way to its own files
pytestmark = [pytest.mark.filterwarnings("ignore:path is deprecated"), pytest.mark.dtype(torch.float64)]


@pytest.fixture(scope="session")
def dms(tmp_path_factory):
    pytest.importorskip("directmultistep.model", reason="pip install directmultistep==1.1.3")
    from directmultistep.model import ModelFactory

    def build(config):
        """Random weights everywhere: norms that start at one, or biases near zero, would hide a mistake."""
        torch.manual_seed(0)
        model = ModelFactory(config, device="cpu", compile_model=False).create_model().eval()
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                if name.endswith("bias"):
                    parameter.normal_(std=0.1)
                elif name.endswith("_ln.weight"):
                    parameter.normal_(mean=1.0, std=0.3)
                elif name.endswith(("query.weight", "key.weight")):
                    # attention that tells positions apart: deep stacks make them alike, and gradients all rounding
                    parameter.mul_(2.0)
        return model

    def saved(config):
        """The configuration as the package's own file holds it."""
        path = tmp_path_factory.mktemp("dms") / "config.yaml"
        config.save(path)
        return yaml.safe_load(path.read_text())

    def published(name):
        return ModelFactory.from_preset(name, device="cpu", compile_model=False).config

    return SimpleNamespace(published=published, build=build, saved=saved)


def both(config, **fields):
    """The configuration with these fields in each stack that has them."""
    for part in (config.encoder, config.decoder):
        for name, value in fields.items():
            if hasattr(part, name):
                setattr(part, name, value)
    return config


def small(config):
    """The recipe at a small size; its width is a square, as all published are."""
    config.encoder.n_layers, config.decoder.n_layers = 2, 3 if config.decoder.n_layers > config.encoder.n_layers else 2
    return both(config, hid_dim=64)


def sizes(config):
    """What `small` changes in a Weft configuration."""
    layers = {"encoder_layers": config.encoder.n_layers, "decoder_layers": config.decoder.n_layers}
    return layers | {"d_model": 64, "encoder_ffn_dim": 192, "decoder_ffn_dim": 192}


def preset_of(name):
    return "dms-" + name.lower().replace("_", "-")


def draw(config, length):
    """Product, pads, starting material, pads; a few pads; none. A target ends in pads, as in training."""
    generator = torch.Generator().manual_seed(1)
    window, pad = config.encoder.context_window, config.encoder.pad_idx
    source = torch.randint(0, pad, (3, window), generator=generator)
    source[0, window // 4 : window // 2] = source[0, 3 * window // 4 :] = pad
    source[1, window // 2 : window // 2 + 5] = pad
    target = torch.randint(0, pad, (3, length), generator=generator)
    target[1, length // 2 :] = pad
    return source, target, torch.tensor([[3], [7], [1]])


def quieten(original):
    """What the default conversion makes of it: no noise, and room for every token."""
    for module in original.modules():
        if hasattr(module, "capacity_factor"):
            module.capacity_factor = 1e6
        if hasattr(module, "noise_linear"):  # softplus(-inf) is the noise's scale
            module.noise_linear.register_forward_hook(
                lambda module, inputs, output: torch.full_like(output, -torch.inf)
            )
    return original


def outputs(original, model, source, target, steps):
    """(logits, encoder states) there and here, with the same noise drawn in every router."""
    torch.manual_seed(2)
    states = original.encoder(source, original.make_src_mask(source), steps)
    torch.manual_seed(2)
    logits = original(source, target, steps)
    torch.manual_seed(2)
    given = {"condition_values": steps.float()} if model.config.num_condition_features else {}
    found = model(input_ids=source, decoder_input_ids=target, **given)
    # experts here leave pads out, unless they count for the published capacity; nothing reads the states of pads
    computes_pads = not model.config.has_sparse_layers or model.config.expert_capacity_mode == "always"
    shown = source.ne(PAD) | computes_pads
    return (logits, states[shown]), (found.logits, found.encoder_last_hidden_state[shown])


def error(found, expected):
    """The largest difference over the largest entry."""
    return ((found - expected).abs().max() / expected.abs().max().clamp(min=1e-30)).item()


def gradients(module, logits, labels):
    loss = nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=PAD)
    names, parameters = zip(*module.named_parameters(), strict=True)
    # zeros for what takes no part: the explorers' steps, the noise where it is off
    found = torch.autograd.grad(loss, parameters, allow_unused=True, materialize_grads=True)
    return dict(zip(names, found, strict=True))


def assert_same(original, model, source, target, steps, gradient_error=1e-10):
    """Logits and encoder states within 1e-10 of the largest, and the gradient of every parameter of its own largest."""
    expected, found = outputs(original, model, source, target[:, :-1], steps)
    assert expected[0].std() > 0.3
    result = {"logits": error(found[0], expected[0]), "states": error(found[1], expected[1])}
    assert max(result.values()) <= 1e-10, result
    there, here = (gradients(*one, target[:, 1:]) for one in ((original, expected[0]), (model, found[0])))
    # a gradient goes the way of its weight: the table only renames, stacks and transposes
    shapes = {name: gradient.shape for name, gradient in here.items()}
    moved = to_weft(there, DMS.table(model.config, {}), model.config, shapes)
    assert moved.fits, moved.describe()
    wrong = {name: value for name in here if (value := error(here[name], moved.weights[name])) > gradient_error}
    assert not wrong, wrong
    # no gradient is zero, but those of noise that is off
    assert all(gradient.any() or ".router.noise." in name for name, gradient in here.items())


def pair(dms, name, mode, config, **fields):
    original = dms.build(config)
    converted = convert(original.state_dict(), DMS, preset=preset_of(name), overrides=fields | MODES[mode])
    return quieten(original) if mode == "deterministic" else original, converted.build()


@pytest.mark.parametrize(("name", "mode"), CASES)
def test_small(dms, name, mode):
    config = small(dms.published(name))
    assert_same(*pair(dms, name, mode, config, **sizes(config)), *draw(config, 60))


@pytest.mark.slow
@pytest.mark.parametrize(("name", "mode"), CASES)
def test_published_size(dms, name, mode):
    config = dms.published(name)
    assert_same(*pair(dms, name, mode, config), *draw(config, 200))


@pytest.mark.stays(name=("flash_10M", "flex_20M"))
@pytest.mark.parametrize("name", ["flash_10M", *SPARSE])
def test_steps_noise_and_capacity_matter(dms, name):
    """Else equal outputs would say nothing about them. The explorers do not read the steps."""
    config = small(dms.published(name))
    source, target, steps = draw(config, 60)

    def logits(steps=steps, **fields):
        model = convert(weights, DMS, preset=preset_of(name), overrides=sizes(config) | fields).build()
        return outputs(original, model, source, target, steps)[1][0]

    original = dms.build(config)
    weights = original.state_dict()
    base = logits()
    assert (error(logits(steps + 1), base) > 1e-2) != name.startswith("explorer")
    capacity = {"expert_capacity_factor": 1.0, "expert_capacity_mode": "always"}
    for fields in ({"router_noise": "always"}, capacity) if name in SPARSE else ():
        assert error(logits(**fields), base) > 1e-2, fields


def test_the_whole_target_window(dms):
    config = small(dms.published("flash_10M"))
    found, expected = outputs(*pair(dms, "flash_10M", "deterministic", config, **sizes(config)), *draw(config, 1075))
    assert error(found[0], expected[0]) <= 1e-10


VARIANTS = {
    "attention bias": ("flash_10M", {"attn_bias": True}),
    "attention bias, sparse": ("flex_20M", {"attn_bias": True}),
    "relu": ("flash_10M", {"ff_activation": "relu"}),
    "relu, sparse": ("explorer_19M", {"ff_activation": "relu"}),
    "one expert of four": ("flex_20M", {"n_experts": 4, "top_k": 1}),
    "all experts": ("wide_40M", {"top_k": 3}),
    "other heads": ("flex_20M", {"n_heads": 4, "ff_mult": 2, "context_window": 90}),
    "other vocabulary": ("flash_10M", {"vocab_dim": 40, "pad_idx": 39}),
    "no steps": ("flash_10M", {"include_steps": False}),
    "no step embedding": ("flex_20M", {"include_steps": False, "initiate_steps": False}),
    "a width that is no square": ("flash_10M", {"hid_dim": 32}),
}


def assert_own_configuration_tells(dms, config):
    original = quieten(dms.build(config))
    conversion = convert(original.state_dict(), DMS, source_config=dms.saved(config))
    expected, found = outputs(original, conversion.build(), *draw(config, 40))
    assert max(map(error, found, expected)) <= 1e-10
    return conversion


@pytest.mark.parametrize("variant", VARIANTS)
def test_other_sizes_by_their_own_configuration(dms, variant):
    name, fields = VARIANTS[variant]
    assert_own_configuration_tells(dms, both(small(dms.published(name)), **fields, dropout=0.2))


def test_stacks_that_differ(dms):
    """A dense encoder before a sparse decoder, each with heads and a window of its own."""
    config = small(dms.published("flash_10M"))
    config.decoder = small(dms.published("flex_20M")).decoder
    config.encoder.n_heads, config.encoder.ff_mult, config.decoder.context_window = 4, 2, 60
    found = assert_own_configuration_tells(dms, config).config
    assert (found.encoder_mlp_layer_types, found.decoder_mlp_layer_types) == (["dense"] * 2, ["sparse"] * 2)
