"""What a model looks at while it writes: cross-attention and the experts of each token, as data.

Shape suffixes: L decoder layers, H heads, T target tokens, S source tokens, N tokens, K experts of a token.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch

from ..modeling.checks import mask_of_pads


@dataclass(frozen=True)
class LayerExperts:
    """Where the router of one sparse layer sent each token: `ids_NK`, best first, and what it gave them, `probs_NK`."""

    layer: int
    ids_NK: torch.Tensor
    probs_NK: torch.Tensor


@dataclass(frozen=True)
class Look:
    """One forward pass, pads left out.

    Args:
        source: the tokens of the source, as they are shown.
        read: the target tokens that the decoder read, the start token first.
        written: what follows each of them.
        attention_LHTS: how much of its attention each head gave to each source token while `written` was chosen; rows
            sum to 1.
        encoder, decoder: the sparse layers of each stack, over `source` and over `read`; empty where all are dense. A
            token that an expert had no room for (`expert_capacity_factor`) is named here all the same.
    """

    source: list[str]
    read: list[str]
    written: list[str]
    attention_LHTS: torch.Tensor
    encoder: list[LayerExperts]
    decoder: list[LayerExperts]

    def attention(self, layer: int | None = None, head: int | None = None) -> torch.Tensor:
        """(T, S): of one layer or the mean of all, of one head or the mean of all."""
        weights_HTS = self.attention_LHTS.mean(dim=0) if layer is None else self.attention_LHTS[layer]
        return weights_HTS.mean(dim=0) if head is None else weights_HTS[head]


@torch.no_grad()
def look(
    model: Any, tokenizer: Any, source_ids: Sequence[int], target_ids: Sequence[int], conditions: Sequence[float] = ()
) -> Look:
    """Run a model over a source and a target, and keep what its attention and its routers decided.

    Args:
        model: a `WeftForConditionalGeneration`; for this pass alone it attends with the eager implementation, the only
            one that gives its weights away.
        tokenizer: the tokenizer it was trained with.
        source_ids: the source; pads may stand anywhere in it.
        target_ids: the target, the start token first, two tokens or more.
        conditions: as many numbers as the model is told beside the source.
    """
    config, device = model.config, model.device
    source = torch.tensor([list(source_ids)], device=device)
    target = torch.tensor([list(target_ids)], device=device)
    inputs = {"condition_values": torch.tensor([list(conditions)], device=device)} if conditions else {}
    mask = mask_of_pads(source, config.pad_token_id, config.eos_token_id)  # as `generate` reads them
    real_S = torch.ones_like(source[0], dtype=torch.bool) if mask is None else mask[0]
    with _eager(model):
        outputs = model.model(
            input_ids=source, attention_mask=mask, decoder_input_ids=target[:, :-1], use_cache=False, output_attentions=True,
            output_router_logits=config.has_sparse_layers, output_selected_experts=config.has_sparse_layers, **inputs,
        )  # fmt: skip
    everything_T = torch.ones_like(target[0, :-1], dtype=torch.bool)
    tokens = token_labels(tokenizer, target[0].tolist())
    return Look(
        source=token_labels(tokenizer, source[0, real_S].tolist()),
        read=tokens[:-1],
        written=tokens[1:],
        attention_LHTS=torch.cat(outputs.cross_attentions)[..., real_S].float().cpu(),
        encoder=list(_experts(config.encoder_mlp_layer_types, outputs, "encoder", real_S)),
        decoder=list(_experts(config.decoder_mlp_layer_types, outputs, "decoder", everything_T)),
    )


@contextmanager
def _eager(model: Any) -> Iterator[None]:
    before = model.config._attn_implementation
    model.set_attn_implementation("eager")
    try:
        yield
    finally:
        model.set_attn_implementation(before)


def _experts(kinds: Sequence[str] | None, outputs: Any, stack: str, non_pad_N: torch.Tensor) -> Iterator[LayerExperts]:
    sparse = [layer for layer, kind in enumerate(kinds or []) if kind == "sparse"]
    logits, ids = (getattr(outputs, f"{stack}_{what}") or () for what in ("router_logits", "selected_experts"))
    for layer, logits_NE, ids_NK in zip(sparse, logits, ids, strict=True):
        probs_NK = logits_NE.float().softmax(dim=-1).gather(-1, ids_NK)
        yield LayerExperts(layer, ids_NK[non_pad_N].cpu(), probs_NK[non_pad_N].cpu())


def token_labels(tokenizer: Any, ids: list[int]) -> list[str]:
    """Tokens as people read them: a space is an open box; what is no text by itself keeps the vocabulary's name."""
    texts = (tokenizer.decode([token]) for token in ids)
    names = tokenizer.convert_ids_to_tokens(ids)
    whole = (
        name if not text or "\N{REPLACEMENT CHARACTER}" in text else text
        for text, name in zip(texts, names, strict=True)
    )
    return [text.replace(" ", "\N{OPEN BOX}").replace("\n", "\N{RETURN SYMBOL}") for text in whole]
