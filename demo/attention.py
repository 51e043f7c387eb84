"""The cross-attention and the selected experts of one forward pass, as data.

Shape suffixes: L decoder layers, H heads, T target tokens, S source tokens, N tokens, K selected experts.
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
    """The selected experts of each token in a sparse layer, best first (`ids_NK`), and their router probabilities."""

    layer: int
    ids_NK: torch.Tensor
    probs_NK: torch.Tensor


@dataclass(frozen=True)
class Look:
    """
    The cross-attention and the selected experts of one forward pass, without pads.

    Args:
        source (`list[str]`):
            The S source tokens, as text to show.
        read (`list[str]`):
            The T target tokens that the decoder reads. The first one is the start token.
        written (`list[str]`):
            The T tokens that follow those in `read`.
        attention_LHTS (`torch.Tensor` of shape `(decoder_layers, heads, T, S)`):
            The cross-attention weights with which the decoder predicts each token of `written`. They sum to 1 over the
            source.
        encoder (`list[LayerExperts]`):
            The sparse encoder layers, with the experts of each token of `source`. It is empty if all layers are dense.
            Experts that dropped a token because they were full (`expert_capacity_factor`) are included.
        decoder (`list[LayerExperts]`):
            The same for the sparse decoder layers and the tokens of `read`.
    """

    source: list[str]
    read: list[str]
    written: list[str]
    attention_LHTS: torch.Tensor
    encoder: list[LayerExperts]
    decoder: list[LayerExperts]

    def attention(self, layer: int | None = None, head: int | None = None) -> torch.Tensor:
        """
        Return the cross-attention weights of one layer and head, or their mean.

        Args:
            layer (`int`, *optional*):
                The decoder layer, counted from 0. Defaults to the mean of all layers.
            head (`int`, *optional*):
                The attention head, counted from 0. Defaults to the mean of all heads.

        Returns:
            `torch.Tensor` of shape `(T, S)`.
        """
        weights_HTS = self.attention_LHTS.mean(dim=0) if layer is None else self.attention_LHTS[layer]
        return weights_HTS.mean(dim=0) if head is None else weights_HTS[head]


@torch.no_grad()
def look(
    model: Any, tokenizer: Any, source_ids: Sequence[int], target_ids: Sequence[int], conditions: Sequence[float] = ()
) -> Look:
    """
    Run a model on a source and a target, and return its cross-attention and selected experts.

    The pass uses eager attention, because the other implementations return no weights. Afterwards the model has its
    former implementation again.

    Args:
        model (`WeftForConditionalGeneration`):
            The model.
        tokenizer (`PreTrainedTokenizerBase`):
            The tokenizer of the model.
        source_ids (`Sequence[int]`):
            The token ids of the source, which may have pads at any position.
        target_ids (`Sequence[int]`):
            The token ids of the target, at least two. The first one is the start token.
        conditions (`Sequence[float]`, *optional*, defaults to `()`):
            The conditions, `num_condition_features` numbers.

    Returns:
        [`Look`]: the attention and the experts.
    """
    config, device = model.config, model.device
    source = torch.tensor([list(source_ids)], device=device)
    target = torch.tensor([list(target_ids)], device=device)
    inputs = {"condition_values": torch.tensor([list(conditions)], device=device)} if conditions else {}
    mask = mask_of_pads(source, config.pad_token_id, config.eos_token_id)  # the mask that `generate` infers
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
        encoder=list(_experts(config, outputs, "encoder", real_S)),
        decoder=list(_experts(config, outputs, "decoder", everything_T)),
    )


@contextmanager
def _eager(model: Any) -> Iterator[None]:
    before = model.config._attn_implementation
    model.set_attn_implementation("eager")
    try:
        yield
    finally:
        model.set_attn_implementation(before)


def _experts(config: Any, outputs: Any, stack: str, non_pad_N: torch.Tensor) -> Iterator[LayerExperts]:
    kinds = getattr(config, f"{stack}_mlp_layer_types") or []
    sparse = [layer for layer, kind in enumerate(kinds) if kind == "sparse"]
    logits, ids = (getattr(outputs, f"{stack}_{what}") or () for what in ("router_logits", "selected_experts"))
    for layer, logits_NE, ids_NK in zip(sparse, logits, ids, strict=True):
        probs_NK = logits_NE.float().softmax(dim=-1).gather(-1, ids_NK)
        yield LayerExperts(layer, ids_NK[non_pad_N].cpu(), probs_NK[non_pad_N].cpu())


def token_labels(tokenizer: Any, ids: list[int]) -> list[str]:
    """Return the text to show for each token.

    A space becomes an open box and a line break a return symbol. A token that is not a text by itself, such as a part
    of a character, keeps its name in the vocabulary.
    """
    texts = (tokenizer.decode([token]) for token in ids)
    names = tokenizer.convert_ids_to_tokens(ids)
    whole = (
        name if not text or "\N{REPLACEMENT CHARACTER}" in text else text
        for text, name in zip(texts, names, strict=True)
    )
    return [text.replace(" ", "\N{OPEN BOX}").replace("\n", "\N{RETURN SYMBOL}") for text in whole]
