"""Outputs of the stacks and of the models: transformers' own, plus what the routers of sparse layers decided."""

from dataclasses import dataclass

import torch
from transformers.modeling_outputs import (
    BaseModelOutput,
    BaseModelOutputWithPastAndCrossAttentions,
    Seq2SeqLMOutput,
    Seq2SeqModelOutput,
)


@dataclass
class WeftEncoderOutput(BaseModelOutput):
    """`router_logits`, `router_ids`: for each sparse layer (tokens, experts) and (tokens, experts per token)."""

    router_logits: tuple[torch.Tensor, ...] | None = None
    router_ids: tuple[torch.Tensor, ...] | None = None


@dataclass
class WeftDecoderOutput(BaseModelOutputWithPastAndCrossAttentions):
    """`router_logits`, `router_ids`: as in [`WeftEncoderOutput`]."""

    router_logits: tuple[torch.Tensor, ...] | None = None
    router_ids: tuple[torch.Tensor, ...] | None = None


@dataclass
class WeftModelOutput(Seq2SeqModelOutput):
    """Router outputs: one entry for each sparse layer of the stack, (tokens, experts) or (tokens, experts per token)."""

    encoder_router_logits: tuple[torch.Tensor, ...] | None = None
    decoder_router_logits: tuple[torch.Tensor, ...] | None = None
    encoder_router_ids: tuple[torch.Tensor, ...] | None = None
    decoder_router_ids: tuple[torch.Tensor, ...] | None = None


@dataclass
class WeftSeq2SeqLMOutput(Seq2SeqLMOutput):
    """`aux_loss`, `z_loss`: balance loss and z-loss, mean over sparse layers, before their weights in `loss`."""

    aux_loss: torch.Tensor | None = None
    z_loss: torch.Tensor | None = None
    encoder_router_logits: tuple[torch.Tensor, ...] | None = None
    decoder_router_logits: tuple[torch.Tensor, ...] | None = None
