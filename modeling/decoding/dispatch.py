"""Decides when `generate` takes the fast path of decoding, and keeps the compiled searches.

The fast path takes only models and requests that this file knows to be safe. All others take the plain path.
"""

import copy
import hashlib
import inspect
import operator
from collections.abc import Iterable
from functools import cache
from types import FunctionType
from typing import Any
from weakref import WeakKeyDictionary, WeakSet

import torch
from torch import nn
from torch.nn.modules.module import _has_any_global_hook as has_global_hook
from transformers import GenerationConfig, GenerationMixin, PreTrainedModel
from transformers.generation import GenerationMode
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS
from transformers.utils import logging, output_capturing

from ...common.watching import Watch
from .. import attention, layers, modeling_weft, moe, positions
from ..masks import KNOWN_IMPLEMENTATIONS
from ..modeling_weft import WeftDecoder, WeftEncoder, WeftForConditionalGeneration, WeftModel, WeftStack
from ..transformers_names import CACHE, attention_implementation, prepared_settings, special_tokens
from .cache import FastPathRequest
from .compiled import has_compiled_folder
from .continuous import needs_more
from .graph import GraphSearch
from .search import decode as decode  # for the loop of `generate`, which knows this module alone
from .step import GROWING_ROTARY

logger = logging.get_logger(__name__)

_MODES = (
    GenerationMode.GREEDY_SEARCH,
    GenerationMode.SAMPLE,
    GenerationMode.BEAM_SEARCH,
    GenerationMode.BEAM_SAMPLE,
)
# The methods of `GenerationMixin` that the searches replace or call, with their parameters. If a later transformers
# has others, all requests take the plain path.
_SEARCH = ("input_ids", "logits_processor", "stopping_criteria", "generation_config", "synced_gpus")
_METHODS = {
    "_sample": (*_SEARCH, "streamer", "model_kwargs"),
    "_beam_search": (*_SEARCH, "model_kwargs"),
    "_prefill": ("input_ids", "generation_config", "model_kwargs", "is_first_iteration"),
    "_update_finished_beams": (
        "sequences", "topk_running_sequences", "beam_scores", "topk_log_probs", "beam_indices",
        "topk_running_beam_indices", "is_early_stop_heuristic_unsatisfied", "is_sent_finished",
        "next_token_hits_stopping_criteria", "top_num_beam_mask", "num_beams", "cur_len", "decoder_prompt_len",
        "length_penalty", "early_stopping",
    ),
    "_check_early_stop_heuristic": (
        "is_early_stop_heuristic_unsatisfied", "running_beam_scores", "beam_scores", "is_sent_finished", "cur_len",
        "max_length", "decoder_prompt_len", "early_stopping", "length_penalty",
    ),
}  # fmt: skip
# Methods that the plain path calls for each token, and that the fast path does not call.
_KNOWN_METHODS = ("forward", "prepare_inputs_for_generation", "_update_model_kwargs_for_generation")
# The modules that a decoder is made of: some of torch, and those defined in these places. Whoever adds a module that
# the step does not call must teach it to the step, or refuse it in `reason_against_model`.
_TORCH_MODULES = (nn.ModuleList, nn.Linear, nn.Embedding, nn.LayerNorm, nn.RMSNorm)
_SOURCES = (
    WeftModel.__module__.removesuffix("modeling_weft"),
    "torch.nn.modules.activation",
    "transformers.activations",
)


def _code_of(kind: type) -> dict[str, Any]:
    """Return the methods and properties that a class defines."""
    return {name: value for name, value in vars(kind).items() if isinstance(value, (FunctionType, property))}


# The code of the modules that the step takes apart, as it was when this file was imported.
_WRITTEN_FOR: dict[type, dict[str, Any]] = {
    kind: _code_of(kind)
    for kind in (
        *_TORCH_MODULES,
        *(kind for file in (attention, layers, modeling_weft, moe, positions) for kind in vars(file).values()),
    )
    if isinstance(kind, type) and issubclass(kind, nn.Module) and not issubclass(kind, PreTrainedModel)
}
_WRITTEN_FOR |= {kind: _code_of(kind) for kind in (WeftDecoder, WeftEncoder, WeftStack)}
_NUM_ATTRIBUTES = {kind: len(vars(kind)) for kind in _WRITTEN_FOR}
_FORWARD = frozenset(("forward",))
# For each class, the names that an object of it must not have as its own attributes.
_METHODS_OF = {
    kind: frozenset().union(*(_WRITTEN_FOR.get(base, ()) for base in kind.__mro__)) for kind in _WRITTEN_FOR
}


def _replaced_code(kinds: Iterable[type]) -> str | None:
    """Return the name of a class whose code was replaced after the import, if there is one.

    The step and compiled searches would go on with the code that they were written for.
    """
    for kind in dict.fromkeys(base for own in kinds for base in own.__mro__ if base in _WRITTEN_FOR):
        attributes, written = vars(kind), _WRITTEN_FOR[kind]
        is_same = all(attributes.get(name) is code for name, code in written.items())
        # another method may be new, in place of that of a base class
        if not is_same or (len(attributes) != _NUM_ATTRIBUTES[kind] and _code_of(kind) != written):
            return kind.__name__
    return None


# The functions that the step and the search stand in for, and a hash of the source of each. A change of one of them
# must be made there too. Then the new hash, which `edited_function` logs, is written here.
_STOOD_IN_FOR = {
    WeftDecoder.forward: "697417be",
    WeftModel.forward: "44e17994",
    WeftForConditionalGeneration.forward: "3db43eae",
    WeftForConditionalGeneration.prepare_inputs_for_generation: "be75a443",
    attention.CrossAttention.forward: "4f5144fb",  # the step has no states of the source, only their keys and values
}


@cache
def edited_function() -> str | None:
    """Return the name of a function whose source is not what the step stands in for, if there is one."""
    for function, known in _STOOD_IN_FOR.items():
        try:
            source = inspect.getsource(inspect.unwrap(function))
        except OSError:  # there is no source to edit, as in a frozen program
            continue
        code = "".join(source.split('"""')[::2])  # without the docstring
        found = hashlib.sha256(code.encode()).hexdigest()[:8]
        if found != known:
            logger.debug(f"{function.__qualname__} has the hash {found}.")
            return function.__qualname__
    return None


# The models passed to `fast_decoding`.
_CHOSEN: WeakSet[nn.Module] = WeakSet()
# For each model, its state and its compiled graphs, or None if there cannot be any for this state.
_GRAPHS: WeakKeyDictionary[nn.Module, tuple[Any, GraphSearch | None]] = WeakKeyDictionary()
_logged_reasons: set[str] = set()
# Arguments of `generate` that compiled graphs read, those that change nothing, and types of the other settings.
_INPUTS = ("input_ids", "attention_mask", "condition_values")
_NO_EFFECT = (("synced_gpus", False), ("streamer", None), ("stopping_criteria", None))
_SIMPLE = (bool, int, float, str, list)
# Settings of decoder-only models, and of a search that transformers no longer has.
_REFUSED = ("prefill_chunk_size", "token_healing", "low_memory")
# Other types of tensors may have no storage.
_OWN_TENSORS = (nn.Parameter, torch.Tensor)


@cache
def changed_method() -> str | None:
    """Return the name of a method that this transformers lacks or has with other parameters, if there is one."""
    for name, parameters in _METHODS.items():
        method = getattr(GenerationMixin, name, None)
        if method is None or {*inspect.signature(method).parameters} - {"self"} != set(parameters):
            return name
    return None


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
    decoder, encoder = model.model.decoder, model.model.encoder
    modules = [*decoder.modules(), *(encoder.modules() if with_encoder else ())]
    for module in (model, model.model, model.lm_head, *modules):
        if module.training:
            return "the model is in training mode (`model.eval()` ends it)"
        if _is_observed(module) or not _METHODS_OF.get(type(module), _FORWARD).isdisjoint(module.__dict__):
            return f"a {type(module).__name__} has a hook, or a method of it was replaced (offloaded weights do both)"
    if has_global_hook():
        return "all modules have a global hook"
    for name in _KNOWN_METHODS:  # a subclass or an adapter may have replaced the method
        if getattr(getattr(model, name), "__func__", None) is not getattr(WeftForConditionalGeneration, name):
            return f"the model's `{name}` is not Weft's own"
    if type(model.model) is not WeftModel:
        return f"there is a {type(model.model).__name__} in the model"
    # The step calls the submodules of some modules, and not the modules themselves. It would ignore an adapter in
    # place of one, or the `forward` of a subclass.
    if edited := edited_function():
        return f"the source of {edited} was edited"
    kinds = dict.fromkeys(type(module) for module in (model.lm_head, *modules))
    if replaced := _replaced_code(kinds):
        return f"the code of {replaced} was replaced"
    for kind in kinds:
        if kind not in _TORCH_MODULES and not kind.__module__.startswith(_SOURCES):
            return f"there is a {kind.__name__} in the model (an adapter, or a module of another package)"
    weights = [weight for module in (model.lm_head, *modules) for weight in module.parameters(recurse=False)]
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
    if name := changed_method():
        return f"transformers has another `{name}`"
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
    """Return the cache of a request that may take the fast path, or None if it may not.

    Log each reason against the fast path once, at debug level.
    """
    against = reason_against_request(model, generation_config, inputs, mode)
    if against is not None:
        if against not in _logged_reasons:
            _logged_reasons.add(against)
            logger.debug(f"generate uses the plain path: {against}.")
        return None
    beams = max(generation_config.num_beams or 1, generation_config.num_return_sequences or 1)
    source_mask, prefix_mask = inputs.get("encoder_attention_mask"), inputs.get("decoder_attention_mask")
    source_mask = inputs.get("attention_mask") if source_mask is None else source_mask
    # transformers has already repeated the masks for the beams
    prefix_mask, source_mask = (
        m[::beams] if m is not None and len(m) > batch_size else m for m in (prefix_mask, source_mask)
    )
    return FastPathRequest(model.config, beams, prefix_mask, source_mask, generation_config.max_length)


def is_prepared(model_kwargs: dict[str, Any]) -> bool:
    """Return whether `generate` has prepared a request, with these inputs, for the fast path."""
    return isinstance(model_kwargs.get(CACHE), FastPathRequest)


def reason_against_graphs(model: Any) -> str | None:
    """Return why the search cannot be compiled for a model, or None if it can."""
    rotary = model.model.decoder.rotary_embedding
    if model.device.type not in ("cpu", "cuda"):
        return f"searches are compiled for CPUs and CUDA GPUs, and the model is on {model.device}"
    if torch.get_default_dtype() != torch.float32 or torch.get_default_device().type != "cpu":
        return "the default dtype is not float32, or the default device is not a CPU"
    if rotary is not None and rotary.rope_type in GROWING_ROTARY:
        return "the model's positions change with the length of a text"
    if model.config.router_noise == "always":
        return "the model's routers are noisy in each call"
    return reason_against_model(model, with_encoder=True)


class _State:
    """What graphs and [`reason_against_graphs`] depend on, in one walk over the modules.

    Values of weights do not count, because a graph reads them. Attributes are compared by identity, which is fast. The
    configuration and other things that change in place are compared by value.
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
            # with the layout, which `weight.data = weight.data.t()` changes alone
            own = [one for one in tensors if type(one) in _OWN_TENSORS]
            places += [(one.data_ptr(), one.dtype, one.shape, one.stride()) for one in own]
        methods = [getattr(getattr(model, name), "__func__", None) for name in _KNOWN_METHODS]
        methods.append(_replaced_code({type(module) for module in modules}))
        attention = ALL_ATTENTION_FUNCTIONS.get(attention_implementation(model.config))
        has_hook, threads = has_global_hook(), torch.get_num_threads()
        defaults = torch.get_default_dtype(), torch.get_default_device()
        self.others = places, methods, attention, has_hook, threads, defaults, vars(model.config)

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, _State)
            and len(self.objects) == len(other.objects)
            and all(map(operator.is_, self.objects, other.objects))
            and self.others == other.others
        )


def graph_search(model: Any) -> GraphSearch | None:
    """Return the graphs of searches for the model as it is now, or None if there cannot be any."""
    if not has_compiled_folder():
        return None
    kept, state = _GRAPHS.get(model), _State(model)
    if kept is None or kept[0] != state:
        state.others = copy.deepcopy(state.others)  # a configuration is edited in place
        kept = _GRAPHS[model] = state, None if reason_against_graphs(model) else GraphSearch(model)
    return kept[1]


def _search_settings(model: Any, generation_config: GenerationConfig | None, settings: dict[str, Any]) -> Any:
    """Return the settings of a search, with tensors of special tokens, or None if graphs do not support them."""
    prepared, others = prepared_settings(model, generation_config, settings)
    if prepared.max_new_tokens is not None:
        prepared.max_length = prepared.max_new_tokens + 1
    size, (start, ends, pad) = model.config.target_vocab_size, special_tokens(prepared)
    if (
        others  # the plain path refuses names that it does not know
        or prepared.get_generation_mode() not in (GenerationMode.GREEDY_SEARCH, GenerationMode.BEAM_SEARCH)
        or prepared.return_dict_in_generate
        or prepared.num_return_sequences not in range(1, prepared.num_beams + 1)
        or needs_more(model, prepared)
        or ends is None
        # the plain path has its own errors for these
        or any(getattr(prepared, name, None) for name in _REFUSED)
        or not all(token.ndim == 0 and 0 <= int(token) < size for token in (start, pad))
        or 1 + len(ends) > size
        or not isinstance(prepared.max_length, int)
        or not 2 <= prepared.max_length < 2**62
    ):
        return None
    return prepared


def compiled_texts(
    model: Any, input_ids: Any, generation_config: GenerationConfig | None, processors: Any, inputs: dict[str, Any]
) -> torch.Tensor | None:
    """Return what `generate` returns, from compiled graphs, or None if there are none or the request needs more.

    Args:
        model: the model.
        input_ids: ids of the source, which have been checked.
        generation_config, processors, inputs: the arguments of `generate`.
    """
    tensors = [input_ids, inputs.get("attention_mask"), inputs.get("condition_values")]
    given = [one for one in tensors if one is not None]
    settings = {
        name: value for name, value in inputs.items() if name not in _INPUTS and (name, value) not in _NO_EFFECT
    }
    if (
        not all(value is None or isinstance(value, _SIMPLE) for value in settings.values())
        or not all(isinstance(processor, Watch) for processor in processors)
        or input_ids is None
        or not all(type(one) in _OWN_TENSORS and (one.ndim, one.device) == (2, model.device) for one in given)
        or not input_ids.numel()
        or (graphs := graph_search(model)) is None
    ):
        return None
    configs = {} if generation_config is None else vars(generation_config), vars(model.generation_config)
    if any(hasattr(value, "shape") for config in configs for value in config.values()):
        return None  # tensors of tokens, which `!=` does not compare
    last = graphs.last
    if last is None or last[0] != (configs, settings):
        last = copy.deepcopy((configs, settings)), _search_settings(model, generation_config, settings)
        graphs.last = last
    prepared, config = last[1], model.config
    if prepared is None:
        return None
    sizes = (input_ids.shape[1], config.max_source_positions), (prepared.max_length - 1, config.max_target_positions)
    if (
        reason_against_request(model, prepared, {}, prepared.get_generation_mode(), checks_model=False) is not None
        or (config.has_position_table and any(size > limit for size, limit in sizes))
        or (tensors[1] is not None and not tensors[1].any(dim=1).all())
    ):
        return None
    for processor in processors:
        processor.check()
    return graphs.write(prepared, *tensors)


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
