"""The whole model on one page: outputs, layers, the two stacks, the models. Its parts are in the files beside it.

Shape suffixes: B batch, S source tokens, T target tokens of this call, D model width.
"""

import inspect
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass
from functools import partial
from itertools import islice
from types import SimpleNamespace
from typing import Any, ClassVar, NamedTuple, Unpack, cast

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint
from transformers import Cache, GradientCheckpointingLayer, PreTrainedModel, logging
from transformers.modeling_outputs import (
    ModelOutput,
    MoEModelOutput,
    MoEModelOutputWithPastAndCrossAttentions,
    Seq2SeqLMOutput,
    Seq2SeqMoEModelOutput,
)

from ..configuration.configuration_weft import WeftConfig
from ..configuration.fields import EDITABLE_FIELDS, rules
from .attention import AttentionBase, CrossAttention, SelfAttention, copied_cache, new_cache, self_attention_cache
from .checks import (
    CALLER_KWARGS,
    as_encoder_outputs,
    can_read,
    check_condition_values,
    check_head_bias,
    check_ids,
    check_inputs,
    check_kwargs,
    check_labels,
    check_mask,
    check_positions,
    check_router_losses,
    check_side,
    check_states,
    inferred_mask,
    names_of,
    reads_values,
    trains_tokens,
    unwrap_embedding,
    with_batch_dimension,
)
from .generation import WeftGenerationMixin
from .layers import FeedForward, build_norm, dropout
from .loading import LoadingMixin
from .losses import (
    balance_loss,
    chunked_cross_entropy,
    chunks_loss,
    counted_items,
    cross_entropy,
    router_counts,
    router_z_loss,
)
from .masks import bidirectional_mask, decoder_mask, key_mask_of, refuse_lost_bias
from .moe import ExpertsBase, Router, SparseFeedForward
from .positions import (
    AttentionPositions,
    TokenPositions,
    WeftRotaryEmbedding,
    attention_positions,
    build_position_embedding,
    embed_positions,
    positions_after_pads,
    positions_of_tokens,
)
from .recorders import Recorded, traceable
from .transformers_names import (
    CACHE,
    HasCache,
    OutputRecorder,
    TransformersKwargs,
    can_return_tuple,
    capture_outputs,
    layer_recorder,
    merge_with_config_defaults,
    takes_either_cache_name,
)
from .transformers_names import initialization as init

logger = logging.get_logger(__name__)


@dataclass
class WeftDecoderOutput(HasCache, MoEModelOutputWithPastAndCrossAttentions):
    """The output of [`WeftDecoder`], whose cache is both `cache` and `past_key_values`."""


@dataclass
class WeftModelOutput(HasCache, Seq2SeqMoEModelOutput):
    """The output of [`WeftModel`], whose cache is both `cache` and `past_key_values`."""


@dataclass
class WeftSeq2SeqLMOutput(HasCache, Seq2SeqLMOutput):
    r"""The output of [`WeftForConditionalGeneration`], whose cache is both `cache` and `past_key_values`.

    It has these fields in addition to those of [`~modeling_outputs.Seq2SeqLMOutput`]:

    Args:
        aux_loss (`torch.FloatTensor` of shape `()`): balance loss of the routers, the mean over the sparse layers,
            without its weight in `loss`.
        z_loss (`torch.FloatTensor` of shape `()`): router z-loss, the mean over the sparse layers, without its weight
            in `loss`.
        encoder_router_logits, decoder_router_logits: as in [`~modeling_outputs.Seq2SeqMoEModelOutput`].
    """

    aux_loss: torch.Tensor | None = None
    z_loss: torch.Tensor | None = None
    encoder_router_logits: tuple[torch.Tensor, ...] | None = None
    decoder_router_logits: tuple[torch.Tensor, ...] | None = None


def _normal(config: WeftConfig, weight: torch.Tensor) -> None:
    """Initialize a weight with standard deviation `init_std`, or with Glorot and Bengio's variance if it is None.

    This variance is 2 / (fan in + fan out), where the fans are the last two dimensions.
    """
    std = config.init_std or (2.0 / sum(weight.shape[-2:])) ** 0.5
    init.normal_(weight, mean=0.0, std=std)


def initialize(config: WeftConfig, module: nn.Module) -> bool:
    """Initialize the parameters and buffers of the module itself.

    Return False if the module is of a class not known here.
    """
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


def keep_weights(module: Any) -> None:
    """Mark a module as initialized: `post_init` of a model around this one would fill it at random otherwise."""
    module._is_hf_initialized = True


def shift_tokens_right(config: WeftConfig, ids: torch.Tensor) -> torch.LongTensor:
    """Return ids (B, T) shifted right by one, with the start token first and the pad token in place of -100."""
    names = ["pad_token_id"] if config.starts_with_last_token else ["decoder_start_token_id", "pad_token_id"]
    if missing_names := [name for name in names if getattr(config, name) is None]:
        raise ValueError(
            f"Labels and inputs cannot be shifted without `{missing_names[0]}`: set it in the configuration."
        )
    pad = cast(int, config.pad_token_id)
    ids = ids.masked_fill(ids == -100, pad)
    if config.starts_with_last_token:
        num_tokens = ids.ne(pad).sum(dim=1, keepdim=True)
        start = ids.gather(1, (num_tokens - 1).clamp(min=0))
    else:
        start = ids.new_full((ids.shape[0], 1), cast(int, config.decoder_start_token_id))
    return cast(torch.LongTensor, torch.cat([start, ids[:, :-1]], dim=-1))


def build_feed_forward(config: WeftConfig, layer_idx: int, is_decoder: bool, parts: Any) -> nn.Module:
    """Return the dense or the sparse feed-forward that the configuration names for this layer of this stack."""
    layer_types = config.decoder_mlp_layer_types if is_decoder else config.encoder_mlp_layer_types
    assert layer_types is not None
    ffn_dim = config.decoder_ffn_dim if is_decoder else config.encoder_ffn_dim
    is_sparse = layer_types[layer_idx] == "sparse"
    return (parts.sparse_feed_forward_class if is_sparse else parts.feed_forward_class)(config, ffn_dim)


class ResidualLayer(Recorded, GradientCheckpointingLayer):
    """A layer with residual sums in pre-norm order, x + f(norm(x)), or in post-norm order, norm(x + f(x))."""

    def __init__(self, config: WeftConfig):
        super().__init__()
        self.config = config
        self.norm_first = config.norm_first

    def pre_norm(self, norm: nn.Module, hidden_states: torch.Tensor) -> torch.Tensor:
        return norm(hidden_states) if self.norm_first else hidden_states

    def add_residual(self, norm: nn.Module, residual: torch.Tensor, hidden_states: torch.Tensor) -> torch.Tensor:
        hidden_states = residual + dropout(hidden_states, self.config.dropout, self.training)
        return hidden_states if self.norm_first else norm(hidden_states)


def router_of(layer: nn.Module) -> Any:
    """Return the router of a layer, or None if the layer is dense."""
    # by name, not by type: an adapter may keep the original beside the copy that it trains, and `router` is the one in
    # use
    return getattr(getattr(layer, "mlp", None), "router", None)


class WeftEncoderLayer(ResidualLayer):
    """A layer of the encoder: self-attention and feed-forward. `parts` are those of the model, see [`parts_of`]."""

    def __init__(self, config: WeftConfig, layer_idx: int, parts: Any = None):
        super().__init__(config)
        parts = parts or parts_of(WeftPreTrainedModel)
        self.self_attn = parts.self_attention_class(config, layer_idx, is_decoder=False)
        self.self_attn_layer_norm = parts.norm_class(config)
        self.mlp = build_feed_forward(config, layer_idx, False, parts)
        self.final_layer_norm = parts.norm_class(config)

    def forward(
        self,
        hidden_states: torch.Tensor,
        attention_mask: torch.Tensor | None = None,
        positions: AttentionPositions | None = None,
        token_mask: torch.Tensor | None = None,
        **kwargs,
    ) -> torch.Tensor:
        residual = hidden_states
        hidden_states = self.pre_norm(self.self_attn_layer_norm, residual)
        hidden_states, _ = self.self_attn(hidden_states, attention_mask, positions, **kwargs)
        hidden_states = self.add_residual(self.self_attn_layer_norm, residual, hidden_states)
        residual = hidden_states
        hidden_states = self.mlp(self.pre_norm(self.final_layer_norm, residual), token_mask)
        return self.add_residual(self.final_layer_norm, residual, hidden_states)


class WeftDecoderLayer(ResidualLayer):
    """A layer of the decoder: self-attention, cross-attention and feed-forward. `parts` are as in the encoder."""

    def __init__(self, config: WeftConfig, layer_idx: int, parts: Any = None):
        super().__init__(config)
        parts = parts or parts_of(WeftPreTrainedModel)
        self.self_attn = parts.self_attention_class(config, layer_idx, is_decoder=True)
        self.self_attn_layer_norm = parts.norm_class(config)
        self.encoder_attn = parts.cross_attention_class(config, layer_idx)
        self.encoder_attn_layer_norm = parts.norm_class(config)
        self.mlp = build_feed_forward(config, layer_idx, True, parts)
        self.final_layer_norm = parts.norm_class(config)

    def forward(
        self,
        hidden_states: torch.Tensor,
        attention_mask: torch.Tensor | None = None,
        positions: AttentionPositions | None = None,
        encoder_hidden_states: torch.Tensor | None = None,
        encoder_attention_mask: torch.Tensor | None = None,
        cross_positions: AttentionPositions | None = None,
        cache: Cache | None = None,
        is_causal: bool | None = None,
        token_mask: torch.Tensor | None = None,
        given_cache: Cache | None = None,
        **kwargs,
    ) -> torch.Tensor:
        if given_cache is not None:  # checkpointing runs this again, which must not add keys and values a second time
            cache = copied_cache(given_cache)
        residual = hidden_states
        hidden_states = self.pre_norm(self.self_attn_layer_norm, residual)
        causality = {} if is_causal is None else {"is_causal": is_causal}
        hidden_states, _ = self.self_attn(hidden_states, attention_mask, positions, cache=cache, **causality, **kwargs)
        hidden_states = self.add_residual(self.self_attn_layer_norm, residual, hidden_states)
        if encoder_hidden_states is not None:
            residual = hidden_states
            hidden_states = self.pre_norm(self.encoder_attn_layer_norm, residual)
            hidden_states, _ = self.encoder_attn(
                hidden_states, encoder_hidden_states, encoder_attention_mask, cross_positions, cache=cache, **kwargs
            )
            hidden_states = self.add_residual(self.encoder_attn_layer_norm, residual, hidden_states)
        residual = hidden_states
        hidden_states = self.mlp(self.pre_norm(self.final_layer_norm, residual), token_mask)
        return self.add_residual(self.final_layer_norm, residual, hidden_states)


_PARTS_OF_STACKS = ("self_attention_class", "feed_forward_class", "sparse_feed_forward_class", "norm_class")
_PARTS = (
    "model_class", "encoder_class", "decoder_class", "encoder_layer_class", "decoder_layer_class",
    "cross_attention_class", *_PARTS_OF_STACKS,
)  # fmt: skip


def parts_of(model_class: type["WeftPreTrainedModel"], outer: Any = None) -> SimpleNamespace:
    """Return the classes of the parts that a model is built of, by the names of the class attributes.

    Args:
        model_class: the class of the model or the stack.
        outer: the parts of the model around it. An attribute that `model_class` does not set is the outer one.
    """
    parts = {name: getattr(model_class, name) for name in _PARTS}
    if outer is not None:
        defaults = {name: getattr(WeftPreTrainedModel, name) for name in _PARTS}
        parts = {name: getattr(outer, name) if part is defaults[name] else part for name, part in parts.items()}
    return SimpleNamespace(**parts)


class WeftPreTrainedModel(LoadingMixin, Recorded, PreTrainedModel):
    """The base class of all Weft models: initialization, loading, and the class attributes that transformers reads.

    A subclass of a model changes one of its parts by one class attribute, such as `self_attention_class`. The
    attribute is also that of the stacks and the layers inside, unless their classes set it themselves.
    """

    # each is called with the configuration first: a layer then takes its index and the parts, self-attention its index
    # and `is_decoder`, cross-attention its index, a feed-forward its inner width, and a norm nothing else
    model_class: ClassVar[Callable[..., nn.Module]]
    encoder_class: ClassVar[Callable[..., nn.Module]]
    decoder_class: ClassVar[Callable[..., nn.Module]]
    encoder_layer_class: ClassVar[Callable[..., nn.Module]] = WeftEncoderLayer
    decoder_layer_class: ClassVar[Callable[..., nn.Module]] = WeftDecoderLayer
    self_attention_class: ClassVar[Callable[..., nn.Module]] = SelfAttention
    cross_attention_class: ClassVar[Callable[..., nn.Module]] = CrossAttention
    feed_forward_class: ClassVar[Callable[..., nn.Module]] = FeedForward
    sparse_feed_forward_class: ClassVar[Callable[..., nn.Module]] = SparseFeedForward
    norm_class: ClassVar[Callable[..., nn.Module]] = staticmethod(build_norm)
    # The names of the parts that a model is built of. A stack saved alone does not have the others.
    read_parts: ClassVar[tuple[str, ...]] = _PARTS

    config: WeftConfig
    config_class = WeftConfig
    base_model_prefix = "model"
    main_input_name = "input_ids"
    supports_gradient_checkpointing = True
    _skip_keys_device_placement = ["cache", "past_key_values"]
    _supports_flash_attn = True
    _supports_sdpa = True
    _supports_flex_attn = True
    _can_compile_fullgraph = True
    # Whether the values of a batch have been checked, see `checks.py`.
    has_checked_values = False

    def __init__(self, config: WeftConfig, parts: Any = None, *args, **kwargs):
        super().__init__(config, *args, **kwargs)
        refuse_lost_bias(config)
        self.parts = parts_of(type(self), parts)
        self._built_from = {
            name: deepcopy(getattr(config, name)) for name in rules(WeftConfig) if name not in EDITABLE_FIELDS
        }

    # transformers would search the source of this file for attention and experts, but they are in other files
    @classmethod
    def _can_set_attn_implementation(cls, *args, **kwargs) -> bool:
        return True

    @classmethod
    def _can_set_experts_implementation(cls, *args, **kwargs) -> bool:
        return True

    def check_config(self) -> None:
        """Check that the configuration and the code describe this model, so that it is the same after saving and
        loading.

        Raises:
            ValueError: a field is not allowed, or was edited after the model was built from it; or the code of a
                subclass cannot be saved with the model. The message says why.
        """
        self.config.validate()
        if self.config.package is not None:
            self.config.package.check_code(self)
        own_parts = parts_of(type(self))
        part_names = {name for name in self.read_parts if getattr(own_parts, name) is not getattr(self.parts, name)}
        if part_names:
            raise ValueError(
                f"This {type(self).__name__} has the {', '.join(sorted(part_names))} of the model around it: "
                "save that model, or build a subclass that sets these class attributes."
            )
        for name, value in self._built_fields().items():
            if (field_value := getattr(self.config, name)) != value:
                raise ValueError(
                    f"The configuration has {name}={field_value!r}, but the model has {value!r}: set "
                    f"`model.config.{name}` to {value!r}, or load the weights by `from_pretrained(..., {name}=...)`."
                )

    def _built_fields(self) -> dict[str, Any]:
        """Return the fields that the model was built from, with what was changed in place since."""
        fields = dict(self._built_from)
        for stack in self.modules():
            if isinstance(stack, WeftStack):  # layers may have been removed, and tables resized
                side = "decoder" if isinstance(stack, WeftDecoder) else "encoder"
                kinds = ["dense" if router_of(layer) is None else "sparse" for layer in stack.layers]
                fields |= {f"{side}_layers": len(kinds), f"{side}_mlp_layer_types": kinds}
                table = "decoder_vocab_size" if side == "decoder" else "vocab_size"
                fields[table] = unwrap_embedding(stack.embed_tokens).num_embeddings
                if isinstance(stack.embed_positions, nn.Embedding):
                    fields[stack.positions_field] = stack.embed_positions.num_embeddings
        counts = {router.num_experts for router in self.routers()}  # experts may have been removed, too
        if len(counts) > 1:
            raise ValueError(
                f"The layers have {', '.join(map(str, sorted(counts)))} experts: remove as many from each layer."
            )
        return fields | ({"num_experts": counts.pop()} if counts else {})

    def save_pretrained(self, *args, **kwargs):
        """Save the model as in transformers. Raises a ValueError as in [`check_config`] before anything is written."""
        self.check_config()
        if self.config.package is None:
            super().save_pretrained(*args, **kwargs)
            return
        # for a registered class, transformers would write its file as it is
        self.__dict__.update(is_remote_code=lambda: False, _auto_class=None)
        try:
            with self.config.package.saving(self):
                super().save_pretrained(*args, **kwargs)
        finally:
            del self.is_remote_code, self._auto_class

    def init_parallel_plans(self, *args, **kwargs) -> None:
        """Set the plans as in transformers, and remove the rules that match nothing in this model."""
        super().init_parallel_plans(*args, **kwargs)
        if self.config.package is not None:
            self.config.package.parallel.keep_own_rules(self)

    @classmethod
    def maybe_distribute_model(cls, model, distributed_config, *args, **kwargs):
        """Split a model over processes as in transformers, after checking that this is possible.

        Raises:
            ValueError: the sizes do not fit the model, or this is code that travels with weights, which cannot split
                it.
        """
        if distributed_config is None:
            return super().maybe_distribute_model(model, distributed_config, *args, **kwargs)
        if model.config.package is None:
            raise ValueError("Splitting a model over processes needs the package: pip install weftformer.")
        parallel = model.config.package.parallel
        parallel.prepare_to_split(model, distributed_config)
        model = super().maybe_distribute_model(model, distributed_config, *args, **kwargs)
        parallel.average_expert_gradients(model, distributed_config)
        return model

    def _upload_modified_files(self, working_dir, repo_id, *args, **kwargs):
        if self.config.package is not None:
            self.config.package.replace_default_card(self, working_dir, repo_id)
        return super()._upload_modified_files(working_dir, repo_id, *args, **kwargs)

    @property
    def _ddp_params_and_buffers_to_ignore(self) -> list[str]:
        # DDP copies the buffers of the first process to all others, but each process counts the load of its own
        # batches
        return [name for name, _ in self.named_buffers() if name.endswith("expert_load")]

    def _grouped_mm_can_dispatch(self, *args, **kwargs) -> bool:
        """Check that "grouped_mm" works for this model, as in transformers.

        If it does not, transformers takes "eager", unless the user has named "grouped_mm".

        Raises:
            ValueError: a width or the dtype does not fit.
        """
        config = self.config
        stacks = (
            (config.encoder_mlp_layer_types, config.encoder_ffn_dim),
            (config.decoder_mlp_layer_types, config.decoder_ffn_dim),
        )
        widths = [config.moe_intermediate_size or ffn_dim for types, ffn_dim in stacks if "sparse" in (types or ())]
        uneven = [width for width in (config.d_model, *widths) if width % 8]
        if config.has_sparse_layers and uneven:
            raise ValueError(
                f'grouped_mm needs widths that are multiples of 8, not {uneven[0]}: use "eager" or "batched_mm".'
            )
        # while a model is being built, it has no parameters yet
        dtype = next((parameter.dtype for parameter in self.parameters()), torch.get_default_dtype())
        if config.has_sparse_layers and dtype == torch.float64:
            raise ValueError('grouped_mm does not support float64: use "eager" or "batched_mm", or another dtype.')
        return super()._grouped_mm_can_dispatch(*args, **kwargs)

    def _set_gradient_checkpointing(self, enable: bool = True, gradient_checkpointing_func=checkpoint, **kwargs):
        settings = getattr(gradient_checkpointing_func, "keywords", {})
        if enable and settings.get("use_reentrant", True) and self.config.has_sparse_layers:
            # reentrant checkpointing first runs the layers without gradients, so the recorded router logits have none
            logger.warning_once(
                "Reentrant checkpointing would remove the gradients of the router losses, so layers are checkpointed "
                'with use_reentrant=False (as gradient_checkpointing_kwargs={"use_reentrant": False} does).'
            )
            gradient_checkpointing_func = partial(checkpoint, **(settings | {"use_reentrant": False}))
        super()._set_gradient_checkpointing(enable, gradient_checkpointing_func, **kwargs)

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        if not initialize(self.config, module):
            super()._init_weights(module)

    def _resize_token_embeddings(self, new_num_tokens, pad_to_multiple_of=None, mean_resizing=True):
        base = self.base_model
        if not hasattr(base, "decoder"):  # a stack alone
            return super()._resize_token_embeddings(new_num_tokens, pad_to_multiple_of, mean_resizing)

        def resized(table):
            return self._get_resized_embeddings(table, new_num_tokens, pad_to_multiple_of, mean_resizing)

        if self.config.has_two_vocabularies:  # `vocab_size` is the size of the source vocabulary only
            base.set_input_embeddings(resized(base.encoder.embed_tokens))
        else:
            super()._resize_token_embeddings(new_num_tokens, pad_to_multiple_of, mean_resizing)
            if not self.config.share_encoder_decoder_embeddings:
                base.decoder.embed_tokens = resized(base.decoder.embed_tokens)
        return self.get_input_embeddings()

    def routers(self) -> list[Router]:
        """Return the routers of the sparse layers, the encoder's before the decoder's, in the order of the layers."""
        base = self.base_model
        stacks = [getattr(base, name) for name in ("encoder", "decoder") if hasattr(base, name)] or [base]
        routers = [router_of(layer) for stack in stacks for layer in stack.layers]
        return [router for router in routers if router is not None]


class WeftStack(WeftPreTrainedModel):
    """The base class of encoder and decoder: embeddings, layers and final norm."""

    # the name of the ids in messages, and the field that limits positions
    ids_name: ClassVar[str]
    positions_field: ClassVar[str]
    # The plans have the rules of the whole family. The styles "weft_..." are in `parallel.py`.
    _tp_plan = {
        "embed_tokens": "embedding_rowwise",
        **{
            f"layers.*.{attention}{part}": style
            for attention in ("self_attn", "encoder_attn")
            for parts, style in (
                (("", ".q_norm", ".k_norm"), "weft_heads"),
                ((".q_proj", ".k_proj", ".v_proj"), "colwise"),
                ((".out_proj",), "rowwise"),
            )
            for part in parts
        },
        "layers.*.mlp.up_proj": "colwise",
        "layers.*.mlp.gate_proj": "colwise",
        "layers.*.mlp.down_proj": "rowwise",
        # "rowwise" splits the last dimension, and "packed" parameters have gate and up side by side
        "layers.*.mlp.experts": "weft_experts",
        "layers.*.mlp.experts.up_proj": "colwise",
        "layers.*.mlp.experts.up_proj_bias": "rowwise",
        "layers.*.mlp.experts.gate_up_proj": "packed_colwise",
        "layers.*.mlp.experts.gate_up_proj_bias": "packed_rowwise",
        "layers.*.mlp.experts.down_proj": "rowwise",
    }
    _ep_plan = {
        "layers.*.mlp.experts": "ep_dispatch_experts",
        **{
            f"layers.*.mlp.experts.{name}{bias}": "grouped_gemm"
            for name in ("up_proj", "gate_up_proj", "down_proj")
            for bias in ("", "_bias")
        },
    }
    # Each layer is a group. Embedding tables and head, which may be one weight, are in the outermost group.
    _fsdp_plan = {"layers.*": "free_full_weight"}

    def __init__(self, config: WeftConfig, parts: Any = None):
        super().__init__(config, parts)
        is_decoder, norm_class = isinstance(self, WeftDecoder), self.parts.norm_class
        layer_class = self.parts.decoder_layer_class if is_decoder else self.parts.encoder_layer_class
        num_layers = config.decoder_layers if is_decoder else config.encoder_layers
        vocab_size = config.target_vocab_size if is_decoder else config.vocab_size
        self.embed_tokens = nn.Embedding(vocab_size, config.d_model)
        self.embed_positions = build_position_embedding(config, getattr(config, self.positions_field))
        self.layernorm_embedding = norm_class(config) if config.normalize_embedding else None
        self.layers = nn.ModuleList([layer_class(config, index, self.parts) for index in range(num_layers)])
        self._no_split_modules = [type(self.layers[0]).__name__]  # `device_map` keeps a layer on one device
        self.layer_norm = norm_class(config) if config.has_final_norm else None
        self.embed_scale = config.d_model**0.5 if config.scale_embedding else 1.0
        self.gradient_checkpointing = False

    def _check_values(self, ids: torch.Tensor | None, positions: TokenPositions, length: int | None) -> None:
        """Raise a ValueError if a table lacks a token or a position.

        Args:
            ids: ids of tokens, if they were given.
            positions: positions of the tokens.
            length: the number of columns, cached ones included, from which positions were counted, if that is known.
        """
        reads = reads_values(self, positions.ids_BT.device)
        if ids is not None and reads:
            check_ids(ids, unwrap_embedding(self.embed_tokens).num_embeddings, self.ids_name)
        if self.config.has_position_table:
            rows = getattr(self.config, self.positions_field)
            check_positions(positions.indices_BT, rows, self.positions_field, length, reads)

    def embed(
        self, inputs_embeds: torch.Tensor, positions: TokenPositions, condition: torch.Tensor | None = None
    ) -> torch.Tensor:
        hidden_states = inputs_embeds * self.embed_scale
        if (table := self.embed_positions) is not None:
            hidden_states = hidden_states + embed_positions(table, positions, inputs_embeds.dtype)
        if condition is not None:
            hidden_states = hidden_states + condition
        if self.layernorm_embedding is not None:
            hidden_states = self.layernorm_embedding(hidden_states)
        return dropout(hidden_states, self.config.dropout, self.training)

    def finish(self, hidden_states: torch.Tensor) -> torch.Tensor:
        return hidden_states if self.layer_norm is None else self.layer_norm(hidden_states)


def token_positions(position_ids: Any, default_BT: torch.Tensor, batch: int, length: int, name: str) -> TokenPositions:
    """Return the given or the default positions, of shape (B or 1, T), with the mask that may be given with them."""
    if position_ids is None:
        return TokenPositions(default_BT)
    ids, mask = position_ids if isinstance(position_ids, tuple) else (position_ids, None)
    ids_BT = with_batch_dimension(ids, batch, length, name)
    return TokenPositions(ids_BT, None if mask is None else with_batch_dimension(mask, batch, length, name).bool())


class WeftEncoder(WeftStack):
    """The encoder. It maps ids of shape `(batch, source)` to states of shape `(batch, source, d_model)`, and can be
    used alone.

    Args:
        config: the configuration.
    """

    ids_name, positions_field = "input_ids", "max_source_positions"
    read_parts = ("encoder_layer_class", *_PARTS_OF_STACKS)
    _can_record_outputs = {
        "hidden_states": WeftEncoderLayer,
        "attentions": OutputRecorder(SelfAttention, index=1),
        "router_logits": OutputRecorder(Router, index=0),
    }

    def __init__(self, config: WeftConfig, parts: Any = None):
        super().__init__(config, parts)
        uses_rotary = config.self_attention_position_type == "rotary"
        self.rotary_embedding = WeftRotaryEmbedding(config.get_text_config(encoder=True)) if uses_rotary else None
        features = config.num_condition_features
        self.condition_proj = nn.Linear(features, config.d_model, bias=False) if features else None
        self.post_init()

    @merge_with_config_defaults
    @traceable
    @capture_outputs
    def forward(
        self,
        input_ids: torch.LongTensor | None = None,
        attention_mask: torch.Tensor | None = None,
        inputs_embeds: torch.FloatTensor | None = None,
        position_ids: torch.LongTensor | tuple[torch.Tensor, torch.Tensor] | None = None,
        condition_values: torch.Tensor | None = None,
        **kwargs,
    ) -> MoEModelOutput:
        r"""Compute the states of the source.

        Args:
            input_ids (`torch.LongTensor` of shape `(batch, source)`): ids of the source tokens. Give either these or
                `inputs_embeds`.
            attention_mask (`torch.Tensor` of shape `(batch, source)`): 1 for tokens and 0 for pads, at any position.
                Without a mask every token counts, unless the configuration has `infer_attention_mask`, which masks the
                pads. A mask may also have the shape `(batch, 1 or heads, source, source)`. It is then boolean, or is
                added to the scores.
            inputs_embeds (`torch.FloatTensor` of shape `(batch, source, d_model)`): embeddings in place of
                `input_ids`.
            position_ids (`torch.LongTensor` of shape `(source,)` or `(batch, source)`, or a tuple): positions of the
                tokens. Defaults to 0, 1, 2, ... from the first token on that the mask shows, which counts all pads but
                those before it. A tuple has the positions and a mask of the same shape, False for tokens that have no
                position.
            condition_values (`torch.Tensor` of shape `(batch, num_condition_features)`): numbers that scale the
                learned vectors added at every source position.

        Returns:
            States of shape `(batch, source, d_model)`.

        Raises:
            ValueError: an input has a wrong shape, is out of range, or is unknown. The message names the allowed
                values.

        Example:

        ```python
        >>> import torch
        >>> from weftformer import WeftConfig, WeftEncoder

        >>> encoder = WeftEncoder(WeftConfig(vocab_size=20, d_model=32))
        >>> encoder(torch.tensor([[5, 6, 7]])).last_hidden_state.shape
        torch.Size([1, 3, 32])
        ```
        """
        check_kwargs(kwargs, WeftEncoder.forward, "WeftEncoder.forward")
        inputs = check_inputs(input_ids, inputs_embeds, self.embed_tokens, "input_ids")
        batch, length = inputs.shape[:2]
        attention_mask = inferred_mask(self.config, attention_mask, input_ids)
        check_mask(attention_mask, batch, self.config.encoder_attention_heads, length, length, "attention_mask")
        check_condition_values(self.config, condition_values, batch)
        kind = self.config.self_attention_position_type
        # other attention reads only the differences of positions, which pads before them do not change
        follows_mask = self.embed_positions is not None or kind == "additive"
        default = positions_after_pads(key_mask_of(attention_mask, batch) if follows_mask else None, inputs)
        positions = token_positions(position_ids, default, batch, length, "position_ids")
        self._check_values(input_ids, positions, length if position_ids is None else None)

        embeds = self.embed_tokens(input_ids) if inputs_embeds is None else inputs_embeds
        condition = None
        if self.condition_proj is not None and condition_values is not None:
            condition = self.condition_proj(condition_values.to(embeds.dtype))[:, None]
        hidden_states = self.embed(embeds, positions, condition)
        mask = bidirectional_mask(self.config, embeds, attention_mask)
        layer_positions = attention_positions(
            kind, self.config, positions, positions, positions, self.rotary_embedding, embeds
        )
        token_mask = attention_mask if attention_mask is not None and attention_mask.ndim == 2 else None
        for layer in self.layers:
            hidden_states = layer(hidden_states, mask, layer_positions, token_mask=token_mask, **kwargs)
        return MoEModelOutput(last_hidden_state=self.finish(hidden_states))


class WeftDecoder(WeftStack):
    """The decoder. It can be used alone, with the states of any encoder of the same width.

    Args:
        config: the configuration.
    """

    ids_name, positions_field = "decoder_input_ids", "max_target_positions"
    read_parts = ("decoder_layer_class", "cross_attention_class", *_PARTS_OF_STACKS)
    _can_record_outputs = {
        "hidden_states": layer_recorder(WeftDecoderLayer, "decoder_layers"),
        "attentions": OutputRecorder(SelfAttention, index=1),
        "cross_attentions": OutputRecorder(CrossAttention, index=1),
        "router_logits": OutputRecorder(Router, index=0),
    }

    def __init__(self, config: WeftConfig, parts: Any = None):
        super().__init__(config, parts)
        uses_rotary = config.uses_attention_positions("rotary")
        self.rotary_embedding = WeftRotaryEmbedding(config.get_text_config(decoder=True)) if uses_rotary else None
        self.post_init()

    # without transformers' `merge_with_config_defaults`, which would write `is_causal` to the configuration for the
    # time of the call, where concurrent calls would read it
    @takes_either_cache_name
    @traceable
    @capture_outputs
    def forward(
        self,
        input_ids: torch.LongTensor | None = None,
        attention_mask: torch.Tensor | None = None,
        encoder_hidden_states: torch.FloatTensor | None = None,
        encoder_attention_mask: torch.Tensor | None = None,
        cache: Cache | None = None,
        inputs_embeds: torch.FloatTensor | None = None,
        use_cache: bool | None = None,
        position_ids: torch.LongTensor | tuple[torch.Tensor, torch.Tensor] | None = None,
        encoder_position_ids: torch.LongTensor | tuple[torch.Tensor, torch.Tensor] | None = None,
        is_causal: bool | None = None,
        token_mask: torch.Tensor | None = None,
        **kwargs,
    ) -> WeftDecoderOutput:
        r"""Compute the states of the target.

        Args:
            input_ids (`torch.LongTensor` of shape `(batch, target)`): ids of the target tokens that are not in the
                cache yet. Give either these or `inputs_embeds`.
            attention_mask (`torch.Tensor` of shape `(batch, cached + target)`): 1 for tokens and 0 for pads, the
                cached ones included. A mask may also have the shape `(batch, 1 or heads, target, cached + target)`, as
                in [`WeftEncoder.forward`].
            encoder_hidden_states (`torch.FloatTensor` of shape `(batch, source, d_model)`): states that the decoder
                attends to. Without them there is no cross-attention.
            encoder_attention_mask (`torch.Tensor` of shape `(batch, source)`): 1 for source positions that may be
                seen. A mask may also have the shape `(batch, 1 or heads, target, source)`.
            cache: keys and values of the previous tokens: an `EncoderDecoderCache`, or a cache of self-attention
                alone. If it is omitted and `use_cache` is True, a new one is made and returned. `past_key_values` is
                another name for it.
            inputs_embeds (`torch.FloatTensor` of shape `(batch, target, d_model)`): embeddings in place of
                `input_ids`.
            use_cache: whether to return keys and values. Defaults to the configuration's `use_cache`.
            position_ids (`torch.LongTensor` of shape `(target,)` or `(batch, target)`, or a tuple): positions of the
                tokens, with a mask as in [`WeftEncoder.forward`]. Defaults to a count of the tokens that a 2-D
                `attention_mask` shows, else to 0, 1, 2, ... after the cached ones.
            encoder_position_ids (`torch.LongTensor` of shape `(source,)` or `(batch, source)`, or a tuple): positions
                of the source, which cross-attention with positions reads. Defaults to 0, 1, 2, ... from the first
                position on that a 2-D `encoder_attention_mask` shows.
            is_causal: False lets every target position see all others. Defaults to True.
            token_mask (`torch.Tensor` of shape `(batch, target)`): False for pads, which no expert computes. Defaults
                to a 2-D `attention_mask`.

        Returns:
            States of shape `(batch, target, d_model)`, and the cache.

        Raises:
            ValueError: an input has a wrong shape, is out of range, or is unknown. The message names the allowed
                values.

        Example:

        ```python
        >>> import torch
        >>> from weftformer import WeftConfig, WeftDecoder

        >>> decoder = WeftDecoder(WeftConfig(vocab_size=20, d_model=32))
        >>> output = decoder(torch.tensor([[1, 5]]), encoder_hidden_states=torch.zeros(1, 3, 32))
        >>> output.last_hidden_state.shape, output.cache.get_seq_length()
        (torch.Size([1, 2, 32]), 2)
        ```
        """
        check_kwargs(kwargs, WeftDecoder.forward, "WeftDecoder.forward")
        inputs = check_inputs(input_ids, inputs_embeds, self.embed_tokens, "decoder_input_ids")
        use_cache = self.config.use_cache if use_cache is None else use_cache
        is_checkpointed = self.gradient_checkpointing and self.training and torch.is_grad_enabled()
        if is_checkpointed and cache is not None:
            settings = getattr(self._gradient_checkpointing_func, "keywords", {})
            if settings.get("use_reentrant", True):
                raise ValueError(
                    "Reentrant checkpointing takes no cache: set use_reentrant=False in gradient_checkpointing_kwargs."
                )
        elif use_cache and cache is None and not is_checkpointed:
            cache = new_cache(self.config)
        if cache is not None:
            self._check_places(cache)
        (batch, length), heads = inputs.shape[:2], self.config.decoder_attention_heads
        own_cache = self_attention_cache(cache)
        past = 0 if own_cache is None else own_cache.get_seq_length()
        if isinstance(past, int):  # a static cache counts in a tensor, and reading it would wait for the device
            keys = past + length
            if own_cache is not None and attention_mask is not None and attention_mask.shape[-1] != keys:
                keys = own_cache.get_mask_sizes(length, 0)[0]  # a static cache also has free columns
            check_mask(attention_mask, batch, heads, length, keys, "decoder_attention_mask")
        columns = torch.arange(length, device=inputs.device) + past
        visible_mask = attention_mask if attention_mask is not None and attention_mask.ndim == 2 else None
        if token_mask is None and visible_mask is not None:
            token_mask = visible_mask[:, columns]
        default = columns[None] if visible_mask is None else positions_of_tokens(visible_mask)[:, columns]
        positions = token_positions(position_ids, default, batch, length, "position_ids")
        is_counted = position_ids is None and visible_mask is None and isinstance(past, int)
        self._check_values(input_ids, positions, past + length if is_counted else None)
        key_positions = self._key_positions(positions, position_ids is not None, visible_mask, own_cache)

        embeds = self.embed_tokens(input_ids) if inputs_embeds is None else inputs_embeds
        mask = decoder_mask(self.config, embeds, attention_mask, own_cache, is_causal)
        source_mask = source_positions = None
        if encoder_hidden_states is not None:
            check_states(encoder_hidden_states, self.config.d_model, "encoder_hidden_states", batch)
            source = encoder_hidden_states.shape[1]
            check_mask(encoder_attention_mask, batch, heads, length, source, "encoder_attention_mask")
            source_positions = self._source_positions(
                encoder_position_ids, encoder_hidden_states, encoder_attention_mask
            )
            source_mask = bidirectional_mask(self.config, embeds, encoder_attention_mask, encoder_hidden_states)
        hidden_states = self.run_layers(
            embeds,
            positions,
            key_positions,
            mask,
            encoder_hidden_states,
            source_positions,
            source_mask,
            is_causal=is_causal,
            token_mask=token_mask,
            **{"given_cache" if is_checkpointed else "cache": cache},
            **kwargs,
        )
        # with gradient checkpointing, a given cache is read, but not filled
        cache = None if is_checkpointed else cache
        return WeftDecoderOutput(last_hidden_state=hidden_states, **{CACHE: cache})

    def number_layers(self) -> bool:
        """Number layers anew that were copied or moved. Return whether a layer is used several times."""
        layers: list[Any] = [layer for layer in self.layers if hasattr(layer, "self_attn")]
        if [layer.self_attn.layer_idx for layer in layers] == list(range(len(self.layers))):
            return False
        if len({*map(id, layers)}) < len(layers):
            return True
        for index, layer in enumerate(layers):
            for attention in (layer.self_attn, getattr(layer, "encoder_attn", None)):
                if attention is not None:
                    attention.layer_idx = index
        return False

    def _check_places(self, cache: Cache) -> None:
        """Raise a ValueError if a cache has no place of its own for each layer."""
        if self.number_layers():
            raise ValueError(
                "A layer of the decoder is used several times, and a cache has one place for it: set use_cache=False."
            )
        places, count = len(getattr(self_attention_cache(cache), "layers", ())), len(self.layers)
        if 0 < places < count:
            raise ValueError(
                f"The cache has places for {places} of {count} layers: set `model.config.decoder_layers` to {count}."
            )

    def run_layers(
        self,
        embeds: torch.Tensor,
        positions: TokenPositions,
        key_positions: TokenPositions,
        mask: Any,
        encoder_hidden_states: Any = None,
        source_positions: TokenPositions | None = None,
        source_mask: Any = None,
        new_source_positions: TokenPositions | None = None,
        **kwargs,
    ) -> torch.Tensor:
        """Return the states (B, T, D) of embedded tokens after all layers and the final norm.

        `forward` and the step of the fast path (`decoding/step.py`) both call this method, with masks in the form that
        attention reads. What is written here is what all ways of decoding compute.

        Args:
            embeds: embeddings of the tokens (B, T, D).
            positions: positions of these tokens.
            key_positions: positions of all keys, those of cached tokens included.
            mask: the mask of self-attention.
            encoder_hidden_states: states of the source. Without them there is no cross-attention.
            source_positions, source_mask: positions and mask of the source.
            new_source_positions: positions of the source whose keys this call projects. Defaults to all.
            kwargs: further arguments of the layers, such as the cache.
        """
        config, rotary = self.config, self.rotary_embedding
        hidden_states = self.embed(embeds, positions)
        self_positions = attention_positions(
            config.self_attention_position_type, config,
            positions, key_positions, positions, rotary, embeds, looks_ahead=False,
        )  # fmt: skip
        cross_positions = None
        if source_positions is not None:
            new_source_positions = source_positions if new_source_positions is None else new_source_positions
            cross_positions = attention_positions(
                config.cross_attention_position_type, config,
                positions, source_positions, new_source_positions, rotary, embeds, is_cross=True,
            )  # fmt: skip
        for layer in self.layers:
            hidden_states = layer(
                hidden_states,
                mask,
                self_positions,
                encoder_hidden_states,
                encoder_attention_mask=source_mask,
                cross_positions=cross_positions,
                **kwargs,
            )
        return self.finish(hidden_states)

    def _resize_token_embeddings(self, *args, **kwargs):
        table = super()._resize_token_embeddings(*args, **kwargs)
        if self.config.has_two_vocabularies:
            self.config.decoder_vocab_size = table.num_embeddings
        return table

    def _source_positions(self, position_ids: Any, states: torch.Tensor, mask: torch.Tensor | None) -> TokenPositions:
        """Return the given or the default positions of the source, which cross-attention reads."""
        (batch, length), kind = states.shape[:2], self.config.cross_attention_position_type
        default = positions_after_pads(None if kind == "none" else mask, states)
        positions = token_positions(position_ids, default, batch, length, "encoder_position_ids")
        if kind == "additive":
            # the table of cross-attention has rows for source and target
            rows = max(self.config.max_source_positions, self.config.max_target_positions)
            reads = position_ids is not None and reads_values(self, states.device)
            num_columns = length if position_ids is None else None
            check_positions(positions.indices_BT, rows, "max_source_positions", num_columns, reads)
        return positions

    def _key_positions(
        self, positions: TokenPositions, is_given: bool, mask: torch.Tensor | None, cache: Cache | None
    ) -> TokenPositions:
        """Return the positions of cached and new keys, which relative positions need.

        Args:
            positions: positions of this call's tokens.
            is_given: whether these were given, not counted.
            mask: the 2-D mask of the keys, if there is one.
            cache: the cache of self-attention.
        """
        if cache is None or not self.config.has_relative_self_attention:
            return positions
        past, new = cache.get_seq_length(), positions.ids_BT.shape[1]
        length = cache.get_mask_sizes(new, 0)[0]
        if is_given:
            if not (isinstance(past, int) and past == 0):
                raise ValueError(
                    "`position_ids` do not fit relative positions with a filled cache, which has none: leave them out."
                )
            ids_BT, mask_BT = (
                None if values is None else nn.functional.pad(values, (0, length - new)) for values in positions
            )
            assert ids_BT is not None
            return TokenPositions(ids_BT, mask_BT)
        if mask is None:
            return TokenPositions(torch.arange(length, device=positions.ids_BT.device)[None])
        return TokenPositions(nn.functional.pad(positions_of_tokens(mask), (0, length - mask.shape[1])))


def added_inputs(module: Any, weft_class: type[nn.Module]) -> set[str]:
    """Return the names of the inputs that `forward` of a module has, and that of Weft's class in its place has not."""
    return names_of(module) - {*inspect.signature(weft_class.forward).parameters}


class WeftModel(WeftPreTrainedModel):
    """Encoder and decoder, without a head.

    Args:
        config: the configuration.
    """

    _tp_plan = {"shared": "embedding_rowwise"}

    def __init__(self, config: WeftConfig, parts: Any = None):
        super().__init__(config, parts)
        self.shared: nn.Embedding | None
        self.register_module("shared", None)  # the first of the parameters
        self.encoder = self.parts.encoder_class(config, self.parts)
        self.decoder = self.parts.decoder_class(config, self.parts)
        if config.share_encoder_decoder_embeddings:
            # `tie_weights` makes it the table of both stacks, after loading
            self.register_module("shared", nn.Embedding(config.vocab_size, config.d_model))
            stacks = ("encoder", "decoder")
            self._tied_weights_keys = {f"{name}.embed_tokens.weight": "shared.weight" for name in stacks}
        self.post_init()

    @classmethod
    def from_pretrained(cls, pretrained_model_name_or_path, *model_args, config=None, **kwargs):
        """Load a model as [`WeftPreTrainedModel.from_pretrained`] does.

        `AutoModel` loads stacks that were saved alone through this class too. It passes their configuration.
        """
        name = next(iter(getattr(config, "architectures", None) or ()), None)
        alone = {stack.__name__: stack for stack in (WeftEncoder, WeftDecoder)}.get(name)
        load = super().from_pretrained if alone is None else alone.from_pretrained
        return load(pretrained_model_name_or_path, *model_args, config=config, **kwargs)

    def get_expanded_tied_weights_keys(self, *args, **kwargs) -> dict[str, str]:
        # transformers returns none if the head is not tied, but the stacks share their table with any head
        return dict(self._tied_weights_keys or {})

    def get_input_embeddings(self) -> nn.Embedding:
        return self.encoder.embed_tokens if self.shared is None else self.shared

    def set_input_embeddings(self, value: nn.Embedding) -> None:
        keep_weights(value)
        if self.shared is None:
            self.encoder.embed_tokens = value
        else:
            self.shared = value

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value)
        # `nn.DataParallel` sets all modules
        if name != "shared" or value is None or "_is_replica" in vars(self):
            return
        # where PEFT trains single tokens of a table, it replaces the others itself, if the head is tied too
        if trains_tokens(value) and self.config.tie_word_embeddings:
            return
        for stack in (self.encoder, self.decoder):  # also if an adapter replaces the table
            table = value
            if type(value) is nn.Embedding:  # one weight, but a module of its own in each stack, as in BART
                rows, width = value.weight.shape
                table = nn.Embedding(rows, width, value.padding_idx, _weight=value.weight).train(value.training)
                table.weight = value.weight  # the constructor makes another parameter of it
                if getattr(value, "_is_hf_initialized", False):
                    keep_weights(table)
            stack.embed_tokens = table

    @can_return_tuple
    @takes_either_cache_name
    def forward(
        self,
        input_ids: torch.LongTensor | None = None,
        attention_mask: torch.Tensor | None = None,
        decoder_input_ids: torch.LongTensor | None = None,
        decoder_attention_mask: torch.Tensor | None = None,
        encoder_outputs: ModelOutput | dict | tuple | list | None = None,
        cache: Cache | None = None,
        inputs_embeds: torch.FloatTensor | None = None,
        decoder_inputs_embeds: torch.FloatTensor | None = None,
        use_cache: bool | None = None,
        position_ids: torch.LongTensor | tuple[torch.Tensor, torch.Tensor] | None = None,
        condition_values: torch.Tensor | None = None,
        encoder_attention_mask: torch.Tensor | None = None,
        is_causal: bool | None = None,
        decoder_token_mask: torch.Tensor | None = None,
        **kwargs: Unpack[TransformersKwargs],  # type: ignore[misc]
    ) -> WeftModelOutput:
        r"""Compute the states of source and target.

        Args:
            input_ids, attention_mask, inputs_embeds, position_ids, condition_values: see [`WeftEncoder.forward`].
            decoder_input_ids (`torch.LongTensor` of shape `(batch, target)`): ids of the target tokens. If
                `decoder_inputs_embeds` are not given either, they default to `input_ids` shifted right, as in BART. A
                target with its own vocabulary needs one of the two.
            decoder_attention_mask, cache, decoder_inputs_embeds, use_cache, is_causal, decoder_token_mask: see
                [`WeftDecoder.forward`], where these names have no `decoder_`.
            encoder_outputs: outputs of the encoder for this source, so that it does not run again.
            encoder_attention_mask (`torch.Tensor` of shape `(batch, source)`): 1 for source positions that the decoder
                may see. A mask may also have the shape `(batch, 1 or heads, target, source)`. Defaults to the
                positions that `attention_mask` shows.

        Returns:
            States of the decoder of shape `(batch, target, d_model)`, the cache, states of the encoder, and the other
            requested outputs.

        Raises:
            ValueError: an input has a wrong shape, is out of range, or is unknown. The message names the allowed
                values.

        Example:

        ```python
        >>> import torch
        >>> from weftformer import WeftConfig, WeftModel

        >>> model = WeftModel(WeftConfig(vocab_size=20, d_model=32))
        >>> output = model(input_ids=torch.tensor([[5, 6, 7]]), decoder_input_ids=torch.tensor([[1, 8]]))
        >>> output.last_hidden_state.shape, output.encoder_last_hidden_state.shape
        (torch.Size([1, 2, 32]), torch.Size([1, 3, 32]))
        ```
        """
        encoder_kwargs, decoder_kwargs = self._kwargs_of_stacks(kwargs)
        if decoder_input_ids is None and decoder_inputs_embeds is None:
            decoder_input_ids = self._decoder_input_of(input_ids)
        attention_mask = inferred_mask(self.config, attention_mask, input_ids)
        if encoder_outputs is None:
            encoder_outputs = self.encoder(
                input_ids=input_ids,
                attention_mask=attention_mask,
                inputs_embeds=inputs_embeds,
                position_ids=position_ids,
                condition_values=condition_values,
                use_cache=False,  # otherwise gradient checkpointing warns, and the warning breaks a graph
                **encoder_kwargs,
            )
        elif not isinstance(encoder_outputs, ModelOutput):
            encoder_outputs = as_encoder_outputs(encoder_outputs)
        assert isinstance(encoder_outputs, ModelOutput)
        source_mask, source_positions = key_mask_of(attention_mask, encoder_outputs[0].shape[0]), position_ids
        if encoder_attention_mask is None:
            encoder_attention_mask = source_mask
        elif position_ids is None and source_mask is not None:  # the decoder's mask may hide more than pads
            source_positions = cast(torch.LongTensor, positions_after_pads(source_mask, encoder_outputs[0]))
        decoder_outputs = self.decoder(
            input_ids=decoder_input_ids,
            attention_mask=decoder_attention_mask,
            encoder_hidden_states=encoder_outputs[0],
            encoder_attention_mask=encoder_attention_mask,
            cache=cache,
            inputs_embeds=decoder_inputs_embeds,
            use_cache=use_cache,
            encoder_position_ids=source_positions,
            token_mask=decoder_token_mask,
            is_causal=is_causal,
            **decoder_kwargs,
        )
        return WeftModelOutput(
            last_hidden_state=decoder_outputs.last_hidden_state,
            decoder_hidden_states=decoder_outputs.hidden_states,
            decoder_attentions=decoder_outputs.attentions,
            cross_attentions=decoder_outputs.cross_attentions,
            encoder_last_hidden_state=encoder_outputs.last_hidden_state,
            encoder_hidden_states=encoder_outputs.hidden_states,
            encoder_attentions=encoder_outputs.attentions,
            encoder_router_logits=getattr(encoder_outputs, "router_logits", None),
            decoder_router_logits=decoder_outputs.router_logits,
            **{CACHE: decoder_outputs.cache},
        )

    def added_inputs(self) -> set[str]:
        """Return the names of the inputs that subclasses of the model and of its stacks have added to `forward`."""
        return added_inputs(self, WeftModel).union(*self.added_inputs_of_stacks())

    def added_inputs_of_stacks(self) -> tuple[set[str], set[str]]:
        return added_inputs(self.encoder, WeftEncoder), added_inputs(self.decoder, WeftDecoder)

    def _kwargs_of_stacks(self, kwargs: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the keywords of the encoder and of the decoder: added inputs go to the stack that names them."""
        if all(name in CALLER_KWARGS for name in kwargs):
            return kwargs, kwargs
        encoder_names, decoder_names = self.added_inputs_of_stacks()
        check_kwargs(kwargs, WeftModel.forward, "WeftModel.forward", lambda: encoder_names | decoder_names)
        return (
            {name: value for name, value in kwargs.items() if name not in decoder_names - encoder_names},
            {name: value for name, value in kwargs.items() if name not in encoder_names - decoder_names},
        )

    def _decoder_input_of(self, input_ids: torch.Tensor | None) -> torch.LongTensor:
        """Return the default input of the decoder: `input_ids` shifted right. Raise a ValueError if there is none."""
        if self.config.has_two_vocabularies:
            raise ValueError("Give `labels` or `decoder_input_ids`, because the target has its own vocabulary.")
        if input_ids is None:
            raise ValueError(
                "Give `decoder_input_ids` or `decoder_inputs_embeds`, or `input_ids`, to which they default."
            )
        return shift_tokens_right(self.config, input_ids)


class RouterUse(NamedTuple):
    """What a call needs the logits of the routers for: to return them, for their losses, and to count their load."""

    returns_logits: bool
    has_losses: bool
    counts_load: bool


class WeftForConditionalGeneration(WeftPreTrainedModel, WeftGenerationMixin):
    """Encoder, decoder and a head that scores the target vocabulary, for training on pairs and for generating.

    Args:
        config: the configuration.
    """

    _tp_plan = {"lm_head": "colwise_gather_output"}

    def __init__(self, config: WeftConfig):
        super().__init__(config)
        self.model = self.parts.model_class(config, self.parts)
        self.lm_head = nn.Linear(config.d_model, config.target_vocab_size, bias=config.lm_head_bias)
        if config.tie_word_embeddings:
            table = "shared" if config.share_encoder_decoder_embeddings else "decoder.embed_tokens"
            self._tied_weights_keys = {"lm_head.weight": f"model.{table}.weight"}
        self.post_init()

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "lm_head":
            check_head_bias(value)
        super().__setattr__(name, value)

    def added_inputs(self) -> set[str]:
        """Return the names of the inputs that subclasses of the model and of its parts have added to `forward`."""
        return added_inputs(self, WeftForConditionalGeneration) | self.model.added_inputs()

    def set_output_embeddings(self, value: nn.Module) -> None:
        keep_weights(value)
        super().set_output_embeddings(value)

    @can_return_tuple
    @takes_either_cache_name
    def forward(
        self,
        input_ids: torch.LongTensor | None = None,
        attention_mask: torch.Tensor | None = None,
        decoder_input_ids: torch.LongTensor | None = None,
        decoder_attention_mask: torch.Tensor | None = None,
        encoder_outputs: ModelOutput | dict | tuple | list | None = None,
        cache: Cache | None = None,
        inputs_embeds: torch.FloatTensor | None = None,
        decoder_inputs_embeds: torch.FloatTensor | None = None,
        labels: torch.LongTensor | None = None,
        use_cache: bool | None = None,
        position_ids: torch.LongTensor | tuple[torch.Tensor, torch.Tensor] | None = None,
        condition_values: torch.Tensor | None = None,
        encoder_attention_mask: torch.Tensor | None = None,
        logits_to_keep: int | torch.Tensor = 0,
        num_items_in_batch: torch.Tensor | int | None = None,
        smoothing: float = 0.0,
        chunked_loss: bool | None = False,
        sum_router_counts: Callable[[torch.Tensor], torch.Tensor] | None = None,
        decoder_token_mask: torch.Tensor | None = None,
        **kwargs: Unpack[TransformersKwargs],  # type: ignore[misc]
    ) -> WeftSeq2SeqLMOutput:
        r"""Compute the scores of the target vocabulary, and the loss if labels are given.

        Args:
            input_ids, attention_mask, inputs_embeds, position_ids, condition_values: see [`WeftEncoder.forward`].
            decoder_input_ids (`torch.LongTensor` of shape `(batch, target)`): ids of the target tokens. Defaults to
                `labels` shifted right, or without labels to `input_ids` shifted right, as in BART. A target with its
                own vocabulary needs one of the two.
            decoder_attention_mask, cache, decoder_inputs_embeds, decoder_token_mask: see [`WeftDecoder.forward`],
                where these names have no `decoder_`.
            encoder_outputs, encoder_attention_mask: see [`WeftModel.forward`].
            labels (`torch.LongTensor` of shape `(batch, target)`): target ids for the loss, with -100 for positions
                that do not count. If none counts, the loss is 0 in training, and NaN in evaluation.
            use_cache: whether to return keys and values. Defaults to the configuration's `use_cache`. With labels, it
                is always False.
            logits_to_keep: score only the last N positions, or the given positions. 0 scores all.
            num_items_in_batch: number of labels in all accumulated batches and processes, from the Trainer. Losses are
                divided by it.
            smoothing: label smoothing: weight of the uniform distribution over the vocabulary in the loss (Szegedy et
                al. 2016). [`WeftTrainer`] passes its `label_smoothing_factor` in training.
            chunked_loss: True computes the loss of the labels in chunks and returns no logits, which saves most of the
                memory of a large vocabulary. None does so only where it pays: in training, with a vocabulary of 4,096
                tokens or more and a plain head. [`WeftTrainer`] passes None by default.
            sum_router_counts: takes this batch's [`router_counts`] of shape `(layers, experts + 1)` and returns those
                of all accumulated batches and processes. The router losses of this batch are then its summands of
                their losses. [`WeftTrainer`] passes this function.

        Returns:
            The loss where labels are given, logits of shape `(batch, target, vocabulary)`, the cache, and the other
            requested outputs.

        Raises:
            ValueError: an input has a wrong shape, is out of range, or is unknown. The message names the allowed
                values.

        Example:

        ```python
        >>> import torch
        >>> from weftformer import WeftConfig, WeftForConditionalGeneration

        >>> model = WeftForConditionalGeneration(WeftConfig(vocab_size=20, d_model=32))
        >>> output = model(input_ids=torch.tensor([[5, 6, 7]]), labels=torch.tensor([[8, 9]]))
        >>> output.loss.shape, output.logits.shape
        (torch.Size([]), torch.Size([1, 2, 20]))
        ```
        """
        check_kwargs(kwargs, WeftForConditionalGeneration.forward, "forward", self.model.added_inputs)
        attention_mask = inferred_mask(self.config, attention_mask, input_ids)  # here, because the losses read it too
        if labels is not None:
            decoder_inputs = decoder_input_ids if decoder_inputs_embeds is None else decoder_inputs_embeds
            check_labels(self, labels, decoder_inputs)
            labels = cast(torch.LongTensor, labels.long())
            if decoder_inputs is None:
                decoder_input_ids = self.prepare_decoder_input_ids_from_labels(labels)
            use_cache = False
        wants_logits = kwargs.pop("output_router_logits", None)
        routers = self._use_of_routers(wants_logits, labels is not None, num_items_in_batch is not None)
        outputs = self.model(
            input_ids,
            attention_mask,
            decoder_input_ids,
            decoder_attention_mask,
            encoder_outputs,
            cache,
            inputs_embeds,
            decoder_inputs_embeds,
            use_cache=use_cache,
            position_ids=position_ids,
            condition_values=condition_values,
            encoder_attention_mask=encoder_attention_mask,
            decoder_token_mask=decoder_token_mask,
            output_router_logits=any(routers),
            **kwargs,
        )
        columns = slice(-logits_to_keep, None) if isinstance(logits_to_keep, int) else logits_to_keep
        states, scored_labels = outputs.last_hidden_state, None if labels is None else labels[:, columns]
        loss, logits = self._scores(states[:, columns], scored_labels, smoothing, num_items_in_batch, chunked_loss)
        if scored_labels is not None and loss is not None and not self.training:
            # transformers' trainers leave NaN out of their means, where 0 would be the best loss of all
            has_labels = scored_labels.ne(-100).any().to(loss.device)
            loss = torch.where(has_labels, loss, torch.nan)
        if routers.has_losses or routers.counts_load:
            # without labels, all target tokens count that a mask shows
            targets = states.new_zeros(states.shape[:2], dtype=torch.long) if labels is None else labels
            non_pads = self.non_pad_tokens(targets, input_ids, attention_mask, decoder_attention_mask)
            # encoder outputs that were passed in have no part in this batch's losses
            of_encoder = outputs.encoder_router_logits if encoder_outputs is None else None
            logits_of_stacks = (of_encoder or (), outputs.decoder_router_logits or ())
            aux_loss, z_loss = self._router_losses(logits_of_stacks, non_pads, sum_router_counts, routers.counts_load)
            if self.training and loss is not None and labels is not None:
                extra = self.config.router_aux_loss_coef * aux_loss + self.config.router_z_loss_coef * z_loss
                # without it the losses are means of this batch, weighted by its share of the labels
                if sum_router_counts is None:
                    extra = extra * (labels.ne(-100).sum() / counted_items(labels, num_items_in_batch))
                loss = loss + extra.to(loss.device)
        fields: dict[str, Any] = {
            name: value
            for name, value in outputs.items()
            if name != "last_hidden_state" and (routers.returns_logits or not name.endswith("router_logits"))
        }
        if routers.has_losses:
            fields |= {"aux_loss": aux_loss, "z_loss": z_loss}
        return WeftSeq2SeqLMOutput(loss=loss, logits=logits, **fields)

    def _use_of_routers(self, wants_logits: bool | None, has_labels: bool, from_trainer: bool) -> RouterUse:
        """Raise a ValueError, or warn, if routers would learn without their losses."""
        config, learns = self.config, self.training and torch.is_grad_enabled()
        wants_logits = config.output_router_logits if wants_logits is None else wants_logits
        if not config.has_sparse_layers:
            return RouterUse(bool(wants_logits), False, False)
        if learns and not has_labels and not wants_logits:
            check_router_losses(config, from_trainer)
        counts_load = bool(config.router_bias_update_rate) and (self.training if has_labels else learns)
        return RouterUse(bool(wants_logits), has_labels or bool(wants_logits), counts_load)

    def _scores(self, states, labels, smoothing, num_items_in_batch, chunked_loss) -> tuple[Any, Any]:
        """Return the loss of the labels, if there are any, and the logits, unless the loss is computed in chunks."""
        is_plain = type(self).compute_logits is WeftForConditionalGeneration.compute_logits
        if labels is not None and is_plain and chunks_loss(self.lm_head, chunked_loss, self.training):
            return chunked_cross_entropy(states, self.lm_head, labels, smoothing, num_items_in_batch), None
        logits = self.compute_logits(states)
        return None if labels is None else cross_entropy(logits, labels, smoothing, num_items_in_batch), logits

    def compute_logits(self, hidden_states: torch.Tensor) -> torch.Tensor:
        """Return the scores (..., vocabulary) of states (..., D). All ways of decoding call this method."""
        return self.lm_head(hidden_states)

    def save_pretrained(self, *args, **kwargs):
        """Save the model as in transformers, with a configuration that records whether the head is tied."""
        table, keys = self.model.decoder.embed_tokens.weight, self._tied_weights_keys
        # after merging, PEFT compares the head with the encoder's table, and calls it untied if each stack has a table
        if getattr(self.lm_head, "weight", None) is table:
            self.config.tie_word_embeddings = True
        # a head of several modules may have the table in one of them
        tied_names = [f"lm_head.{name}" for name, weight in self.lm_head.named_parameters() if weight is table]
        self._tied_weights_keys = (keys or {}) | dict.fromkeys(tied_names, "model.decoder.embed_tokens.weight")
        bias = self.generation_config.sequence_bias
        if isinstance(bias, dict):  # JSON has no tuples as keys; `generate` takes lists too
            self.generation_config.sequence_bias = [[list(tokens), value] for tokens, value in bias.items()]
        try:
            super().save_pretrained(*args, **kwargs)
        finally:
            self._tied_weights_keys = keys

    def prepare_decoder_input_ids_from_labels(self, labels: torch.LongTensor) -> torch.LongTensor:
        """Shift labels right by one, with the start token first and the pad token in place of -100.

        With `starts_with_last_token`, the last token of each row is first.

        Args:
            labels (`torch.LongTensor` of shape `(batch, target)`): the labels.

        Returns:
            `torch.LongTensor` of shape `(batch, target)`

        Raises:
            ValueError: the configuration has no start token or no pad token, or labels are padded on the left.
        """
        if can_read(labels.device):
            check_side(labels)
        return shift_tokens_right(self.config, labels)

    def non_pad_tokens(
        self, labels, input_ids=None, attention_mask=None, decoder_attention_mask=None
    ) -> tuple[torch.Tensor | None, torch.Tensor]:
        """Return the masks of the non-pad tokens, which the router losses count.

        Args:
            labels (`torch.LongTensor` of shape `(batch, target)`): the labels. -100 is a pad, unless a 2-D
                `decoder_attention_mask` is given.
            input_ids (`torch.LongTensor` of shape `(batch, source)`, *optional*): ids of the source, to find pads if
                the configuration has `infer_attention_mask`.
            attention_mask (`torch.Tensor` of shape `(batch, source)`, *optional*): mask of the source, or 4-D.
            decoder_attention_mask (`torch.Tensor` of shape `(batch, target)`, *optional*): mask of the target. It may
                also have columns for a cached prefix, or lack those of virtual tokens.

        Returns:
            A mask of shape `(batch * source,)`, None if all source tokens count, and a mask of shape `(batch *
            target,)`.
        """
        source_mask = inferred_mask(self.config, attention_mask, input_ids)
        source_mask = key_mask_of(source_mask, labels.shape[0])
        target_mask = labels != -100
        if decoder_attention_mask is not None and decoder_attention_mask.ndim == 2:
            # negative for a cached prefix, which is cut off
            missing = labels.shape[1] - decoder_attention_mask.shape[1]
            target_mask = nn.functional.pad(decoder_attention_mask, (missing, 0), value=1)
        return None if source_mask is None else source_mask.flatten().bool(), target_mask.flatten().bool()

    def _router_losses(
        self, logits_of_stacks, non_pads_of_stacks, sum_counts, counts_load: bool
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the mean balance loss and z-loss of the sparse layers, and count the routers' load on request."""
        device = non_pads_of_stacks[1].device  # the layers of a large model may be on several
        layers = sum(map(len, logits_of_stacks))
        if not layers:  # only the encoder has sparse layers, but the call gave `encoder_outputs`
            zero = torch.zeros((), device=device)
            return zero, zero
        routers = self.routers()[-layers:]  # without the encoder's if the call gave `encoder_outputs`
        remaining_routers, stacks = iter(routers), []
        for logits, non_pad in zip(logits_of_stacks, non_pads_of_stacks, strict=True):
            if logits:  # all layers of a stack at once, in as few operations as one
                layer_routers = zip(logits, islice(remaining_routers, len(logits)), strict=True)
                ids = torch.stack(
                    [router.choose(layer_logits)[1].to(device) for layer_logits, router in layer_routers]
                )
                mask = None if non_pad is None else non_pad.to(device)
                stacks.append((torch.stack([layer_logits.to(device) for layer_logits in logits]), ids, mask))
        counts = torch.cat([router_counts(ids, self.config.num_experts, mask) for _, ids, mask in stacks])
        if counts_load:
            for router, counts_of_layer in zip(routers, counts, strict=True):
                router.count_load(counts_of_layer[:-1])
        counts = counts if sum_counts is None else sum_counts(counts)
        losses = [
            (balance_loss(logits, ids, mask, stack_counts), router_z_loss(logits, mask, stack_counts))
            for (logits, ids, mask), stack_counts in zip(
                stacks, counts.split([len(s[0]) for s in stacks]), strict=True
            )
        ]
        aux, z = (torch.cat(parts).mean() for parts in zip(*losses, strict=True))
        return aux, z

    def resize_decoder_token_embeddings(self, new_num_tokens: int, mean_resizing: bool = True) -> nn.Module:
        """Resize the decoder's embedding table and the head, if the target has its own vocabulary.

        Args:
            new_num_tokens: the new number of tokens in the target vocabulary.
            mean_resizing: whether new rows are drawn around the mean of the old ones, as in `resize_token_embeddings`.

        Returns:
            The new table.

        Raises:
            ValueError: source and target share one vocabulary.
        """
        if not self.config.has_two_vocabularies:
            raise ValueError("Source and target share one vocabulary here: use `resize_token_embeddings`.")
        decoder = self.model.decoder
        decoder.embed_tokens = self._get_resized_embeddings(decoder.embed_tokens, new_num_tokens, None, mean_resizing)
        self.lm_head = self._get_resized_lm_head(self.lm_head, new_num_tokens, mean_resizing=mean_resizing)
        self.config.decoder_vocab_size = new_num_tokens
        self.tie_weights()
        return decoder.embed_tokens


WeftPreTrainedModel.model_class = WeftModel
WeftPreTrainedModel.encoder_class, WeftPreTrainedModel.decoder_class = WeftEncoder, WeftDecoder

# `generate` reads these signatures several times in each request, and finding them behind decorators is slow
for _class in (WeftEncoder, WeftDecoder, WeftModel, WeftForConditionalGeneration):
    vars(_class.forward)["__signature__"] = inspect.signature(_class.forward)
