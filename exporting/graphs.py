"""The two graphs that a Weft model is exported as, with tensors as inputs and outputs, and their `torch.export`.

Shape suffixes: B batch, S source tokens, T cached tokens, N decoder layers, H key-value heads, K width of a head, V
vocabulary.
"""

from typing import Any

import torch
from torch import nn
from torch.export import Dim, ExportedProgram
from transformers.cache_utils import Cache, DynamicLayer, EncoderDecoderCache

from ..configuration import WeftConfig
from ..modeling import WeftForConditionalGeneration
from ..modeling.decoding import SourceGraph

Inputs = dict[str, torch.Tensor]

OUTPUTS = {
    "encoder": ("encoder_hidden_states", "cross_keys", "cross_values"),
    "decoder_step": ("logits", "new_self_keys", "new_self_values"),
}


class _GivenLayer(DynamicLayer):
    """A cache layer with the given tensors, which may be empty."""

    def __init__(self, keys_BHTK: torch.Tensor, values_BHTK: torch.Tensor):
        super().__init__()
        self.lazy_initialization(keys_BHTK, values_BHTK)
        self.keys, self.values = keys_BHTK, values_BHTK

    def get_seq_length(self, *args) -> int:
        # transformers first checks whether the cache is empty, and the result for the example would be fixed in the
        # graph
        return self.keys.shape[-2]


def _given_cache(keys_NBHTK: torch.Tensor, values_NBHTK: torch.Tensor) -> Cache:
    return Cache(
        layers=[_GivenLayer(*layer) for layer in zip(keys_NBHTK.unbind(), values_NBHTK.unbind(), strict=True)]
    )


class EncoderGraph(SourceGraph):
    """
    The graph that runs once for a source: the encoder, and the projections to the keys and values of cross-attention.

    Args:
        model ([`WeftForConditionalGeneration`]):
            The model.
    """

    name = "encoder"

    def example(self, batch: int, source: int, seed: int = 0) -> Inputs:
        """
        Return random inputs, in which row i has i pads on the right, and the first row a pad in the middle.

        Args:
            batch, source (`int`):
                The batch size and the number of source tokens.
            seed (`int`, *optional*, defaults to 0):
                The seed.
        """
        generator = torch.Generator().manual_seed(seed)
        inputs = {
            "input_ids": torch.randint(0, self.config.vocab_size, (batch, source), generator=generator),
            "attention_mask": (torch.arange(source) < source - torch.arange(batch)[:, None]).long(),
        }
        inputs["attention_mask"][0, source // 2] = 0
        if self.config.num_condition_features:
            shape = (batch, self.config.num_condition_features)
            inputs["condition_values"] = torch.randn(shape, generator=generator)
        return inputs

    def dynamic_shapes(self) -> dict[str, dict[int, Any]]:
        batch, source = Dim("batch"), Dim("source")
        shapes: dict[str, dict[int, Any]] = {name: {0: batch, 1: source} for name in ("input_ids", "attention_mask")}
        return shapes | ({"condition_values": {0: batch}} if self.config.num_condition_features else {})


class DecoderStepGraph(nn.Module):
    """
    The graph of a decoding step: it takes one new token for each row and the cache, and returns logits and a longer
    cache.

    Args:
        model ([`WeftForConditionalGeneration`]):
            The model.
    """

    name = "decoder_step"

    def __init__(self, model: WeftForConditionalGeneration):
        super().__init__()
        self.decoder = model.model.decoder
        self.lm_head = model.lm_head
        self.config = model.config

    def forward(
        self,
        decoder_input_ids: torch.Tensor,
        attention_mask: torch.Tensor,
        self_keys: torch.Tensor,
        self_values: torch.Tensor,
        cross_keys: torch.Tensor,
        cross_values: torch.Tensor,
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        r"""
        Args:
            decoder_input_ids (`torch.LongTensor` of shape `(batch, 1)`):
                Ids of the new tokens.
            attention_mask (`torch.LongTensor` of shape `(batch, source)`):
                The mask of the source.
            self_keys, self_values (`torch.Tensor` of shape `(layers, batch, heads, cached, head_dim)`):
                Keys and values of the tokens before. `cached` is 0 at the first step.
            cross_keys, cross_values (`torch.Tensor` of shape `(layers, batch, heads, source, head_dim)`):
                Keys and values of the source, from [`EncoderGraph`].

        Returns:
            `logits` of shape `(batch, vocabulary)`, and `new_self_keys` and `new_self_values` of shape
            `(layers, batch, heads, cached + 1, head_dim)`.
        """
        cache = EncoderDecoderCache(_given_cache(self_keys, self_values), _given_cache(cross_keys, cross_values))
        cache.is_updated = dict.fromkeys(range(self.config.decoder_layers), True)
        # only the shape of the states is read, because the cross-attention cache is filled
        states = cross_keys.new_zeros(1, 1, 1).expand(*attention_mask.shape, self.config.d_model)
        hidden_states = self.decoder(
            input_ids=decoder_input_ids,
            encoder_hidden_states=states,
            encoder_attention_mask=attention_mask,
            cache=cache,
        ).last_hidden_state
        layers = cache.self_attention_cache.layers
        keys, values = torch.stack([layer.keys for layer in layers]), torch.stack([layer.values for layer in layers])
        return self.lm_head(hidden_states[:, -1]), keys, values

    def example(self, batch: int, source: int) -> Inputs:
        """
        Return inputs with the shapes of a step. Their values do not matter.

        Args:
            batch, source (`int`):
                The batch size and the number of source tokens.
        """
        _, heads, width = self.config.stack_heads(is_decoder=True)
        dtype = self.lm_head.weight.dtype
        own = torch.zeros(self.config.decoder_layers, batch, heads, 3, width, dtype=dtype)
        cross = torch.zeros(self.config.decoder_layers, batch, heads, source, width, dtype=dtype)
        return {
            "decoder_input_ids": torch.zeros(batch, 1, dtype=torch.long),
            "attention_mask": torch.ones(batch, source, dtype=torch.long),
            "self_keys": own, "self_values": own.clone(), "cross_keys": cross, "cross_values": cross.clone(),
        }  # fmt: skip

    def dynamic_shapes(self) -> dict[str, dict[int, Any]]:
        batch, source, cached = Dim("batch"), Dim("source"), Dim("cached", min=0)
        own, cross = {1: batch, 3: cached}, {1: batch, 3: source}
        return {
            "decoder_input_ids": {0: batch}, "attention_mask": {0: batch, 1: source},
            "self_keys": own, "self_values": own, "cross_keys": cross, "cross_values": cross,
        }  # fmt: skip


def graphs(model: WeftForConditionalGeneration) -> tuple[EncoderGraph, DecoderStepGraph]:
    """Return the two graphs of a model."""
    return EncoderGraph(model).eval(), DecoderStepGraph(model).eval()


def check_exportable(config: WeftConfig) -> None:
    """
    Check that a fixed graph can compute a model of this configuration.

    Args:
        config ([`WeftConfig`]):
            The configuration.

    Raises:
        ValueError: the model cannot be exported. The message names the field, its value and the allowed values.
    """
    rope_type = (config.rope_parameters or {}).get("rope_type")
    if config.uses_attention_positions("rotary") and rope_type in ("dynamic", "longrope"):
        raise ValueError(
            f'rope_type="{rope_type}" chooses its frequencies by the length of each sequence, which a graph cannot do: use '
            '"default" instead.'
        )
    if config.has_sparse_layers and config.expert_capacity_factor is not None:
        raise ValueError(
            f"expert_capacity_factor={config.expert_capacity_factor} counts the tokens of each call, but an export would keep "
            "the count of its example: set it to None."
        )
    if config.has_sparse_layers and config.router_type == "noisy_top_k" and config.router_noise == "always":
        raise ValueError('router_noise="always" chooses experts at random in each call: set it to "training".')


def exported_programs(model: WeftForConditionalGeneration) -> dict[str, ExportedProgram]:
    """
    Export both graphs of a model with `torch.export`, with dynamic batch size and lengths.

    Args:
        model ([`WeftForConditionalGeneration`]):
            The model, on the CPU.

    Returns:
        `dict[str, ExportedProgram]`: the programs `"encoder"` and `"decoder_step"`.

    Raises:
        ValueError: a fixed graph cannot compute this model, see [`check_exportable`].
    """
    check_exportable(model.config)
    with torch.no_grad():
        return {
            graph.name: torch.export.export(
                graph,
                (),
                kwargs=graph.example(2, 5),
                dynamic_shapes=graph.dynamic_shapes(),
                # torch's solver cannot prove which stride is the smallest for grouped heads, so each call checks it
                prefer_deferred_runtime_asserts_over_guards=True,
            )
            for graph in graphs(model)
        }
