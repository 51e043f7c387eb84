"""The Weft models: encoder and decoder together, without and with the head that generates."""

from collections.abc import Callable
from typing import cast

import torch
from torch import nn
from transformers.cache_utils import Cache
from transformers.utils import can_return_tuple

from ..configuration.configuration_weft import WeftConfig
from .checks import check_kwargs, check_labels, inferred_mask
from .decoding_cache import DecodingCache
from .fused_loss import fused_cross_entropy, skips_logits
from .generation import WeftGenerationMixin
from .losses import balance_loss, counted_items, cross_entropy, router_counts, router_z_loss
from .masks import key_mask_of
from .outputs import WeftEncoderOutput, WeftModelOutput, WeftSeq2SeqLMOutput
from .pretrained import WeftPreTrainedModel
from .stacks import WeftDecoder, WeftEncoder


class WeftModel(WeftPreTrainedModel):
    """Encoder and decoder, without a head."""

    def __init__(self, config: WeftConfig):
        super().__init__(config)
        if config.cross_attention_hidden_size not in (None, config.d_model):
            raise ValueError(
                f"cross_attention_hidden_size={config.cross_attention_hidden_size} does not fit this model's own encoder "
                f"(d_model={config.d_model}): it is for a `WeftDecoder` over the states of another encoder."
            )
        self.encoder = WeftEncoder(config)
        self.decoder = WeftDecoder(config)
        self.shared: nn.Embedding | None = None
        if config.share_encoder_decoder_embeddings:
            # One module object in three places, not three tied ones: FSDP2 cannot wrap the latter.
            self.set_input_embeddings(nn.Embedding(config.vocab_size, config.d_model))
            self._tied_weights_keys = {
                "encoder.embed_tokens.weight": "shared.weight",
                "decoder.embed_tokens.weight": "shared.weight",
            }
        self.post_init()

    def get_input_embeddings(self) -> nn.Embedding:
        return self.encoder.embed_tokens

    def set_input_embeddings(self, value: nn.Embedding) -> None:
        self.encoder.embed_tokens = value
        if self.config.share_encoder_decoder_embeddings:
            self.shared = self.decoder.embed_tokens = value

    @can_return_tuple
    def forward(
        self,
        input_ids: torch.LongTensor | None = None,
        attention_mask: torch.Tensor | None = None,
        decoder_input_ids: torch.LongTensor | None = None,
        decoder_attention_mask: torch.Tensor | None = None,
        encoder_outputs: WeftEncoderOutput | tuple | None = None,
        past_key_values: Cache | None = None,
        inputs_embeds: torch.FloatTensor | None = None,
        decoder_inputs_embeds: torch.FloatTensor | None = None,
        use_cache: bool | None = None,
        position_ids: torch.LongTensor | None = None,
        position_mask: torch.BoolTensor | None = None,
        decoder_position_ids: torch.LongTensor | None = None,
        decoder_position_mask: torch.BoolTensor | None = None,
        decoder_key_position_ids: torch.LongTensor | None = None,
        decoder_key_position_mask: torch.BoolTensor | None = None,
        condition_values: torch.Tensor | None = None,
        cross_attn_mask: torch.Tensor | None = None,
        is_causal: bool | None = None,
        **kwargs,
    ) -> WeftModelOutput:
        r"""
        The arguments of [`WeftEncoder.forward`], and those of [`WeftDecoder.forward`] with `decoder_` before them.
        cross_attn_mask: who may see the source, (B, S) or 4-D (B, 1 or H, T, S); default: what the encoder's mask shows.
        """
        check_kwargs(kwargs, WeftModel.forward, "WeftModel.forward")
        attention_mask = inferred_mask(attention_mask, input_ids, self.config.pad_token_id)
        if encoder_outputs is None:
            encoder_outputs = self.encoder(
                input_ids=input_ids,
                attention_mask=attention_mask,
                inputs_embeds=inputs_embeds,
                position_ids=position_ids,
                position_mask=position_mask,
                condition_values=condition_values,
                **kwargs,
            )
        elif isinstance(encoder_outputs, tuple):
            encoder_outputs = WeftEncoderOutput(*encoder_outputs)
        assert encoder_outputs is not None and not isinstance(encoder_outputs, tuple)
        if cross_attn_mask is None:
            cross_attn_mask = key_mask_of(attention_mask, encoder_outputs[0].shape[0])
        decoder_outputs = self.decoder(
            input_ids=decoder_input_ids,
            attention_mask=decoder_attention_mask,
            encoder_hidden_states=encoder_outputs[0],
            encoder_attention_mask=cross_attn_mask,
            past_key_values=past_key_values,
            inputs_embeds=decoder_inputs_embeds,
            use_cache=use_cache,
            position_ids=decoder_position_ids,
            position_mask=decoder_position_mask,
            key_position_ids=decoder_key_position_ids,
            key_position_mask=decoder_key_position_mask,
            encoder_position_ids=position_ids,
            encoder_position_mask=position_mask,
            **({} if is_causal is None else {"is_causal": is_causal}),
            **kwargs,
        )
        return WeftModelOutput(
            last_hidden_state=decoder_outputs.last_hidden_state,
            past_key_values=decoder_outputs.past_key_values,
            decoder_hidden_states=decoder_outputs.hidden_states,
            decoder_attentions=decoder_outputs.attentions,
            cross_attentions=decoder_outputs.cross_attentions,
            encoder_last_hidden_state=encoder_outputs.last_hidden_state,
            encoder_hidden_states=encoder_outputs.hidden_states,
            encoder_attentions=encoder_outputs.attentions,
            encoder_router_logits=getattr(encoder_outputs, "router_logits", None),
            decoder_router_logits=decoder_outputs.router_logits,
            encoder_router_ids=getattr(encoder_outputs, "router_ids", None),
            decoder_router_ids=decoder_outputs.router_ids,
        )


class WeftForConditionalGeneration(WeftPreTrainedModel, WeftGenerationMixin):
    """Encoder, decoder and the head that scores the target vocabulary: trains on pairs, generates text."""

    def __init__(self, config: WeftConfig):
        super().__init__(config)
        self.model = WeftModel(config)
        self.lm_head = nn.Linear(config.d_model, config.target_vocab_size, bias=config.lm_head_bias)
        if config.tie_word_embeddings:
            table = "shared" if config.share_encoder_decoder_embeddings else "decoder.embed_tokens"
            self._tied_weights_keys = {"lm_head.weight": f"model.{table}.weight"}
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        input_ids: torch.LongTensor | None = None,
        attention_mask: torch.Tensor | None = None,
        decoder_input_ids: torch.LongTensor | None = None,
        decoder_attention_mask: torch.Tensor | None = None,
        encoder_outputs: WeftEncoderOutput | tuple | None = None,
        past_key_values: Cache | None = None,
        inputs_embeds: torch.FloatTensor | None = None,
        decoder_inputs_embeds: torch.FloatTensor | None = None,
        labels: torch.LongTensor | None = None,
        use_cache: bool | None = None,
        position_ids: torch.LongTensor | None = None,
        position_mask: torch.BoolTensor | None = None,
        decoder_position_ids: torch.LongTensor | None = None,
        decoder_position_mask: torch.BoolTensor | None = None,
        decoder_key_position_ids: torch.LongTensor | None = None,
        decoder_key_position_mask: torch.BoolTensor | None = None,
        condition_values: torch.Tensor | None = None,
        cross_attn_mask: torch.Tensor | None = None,
        logits_to_keep: int | torch.Tensor = 0,
        num_items_in_batch: torch.Tensor | int | None = None,
        skip_logits: bool | None = None,
        sum_router_counts: Callable[[torch.Tensor], torch.Tensor] | None = None,
        **kwargs,
    ) -> WeftSeq2SeqLMOutput:
        r"""
        The arguments of [`WeftModel.forward`], and:

        labels: (B, T), -100 where a position does not count; `decoder_input_ids` default to the labels shifted right.
        logits_to_keep: score only the last so many positions (0: all). num_items_in_batch: labels in all accumulated
            batches and processes, from the Trainer; losses are divided by it.
        skip_logits: with labels, compute the loss in pieces and return no logits; default: in training with a vocabulary
            of 4,096 words or more, where the logits would take most of the memory, and of the time on a CPU.
        sum_router_counts: from [`WeftTrainer`]: this batch's [`router_counts`] (layers, E + 1) -> those of all accumulated
            batches and processes, of whose router losses this batch's are then summands.
        """
        if isinstance(past_key_values, DecodingCache) and past_key_values.serves(decoder_input_ids, labels, kwargs):
            next_logits = past_key_values.take_step(decoder_input_ids, decoder_position_ids)
            return WeftSeq2SeqLMOutput(logits=next_logits[:, None], past_key_values=past_key_values)
        check_kwargs(kwargs, WeftForConditionalGeneration.forward, "forward")
        if labels is not None:
            decoder_inputs = decoder_input_ids if decoder_inputs_embeds is None else decoder_inputs_embeds
            check_labels(labels, self.config.target_vocab_size, decoder_inputs)
            use_cache = False
            if decoder_input_ids is None and decoder_inputs_embeds is None:
                decoder_input_ids = self.prepare_decoder_input_ids_from_labels(labels)
        has_router_losses = labels is not None and self.config.has_sparse_layers
        wants_routers = kwargs.pop("output_router_logits", None)
        wants_routers = self.config.output_router_logits if wants_routers is None else wants_routers
        outputs = self.model(
            input_ids,
            attention_mask,
            decoder_input_ids,
            decoder_attention_mask,
            encoder_outputs,
            past_key_values,
            inputs_embeds,
            decoder_inputs_embeds,
            use_cache=use_cache,
            position_ids=position_ids,
            position_mask=position_mask,
            decoder_position_ids=decoder_position_ids,
            decoder_position_mask=decoder_position_mask,
            decoder_key_position_ids=decoder_key_position_ids,
            decoder_key_position_mask=decoder_key_position_mask,
            condition_values=condition_values,
            cross_attn_mask=cross_attn_mask,
            output_router_logits=wants_routers or has_router_losses,
            output_router_ids=has_router_losses,
            **kwargs,
        )
        kept = slice(-logits_to_keep, None) if isinstance(logits_to_keep, int) else logits_to_keep
        scored = outputs.last_hidden_state[:, kept]
        logits: torch.Tensor | None = None
        loss = aux_loss = z_loss = None
        smoothing = self.config.label_smoothing if self.training else 0.0
        if labels is not None and skips_logits(self.lm_head, skip_logits, self.training):
            loss = fused_cross_entropy(scored, self.lm_head, labels[:, kept], smoothing, num_items_in_batch)
        else:
            logits = self.lm_head(scored)
            if labels is not None:
                loss = cross_entropy(logits, labels[:, kept], smoothing, num_items_in_batch)
        if has_router_losses and loss is not None and labels is not None:
            real = self.real_tokens(labels, input_ids, attention_mask, decoder_attention_mask)
            aux_loss, z_loss = self._router_losses(outputs, *real, sum_router_counts)
            if self.training:
                extra = self.config.router_aux_loss_coef * aux_loss + self.config.router_z_loss_coef * z_loss
                if sum_router_counts is None:  # means, not summands: each batch counts by its share of the labels
                    extra = extra * (labels.ne(-100).sum() / counted_items(labels, num_items_in_batch))
                loss = loss + extra
        return WeftSeq2SeqLMOutput(
            loss=loss,
            logits=logits,
            past_key_values=outputs.past_key_values,
            decoder_hidden_states=outputs.decoder_hidden_states,
            decoder_attentions=outputs.decoder_attentions,
            cross_attentions=outputs.cross_attentions,
            encoder_last_hidden_state=outputs.encoder_last_hidden_state,
            encoder_hidden_states=outputs.encoder_hidden_states,
            encoder_attentions=outputs.encoder_attentions,
            aux_loss=aux_loss,
            z_loss=z_loss,
            encoder_router_logits=outputs.encoder_router_logits if wants_routers else None,
            decoder_router_logits=outputs.decoder_router_logits if wants_routers else None,
        )

    def prepare_decoder_input_ids_from_labels(self, labels: torch.LongTensor) -> torch.LongTensor:
        """Labels (B, T) moved right by one, the start token first; -100 becomes the pad."""
        start, pad = self.config.decoder_start_token_id, self.config.pad_token_id
        if start is None or pad is None:
            name = "decoder_start_token_id" if start is None else "pad_token_id"
            raise ValueError(f"Labels cannot be shifted: the configuration's `{name}` is None; set it to a token id.")
        shifted = torch.cat([labels.new_full((labels.shape[0], 1), start), labels[:, :-1]], dim=-1)
        return cast(torch.LongTensor, shifted.masked_fill(shifted == -100, pad))

    def real_tokens(
        self, labels, input_ids=None, attention_mask=None, decoder_attention_mask=None
    ) -> tuple[torch.Tensor | None, torch.Tensor]:
        """Which source and which target tokens router losses count, flattened; None: all of the source."""
        source_mask = inferred_mask(attention_mask, input_ids, self.config.pad_token_id)
        source_mask = key_mask_of(source_mask, labels.shape[0])
        has_target_mask = decoder_attention_mask is not None and decoder_attention_mask.ndim == 2
        target_mask = decoder_attention_mask if has_target_mask else labels != -100
        return None if source_mask is None else source_mask.flatten().bool(), target_mask.flatten().bool()

    def _router_losses(self, outputs, source_real, target_real, sum_counts) -> tuple[torch.Tensor, torch.Tensor]:
        """Balance loss and z-loss, mean over sparse layers; in training the routers also count their load here."""
        ids = (*(outputs.encoder_router_ids or ()), *(outputs.decoder_router_ids or ()))
        if not ids:  # only the encoder is sparse, and its outputs were given
            return target_real.new_zeros((), dtype=torch.float), target_real.new_zeros((), dtype=torch.float)
        logits = (*(outputs.encoder_router_logits or ()), *(outputs.decoder_router_logits or ()))[-len(ids) :]
        real = [source_real] * len(outputs.encoder_router_ids or ())
        real += [target_real] * len(outputs.decoder_router_ids or ())
        if self.training:
            routers = self.routers()[-len(ids) :]  # without the encoder's when its outputs were given
            for router, *layer in zip(routers, ids, real, strict=True):
                router.count_load(*layer)
        num_experts = self.config.num_experts
        counts = torch.stack([router_counts(one, num_experts, mask) for one, mask in zip(ids, real, strict=True)])
        counts = counts if sum_counts is None else sum_counts(counts)
        aux = torch.stack([balance_loss(*layer) for layer in zip(logits, ids, real, counts, strict=True)]).mean()
        return aux, torch.stack([router_z_loss(*layer) for layer in zip(logits, real, counts, strict=True)]).mean()

    def resize_decoder_token_embeddings(self, new_num_tokens: int, mean_resizing: bool = True) -> nn.Module:
        """Resize the target's table and the head, where the target has a vocabulary of its own."""
        if not self.config.has_two_vocabularies:
            raise ValueError("Source and target share one vocabulary here: use `resize_token_embeddings`.")
        decoder = self.model.decoder
        decoder.embed_tokens = self._get_resized_embeddings(decoder.embed_tokens, new_num_tokens, None, mean_resizing)
        self.lm_head = self._get_resized_lm_head(self.lm_head, new_num_tokens, mean_resizing=mean_resizing)
        self.config.decoder_vocab_size = new_num_tokens
        self.tie_weights()
        return decoder.embed_tokens


__all__ = ["WeftForConditionalGeneration", "WeftModel"]
