"""The encoder of any Weft model alone: states of a text, and a classifier over them.

Shape suffixes: B batch, S source tokens, D model width.
"""

from typing import Unpack

import torch
from torch import nn
from transformers.modeling_outputs import SequenceClassifierOutput

from ..configuration.configuration_weft import WeftConfig
from .checks import check_kwargs, inferred_mask
from .layers import at_least_float32
from .masks import key_mask_of
from .modeling_weft import WeftEncoder, WeftEncoderOutput, WeftPreTrainedModel
from .moe import Router, balance_loss, router_counts, router_z_loss
from .transformers_names import TransformersKwargs, can_return_tuple


class WeftEncoderPreTrainedModel(WeftPreTrainedModel):
    """Base class of the models without a decoder: they read the folder of any Weft model with an encoder and a decoder."""

    _keys_to_ignore_on_load_unexpected = [r"^(model\.)?decoder\.", r"^lm_head\."]

    def routers(self) -> list[Router]:
        """Return the routers of the sparse layers, first layer first."""
        return self.base_model.encoder.routers()

    def _resize_token_embeddings(self, *args, **kwargs):
        table = super()._resize_token_embeddings(*args, **kwargs)
        if self.config.share_encoder_decoder_embeddings:  # one vocabulary, even where both sizes are named
            self.config.decoder_vocab_size = None
        return table


class WeftEncoderModel(WeftEncoderPreTrainedModel):
    """The encoder of a Weft model: `AutoModelForTextEncoding` loads it from the folder of any model with a decoder.

    Its weights have the names that they have in [`WeftModel`]. Those of decoder and head are left out when it is loaded.
    """

    def __init__(self, config: WeftConfig):
        super().__init__(config)
        self.encoder = WeftEncoder(config)
        self.shared: nn.Embedding | None = None
        if config.share_encoder_decoder_embeddings:
            # the name that the table has in files of the whole model
            self.shared = self.encoder.embed_tokens
            self._tied_weights_keys = {"encoder.embed_tokens.weight": "shared.weight"}
        self.post_init()

    def get_expanded_tied_weights_keys(self, all_submodels: bool = False) -> dict[str, str]:
        """As in transformers, but also with the shared table, which transformers looks for only if the head is tied."""
        tied = super().get_expanded_tied_weights_keys(all_submodels)
        return tied if self.shared is None else tied | self._tied_weights_keys

    def get_input_embeddings(self) -> nn.Embedding:
        return self.encoder.embed_tokens

    def set_input_embeddings(self, value: nn.Embedding) -> None:
        self.encoder.embed_tokens = value
        if self.shared is not None:
            self.shared = value

    def forward(
        self,
        input_ids: torch.LongTensor | None = None,
        attention_mask: torch.Tensor | None = None,
        inputs_embeds: torch.FloatTensor | None = None,
        position_ids: torch.LongTensor | None = None,
        position_mask: torch.BoolTensor | None = None,
        condition_values: torch.Tensor | None = None,
        **kwargs: Unpack[TransformersKwargs],  # type: ignore[misc]
    ) -> WeftEncoderOutput:
        r"""
        Args:
            input_ids, attention_mask, inputs_embeds, position_ids, position_mask, condition_values (*optional*):
                What [`WeftEncoder.forward`] takes.

        Returns:
            [`WeftEncoderOutput`]: states of shape `(batch, source, d_model)`.

        Raises:
            ValueError: an input has a wrong shape, is out of range, or is not known. The message says what is allowed.

        Example:

        ```python
        >>> import torch
        >>> from weftformer import WeftConfig, WeftEncoderModel

        >>> model = WeftEncoderModel(WeftConfig(vocab_size=20, d_model=32))
        >>> model(torch.tensor([[5, 6, 7]])).last_hidden_state.shape
        torch.Size([1, 3, 32])
        ```
        """
        check_kwargs(kwargs, WeftEncoderModel.forward, "WeftEncoderModel.forward")
        return self.encoder(
            input_ids=input_ids,
            attention_mask=attention_mask,
            inputs_embeds=inputs_embeds,
            position_ids=position_ids,
            position_mask=position_mask,
            condition_values=condition_values,
            **kwargs,
        )


class WeftForSequenceClassification(WeftEncoderPreTrainedModel):
    """The encoder with a classifier: a linear layer over the mean of the states of a text's tokens.

    `num_labels` and `problem_type` of the configuration are transformers' own. Without a `problem_type` the first labels
    decide, as in transformers, and it is written to the configuration: one output is a regression, whole numbers name one
    of several classes, other numbers give each class a truth.
    """

    def __init__(self, config: WeftConfig):
        super().__init__(config)
        self.model = WeftEncoderModel(config)
        self.classifier = nn.Linear(config.d_model, config.num_labels)
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        input_ids: torch.LongTensor | None = None,
        attention_mask: torch.Tensor | None = None,
        inputs_embeds: torch.FloatTensor | None = None,
        labels: torch.Tensor | None = None,
        position_ids: torch.LongTensor | None = None,
        position_mask: torch.BoolTensor | None = None,
        condition_values: torch.Tensor | None = None,
        num_items_in_batch: torch.Tensor | int | None = None,
        **kwargs: Unpack[TransformersKwargs],  # type: ignore[misc]
    ) -> SequenceClassifierOutput:
        r"""
        Args:
            input_ids, attention_mask, inputs_embeds, position_ids, position_mask, condition_values (*optional*):
                What [`WeftEncoder.forward`] takes.
            labels (`torch.Tensor` of shape `(batch,)` or `(batch, num_labels)`, *optional*):
                The class of each text, or a number for each output.
            num_items_in_batch (`int` or `torch.Tensor`, *optional*):
                Labels in all accumulated batches and processes, from the Trainer. The loss is divided by it.

        Returns:
            [`~transformers.modeling_outputs.SequenceClassifierOutput`]: the loss where labels are given, in training with the
            losses of the routers, and logits of shape `(batch, num_labels)`.

        Raises:
            ValueError: an input has a wrong shape, is out of range, or is not known. The message says what is allowed.

        Example:

        ```python
        >>> import torch
        >>> from weftformer import WeftConfig, WeftForSequenceClassification

        >>> model = WeftForSequenceClassification(WeftConfig(vocab_size=20, d_model=32, num_labels=3))
        >>> output = model(torch.tensor([[5, 6, 7]]), labels=torch.tensor([2]))
        >>> output.loss.shape, output.logits.shape
        (torch.Size([]), torch.Size([1, 3]))
        ```
        """
        check_kwargs(kwargs, WeftForSequenceClassification.forward, "WeftForSequenceClassification.forward")
        attention_mask = inferred_mask(self.config, attention_mask, input_ids)
        trains_routers = (
            labels is not None and self.training and "sparse" in (self.config.encoder_mlp_layer_types or ())
        )
        if trains_routers:
            kwargs["output_router_logits"] = kwargs["output_selected_experts"] = True
        outputs = self.model(
            input_ids=input_ids,
            attention_mask=attention_mask,
            inputs_embeds=inputs_embeds,
            position_ids=position_ids,
            position_mask=position_mask,
            condition_values=condition_values,
            **kwargs,
        )
        states_BSD = outputs.last_hidden_state
        mask_BS = key_mask_of(attention_mask, len(states_BSD))
        mask_BS = states_BSD.new_ones(states_BSD.shape[:2], dtype=torch.bool) if mask_BS is None else mask_BS.bool()
        weights_BS1 = mask_BS[..., None].to(states_BSD.dtype)
        pooled_BD = (states_BSD * weights_BS1).sum(dim=1) / weights_BS1.sum(dim=1).clamp(min=1)
        pooled_BD = nn.functional.dropout(pooled_BD, p=self.config.dropout, training=self.training)
        logits = self.classifier(pooled_BD)
        loss = None
        if labels is not None:
            count = labels.numel() if num_items_in_batch is None else num_items_in_batch
            loss = self._sum_of_losses(logits, labels.to(logits.device)) / count
            if trains_routers:  # a mean, so each batch counts by its share of the labels
                loss = loss + self._router_loss(outputs, mask_BS.flatten()) * (labels.numel() / count)
        return SequenceClassifierOutput(
            loss=loss, logits=logits, hidden_states=outputs.hidden_states, attentions=outputs.attentions
        )

    def _sum_of_losses(self, logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """Return the sum of the losses of all labels. Their mean is the loss of transformers."""
        config, number = self.config, self.config.num_labels
        if config.problem_type is None:  # pipelines read it from the saved configuration
            is_class = labels.dtype in (torch.long, torch.int)
            several = "single_label_classification" if is_class else "multi_label_classification"
            config.problem_type = "regression" if number == 1 else several
        logits = logits.to(at_least_float32(logits.dtype))
        if config.problem_type == "single_label_classification":
            if labels.numel() != len(logits) or labels.is_floating_point():
                raise ValueError(
                    f"labels of shape {tuple(labels.shape)} and type {labels.dtype}: one class of {number} is asked for each "
                    f"text, so give whole numbers of shape ({len(logits)},)."
                )
            return nn.functional.cross_entropy(logits, labels.flatten().long(), reduction="sum")
        if labels.numel() != logits.numel():
            raise ValueError(
                f"labels have the shape {tuple(labels.shape)}, and problem_type={config.problem_type!r} asks for numbers of "
                f"shape {tuple(logits.shape)}."
            )
        labels = labels.view_as(logits).to(logits.dtype)
        if config.problem_type == "regression":
            return nn.functional.mse_loss(logits, labels, reduction="sum")
        return nn.functional.binary_cross_entropy_with_logits(logits, labels, reduction="sum")

    def _router_loss(self, outputs: WeftEncoderOutput, non_pads: torch.Tensor) -> torch.Tensor:
        """Return the weighed balance loss and z-loss, and let the routers count their load."""
        ids, logits = outputs.selected_experts or (), outputs.router_logits or ()
        for router, layer in zip(self.routers(), ids, strict=True):
            router.count_load(layer, non_pads)
        counts = [router_counts(layer, self.config.num_experts, non_pads) for layer in ids]
        layers = list(zip(logits, ids, counts, strict=True))
        aux = torch.stack([balance_loss(one, chosen, non_pads, count) for one, chosen, count in layers]).mean()
        z = torch.stack([router_z_loss(one, non_pads, count) for one, _, count in layers]).mean()
        return self.config.router_aux_loss_coef * aux + self.config.router_z_loss_coef * z


__all__ = ["WeftEncoderModel", "WeftForSequenceClassification"]
