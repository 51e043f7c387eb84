"""DirectMultiStep 1.1.3's own models: every preset's recipe at a small size, and other settings by their own files."""

import tempfile
from copy import deepcopy
from functools import cache, partial
from pathlib import Path

import pytest
import torch
import yaml

from . import Reference

STEPS = "encoder.step_embedding.weight"
DENSE = ("flash_10M", "flash_20M", "deep_40M")
SPARSE = ("flex_20M", "wide_40M", "explorer_19M", "explorer_xl_50M")
MODES = {"deterministic": {}, "published": {"router_noise": "always", "expert_capacity_factor": 1.0}}
VARIANTS = {
    "attention bias": ("flash_10M", {"attn_bias": True}),
    "relu": ("flash_10M", {"ff_activation": "relu"}),
    "one expert of four": ("flex_20M", {"n_experts": 4, "top_k": 1}),
    "all experts": ("wide_40M", {"top_k": 3}),
    "other heads": ("flex_20M", {"n_heads": 4, "ff_mult": 2, "context_window": 60}),
    "other vocabulary": ("flash_10M", {"vocab_dim": 40, "pad_idx": 39}),
    "no steps": ("flash_10M", {"include_steps": False}),
    "no step embedding": ("flex_20M", {"include_steps": False, "initiate_steps": False}),
    "a width that is no square": ("flash_10M", {"hid_dim": 32}),
}


@cache
def _published(name):
    pytest.importorskip("directmultistep.model", reason="pip install directmultistep==1.1.3")
    from directmultistep.model import ModelFactory

    return ModelFactory.from_preset(name, device="cpu", compile_model=False).config


def published(name):
    return deepcopy(_published(name))


def small(name):
    """The recipe at a small size; its width is a square, as all published are."""
    config = published(name)
    config.encoder.n_layers, config.decoder.n_layers = 2, 3 if config.decoder.n_layers > config.encoder.n_layers else 2
    config.encoder.context_window = 90
    return both(config, hid_dim=64)


def both(config, **fields):
    """The configuration with these fields in each stack that has them."""
    for part in (config.encoder, config.decoder):
        for name, value in fields.items():
            if hasattr(part, name):
                setattr(part, name, value)
    return config


def sizes(config):
    """What `small` changes in a Weft configuration."""
    layers = {"encoder_layers": config.encoder.n_layers, "decoder_layers": config.decoder.n_layers}
    widths = {"d_model": 64, "encoder_ffn_dim": 192, "decoder_ffn_dim": 192}
    return layers | widths | {"max_source_positions": config.encoder.context_window}


def preset_of(name):
    return "dms-" + name.lower().replace("_", "-")


def saved(config):
    """The configuration as the package's own file holds it."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "config.yaml")
        config.save(path)
        return yaml.safe_load(path.read_text())


def build(config, device="cpu"):
    """Random weights everywhere: norms that start at one, or biases near zero, would hide a mistake."""
    from directmultistep.model import ModelFactory

    torch.manual_seed(0)
    model = ModelFactory(config, device=device, compile_model=False).create_model().eval()
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


def reference(config, mode="deterministic", preset=None, length=40, **fields) -> Reference:
    """Of a preset, or by the configuration's own file."""
    module = build(config)
    if mode == "deterministic":
        quieten(module)
    source, target, steps = draw(config, length)
    settings = {"preset": preset, "overrides": fields | MODES[mode]} if preset else {"source_config": saved(config)}
    inputs = {"input_ids": source, "decoder_input_ids": target, "condition_values": steps.float()}
    made = Reference(
        "dms",
        module,
        lambda module: module(source, target, steps),
        inputs,
        settings,
        is_exact=config.encoder.hid_dim == 64,
    )
    if not made.converted().config.num_condition_features:
        inputs.pop("condition_values")
        if STEPS in (weights := module.state_dict()):  # which is never read, and comes back as zeros
            weights[STEPS].zero_()
    return made


def of_preset(name, mode="deterministic") -> Reference:
    config = small(name)
    return reference(config, mode, preset_of(name), **sizes(config))


def of_variant(name) -> Reference:
    preset, fields = VARIANTS[name]
    return reference(both(small(preset), **fields, dropout=0.2))


def stacks_that_differ() -> Reference:
    """A dense encoder before a sparse decoder, each with heads and a window of its own."""
    config = small("flash_10M")
    config.decoder = small("flex_20M").decoder
    config.encoder.n_heads, config.encoder.ff_mult, config.decoder.context_window = 4, 2, 60
    return reference(config)


CASES = {
    **{f"{name}, {mode}": partial(of_preset, name, mode) for name in SPARSE[::3] for mode in MODES},
    **{name: partial(of_preset, name) for name in (*DENSE[::2], *SPARSE[1:3])},
    **{name: partial(of_variant, name) for name in VARIANTS},
    "stacks that differ": stacks_that_differ,
}
TEXTS = ()
