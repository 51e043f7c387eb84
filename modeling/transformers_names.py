"""The private names of transformers and torch that the model uses, and the differences between releases of
transformers.

Code that was pushed with weights stays the same while transformers changes, so it imports private names only in this
file. Overrides of private methods accept any arguments, pass them on, and read those that they need by name
([`named_arguments`]).

| change in transformers | since | handled by | needed until |
| --- | --- | --- | --- |
| the keyword and output field `past_key_values` is `cache` | 5.24 | `CACHE` | 5.23 is dropped |
| `DistributedConfig` has `dp_replicate_size` and `efsdp_size` | 5.23 | `parallel.check_release` | 5.22 is dropped |
| `OutputRecorder` has `num_hidden_layers_key` | 5.23 | `layer_recorder` | 5.22 is dropped |
| the method of `generate` that calls the encoder has another name | after 5.17 | `ENCODE` | 5.17 is dropped |
| sampled beams are sorted | 5.24 | `SORTS_SAMPLED_BEAMS` | 5.23 is dropped |
"""

import inspect
import warnings
from collections.abc import Callable
from dataclasses import fields
from functools import wraps
from typing import Any, NamedTuple, TypeVar

import torch
import transformers
from torch._C._functorch import maybe_current_level as functorch_level
from transformers.modeling_outputs import ModelOutput, Seq2SeqLMOutput

REMEDY = 'pip install "transformers>=5.17,<6"; or pip install -U weftformer, and import weftformer before loading'
try:
    from transformers import initialization
    from transformers.activations import ACT2FN
    from transformers.dynamic_module_utils import get_class_from_dynamic_module as class_from_folder
    from transformers.integrations.moe import ALL_EXPERTS_FUNCTIONS, use_experts_implementation
    from transformers.masking_utils import create_bidirectional_mask, create_causal_mask
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS
    from transformers.utils import TransformersKwargs, can_return_tuple
    from transformers.utils.generic import maybe_autocast, merge_with_config_defaults
    from transformers.utils.output_capturing import OutputRecorder, capture_outputs
    from transformers.utils.output_capturing import maybe_install_capturing_hooks as install_recorders
except ImportError as error:
    raise ImportError(
        f"transformers {transformers.__version__} does not fit this model ({error}): {REMEDY}."
    ) from error

_Function = TypeVar("_Function", bound=Callable[..., Any])

# The newest release that was tested. Later ones may pass keywords to `forward` that the model does not know.
_NEWEST = (5, 24)
IS_LATER_RELEASE = tuple(map(int, transformers.__version__.split(".")[:2])) > _NEWEST

# The name of the cache as a keyword of `forward`, in the keywords of `generate`, and in outputs. This model's own code
# calls it `cache`. The annotation finds it under the name of a later release too.
CACHE: str = next(field.name for field in fields(Seq2SeqLMOutput) if "Cache" in str(field.type))
CACHE_NAMES = tuple(dict.fromkeys(["cache", "past_key_values", CACHE]))
# The method in which `generate` calls the encoder.
_ENCODERS = ("_prepare_text_encoder_decoder_kwargs_for_generation", "_prepare_encoder_decoder_kwargs_for_generation")
ENCODE = next((name for name in _ENCODERS if hasattr(transformers.GenerationMixin, name)), _ENCODERS[0])
SORTS_SAMPLED_BEAMS = CACHE != "past_key_values"  # the same release brought both


def rename_cache(kwargs: dict[str, Any], name: str) -> dict[str, Any]:
    """Return keywords in which the cache has the given name, whichever of its names it has.

    PEFT 0.21 passes a prefix as `past_key_values`, beside the empty cache of `generate`. The prefix is then the cache.
    The former name alone is deprecated where it is in transformers.

    Raises:
        ValueError: there are two caches.
    """
    names = [cache_name for cache_name in CACHE_NAMES if cache_name in kwargs]
    if CACHE == "cache" and names == ["past_key_values"] and not torch.compiler.is_compiling():
        message = "`past_key_values` is deprecated since transformers 5.24. Use `cache` instead."
        warnings.warn(message, FutureWarning, stacklevel=3)
    if not names or names == [name]:
        return kwargs
    caches = [kwargs[cache_name] for cache_name in names if kwargs[cache_name] is not None]
    if any(cache is not caches[0] for cache in caches):
        caches = [cache for cache in caches if cache.get_seq_length() > 0] or caches[:1]
    if any(cache is not caches[0] for cache in caches):
        raise ValueError("Give either `cache` or `past_key_values`, which are two names of one argument: got both.")
    keywords = {key: value for key, value in kwargs.items() if key not in names}
    return keywords | {name: caches[0] if caches else None}


def takes_either_cache_name(function: _Function) -> _Function:
    """Wrap a function with a keyword `cache` so that it takes each of the names of [`CACHE_NAMES`].

    In its signature, which `generate` reads, the keyword has transformers' name.
    """

    @wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **rename_cache(kwargs, "cache"))

    signature = inspect.signature(function)
    parameters = [
        parameter.replace(name=CACHE) if name == "cache" else parameter
        for name, parameter in signature.parameters.items()
    ]
    vars(wrapper)["__signature__"] = signature.replace(parameters=parameters)
    return wrapper  # type: ignore[return-value]


class HasCache(ModelOutput):
    """An output whose field for the cache has each of the names of [`CACHE_NAMES`], without a warning."""

    def __getitem__(self, key: Any) -> Any:
        return super().__getitem__(CACHE if isinstance(key, str) and key in CACHE_NAMES else key)

    def __contains__(self, key: Any) -> bool:
        return super().__contains__(CACHE if key in CACHE_NAMES else key)

    def get(self, key: Any, default: Any = None) -> Any:
        return super().get(CACHE if key in CACHE_NAMES else key, default)


for _name in CACHE_NAMES:
    if _name != CACHE:
        setattr(HasCache, _name, property(lambda self: getattr(self, CACHE)))


def layer_recorder(layer_class: type, layers_field: str) -> OutputRecorder:
    """Return the recorder of the hidden states of layers, whose number is a field of the configuration."""
    names = {field.name for field in fields(OutputRecorder)}
    key = {"num_hidden_layers_key": layers_field} if "num_hidden_layers_key" in names else {}
    return OutputRecorder(layer_class, **key)


def named_arguments(method: Callable, args: tuple, kwargs: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments of a call of transformers' method by the names of its parameters."""
    return inspect.signature(method).bind_partial(*args, **kwargs).arguments


def attention_implementation(config: Any) -> Any:
    """Return the name of the attention implementation of a configuration."""
    return config._attn_implementation


class SpecialTokens(NamedTuple):
    """Ids of special tokens as tensors, None for those that a request has not."""

    start: Any
    ends: Any
    pad: Any


def special_tokens(settings: Any) -> SpecialTokens:
    """Return the special tokens of settings that `generate` or [`prepared_settings`] has prepared."""
    return SpecialTokens(settings._decoder_start_token_tensor, settings._eos_token_tensor, settings._pad_token_tensor)


def prepared_settings(model: Any, generation_config: Any, settings: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    """Return the settings of a search as `generate` prepares them, and the keywords that are no settings."""
    generation_settings, keywords = model._prepare_generation_config(generation_config, **settings)
    model._prepare_special_tokens(generation_settings, True, device=model.device, batch_size=1)
    return generation_settings, keywords


def processors_of(model: Any, settings: Any) -> list[Any]:
    """Return the logits processors that `generate` makes for settings."""
    return model._get_logits_processor(
        settings,
        input_ids_seq_length=1,
        encoder_input_ids=torch.zeros(1, 1, dtype=torch.long),
        prefix_allowed_tokens_fn=None,
        logits_processor=transformers.LogitsProcessorList(),
        device="cpu",
    )


def prefill(model: Any, *args: Any) -> Any:
    """Return the output of the first forward pass of a search."""
    return model._prefill(*args)


def update_finished_beams(model: Any, **states: Any) -> tuple[torch.Tensor, ...]:
    """Return the best finished beams of a beam search after a step."""
    return model._update_finished_beams(**states)


def check_early_stop(model: Any, **states: Any) -> torch.Tensor:
    """Return which searches with beams may still find better ones."""
    return model._check_early_stop_heuristic(**states)


_STATES_OF_BEAMS = """
    sequences topk_running_sequences beam_scores topk_log_probs beam_indices topk_running_beam_indices
    is_early_stop_heuristic_unsatisfied is_sent_finished next_token_hits_stopping_criteria top_num_beam_mask num_beams
    cur_len decoder_prompt_len length_penalty early_stopping
"""
_STATES_OF_STOP = """
    is_early_stop_heuristic_unsatisfied running_beam_scores beam_scores is_sent_finished cur_len max_length
    decoder_prompt_len early_stopping length_penalty
"""


def _has_parameters(name: str, parameters: str) -> bool:
    method = getattr(transformers.GenerationMixin, name, None)
    return method is not None and {*inspect.signature(method).parameters} - {"self"} == {*parameters.split()}


# Whether this transformers has the parts of a search that the three functions above call.
FITS_SEARCH = (
    _has_parameters("_prefill", "input_ids generation_config model_kwargs is_first_iteration")
    and _has_parameters("_update_finished_beams", _STATES_OF_BEAMS)
    and _has_parameters("_check_early_stop_heuristic", _STATES_OF_STOP)
)
