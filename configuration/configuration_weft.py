"""The configuration of a Weft model: fields, derivation and validation, nothing else."""

from collections.abc import Callable
from copy import deepcopy
from dataclasses import fields as dataclass_fields
from types import SimpleNamespace
from typing import Any, ClassVar

from huggingface_hub.errors import StrictDataclassError
from transformers import GenerationConfig, PreTrainedConfig, logging

from .consistency import check_consistency
from .derived import DERIVED, superfluous
from .fields import RULES, TRANSFORMERS_KEYS, closest
from .presets import preset_fields
from .version import IS_EXPORTED, version_fields, with_later_fields, without_version

logger = logging.get_logger(__name__)

_GENERATION_SETTINGS = frozenset(GenerationConfig().to_dict())


class WeftConfig(PreTrainedConfig):
    r"""
    Configuration of the Weft encoder-decoder family. The defaults give a modern dense model (pre-norm, RMSNorm,
    rotary positions, gated feed-forward); [`WeftConfig.from_preset`] gives the published sizes.

    Vocabulary and embeddings

    - `vocab_size`: tokens of the source, and of the target when they share one vocabulary.
    - `decoder_vocab_size`: tokens of the target when it has a vocabulary of its own (default: `vocab_size`, also when that
      changes).
    - `share_encoder_decoder_embeddings`: one table for both stacks. `tie_word_embeddings`: the output head uses the
      decoder's table. `lm_head_bias`: the head adds a bias.
    - `scale_embedding`: token embeddings times sqrt(d_model). `normalize_embedding`: a norm right after the sum of
      token and position embeddings.

    Stacks

    - `d_model`, `encoder_layers`, `decoder_layers`, `encoder_attention_heads`, `decoder_attention_heads`,
      `encoder_ffn_dim`, `decoder_ffn_dim`: as in BART. `head_dim` (default: d_model / heads of each stack).
      `num_key_value_heads`: grouped-query attention (default: as many as the heads of each stack). Both defaults are read
      as the encoder's numbers, like `num_attention_heads`, and from `get_text_config(decoder=True)` as the decoder's.
    - `cross_attention_hidden_size`: width of the states the decoder attends to when they come from another encoder.
    - `attention_bias`, `attention_out_bias`, `mlp_bias`, `norm_bias`: biases of q/k/v, of the attention output, of the
      feed-forward, of LayerNorm. `use_qk_norm`: RMSNorm over each head of q and k.
    - `activation_function`: a name in `transformers.activations.ACT2FN`. `is_gated_act`: gated feed-forward.
    - `norm_type`: "layernorm", "rmsnorm", or "stdnorm" ((x - mean) / (std + eps)). `norm_first`: normalise before each
      sub-layer, else after the residual. `final_norm`: a norm after the last layer (default: as `norm_first`).

    Positions

    - `position_embedding_type`: added to the embeddings: "learned" (tables of `max_source_positions` and
      `max_target_positions` rows, which are then limits), "sinusoidal" (`sinusoidal_layout`: sine and cosine
      "interleaved" as in Vaswani et al. 2017, "concatenated" as in Marian, or as in "fairseq", whose frequencies and first
      position differ a little) or "none".
    - `self_attention_position_type`, `cross_attention_position_type`: positions that enter the attention only: "rotary",
      "additive" (a learned table added to the inputs of q and k), "relative" (a learned scalar for
      each offset clipped to `relative_attention_max_distance`, subtracted from the logits), "bucketed" (as in T5: a learned
      scalar for each head and each of `relative_attention_num_buckets` ranges of offsets, the last one open from
      `relative_attention_max_distance`, added to the logits) or "none".
    - `rope_parameters`: the rotary frequencies, in transformers' words: `rope_theta`; `rope_type` "default", "linear",
      "dynamic", "yarn", "longrope", "llama3" or "proportional", and what that takes; `partial_rotary_factor`, the part of
      each head that is turned, its first. The lengths that need no scaling (also the default of
      `original_max_position_embeddings`) are the encoder's `max_source_positions` and the decoder's `max_target_positions`.
      Cross-attention turns source and target by the decoder's frequencies, of "dynamic" and "longrope" by those of short
      sequences: source and target differ in length, and must not differ in frequency.

    Sparse layers

    - `encoder_mlp_layer_types`, `decoder_mlp_layer_types`: "dense" or "sparse" for each layer; one word for all layers.
    - `num_experts`, `num_experts_per_tok`, `moe_intermediate_size` (default: the stack's ffn dim), `norm_topk_prob`.
    - `router_type`: "linear" or "noisy_top_k" (Shazeer et al. 2017); `router_noise`: "training", or "always" for the
      published behaviour of DirectMultiStep; `router_bias`; `expert_capacity_factor` (default: no limit, no token is
      dropped): an expert takes at most factor * tokens * experts per token / experts of a batch; `expert_capacity_mode`:
      "training" (pads take no place), or "always" for the published behaviour of DirectMultiStep (pads do).
    - `router_aux_loss_coef`, `router_z_loss_coef`: weights of the balance loss and the z-loss.
      `router_bias_update_rate`: step of the bias-balanced routing (Wang et al. 2024; 0 switches it off), taken with each
      step of the optimizer.

    The rest

    - `num_condition_features`: learned vectors scaled by `condition_values` and added at every source position.
    - `infer_attention_mask`: where no `attention_mask` is given, `forward` takes the pads among `input_ids` for it,
      wherever they stand (default: as in BART every token is then real; `generate` always looks for pads).
    - `dropout`, `attention_dropout`, `activation_dropout`, `label_smoothing`.
    - `init_std`: standard deviation of every initial weight (default: scaled by the width, Glorot and Bengio 2010).

    Raises:
        ValueError: a field is unknown, out of range or at odds with another; the message names field, value, what is
            allowed and what to do. Unknown fields in a *file* are dropped with a warning instead, so that a folder
            written by a later version still loads, unless its format is another: that is an error. Code that travels with
            weights warns of any unknown field.
    """

    model_type = "weft"
    keys_to_ignore_at_inference: ClassVar[list[str]] = [
        "past_key_values",
        "encoder_router_logits",
        "decoder_router_logits",
    ]
    attribute_map: ClassVar[dict[str, str]] = {
        "hidden_size": "d_model",
        "num_hidden_layers": "encoder_layers",
        "num_attention_heads": "encoder_attention_heads",
        "max_position_embeddings": "max_target_positions",
    }
    # Its default in transformers is for one stack, and would split tables from the heads that are tied to them; the model
    # classes have plans of their own.
    base_model_fsdp_plan: ClassVar[dict[Any, str]] = {}
    # Set by `weftformer/__init__.py`: writes the model's code beside a saved configuration. This room knows no other.
    code_exporter: ClassVar[Callable[[str], dict[str, str]] | None] = None

    vocab_size: int = 32000
    decoder_vocab_size: int | None = DERIVED["decoder_vocab_size"]
    share_encoder_decoder_embeddings: bool = True
    tie_word_embeddings: bool = True
    scale_embedding: bool = False
    normalize_embedding: bool = False
    lm_head_bias: bool = False

    d_model: int = 512
    encoder_layers: int = 6
    decoder_layers: int = 6
    encoder_attention_heads: int = 8
    decoder_attention_heads: int = 8
    num_key_value_heads: int | None = DERIVED["num_key_value_heads"]
    head_dim: int | None = DERIVED["head_dim"]
    cross_attention_hidden_size: int | None = None
    encoder_ffn_dim: int = 1536
    decoder_ffn_dim: int = 1536
    activation_function: str = "silu"
    is_gated_act: bool = True
    mlp_bias: bool = False
    attention_bias: bool = False
    attention_out_bias: bool = False
    use_qk_norm: bool = False
    norm_type: str = "rmsnorm"
    norm_eps: float = 1e-6
    norm_bias: bool = True
    norm_first: bool = True
    final_norm: bool | None = None

    position_embedding_type: str = "none"
    sinusoidal_layout: str = "interleaved"
    max_source_positions: int = 1024
    max_target_positions: int = 1024
    self_attention_position_type: str = "rotary"
    cross_attention_position_type: str = "none"
    rope_parameters: dict[str, Any] | None = None
    relative_attention_max_distance: int = 32
    relative_attention_num_buckets: int = 32

    dropout: float = 0.1
    attention_dropout: float = 0.0
    activation_dropout: float = 0.0

    encoder_mlp_layer_types: list[str] | str | None = None
    decoder_mlp_layer_types: list[str] | str | None = None
    num_experts: int = 8
    num_experts_per_tok: int = 2
    moe_intermediate_size: int | None = None
    norm_topk_prob: bool = True
    router_type: str = "linear"
    router_bias: bool = False
    router_noise: str = "training"
    expert_capacity_factor: float | None = None
    expert_capacity_mode: str = "training"
    router_bias_update_rate: float = 0.0
    router_aux_loss_coef: float = 0.01
    router_z_loss_coef: float = 0.001
    output_router_logits: bool = False

    num_condition_features: int = 0
    infer_attention_mask: bool = False
    label_smoothing: float = 0.0
    init_std: float | None = None

    is_encoder_decoder: bool = True
    use_cache: bool = True
    pad_token_id: int | None = 0
    bos_token_id: int | None = 1
    eos_token_id: int | list[int] | None = 2
    decoder_start_token_id: int | None = 1

    def __post_init__(self, **kwargs):
        kwargs = without_version(kwargs)
        self._refuse_unknown(kwargs)
        rope = self.rope_parameters
        if rope is not None and not isinstance(rope, dict):
            raise ValueError(f"rope_parameters={rope!r} is not allowed: set it to a dictionary or None.")
        # transformers writes into it, and it may be the caller's
        self.rope_parameters = dict(rope or {})
        super().__post_init__(**kwargs)
        if rope is None or "original_max_position_embeddings" not in rope:
            # what transformers has written is the limit of one stack, and each has its own
            self.rope_parameters.pop("original_max_position_embeddings", None)
        for stack in ("encoder", "decoder"):
            types, layers = getattr(self, f"{stack}_mlp_layer_types"), getattr(self, f"{stack}_layers")
            if types is None or isinstance(types, str):
                setattr(
                    self, f"{stack}_mlp_layer_types", [types or "dense"] * (layers if isinstance(layers, int) else 0)
                )
        self.validate()
        for name in superfluous(self):
            setattr(self, name, None)

    def __setattr__(self, key: str, value: Any) -> None:
        try:
            super().__setattr__(key, value)
        except StrictDataclassError as error:  # not a ValueError, which is what callers catch
            raise ValueError(str(error)) from error

    @classmethod
    def field_names(cls) -> set[str]:
        """Every name a configuration of this class can be given."""
        return {field.name for field in dataclass_fields(cls)} | set(cls.attribute_map)

    @classmethod
    def from_preset(cls, name: str, **overrides) -> "WeftConfig":
        """The configuration of a named size (see `weftformer.configuration.presets.PRESETS`), with single fields replaced.

        Raises:
            ValueError: no preset has that name, or an override is unknown or not allowed.
        """
        return cls(**(preset_fields(name) | overrides))

    @classmethod
    def from_dict(cls, config_dict: dict[str, Any], **kwargs):
        known, config_dict = cls.field_names(), without_version(config_dict)
        for name in [key for key in config_dict if key not in known and key not in TRANSFORMERS_KEYS]:
            if name not in _GENERATION_SETTINGS:  # transformers drops these silently
                logger.warning(f"The configuration file has a field that this Weft does not know, ignored: `{name}`.")
            config_dict = {key: value for key, value in config_dict.items() if key != name}
        # What a person adds in `from_pretrained(folder, dropout=0.2)` is derived and checked like any other field.
        typed = {key: kwargs.pop(key) for key in list(kwargs) if key in known and key not in ("dtype", "torch_dtype")}
        # A number of the file that followed from its other fields follows from the new ones.
        defaults = {field.name: field.default for field in dataclass_fields(cls)}
        named = {cls.attribute_map.get(key, key): value for key, value in config_dict.items()}
        config_dict = config_dict | dict.fromkeys(superfluous(SimpleNamespace(**(defaults | named))))
        return super().from_dict(with_later_fields(config_dict, typed), **kwargs)

    def to_dict(self) -> dict[str, Any]:
        """As in transformers, with the Weft that writes it.

        What follows from other fields is a number here too, where the number alone says the same: None stays where encoder
        and decoder have different heads, and where two tables have one vocabulary. `from_dict(dictionary, d_model=...)`
        changes fields and what follows from them.
        """
        numbers = {name: getattr(self, name) for name, field in DERIVED.items() if field.says_it_all(self)}
        return super().to_dict() | numbers | version_fields()

    def get_text_config(self, decoder=None, encoder=None) -> "WeftConfig":
        """As in transformers: with `decoder=True` or `encoder=True` a copy whose plain names are those of one stack.

        Fields under their own names stay, and the encoder's `max_position_embeddings` is the source's.
        """
        view = super().get_text_config(decoder=decoder, encoder=encoder)
        if view is not self:
            vars(view).update(deepcopy({key: value for key, value in vars(self).items() if key not in vars(view)}))
            if encoder:
                view.max_position_embeddings = self.max_source_positions
        return view

    def save_pretrained(self, save_directory, push_to_hub: bool = False, **kwargs):
        """As in transformers, with the model's code beside the file: the folder loads without Weft installed."""
        self.validate()  # before anything is written
        exporter = type(self).code_exporter
        if exporter is not None:
            self.auto_map = exporter(save_directory)
        super().save_pretrained(save_directory, push_to_hub=push_to_hub, **kwargs)

    def _get_files_timestamps(self, *args, **kwargs):
        # What stands here counts as pushed before; the code has only just been written, and is to be pushed.
        found = super()._get_files_timestamps(*args, **kwargs)
        return {name: time for name, time in found.items() if not name.endswith(".py")}

    def stack_heads(self, is_decoder: bool) -> tuple[int, int, int]:
        """(attention heads, key-value heads, width of a head) of one stack."""
        heads = self.decoder_attention_heads if is_decoder else self.encoder_attention_heads
        return heads, self.given("num_key_value_heads") or heads, self.given("head_dim") or self.d_model // heads

    def given(self, name: str) -> Any:
        """A field as it was given: None where the number that is read follows from other fields."""
        return vars(self)[name]

    @property
    def has_two_vocabularies(self) -> bool:
        """Whether the target has a vocabulary of its own, be it as large as the source's."""
        return self.given("decoder_vocab_size") is not None and not self.share_encoder_decoder_embeddings

    @property
    def target_vocab_size(self) -> int:
        """Tokens the head scores."""
        return self.decoder_vocab_size or self.vocab_size

    @property
    def has_final_norm(self) -> bool:
        return self.norm_first if self.final_norm is None else self.final_norm

    @property
    def has_sparse_layers(self) -> bool:
        return "sparse" in (self.encoder_mlp_layer_types or ()) or "sparse" in (self.decoder_mlp_layer_types or ())

    @property
    def has_relative_self_attention(self) -> bool:
        """Whether the logits of self-attention depend on the offset between query and key."""
        return self.self_attention_position_type in ("relative", "bucketed")

    def uses_attention_positions(self, kind: str) -> bool:
        return kind in (self.self_attention_position_type, self.cross_attention_position_type)

    def validate(self) -> None:
        """Check every field and the fields against each other; called at construction and before saving."""
        for name, rule in RULES.items():
            rule.check(name, getattr(self, name))
        check_consistency(self)

    def _refuse_unknown(self, names: dict[str, Any]) -> None:
        for name in names:
            if name in TRANSFORMERS_KEYS or name in self.attribute_map:
                continue
            if name in _GENERATION_SETTINGS:
                raise ValueError(f"`{name}` is a setting of generation: put it in the model's `generation_config`.")
            problem = f"WeftConfig has no field `{name}`.{closest(name, self.field_names())}"
            if not IS_EXPORTED:
                raise ValueError(problem)
            logger.warning(problem)


__all__ = ["WeftConfig"]
