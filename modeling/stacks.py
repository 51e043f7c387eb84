"""The two stacks, each usable alone."""

import torch
from torch import nn
from transformers.cache_utils import Cache
from transformers.utils.generic import merge_with_config_defaults
from transformers.utils.output_capturing import OutputRecorder, capture_outputs

from ..configuration.configuration_weft import WeftConfig
from .attention import CrossAttention, SelfAttention
from .cache import new_cache, self_attention_cache
from .checks import (
    check_condition_values,
    check_inputs,
    check_kwargs,
    check_mask,
    check_position_limit,
    check_states,
    inferred_mask,
)
from .layers import WeftDecoderLayer, WeftEncoderLayer
from .masks import cross_mask, decoder_mask, encoder_mask
from .mixture import Router
from .outputs import WeftDecoderOutput, WeftEncoderOutput
from .positions import TokenPositions, WeftRotaryEmbedding, attention_positions
from .pretrained import WeftStack, token_positions


class WeftEncoder(WeftStack):
    """The encoder, usable alone: ids (B, S) to states (B, S, d_model)."""

    layer_class = WeftEncoderLayer
    _can_record_outputs = {
        "hidden_states": WeftEncoderLayer,
        "attentions": OutputRecorder(SelfAttention, index=1),
        "router_logits": OutputRecorder(Router, index=0),
        "router_ids": OutputRecorder(Router, index=2),
    }

    def __init__(self, config: WeftConfig):
        super().__init__(config, config.vocab_size, config.encoder_layers, config.max_source_positions)
        uses_rotary = config.self_attention_position_type == "rotary"
        self.rotary_embedding = WeftRotaryEmbedding(config.get_text_config(encoder=True)) if uses_rotary else None
        features = config.num_condition_features
        self.condition_proj = nn.Linear(features, config.d_model, bias=False) if features else None
        self.post_init()

    @merge_with_config_defaults
    @capture_outputs
    def forward(
        self,
        input_ids: torch.LongTensor | None = None,
        attention_mask: torch.Tensor | None = None,
        inputs_embeds: torch.FloatTensor | None = None,
        position_ids: torch.LongTensor | None = None,
        position_mask: torch.BoolTensor | None = None,
        condition_values: torch.Tensor | None = None,
        **kwargs,
    ) -> WeftEncoderOutput:
        r"""
        input_ids: (B, S). attention_mask: (B, S), 1 where a token is real, pads anywhere; or 4-D (B, 1 or H, S, S),
            boolean or additive; inferred from `pad_token_id` when missing.
        position_ids: (S,) or (B, S), default 0, 1, 2, ... (pads count). position_mask: same shapes, False where a token
            has no position. condition_values: (B, num_condition_features).
        """
        kwargs.pop("logits_to_keep", None)  # assisted generation hands the assistant's encoder all that it was given
        check_kwargs(kwargs, WeftEncoder.forward, "WeftEncoder.forward")
        check_inputs(input_ids, inputs_embeds, self.embed_tokens, "input_ids")
        attention_mask = inferred_mask(attention_mask, input_ids, self.config.pad_token_id)
        if inputs_embeds is None:
            inputs_embeds = self.embed_tokens(input_ids)
        batch, length = inputs_embeds.shape[:2]
        heads = self.config.encoder_attention_heads
        check_mask(attention_mask, batch, heads, length, length, "attention_mask")
        check_condition_values(self.config, condition_values, batch)

        default = torch.arange(length, device=inputs_embeds.device)
        positions = token_positions(position_ids, position_mask, default, batch, length, "position")
        limit = self.config.max_source_positions
        check_position_limit(self.config, positions.rows_BT, length, limit, "max_source_positions")
        condition = None
        if self.condition_proj is not None and condition_values is not None:
            condition = self.condition_proj(condition_values.to(inputs_embeds.dtype))[:, None]
        hidden_states = self._embed(inputs_embeds, positions, condition)
        mask = encoder_mask(self.config, inputs_embeds, attention_mask)
        layer_positions = attention_positions(
            self.config.self_attention_position_type, self.config,
            positions, positions, positions, self.rotary_embedding, inputs_embeds,
        )  # fmt: skip
        for layer in self.layers:
            hidden_states = layer(hidden_states, mask, layer_positions, **kwargs)
        return WeftEncoderOutput(last_hidden_state=self._finish(hidden_states))


class WeftDecoder(WeftStack):
    """The decoder, usable alone over any encoder's states (B, S, cross_attention_hidden_size or d_model)."""

    layer_class = WeftDecoderLayer
    _can_record_outputs = {
        "hidden_states": WeftDecoderLayer,
        "attentions": OutputRecorder(SelfAttention, index=1),
        "cross_attentions": OutputRecorder(CrossAttention, index=1),
        "router_logits": OutputRecorder(Router, index=0),
        "router_ids": OutputRecorder(Router, index=2),
    }

    def __init__(self, config: WeftConfig):
        super().__init__(config, config.target_vocab_size, config.decoder_layers, config.max_target_positions)
        uses_rotary = config.uses_attention_positions("rotary")
        self.rotary_embedding = WeftRotaryEmbedding(config.get_text_config(decoder=True)) if uses_rotary else None
        self.post_init()

    @merge_with_config_defaults
    @capture_outputs
    def forward(
        self,
        input_ids: torch.LongTensor | None = None,
        attention_mask: torch.Tensor | None = None,
        encoder_hidden_states: torch.FloatTensor | None = None,
        encoder_attention_mask: torch.Tensor | None = None,
        past_key_values: Cache | None = None,
        inputs_embeds: torch.FloatTensor | None = None,
        use_cache: bool | None = None,
        position_ids: torch.LongTensor | None = None,
        position_mask: torch.BoolTensor | None = None,
        key_position_ids: torch.LongTensor | None = None,
        key_position_mask: torch.BoolTensor | None = None,
        encoder_position_ids: torch.LongTensor | None = None,
        encoder_position_mask: torch.BoolTensor | None = None,
        is_causal: bool | None = None,
        **kwargs,
    ) -> WeftDecoderOutput:
        r"""
        input_ids: (B, T). attention_mask: (B, cached + T), or 4-D (B, 1 or H, T, cached + T).
        encoder_attention_mask: (B, S), or 4-D (B, 1 or H, T, S).
        position_ids: (T,) or (B, T); default: the real tokens of a given 2-D mask counted, else 0, 1, 2, ...
        key_position_ids, key_position_mask: (B, cached + T), read by relative positions only, needed when given
            positions meet a filled cache. encoder_position_ids, encoder_position_mask: those of the source, read by
            cross-attention with positions. is_causal: False lets every target position see all others.
        """
        check_kwargs(kwargs, WeftDecoder.forward, "WeftDecoder.forward")
        check_inputs(input_ids, inputs_embeds, self.embed_tokens, "decoder_input_ids")
        if inputs_embeds is None:
            inputs_embeds = self.embed_tokens(input_ids)
        if use_cache and past_key_values is None:
            past_key_values = new_cache(self.config)
        batch, length = inputs_embeds.shape[:2]
        heads = self.config.decoder_attention_heads
        cache = self_attention_cache(past_key_values)
        past = 0 if cache is None else cache.get_seq_length()
        if isinstance(past, int):  # a static cache counts in a tensor, and reading it would wait for the device
            keys = past + length
            if cache is not None and attention_mask is not None and attention_mask.ndim == 4:
                keys = cache.get_mask_sizes(length, 0)[0]
            check_mask(attention_mask, batch, heads, length, keys, "decoder_attention_mask")
        positions = self._positions(position_ids, position_mask, attention_mask, batch, length, past, inputs_embeds)
        hidden_states = self._embed(inputs_embeds, positions)
        mask = decoder_mask(self.config, inputs_embeds, attention_mask, cache)
        self_positions = self._self_positions(
            positions,
            (key_position_ids, key_position_mask),
            attention_mask,
            cache,
            position_ids is not None,
            inputs_embeds,
        )
        source_mask = cross_positions = None
        if encoder_hidden_states is not None:
            width = self.config.cross_attention_hidden_size or self.config.d_model
            check_states(encoder_hidden_states, width, "encoder_hidden_states", batch)
            source = encoder_hidden_states.shape[1]
            check_mask(encoder_attention_mask, batch, heads, length, source, "encoder_attention_mask")
            source_mask = cross_mask(self.config, inputs_embeds, encoder_hidden_states, encoder_attention_mask)
            given = (encoder_position_ids, encoder_position_mask)
            cross_positions = self._cross_positions(positions, given, encoder_hidden_states, past, inputs_embeds)
        for layer in self.layers:
            hidden_states = layer(
                hidden_states,
                mask,
                self_positions,
                encoder_hidden_states,
                encoder_attention_mask=source_mask,
                cross_positions=cross_positions,
                past_key_values=past_key_values,
                is_causal=is_causal,
                **kwargs,
            )
        return WeftDecoderOutput(last_hidden_state=self._finish(hidden_states), past_key_values=past_key_values)

    def _resize_token_embeddings(self, *args, **kwargs):
        table = super()._resize_token_embeddings(*args, **kwargs)
        if self.config.has_two_vocabularies:
            self.config.decoder_vocab_size = table.num_embeddings
        return table

    def _positions(self, position_ids, position_mask, attention_mask, batch, length, past, like) -> TokenPositions:
        """Positions of this call's tokens, within the learned table if there is one."""
        if attention_mask is not None and attention_mask.ndim == 2:
            default = (attention_mask.long().cumsum(dim=-1) - 1).clamp(min=0)[:, -length:]
        else:
            default = torch.arange(length, device=like.device) + past
        positions = token_positions(position_ids, position_mask, default, batch, length, "decoder_position")
        if isinstance(past, int) and past == 0:  # later steps continue what was checked here
            limit = self.config.max_target_positions
            check_position_limit(self.config, positions.rows_BT, length, limit, "max_target_positions")
        return positions

    def _self_positions(self, positions, key_positions, attention_mask, cache, given: bool, like):
        """What self-attention needs; relative offsets also need the positions of the keys in the cache."""
        keys = positions
        if self.config.has_relative_self_attention and cache is not None:
            ids, mask = key_positions
            length = cache.get_mask_sizes(like.shape[1], 0)[0]
            is_filled = not (isinstance(past := cache.get_seq_length(), int) and past == 0)
            masked = positions.mask_BT is not None and mask is None
            if is_filled and (masked or (given and ids is None)):
                raise ValueError(
                    "With relative positions and a filled cache, given `decoder_position_ids` need the positions of the "
                    "cached tokens too: pass `decoder_key_position_ids` of shape (batch, cached + new), and with "
                    "`decoder_position_mask` also `decoder_key_position_mask`."
                )
            if masked:
                mask = nn.functional.pad(positions.mask_BT, (0, length - like.shape[1]))
            if ids is None:
                if given:
                    ids = positions.ids_BT
                elif attention_mask is not None and attention_mask.ndim == 2:
                    ids = (attention_mask.long().cumsum(dim=-1) - 1).clamp(min=0)
                else:
                    ids = torch.arange(length, device=like.device)[None]
                ids = nn.functional.pad(ids, (0, length - ids.shape[1]))  # a static cache has room to come
            keys = token_positions(ids, mask, ids, like.shape[0], length, "decoder_key_position")
        return attention_positions(
            self.config.self_attention_position_type, self.config,
            positions, keys, positions, self.rotary_embedding, like, looks_ahead=False,
        )  # fmt: skip

    def _cross_positions(self, positions, source_positions, encoder_hidden_states, past, like):
        """What cross-attention needs of positions; the source's are as given, or 0, 1, 2, ..."""
        batch, source = encoder_hidden_states.shape[:2]
        ids, mask = source_positions
        default = torch.arange(source, device=like.device)
        keys = token_positions(ids, mask, default, batch, source, "encoder_position")
        if self.config.cross_attention_position_type == "additive" and isinstance(past, int) and past == 0:
            limit = max(self.config.max_source_positions, self.config.max_target_positions)
            check_position_limit(self.config, keys.rows_BT, source, limit, "max_source_positions")
        return attention_positions(
            self.config.cross_attention_position_type, self.config,
            positions, keys, keys, self.rotary_embedding, like, is_cross=True,
        )  # fmt: skip
