"""The two graphs a Weft model is exported as, with nothing but tensors in and out, and their `torch.export`.

Shape suffixes: B batch, S source tokens, T cached tokens, N decoder layers, H key-value heads, K width of a head, V vocabulary.
"""

from typing import Any, cast

import torch
from torch import nn
from torch.export import Dim, ExportedProgram
from transformers.cache_utils import Cache, DynamicLayer, EncoderDecoderCache

from ..configuration import WeftConfig
from ..modeling import WeftForConditionalGeneration
from ..modeling.attention import CrossAttention
from ..modeling.modeling_weft import WeftDecoderLayer
from ..modeling.positions import TokenPositions, attention_positions

Inputs = dict[str, torch.Tensor]

GRAPHS = ENCODER, STEP = "encoder", "decoder_step"
OUTPUTS = {
    ENCODER: ("encoder_hidden_states", "cross_keys", "cross_values"),
    STEP: ("logits", "new_self_keys", "new_self_values"),
}


class _GivenLayer(DynamicLayer):
    """A cache layer over tensors that are there already, and may be empty."""

    def __init__(self, keys_BHTK: torch.Tensor, values_BHTK: torch.Tensor):
        super().__init__()
        self.lazy_initialization(keys_BHTK, values_BHTK)
        self.keys, self.values = keys_BHTK, values_BHTK

    def get_seq_length(self, *args) -> int:
        # transformers asks first whether it is empty, and the answer for the example would be fixed in the graph
        return self.keys.shape[-2]


def _given_cache(keys_NBHTK: torch.Tensor, values_NBHTK: torch.Tensor) -> Cache:
    return Cache(
        layers=[_GivenLayer(*layer) for layer in zip(keys_NBHTK.unbind(), values_NBHTK.unbind(), strict=True)]
    )


def _stacked(cache: Cache) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.stack([layer.keys for layer in cache.layers]), torch.stack([layer.values for layer in cache.layers])


class EncoderGraph(nn.Module):
    """What is computed once for a source: the encoder's states and the keys and values cross-attention reads."""

    name = ENCODER

    def __init__(self, model: WeftForConditionalGeneration):
        super().__init__()
        decoder = model.model.decoder
        self.encoder = model.model.encoder
        self.cross_attentions = nn.ModuleList()
        for layer in decoder.layers:
            self.cross_attentions.append(cast(WeftDecoderLayer, layer).encoder_attn)
        kind = model.config.cross_attention_position_type
        self.rotary_embedding = decoder.rotary_embedding if kind == "rotary" else None
        self.config = model.config

    def forward(
        self, input_ids: torch.Tensor, attention_mask: torch.Tensor, condition_values: torch.Tensor | None = None
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """
        Args:
            input_ids: (B, S) int64. attention_mask: (B, S) int64, 1 where a token is real, pads anywhere.
            condition_values: (B, num_condition_features), where the model has such features.

        Returns:
            encoder_hidden_states (B, S, d_model), cross_keys and cross_values (N, B, H, S, K).
        """
        states = self.encoder(
            input_ids=input_ids, attention_mask=attention_mask, condition_values=condition_values
        ).last_hidden_state
        source = TokenPositions(torch.arange(input_ids.shape[1], device=states.device)[None])
        positions = attention_positions(
            self.config.cross_attention_position_type,
            self.config,
            source,
            source,
            source,
            self.rotary_embedding,
            states,
            is_cross=True,
        )
        layers = [cast(CrossAttention, part)._keys_values(states, positions) for part in self.cross_attentions]
        keys, values = (torch.stack(tensors) for tensors in zip(*layers, strict=True))
        return states, keys, values

    def example(self, batch: int, source: int, seed: int = 0) -> Inputs:
        """Inputs of random tokens, padded on the right by one more in each row, and in the middle of the first."""
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
    """One new token for each row: cache in, scores of the next token and longer cache out."""

    name = STEP

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
        """
        Args:
            decoder_input_ids: (B, 1) int64. attention_mask: (B, S), that of the source.
            self_keys, self_values: (N, B, H, T, K) of the tokens before; T is 0 at the first step.
            cross_keys, cross_values: (N, B, H, S, K), from the encoder's graph.

        Returns:
            logits (B, V), new_self_keys and new_self_values (N, B, H, T + 1, K).
        """
        cache = EncoderDecoderCache(_given_cache(self_keys, self_values), _given_cache(cross_keys, cross_values))
        cache.is_updated = dict.fromkeys(range(self.config.decoder_layers), True)
        # with a filled cache only their shape is read
        states = cross_keys.new_zeros(1, 1, 1).expand(*attention_mask.shape, self.config.d_model)
        hidden_states = self.decoder(
            input_ids=decoder_input_ids,
            encoder_hidden_states=states,
            encoder_attention_mask=attention_mask,
            past_key_values=cache,
        ).last_hidden_state
        return self.lm_head(hidden_states[:, -1]), *_stacked(cache.self_attention_cache)

    def example(self, batch: int, source: int, cached: int = 3) -> Inputs:
        """Inputs of the shapes of a step; their values do not matter."""
        _, heads, width = self.config.stack_heads(is_decoder=True)
        dtype = self.lm_head.weight.dtype
        own = torch.zeros(self.config.decoder_layers, batch, heads, cached, width, dtype=dtype)
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
    return EncoderGraph(model).eval(), DecoderStepGraph(model).eval()


def check_exportable(config: WeftConfig) -> None:
    """Refuse what depends on more than a graph can hold.

    Raises:
        ValueError: names the field, its value and what is allowed.
    """
    rope_type = (config.rope_parameters or {}).get("rope_type")
    if config.uses_attention_positions("rotary") and rope_type in ("dynamic", "longrope"):
        raise ValueError(
            f'rope_type="{rope_type}" chooses its frequencies by the length of each call: take "default".'
        )
    if (
        config.has_sparse_layers
        and config.expert_capacity_factor is not None
        and config.expert_capacity_mode == "always"
    ):
        raise ValueError(
            f"expert_capacity_factor={config.expert_capacity_factor} counts the tokens of each call, and an export would "
            'keep the count of its example: set expert_capacity_mode to "training".'
        )
    if config.has_sparse_layers and config.router_type == "noisy_top_k" and config.router_noise == "always":
        raise ValueError('router_noise="always" draws other experts in each call: set it to "training".')


def exported_programs(model: WeftForConditionalGeneration) -> dict[str, ExportedProgram]:
    """Both graphs of a model on the CPU as `torch.export` writes them down, batch and lengths dynamic, by name.

    Raises:
        ValueError: the model does what a graph cannot hold.
    """
    check_exportable(model.config)
    with torch.no_grad():
        return {
            graph.name: torch.export.export(
                graph,
                (),
                kwargs=graph.example(2, 5),
                dynamic_shapes=graph.dynamic_shapes(),
                # what its solver cannot prove of grouped heads (that some stride is the smallest) is checked in each call
                prefer_deferred_runtime_asserts_over_guards=True,
            )
            for graph in graphs(model)
        }
