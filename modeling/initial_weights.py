"""Initial weights, through transformers' `init` so that weights already loaded are left alone."""

import torch
from torch import nn
from transformers import initialization as init

from ..configuration.configuration_weft import WeftConfig
from .attention import AttentionBase
from .mixture import ExpertsBase, Router


def _normal(config: WeftConfig, weight: torch.Tensor) -> None:
    """N(0, init_std), or Glorot and Bengio's 2 / (fan in + fan out) variance over the last two dimensions."""
    std = config.init_std or (2.0 / sum(weight.shape[-2:])) ** 0.5
    init.normal_(weight, mean=0.0, std=std)


def initialize(config: WeftConfig, module: nn.Module) -> bool:
    """Fill the parameters and buffers that `module` itself holds; False when it is none of the kinds known here."""
    if isinstance(module, nn.Linear):
        _normal(config, module.weight)
        if module.bias is not None:
            init.zeros_(module.bias)
    elif isinstance(module, nn.Embedding):
        init.normal_(module.weight, mean=0.0, std=config.init_std or config.d_model**-0.5)
    elif isinstance(module, ExpertsBase):
        for name, parameter in module.named_parameters(recurse=False):
            if name.endswith("_bias"):
                init.zeros_(parameter)
            else:
                _normal(config, parameter)
    elif isinstance(module, AttentionBase):
        if module.relative_bias is not None:
            init.zeros_(module.relative_bias)
    elif isinstance(module, Router):
        for buffer in (module.selection_bias, module.expert_load):
            if buffer is not None:
                init.zeros_(buffer)
    else:
        return False
    return True
