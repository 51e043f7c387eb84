"""What all Weft models share, and what the two stacks have in common."""

from itertools import chain

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint
from transformers.integrations.tensor_parallel import replace_layer_number_by_wildcard
from transformers.modeling_utils import PreTrainedModel

from ..configuration.configuration_weft import WeftConfig
from .checks import as_rows
from .initial_weights import initialize
from .layers import WeftDecoderLayer, WeftEncoderLayer
from .loading import LoadingMixin
from .masks import refuse_flash_with_bias
from .mixture import Router
from .norms import build_norm
from .parallel import STACK_EP_PLAN, STACK_FSDP_PLAN, STACK_TP_PLAN, check_sizes, data_parallel_size
from .positions import TokenPositions, build_position_embedding, embed_positions


class WeftPreTrainedModel(LoadingMixin, PreTrainedModel):
    """What all Weft models share: weights, files and the switches of transformers."""

    config: WeftConfig
    config_class = WeftConfig
    base_model_prefix = "model"
    main_input_name = "input_ids"
    supports_gradient_checkpointing = True
    _no_split_modules = ["WeftEncoderLayer", "WeftDecoderLayer"]
    _skip_keys_device_placement = ["past_key_values"]
    _supports_flash_attn = True
    _supports_sdpa = True
    _supports_flex_attn = True
    _can_compile_fullgraph = True
    _tp_plan = {"lm_head": "colwise_gather_output"}  # the stacks, which have no head, have plans of their own

    def __init__(self, config: WeftConfig, *args, **kwargs):
        super().__init__(config, *args, **kwargs)
        refuse_flash_with_bias(config)

    # transformers looks for these switches in the text of this file; attention and experts live in files of their own
    @classmethod
    def _can_set_attn_implementation(cls) -> bool:
        return True

    @classmethod
    def _can_set_experts_implementation(cls) -> bool:
        return True

    def init_parallel_plans(self) -> None:
        """As in transformers, without the rules that name nothing in this model: the plans are those of the family."""
        super().init_parallel_plans()
        named = chain(self.named_modules(), self.named_parameters())
        names = {replace_layer_number_by_wildcard(name) for name, _ in named}
        for kind in ("_tp_plan", "_ep_plan", "_fsdp_plan"):
            setattr(self, kind, {name: style for name, style in getattr(self, kind).items() if name in names})

    @classmethod
    def maybe_distribute_model(cls, model, distributed_config, *args, **kwargs):
        """As in transformers, after a look at whether this model can be split so."""
        if distributed_config is not None:
            check_sizes(model.config, distributed_config)
            if data_parallel_size(distributed_config) > 1:
                # Else FSDP2 takes table and head for two weights, which they are until they are loaded, and from then on
                # updates one of them.
                model.tie_weights()
        return super().maybe_distribute_model(model, distributed_config, *args, **kwargs)

    @property
    def _ddp_params_and_buffers_to_ignore(self) -> list[str]:
        # DDP gives every process the buffers of the first, and each must count the load of its own batches
        return [name for name, _ in self.named_buffers() if name.endswith("expert_load")]

    def _grouped_mm_can_dispatch(self) -> bool:
        """As in transformers, which takes "eager" where this raises, unless "grouped_mm" was asked for by name."""
        config = self.config
        ffn_dims = {config.moe_intermediate_size or dim for dim in (config.encoder_ffn_dim, config.decoder_ffn_dim)}
        uneven = [width for width in (config.d_model, *ffn_dims) if width % 8]
        if config.has_sparse_layers and uneven:
            raise ValueError(
                f'experts_implementation="grouped_mm" needs d_model and the width of the experts to be multiples of 8 '
                f'(rows of 16 bytes): got {uneven[0]}; use "eager" or "batched_mm", or change the width.'
            )
        return super()._grouped_mm_can_dispatch()

    def _set_gradient_checkpointing(self, enable: bool = True, gradient_checkpointing_func=checkpoint, **kwargs):
        reentrant = getattr(gradient_checkpointing_func, "keywords", {}).get("use_reentrant", True)
        if enable and reentrant and self.config.has_sparse_layers:
            raise ValueError(
                "Reentrant checkpointing would cut the router losses off from their gradients: give "
                'gradient_checkpointing_kwargs={"use_reentrant": False}.'
            )
        super()._set_gradient_checkpointing(enable, gradient_checkpointing_func, **kwargs)

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        if not initialize(self.config, module):
            super()._init_weights(module)

    def _resize_token_embeddings(self, new_num_tokens, pad_to_multiple_of=None, mean_resizing=True):
        base = self.base_model
        if not hasattr(base, "decoder"):  # a stack alone
            return super()._resize_token_embeddings(new_num_tokens, pad_to_multiple_of, mean_resizing)
        if self.config.share_encoder_decoder_embeddings:  # one vocabulary, even where both sizes are named
            self.config.decoder_vocab_size = None

        def resized(table):
            return self._get_resized_embeddings(table, new_num_tokens, pad_to_multiple_of, mean_resizing)

        if self.config.decoder_vocab_size is not None:  # `vocab_size` is the source's alone
            base.set_input_embeddings(resized(base.encoder.embed_tokens))
        else:
            super()._resize_token_embeddings(new_num_tokens, pad_to_multiple_of, mean_resizing)
            if not self.config.share_encoder_decoder_embeddings:
                base.decoder.embed_tokens = resized(base.decoder.embed_tokens)
        return self.get_input_embeddings()

    def routers(self) -> list[Router]:
        """The routers of the sparse layers, encoder before decoder, first layer first."""
        return [module for module in self.modules() if isinstance(module, Router)]

    def update_router_biases(self) -> None:
        """Move every expert's selection bias against its load, over all processes; the count then starts again.

        For optimizers that hold copies of the weights, such as DeepSpeed's: call it after each step. Routers notice the steps
        of an optimizer that holds theirs. Does nothing unless the configuration has a `router_bias_update_rate`.
        """
        for router in self.routers():
            router.update_selection_bias()


class WeftStack(WeftPreTrainedModel):
    """Embeddings, layers and last norm: what encoder and decoder have in common."""

    layer_class: type[WeftEncoderLayer] | type[WeftDecoderLayer]
    _tp_plan = STACK_TP_PLAN
    _ep_plan = STACK_EP_PLAN
    _fsdp_plan = STACK_FSDP_PLAN

    def __init__(self, config: WeftConfig, vocab_size: int, num_layers: int, num_positions: int):
        super().__init__(config)
        self.embed_tokens = nn.Embedding(vocab_size, config.d_model)
        self.embed_positions = build_position_embedding(config, num_positions)
        self.layernorm_embedding = build_norm(config) if config.normalize_embedding else None
        self.layers = nn.ModuleList([self.layer_class(config, index) for index in range(num_layers)])
        self.layer_norm = build_norm(config) if config.has_final_norm else None
        self.embed_scale = config.d_model**0.5 if config.scale_embedding else 1.0
        self.gradient_checkpointing = False

    def _embed(
        self, inputs_embeds: torch.Tensor, positions: TokenPositions, condition: torch.Tensor | None = None
    ) -> torch.Tensor:
        hidden_states = inputs_embeds * self.embed_scale
        if self.embed_positions is not None:
            hidden_states = hidden_states + embed_positions(self.embed_positions, positions, inputs_embeds.dtype)
        if condition is not None:
            hidden_states = hidden_states + condition
        if self.layernorm_embedding is not None:
            hidden_states = self.layernorm_embedding(hidden_states)
        return nn.functional.dropout(hidden_states, p=self.config.dropout, training=self.training)

    def _finish(self, hidden_states: torch.Tensor) -> torch.Tensor:
        return hidden_states if self.layer_norm is None else self.layer_norm(hidden_states)


def token_positions(position_ids, position_mask, default, batch: int, length: int, name: str) -> TokenPositions:
    """Given or default ids, and the mask of those that count; both as rows."""
    ids = default if position_ids is None else as_rows(position_ids, batch, length, f"{name}_ids")
    mask = None if position_mask is None else as_rows(position_mask, batch, length, f"{name}_mask").bool()
    return TokenPositions(ids if ids.ndim == 2 else ids[None], mask)
