"""The configuration of a Weft model: its fields, the values derived from them, and their validation."""

from contextvars import ContextVar
from copy import deepcopy
from dataclasses import fields as dataclass_fields
from typing import Any, ClassVar, Literal, cast

from huggingface_hub.errors import StrictDataclassError
from transformers import GenerationConfig, PreTrainedConfig, logging
from transformers.activations import ACT2FN

from ..common.rules import Rule, choice, closest, integer, number
from .consistency import check_consistency
from .derived import DERIVED, SOURCES, derived_values, numbers_of_whole_model, redundant
from .fields import LAYER_TYPES, LAYERS, TOKEN_IDS, TRANSFORMERS_KEYS, rules
from .presets import PRESETS, preset_fields
from .version import IS_EXPORTED, version_fields, without_version

logger = logging.get_logger(__name__)

_GENERATION_SETTINGS = frozenset(GenerationConfig().to_dict())
AttentionPositionType = Literal["none", "rotary", "additive", "relative", "bucketed"]
# Whether transformers makes a configuration from a file. It may then add fields of its own.
_reads_file = ContextVar("_reads_file", default=False)


class WeftConfig(PreTrainedConfig):
    r"""The configuration of a Weft encoder-decoder. The defaults describe a modern dense model: pre-norm, RMSNorm,
    rotary positions and a gated feed-forward. [`WeftConfig.from_preset`] gives the published sizes.

    Args:
        vocab_size: number of tokens in the source vocabulary, and in the target vocabulary if the two are shared.
        decoder_vocab_size: number of tokens in the target vocabulary. Defaults to `vocab_size`, and follows it.
        share_encoder_decoder_embeddings: whether encoder and decoder share one embedding table, and so one vocabulary.
        tie_word_embeddings: whether the output head uses the weights of the decoder's embedding table.
        scale_embedding: whether token embeddings are multiplied by `sqrt(d_model)`.
        normalize_embedding: whether a norm follows the sum of token and position embeddings, as in BART.
        lm_head_bias: whether the output head has a bias.
        d_model: width of the hidden states.
        encoder_layers: number of encoder layers.
        decoder_layers: number of decoder layers.
        encoder_attention_heads: number of attention heads in each encoder layer.
        decoder_attention_heads: number of attention heads in each decoder layer, in self-attention and in
            cross-attention.
        num_key_value_heads: number of heads of keys and values (grouped-query attention, Ainslie et al. 2023). It
            divides the heads of both stacks. Defaults to the number of attention heads of each stack. If the stacks
            differ, this field has the encoder's number when it is read, and in `get_text_config(decoder=True)` the
            decoder's.
        head_dim: width of an attention head. Defaults to `d_model` divided by the heads of each stack, and is read
            like `num_key_value_heads`.
        encoder_ffn_dim: inner width of the feed-forward in each encoder layer.
        decoder_ffn_dim: inner width of the feed-forward in each decoder layer.
        activation_function: activation of the feed-forward: a name in `transformers.activations.ACT2FN`.
        is_gated_act: whether the feed-forward is gated: `down(act(gate(x)) * up(x))` (Shazeer 2020).
        mlp_bias: whether the feed-forward has biases. Experts have them too.
        attention_bias: whether the projections to queries, keys and values have biases.
        attention_out_bias: whether the output projection of the attention has a bias.
        use_qk_norm: whether an RMSNorm over each head follows the projections to queries and keys.
        norm_type: `"layernorm"`, `"rmsnorm"`, or `"stdnorm"`, which is `(x - mean) / (std + norm_eps)`.
        norm_eps: the small number that keeps a norm from dividing by zero.
        norm_bias: whether `"layernorm"` and `"stdnorm"` have a bias. `"rmsnorm"` has none.
        norm_first: whether the norm is before each sub-layer (pre-norm). If not, it follows the residual sum
            (post-norm).
        final_norm: whether a norm follows the last layer of each stack. Defaults to `norm_first`.
        position_embedding_type: positions that are added to the token embeddings: `"learned"`, `"sinusoidal"` or
            `"none"`.
        sinusoidal_layout: order of sines and cosines: `"interleaved"` as in Vaswani et al. 2017, `"concatenated"` as
            in Marian, or `"fairseq"`, whose frequencies and first position differ a little.
        max_source_positions: longest source. A hard limit for learned positions. For rotary positions, the length from
            which frequencies are scaled, if `rope_parameters` request scaling.
        max_target_positions: longest target, used like `max_source_positions`.
        self_attention_position_type: positions that enter the self-attention of both stacks. `"rotary"`: queries and
            keys are rotated. `"additive"`: a learned table is added to the inputs of queries and keys. `"relative"`: a
            learned number for each offset is subtracted from the logits. `"bucketed"`: a learned number for each head
            and range of offsets is added to the logits, as in T5. `"none"`: no positions.
        cross_attention_position_type: positions in the cross-attention, with the same choices. Cross-attention rotates
            source and target by the decoder's rotary frequencies, because offsets are only defined at one frequency.
            With `"dynamic"` and `"longrope"` it uses the frequencies of short sequences.
        rope_parameters: the rotary frequencies as in transformers: `rope_theta`, `rope_type` (`"default"`, `"linear"`,
            `"dynamic"`, `"yarn"`, `"longrope"`, `"llama3"` or `"proportional"`) with the parameters of that type, and
            `partial_rotary_factor`, the share of each head that is rotated. `original_max_position_embeddings`
            defaults to the encoder's `max_source_positions` and the decoder's `max_target_positions`. Defaults to
            `"default"` with a `rope_theta` of 10000.0.
        relative_attention_max_distance: largest offset for `"relative"` and `"bucketed"` positions. Larger offsets
            count as this one.
        relative_attention_num_buckets: number of ranges of offsets for `"bucketed"` positions.
        dropout: dropout after the embeddings and after each sub-layer.
        attention_dropout: dropout of the attention weights.
        activation_dropout: dropout between the activation and the second projection of the feed-forward.
        encoder_mlp_layer_types: `"dense"` or `"sparse"` for each encoder layer, or one of the two words for all
            layers. Defaults to `"dense"`.
        decoder_mlp_layer_types: the same for the decoder layers. Defaults to `"dense"`.
        num_experts: number of experts in each sparse layer.
        num_experts_per_tok: number of experts that each token is sent to.
        moe_intermediate_size: inner width of each expert. Defaults to the feed-forward width of the stack.
        norm_topk_prob: whether the weights of a token's experts are scaled to a sum of one. Defaults to
            `num_experts_per_tok > 1`. The weight of a single expert is then its probability, as in Fedus et al. 2022:
            scaled to one, it would give the router no gradient of the labels.
        router_type: `"linear"`, or `"noisy_top_k"` (Shazeer et al. 2017).
        router_bias: whether the router's projections have biases.
        router_noise: when `"noisy_top_k"` adds its noise: `"training"`, or `"always"` as DirectMultiStep does.
        expert_capacity_factor: limit on the tokens of an expert in a batch, as in DirectMultiStep: factor * tokens *
            experts per token / experts. It counts pads and applies at inference too. Tokens beyond it are dropped.
            Defaults to no limit.
        router_bias_update_rate: step size of the bias that balances the load of each expert (Wang et al. 2024),
            applied after each step of the optimizer. 0 keeps the biases as they are. Defaults to no biases.
        router_aux_loss_coef: weight of the balance loss (Fedus et al. 2022) in the training loss.
        router_z_loss_coef: weight of the router z-loss (Zoph et al. 2022) in the training loss.
        output_router_logits: whether outputs contain the logits of the routers.
        num_condition_features: number of `condition_values` that `forward` takes for each source. Each one scales a
            learned vector that is added at every source position.
        infer_attention_mask: whether `forward` masks the pads among `input_ids` where no `attention_mask` is given.
            Without it every token counts, as in BART. `generate` always looks for pads, as in transformers.
        init_std: standard deviation of every initial weight. Defaults to the rule of Glorot and Bengio 2010 for
            projections and to `d_model ** -0.5` for embeddings.
        is_encoder_decoder: always `True`.
        use_cache: whether the decoder returns its keys and values for the next step.
        pad_token_id: id of the padding token.
        bos_token_id: id of the token that begins a text.
        eos_token_id: id or ids of the token that ends a text.
        decoder_start_token_id: id of the token that the decoder begins with.
        starts_with_last_token: whether labels that are shifted right begin with the last token of each row instead,
            its language or its end, as in mBART.

    Raises:
        ValueError: a field is unknown, out of range, or does not fit another field. The message names the field, its
            value, what is allowed and what to do. An unknown field in a *file* is dropped with a warning, so that
            folders of later versions load. A file of a later format is an error. Code saved beside the weights warns
            of any unknown field.

    Example:

    ```python
    >>> from weftformer import WeftConfig, WeftForConditionalGeneration

    >>> config = WeftConfig(d_model=64, encoder_layers=2, decoder_layers=2, decoder_mlp_layer_types="sparse")
    >>> model = WeftForConditionalGeneration(config)
    >>> model.config.decoder_mlp_layer_types
    ['sparse', 'sparse']
    ```
    """

    model_type = "weft"
    keys_to_ignore_at_inference: ClassVar[list[str]] = [
        "cache",
        "past_key_values",  # its name before transformers 5.24
        "encoder_router_logits",
        "decoder_router_logits",
    ]
    attribute_map: ClassVar[dict[str, str]] = {
        "hidden_size": "d_model",
        "num_hidden_layers": "encoder_layers",
        "num_attention_heads": "encoder_attention_heads",
        "max_position_embeddings": "max_target_positions",
    }
    # transformers' default is for one stack, and would separate embedding tables from tied heads. The model classes
    # have their own plans.
    base_model_fsdp_plan: ClassVar[dict[Any, str]] = {}
    # What only the installed package has for the classes of the family. `family.py` sets it. Code that travels with
    # weights has None.
    package: ClassVar[Any] = None
    # The derived fields as they were given. Their own values are what a model reads.
    _given: ClassVar[dict[str, Any]]

    vocab_size: int = integer(1)(32000)
    decoder_vocab_size: int | None = integer(1, optional=True)(None)
    share_encoder_decoder_embeddings: bool = True
    tie_word_embeddings: bool = True
    scale_embedding: bool = False
    normalize_embedding: bool = False
    lm_head_bias: bool = False

    d_model: int = integer(1)(512)
    encoder_layers: int = LAYERS(6)
    decoder_layers: int = LAYERS(6)
    encoder_attention_heads: int = integer(1)(8)
    decoder_attention_heads: int = integer(1)(8)
    num_key_value_heads: int | None = integer(1, optional=True)(None)
    head_dim: int | None = integer(1, optional=True)(None)
    encoder_ffn_dim: int = integer(1)(1536)
    decoder_ffn_dim: int = integer(1)(1536)
    activation_function: str = choice(sorted(ACT2FN))("silu")
    is_gated_act: bool = True
    mlp_bias: bool = False
    attention_bias: bool = False
    attention_out_bias: bool = False
    use_qk_norm: bool = False
    norm_type: Literal["layernorm", "rmsnorm", "stdnorm"] = "rmsnorm"
    norm_eps: float = number(0.0, above=True)(1e-6)
    norm_bias: bool = True
    norm_first: bool = True
    final_norm: bool | None = None

    position_embedding_type: Literal["learned", "sinusoidal", "none"] = "none"
    sinusoidal_layout: Literal["interleaved", "concatenated", "fairseq"] = "interleaved"
    max_source_positions: int = integer(1)(1024)
    max_target_positions: int = integer(1)(1024)
    self_attention_position_type: AttentionPositionType = "rotary"
    cross_attention_position_type: AttentionPositionType = "none"
    rope_parameters: dict | None = Rule(lambda value: isinstance(value, dict), "a dictionary", optional=True)(None)
    relative_attention_max_distance: int = integer(0)(32)
    relative_attention_num_buckets: int = integer(4)(32)

    dropout: float = number(0.0, below=1.0)(0.1)
    attention_dropout: float = number(0.0, below=1.0)(0.0)
    activation_dropout: float = number(0.0, below=1.0)(0.0)

    encoder_mlp_layer_types: list[str] | str | None = LAYER_TYPES(None)
    decoder_mlp_layer_types: list[str] | str | None = LAYER_TYPES(None)
    num_experts: int = integer(2)(8)
    num_experts_per_tok: int = integer(1)(2)
    moe_intermediate_size: int | None = integer(1, optional=True)(None)
    norm_topk_prob: bool | None = None
    router_type: Literal["linear", "noisy_top_k"] = "linear"
    router_bias: bool = False
    router_noise: Literal["training", "always"] = "training"
    expert_capacity_factor: float | None = number(0.0, above=True, optional=True)(None)
    router_bias_update_rate: float | None = number(0.0, optional=True)(None)
    router_aux_loss_coef: float = number(0.0)(0.01)
    router_z_loss_coef: float = number(0.0)(0.001)
    output_router_logits: bool = False

    num_condition_features: int = integer(0)(0)
    infer_attention_mask: bool = False
    init_std: float | None = number(0.0, above=True, optional=True)(None)

    is_encoder_decoder: bool = Rule(lambda value: value is True, "True: every Weft model is an encoder-decoder")(True)
    use_cache: bool = True
    pad_token_id: int | None = integer(0, optional=True)(0)
    bos_token_id: int | None = integer(0, optional=True)(1)
    eos_token_id: int | list[int] | None = TOKEN_IDS(2)
    decoder_start_token_id: int | None = integer(0, optional=True)(1)
    starts_with_last_token: bool = False

    def __post_init__(self, **kwargs):
        kwargs = self._known(without_version(kwargs))
        rope = self.rope_parameters
        rules(WeftConfig)["rope_parameters"].check("rope_parameters", rope)
        # a copy, because transformers writes into it and the dictionary may be the caller's
        self.rope_parameters = dict(rope or {})
        self._keep_given({name: vars(self)[name] for name in DERIVED})
        super().__post_init__(**kwargs)
        if rope is None or "original_max_position_embeddings" not in rope:
            # transformers has set it to the limit of one stack, but each stack has its own
            self.rope_parameters.pop("original_max_position_embeddings", None)
        self.validate()
        given_values = self._given
        self._keep_given(given_values | redundant(vars(self) | given_values))

    def __setattr__(self, key: str, value: Any) -> None:
        try:
            super().__setattr__(key, value)
        except StrictDataclassError as error:  # callers catch ValueError, which this error is not
            raise ValueError(str(error)) from error
        name, given_values = self.attribute_map.get(key, key), vars(self).get("_given")
        if given_values is not None and name in SOURCES:
            self._keep_given(given_values | {name: value} if name in DERIVED else given_values)

    def _keep_given(self, given_values: dict[str, Any]) -> None:
        """Keep the derived fields as they are given, and set their values. A copy has the same dictionary."""
        self.__dict__.update(derived_values(vars(self), given_values), _given=given_values)

    @classmethod
    def field_names(cls) -> set[str]:
        """Return the names of all arguments of this class.

        Returns:
            The fields, and transformers' names for some of them, such as `hidden_size`.
        """
        return {field.name for field in dataclass_fields(cls)} | set(cls.attribute_map)

    @classmethod
    def from_preset(cls, name: str, **overrides) -> "WeftConfig":
        """Return the configuration of a preset, of the class that it was registered for.

        Args:
            name: the name of the preset, a key of `weftformer.configuration.PRESETS`.
            **overrides: fields that replace those of the preset.

        Raises:
            ValueError: no preset has that name, or an override is unknown or not allowed.

        Example:

        ```python
        >>> from weftformer import WeftConfig

        >>> WeftConfig.from_preset("modern-small", vocab_size=16000).d_model
        384
        ```
        """
        preset_class = PRESET_CLASSES.get(name, cls)
        config_class = preset_class if issubclass(preset_class, cls) else cls
        return config_class(**(preset_fields(name) | overrides))

    @classmethod
    def from_dict(cls, config_dict: dict[str, Any], **kwargs):
        names, config_dict = cls.field_names(), without_version(config_dict)
        for name in [key for key in config_dict if key not in names and key not in TRANSFORMERS_KEYS]:
            if name not in _GENERATION_SETTINGS:  # transformers drops these silently
                logger.warning(f"The configuration file has an unknown field, which is ignored: `{name}`.")
            del config_dict[name]
        # fields that a user gives, as in `from_pretrained(folder, dropout=0.2)`, are checked like those of the file
        user_fields = {
            key: kwargs.pop(key) for key in list(kwargs) if key in names and key not in ("dtype", "torch_dtype")
        }
        # a value in the file that follows from its other fields is derived again from the new ones
        defaults = {field.name: field.default for field in dataclass_fields(cls)}
        file_fields = {cls.attribute_map.get(key, key): value for key, value in config_dict.items()}
        config_dict = config_dict | redundant(defaults | file_fields)
        reading = _reads_file.set(True)
        try:
            return super().from_dict(config_dict | user_fields, **kwargs)
        finally:
            _reads_file.reset(reading)

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as a dictionary, as in transformers, with the version of Weft.

        A derived field (`num_key_value_heads`, `head_dim`, `decoder_vocab_size`) is a number in the dictionary if one
        number is right for the whole model. Otherwise it is None: if encoder and decoder have different heads, or if
        source and target have separate embedding tables. `from_dict(dictionary, d_model=...)` derives these fields
        again.
        """
        fields = super().to_dict()
        given_values = fields.pop("_given")
        numbers = {name: fields[name] for name in numbers_of_whole_model(fields)}
        return fields | given_values | numbers | version_fields()

    def get_text_config(self, decoder=None, encoder=None) -> "WeftConfig":
        """Return the configuration of one stack, as in transformers.

        Args:
            decoder (`bool`, *optional*): True returns a copy in which fields such as `num_hidden_layers` are those of
                the decoder.
            encoder (`bool`, *optional*): True returns a copy in which they are those of the encoder.
                `max_position_embeddings` is then `max_source_positions`.

        Returns:
            The copy, which also has all fields of this configuration, or this configuration if neither argument is
            given.
        """
        view = super().get_text_config(decoder=decoder, encoder=encoder)
        if view is not self:
            vars(view).update(deepcopy({key: value for key, value in vars(self).items() if key not in vars(view)}))
            view._keep_given(view._given)
            if encoder:
                view.max_position_embeddings = self.max_source_positions
        return view

    def save_pretrained(self, save_directory, push_to_hub: bool = False, **kwargs):
        """Save the configuration as in transformers, with the model's code beside it, so that the folder loads without
        Weft.

        Args:
            save_directory (`str` or `os.PathLike`): the folder.
            push_to_hub: whether to push the folder to the Hub.
            **kwargs: further arguments of `PreTrainedConfig.save_pretrained`.

        Raises:
            ValueError: a field is not allowed. Nothing is written then.
        """
        # before anything is written
        self.validate()
        generation: dict[str, Any] = getattr(self, "_get_generation_parameters", dict)()  # private, so it may go
        if generation:
            raise ValueError(
                f"{', '.join(generation)}: set this in `model.generation_config`, not in the configuration."
            )
        if self.package is not None:
            self.auto_map = self.package.export_code(save_directory, type(self))
            self.__dict__["_auto_class"] = None  # for a registered class, transformers would write its file as it is
        try:
            super().save_pretrained(save_directory, push_to_hub=push_to_hub, **kwargs)
        finally:
            self.__dict__.pop("_auto_class", None)

    def _get_files_timestamps(self, *args, **kwargs):
        # transformers does not push files that have a timestamp here, but the code was just written and must be pushed
        timestamps = super()._get_files_timestamps(*args, **kwargs)
        return {name: time for name, time in timestamps.items() if not name.endswith(".py")}

    def stack_heads(self, is_decoder: bool) -> tuple[int, int, int]:
        """Return the head counts and the head width of one stack's attention.

        Args:
            is_decoder: True for the decoder, False for the encoder.

        Returns:
            The number of attention heads, the number of key-value heads, and the width of a head.
        """
        heads = self.decoder_attention_heads if is_decoder else self.encoder_attention_heads
        return heads, self.given("num_key_value_heads") or heads, self.given("head_dim") or self.d_model // heads

    def given(self, name: str) -> Any:
        """Return a field as it was given.

        Args:
            name: the name of the field.

        Returns:
            The value. It is None for a derived field that was not given.
        """
        return self._given[name] if name in DERIVED else vars(self)[name]

    @property
    def has_two_vocabularies(self) -> bool:
        """Whether the target has its own vocabulary, which may have the same size as the source's."""
        return self.given("decoder_vocab_size") is not None and not self.share_encoder_decoder_embeddings

    @property
    def target_vocab_size(self) -> int:
        """The number of tokens in the target vocabulary."""
        return self.decoder_vocab_size or self.vocab_size

    @property
    def has_final_norm(self) -> bool:
        """Whether a norm follows the last layer of each stack."""
        return self.norm_first if self.final_norm is None else self.final_norm

    @property
    def has_sparse_layers(self) -> bool:
        """Whether encoder or decoder has a sparse layer."""
        return "sparse" in (self.encoder_mlp_layer_types or ()) or "sparse" in (self.decoder_mlp_layer_types or ())

    @property
    def has_relative_self_attention(self) -> bool:
        """Whether self-attention has a learned bias for each offset between query and key."""
        return self.self_attention_position_type in ("relative", "bucketed")

    @property
    def has_position_table(self) -> bool:
        """Whether positions are rows of a learned table, of the embeddings or of an attention."""
        return self.position_embedding_type == "learned" or self.uses_attention_positions("additive")

    def uses_attention_positions(self, kind: str) -> bool:
        """Return whether self-attention or cross-attention has positions of a type.

        Args:
            kind: a value of `self_attention_position_type`.
        """
        return kind in (self.self_attention_position_type, self.cross_attention_position_type)

    def validate(self) -> None:
        """Check each field, and the fields together. This happens at construction and before saving.

        Raises:
            ValueError: a field is not allowed. The message names the field, its value, the allowed values and the
                remedy.
        """
        for name, rule in (rules(WeftConfig) | rules(cast(Any, type(self)))).items():
            rule.check(name, getattr(self, name))
        self.validate_architecture()

    validate_architecture = check_consistency

    def _known(self, fields: dict[str, Any]) -> dict[str, Any]:
        """Return the fields that transformers knows, and raise a ValueError for others.

        Code beside weights, and a file that transformers reads, may have fields of a later transformers. They are left
        out with a warning.
        """
        unknown = [name for name in fields if name not in TRANSFORMERS_KEYS and name not in self.attribute_map]
        for name in unknown:
            if name in _GENERATION_SETTINGS:
                raise ValueError(f"`{name}` is a generation setting: set it in the model's `generation_config`.")
            hint = closest(name, self.field_names())
            if hasattr(type(self), name):  # a dataclass has fields with a type only
                hint = f" Give it a type: `{name}: {type(getattr(self, name)).__name__} = ...`."
            problem = f"{type(self).__name__} has no field `{name}`.{hint}"
            if not (IS_EXPORTED or _reads_file.get()):
                raise ValueError(problem)
            logger.warning(problem)
        return {name: value for name, value in fields.items() if name not in unknown}


# The configurations of the presets that [`register_preset`] has added, by their names.
PRESET_CLASSES: dict[str, type[WeftConfig]] = {}


def register_preset(name: str, fields: dict[str, Any], config_class: type[WeftConfig] = WeftConfig) -> None:
    """Add a preset for `from_preset`, `--preset` and [`fit_pairs`] in this process.

    Args:
        name: the name of the preset.
        fields: the fields that differ from the defaults.
        config_class: the class that has these fields.

    Raises:
        ValueError: another preset has this name, or a field is unknown or not allowed.

    Example:

    ```python
    >>> from weftformer import WeftConfig, register_preset

    >>> register_preset("narrow", {"d_model": 64, "encoder_layers": 2, "decoder_layers": 2})
    >>> WeftConfig.from_preset("narrow", vocab_size=300).d_model
    64
    ```
    """
    is_other_class = name in PRESETS and PRESET_CLASSES.get(name, WeftConfig) is not config_class
    if PRESETS.get(name, fields) != fields or is_other_class:
        raise ValueError(f"There is a preset {name!r} with other fields already: choose another name.")
    config_class(**fields)
    PRESETS[name] = dict(fields)
    PRESET_CLASSES[name] = config_class
