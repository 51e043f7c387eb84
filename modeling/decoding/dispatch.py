"""Decides when `generate` takes the fast path of decoding, and keeps the compiled searches.

The fast path takes only models and requests that this file knows to be safe. All others take the plain path.
"""

import copy
import operator
from collections.abc import Iterable
from functools import cache
from types import FunctionType
from typing import Any
from weakref import WeakKeyDictionary, WeakSet

import torch
import transformers
from torch import nn
from torch.nn.modules.module import _has_any_global_hook as has_global_hook
from transformers import GenerationConfig
from transformers.generation import GenerationMode
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS
from transformers.utils import logging, output_capturing

from ...common.watching import Watch
from ..masks import KNOWN_IMPLEMENTATIONS
from ..modeling_weft import WeftForConditionalGeneration, WeftModel
from ..transformers_names import CACHE, FITS_SEARCH, attention_implementation, prepared_settings, special_tokens
from .cache import FastPathRequest
from .compiled import has_compiled_folder
from .continuous import needs_more
from .graph import GraphSearch, kind_of
from .search import decode
from .step import GROWING_ROTARY

logger = logging.get_logger(__name__)

_MODES = (GenerationMode.GREEDY_SEARCH, GenerationMode.SAMPLE, GenerationMode.BEAM_SEARCH, GenerationMode.BEAM_SAMPLE)
# Methods of the model that the plain path calls for each token, and the fast path does not.
_ENTRIES = ("forward", "prepare_inputs_for_generation", "_update_model_kwargs_for_generation")
# Where the modules of a decoder and their code are defined. The step runs attention through classes of its own and
# joins projections, so it would ignore other code in their place.
_PACKAGE = WeftModel.__module__.removesuffix("modeling_weft")
_TORCH_MODULES = (nn.ModuleList, nn.Linear, nn.Embedding, nn.LayerNorm, nn.RMSNorm)
_MODULES = (_PACKAGE, "torch.nn.modules.activation", "transformers.activations")
_CODE = (_PACKAGE, "torch.", "transformers.")


@cache
def _bases(kind: Any) -> list[type]:
    """Return the classes of Weft, and the small ones of torch and transformers, that a class consists of."""
    return [base for base in kind.__mro__ if base in _TORCH_MODULES or base.__module__.startswith(_MODULES)]


@cache
def _methods(kind: Any) -> frozenset[str]:
    """Return the names that an object of a class must not have as its own attributes."""
    members = [member for base in _bases(kind) for member in vars(base).items()]
    return frozenset(["forward", *(name for name, value in members if isinstance(value, (FunctionType, property)))])


def replaced_code(kinds: Iterable[type]) -> str | None:
    """Return the name of a class with a method from another package, if there is one."""
    for base in dict.fromkeys(base for kind in kinds for base in _bases(kind)):
        for value in vars(base).values():
            function = value.fget if isinstance(value, property) else value
            if isinstance(function, FunctionType) and not function.__globals__["__name__"].startswith(_CODE):
                return base.__name__
    return None


# The models passed to `fast_decoding`.
_CHOSEN: WeakSet[nn.Module] = WeakSet()
# For each model, its state and its compiled graphs, or why there cannot be any for this state.
_GRAPHS: WeakKeyDictionary[nn.Module, tuple[Any, GraphSearch | str]] = WeakKeyDictionary()
# Arguments of `generate` that compiled graphs read, those that change nothing, and types of the other settings.
_INPUTS = ("input_ids", "attention_mask", "condition_values")
_NO_EFFECT = (("synced_gpus", False), ("streamer", None), ("stopping_criteria", None))
_SIMPLE = (bool, int, float, str, list)
_NOT_COMPILED = "this search is not compiled (`weftformer compile` does it)"
# Settings of decoder-only models, and of a search that transformers no longer has.
_REFUSED = ("prefill_chunk_size", "token_healing", "low_memory")
# Other types of tensors may have no storage.
_PLAIN_TENSORS = (nn.Parameter, torch.Tensor)


def _is_observed(module: nn.Module) -> bool:
    """Return whether a module has hooks, other than the recorders that transformers never removes."""
    # torch has no public names for hooks
    hooks = (*module._forward_hooks.values(), *module._forward_pre_hooks.values())
    return any(getattr(hook, "__module__", None) != output_capturing.__name__ for hook in hooks)


def _is_foreign(attention: Any) -> bool:
    """Return whether an attention function is a user's own. It is None for "eager", the model's implementation."""
    return attention is not None and not str(getattr(attention, "__module__", "")).startswith("transformers.")


def reason_against_model(model: Any, with_encoder: bool = False) -> str | None:
    """Return, in a few words, why the model as it is now cannot take the fast path, or None if it can.

    Args:
        model: the model.
        with_encoder: whether the encoder is not called as a module either.
    """
    stacks = [model.model.decoder, model.model.encoder] if with_encoder else [model.model.decoder]
    modules = [model.lm_head, *(module for stack in stacks for module in stack.modules())]
    for module in (model, model.model, *modules):
        if module.training:
            return "the model is in training mode (`model.eval()` ends it)"
        if _is_observed(module) or not _methods(module.__class__).isdisjoint(vars(module)):
            return f"a {type(module).__name__} has a hook, or a method of it was replaced (offloaded weights do both)"
    if model.model.decoder.number_layers():
        return "a layer of the decoder is used several times"
    if has_global_hook():
        return "all modules have a global hook"
    for name in _ENTRIES:
        if name in vars(model) or getattr(type(model), name) is not getattr(WeftForConditionalGeneration, name):
            return f"the model's `{name}` is not Weft's own"
    if type(model.model) is not WeftModel:
        return f"there is a {type(model.model).__name__} in the model"
    kinds = dict.fromkeys(map(type, modules))
    for kind in kinds:
        if kind not in _TORCH_MODULES and not kind.__module__.startswith(_MODULES):
            return f"there is a {kind.__name__} in the model (an adapter, or a module of another package)"
    if name_of_class := replaced_code([WeftForConditionalGeneration, WeftModel, *kinds]):
        return f"the code of {name_of_class} was replaced"
    weights = [weight for module in modules for weight in module.parameters(recurse=False)]
    types = {type(weight).__name__ for weight in weights if type(weight) is not nn.Parameter}
    if types:
        return f"weights are of type {', '.join(sorted(types))} (quantised or sharded)"
    devices = {str(weight.device) for weight in weights}
    if len(devices) > 1:
        return f"weights are on {' and '.join(sorted(devices))}"
    # who compiles a search has chosen too
    if devices != {"cpu"} and not with_encoder and model not in _CHOSEN:
        return f"weights are on {devices.pop()}, and `fast_decoding` was not called"
    if any(getattr(module, "capacity_factor", None) is not None for module in modules):
        # the fast path passes other tokens to the experts in a call: one beam of a prefix, and beams by their slots
        return "experts have a limited capacity, so that the tokens of a call decide what is dropped"
    name = attention_implementation(model.config)
    if name not in KNOWN_IMPLEMENTATIONS or _is_foreign(ALL_ATTENTION_FUNCTIONS.get(name)):
        return f'the attention "{name}" is not one of transformers\' own'
    return None


def reason_against_request(
    model: Any, generation_config: GenerationConfig, inputs: dict[str, Any], mode: Any, checks_model: bool = True
) -> str | None:
    """Return, in a few words, why a request must take the plain path, or None if it may take the fast path.

    Args:
        model, generation_config, inputs, mode: the request.
        checks_model: whether to check the model too.
    """
    settings, config = generation_config, model.config
    if not FITS_SEARCH:
        return f"the search of transformers {transformers.__version__} is another one"
    if mode not in _MODES:
        return f"the mode is {getattr(mode, 'value', mode)}"
    if inputs.get(CACHE) is not None or settings.cache_implementation is not None:
        return "a cache or a cache implementation was given"
    if settings.use_cache is False:
        return "the cache is turned off (use_cache=False)"
    if settings.output_attentions or settings.output_hidden_states or inputs.get("output_router_logits"):
        return "attention weights, hidden states or router logits are requested"
    if getattr(settings, "is_assistant", False):
        return "the model is the assistant of another model"
    names = {name for name, value in inputs.items() if value is not None}
    if "decoder_inputs_embeds" in names:
        return "embeddings of the target are given"
    if "position_ids" in names and config.cross_attention_position_type != "none":
        return "positions of the source are given, and cross-attention reads them"
    # rows with different padding have different offsets
    is_relative = any(config.uses_attention_positions(kind) for kind in ("relative", "bucketed"))
    if is_relative and names & {"decoder_attention_mask", "encoder_attention_mask"}:
        return "a mask of the decoder is given, and attention has relative positions"
    masks = [inputs.get(name) for name in ("attention_mask", "encoder_attention_mask", "decoder_attention_mask")]
    if not all(mask is None or mask.ndim == 2 for mask in masks):
        return "a mask is 4-D"
    if checks_model and (against := reason_against_model(model)):
        return against
    if torch.is_grad_enabled():
        return "gradients are kept (`generate.__wrapped__`)"
    device = model.device.type
    return "autocast is on" if device != "meta" and torch.is_autocast_enabled(device) else None


def prepared_request(
    model: Any, generation_config: GenerationConfig, inputs: dict[str, Any], mode: Any, batch_size: int
) -> FastPathRequest | None:
    """Return the cache of a request that may take the fast path, or None if it may not. Log each reason once."""
    if reason := reason_against_request(model, generation_config, inputs, mode):
        logger.info_once(f"transformers' own search writes this text, which is slower: {reason}.")
        return None
    beams = max(generation_config.num_beams or 1, generation_config.num_return_sequences or 1)
    source_mask, prefix_mask = inputs.get("encoder_attention_mask"), inputs.get("decoder_attention_mask")
    source_mask = inputs.get("attention_mask") if source_mask is None else source_mask
    # transformers has already repeated the masks for the beams
    prefix_mask, source_mask = (
        m[::beams] if m is not None and len(m) > batch_size else m for m in (prefix_mask, source_mask)
    )
    return FastPathRequest(model.config, beams, prefix_mask, source_mask, generation_config.max_length, decode)


def reason_against_graphs(model: Any) -> str | None:
    """Return why the search cannot be compiled for a model, or None if it can."""
    rotary = model.model.decoder.rotary_embedding
    if model.device.type not in ("cpu", "cuda"):
        return f"searches are compiled for CPUs and CUDA GPUs, and the model is on {model.device}"
    if torch.get_default_dtype() != torch.float32 or torch.get_default_device().type != "cpu":
        return "the default dtype is not float32, or the default device is not a CPU"
    if rotary is not None and rotary.rope_type in GROWING_ROTARY:
        return "the model's positions change with the length of a text"
    # a compiled file cannot call a method that replaces it
    if type(model).compute_logits is not WeftForConditionalGeneration.compute_logits:
        return "the model's `compute_logits` is not Weft's own"
    if model.config.router_noise == "always":
        return "the model's routers are noisy in each call"
    return reason_against_model(model, with_encoder=True)


class _State:
    """What graphs and [`reason_against_graphs`] depend on, in one walk over the modules.

    Values of parameters do not count, because a graph reads them. Attributes are compared by identity, which is fast.
    The configuration and other things that change in place are compared by value.
    """

    def __init__(self, model: Any):
        self.objects: list[Any] = []
        places: list[Any] = []
        modules = [model]
        for module in modules:  # which grows
            attributes = module.__dict__
            modules.extend(child for child in attributes["_modules"].values() if child is not None)
            tensors = [*attributes["_parameters"].values(), *attributes["_buffers"].values()]
            self.objects += (type(module), *attributes.values(), *tensors)
            places += len(attributes["_forward_hooks"]), len(attributes["_forward_pre_hooks"])
            # code may have their values: they count changes in place, except those made in inference mode
            buffers = [value for value in attributes["_buffers"].values() if value is not None]
            places += [0 if buffer.is_inference() else buffer._version for buffer in buffers]
            for tensor in tensors:
                if type(tensor) in _PLAIN_TENSORS:
                    # the layout too: `weight.data = weight.data.t()` changes nothing else
                    places.append((tensor.data_ptr(), tensor.dtype, tensor.shape, tensor.stride()))
        self.values = (
            places,
            replaced_code({type(module) for module in modules}),
            ALL_ATTENTION_FUNCTIONS.get(attention_implementation(model.config)),
            has_global_hook(),
            torch.get_num_threads(),
            (torch.get_default_dtype(), torch.get_default_device()),
            vars(model.config),
        )

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, _State)
            and len(self.objects) == len(other.objects)
            and all(map(operator.is_, self.objects, other.objects))
            and self.values == other.values
        )


def graph_search(model: Any) -> GraphSearch | str:
    """Return the graphs of searches for the model as it is now, or why there cannot be any."""
    if not has_compiled_folder():
        return _NOT_COMPILED
    entry, state = _GRAPHS.get(model), _State(model)
    if entry is None or entry[0] != state:
        state.values = copy.deepcopy(state.values)  # a configuration is edited in place
        entry = _GRAPHS[model] = state, reason_against_graphs(model) or GraphSearch(model)
    return entry[1]


def _search_settings(model: Any, generation_config: GenerationConfig | None, settings: dict[str, Any]) -> Any:
    """Return the settings of a search, with tensors of special tokens, or None if graphs do not support them."""
    search_settings, unknown_names = prepared_settings(model, generation_config, settings)
    if search_settings.max_new_tokens is not None:
        search_settings.max_length = search_settings.max_new_tokens + 1
    size, (start, ends, pad) = model.config.target_vocab_size, special_tokens(search_settings)
    if (
        unknown_names  # the plain path refuses these names
        or search_settings.get_generation_mode() not in (GenerationMode.GREEDY_SEARCH, GenerationMode.BEAM_SEARCH)
        or search_settings.return_dict_in_generate
        or search_settings.num_return_sequences not in range(1, search_settings.num_beams + 1)
        or needs_more(model, search_settings)
        or ends is None
        # the plain path has its own errors for these
        or any(getattr(search_settings, name, None) for name in _REFUSED)
        or not all(token.ndim == 0 and 0 <= int(token) < size for token in (start, pad))
        or 1 + len(ends) > size
        or not isinstance(search_settings.max_length, int)
        or not 2 <= search_settings.max_length < 2**62
    ):
        return None
    return search_settings


def _compiled_request(
    model: Any, input_ids: Any, generation_config: GenerationConfig | None, processors: Any, inputs: dict[str, Any]
) -> tuple[GraphSearch, Any] | str:
    """Return the graphs for a request and its settings, or why graphs cannot write it."""
    tensors = [input_ids, inputs.get("attention_mask"), inputs.get("condition_values")]
    settings = {
        name: value for name, value in inputs.items() if name not in _INPUTS and (name, value) not in _NO_EFFECT
    }
    if not all(value is None or isinstance(value, _SIMPLE) for value in settings.values()):
        return "an input besides the source is given"
    if not all(isinstance(processor, Watch) for processor in processors):
        return "a logits processor is given"
    for tensor in tensors:
        is_plain = type(tensor) in _PLAIN_TENSORS and (tensor.ndim, tensor.device) == (2, model.device)
        if not is_plain and (tensor is input_ids or tensor is not None):
            return "the source is not in tensors of two dimensions on the device of the model"
    if not input_ids.numel():
        return "the source is empty"
    graphs = graph_search(model)
    if isinstance(graphs, str):
        return graphs
    configs = {} if generation_config is None else vars(generation_config), vars(model.generation_config)
    if any(hasattr(value, "shape") for config in configs for value in config.values()):
        return "tokens are given as tensors"  # which `!=` does not compare
    last_request = graphs.last
    if last_request is None or last_request[0] != (configs, settings):
        last_request = copy.deepcopy((configs, settings)), _search_settings(model, generation_config, settings)
        graphs.last = last_request
    search_settings, config, mask = last_request[1], model.config, tensors[1]
    if search_settings is None:
        return "the settings need more than greedy search or beam search"
    mode = search_settings.get_generation_mode()
    if reason := reason_against_request(model, search_settings, {}, mode, checks_model=False):
        return reason
    sizes = (
        (input_ids.shape[1], config.max_source_positions),
        (search_settings.max_length - 1, config.max_target_positions),
    )
    if config.has_position_table and any(size > limit for size, limit in sizes):
        return "the position table is shorter than the texts"
    if mask is not None and not mask.any(dim=1).all():
        return "the mask hides a whole source"
    if graphs.packages(kind_of(search_settings), len(input_ids) == 1) is None:
        return _NOT_COMPILED
    return graphs, search_settings


def compiled_texts(
    model: Any, input_ids: Any, generation_config: GenerationConfig | None, processors: Any, inputs: dict[str, Any]
) -> torch.Tensor | None:
    """Return what `generate` returns, from compiled graphs, or None if there are none or the request needs more.

    Args:
        model: the model.
        input_ids: ids of the source, which have been checked.
        generation_config, processors, inputs: the arguments of `generate`.
    """
    request = _compiled_request(model, input_ids, generation_config, processors, inputs)
    if isinstance(request, str):
        return None
    graphs, settings = request
    for processor in processors:
        processor.check()
    return graphs.write(settings, input_ids, inputs.get("attention_mask"), inputs.get("condition_values"))


def decoder_for(
    model: Any, input_ids: Any, generation_config: GenerationConfig | None, processors: Any, inputs: dict[str, Any]
) -> tuple[str, str]:
    """Return the name of the way in which `generate` writes a request, and why. The arguments are those of
    [`compiled_texts`].
    """
    compiled_request = _compiled_request(model, input_ids, generation_config, processors, inputs)
    if not isinstance(compiled_request, str):
        return "compiled", "`weftformer compile` has compiled this search"
    search_settings, model_inputs = prepared_settings(model, generation_config, inputs)
    reason = reason_against_request(model, search_settings, model_inputs, search_settings.get_generation_mode())
    return ("cached", compiled_request) if reason is None else ("transformers", reason)


def fast_decoding(model: Any, enable: bool = True) -> Any:
    """Turn the fast path on for a model on a GPU, for all later calls of `model.generate`.

    On a CPU, the fast path is always on, so this has no effect. (`weftformer compile` makes it faster there.)

    The outputs are the same in float32. In 16 bits they may differ where tokens have almost equal scores, because sums
    are in another order. `generate(cache_implementation="static")` lets transformers compile its own greedy search.

    Args:
        model (`WeftForConditionalGeneration`): the model, in evaluation mode.
        enable: False restores the default.

    Returns:
        The model.

    Raises:
        ValueError: the model cannot take the fast path at all: it is in training mode, has adapters or hooks, or has
            quantised, sharded or offloaded weights, or weights on several devices.

    Example:

    ```python
    >>> import weftformer

    >>> model = weftformer.fast_decoding(model.eval().to("cuda"))
    >>> ids = model.generate(**inputs, num_beams=5)
    ```
    """
    if not enable:
        _CHOSEN.discard(model)
        return model
    was_chosen = model in _CHOSEN
    _CHOSEN.add(model)
    if (against := reason_against_model(model)) is not None:
        if not was_chosen:
            _CHOSEN.discard(model)
        raise ValueError(f"`fast_decoding` does not support this model: {against}.")
    return model
