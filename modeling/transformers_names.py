"""The names that the model needs from transformers' internals. When transformers changes, look here.

Code that was pushed with weights stays the same, but transformers changes. Apart from the names in this file, that
code imports only names of `transformers` itself and of `transformers.modeling_outputs`. If a name of this file is
missing or takes other parameters, the model warns and works without it, or an error says what to install.
"""

import inspect
from collections.abc import Callable
from importlib import import_module
from typing import Any, TypeVar

import torch
import transformers
from transformers import PreTrainedConfig, PreTrainedModel, logging

logger = logging.get_logger(__name__)

REMEDY = 'pip install "transformers>=5.17,<6"; or pip install -U weftformer, and import weftformer before loading'

# Methods of transformers that the model's classes override. If transformers changes their parameters, its own are
# used.
REPLACED_METHODS = (
    "_assisted_decoding",
    "_beam_search",
    "_can_set_attn_implementation",
    "_can_set_experts_implementation",
    "_get_candidate_generator",
    "_get_logits_processor",
    "_grouped_mm_can_dispatch",
    "_init_weights",
    "_optimize_model_for_decode",
    "_prepare_cache_for_generation",
    "_prepare_generation_config",
    "_resize_token_embeddings",
    "_sample",
    "_set_gradient_checkpointing",
    "_validate_generated_length",
    "init_parallel_plans",
    "maybe_distribute_model",
)
# Attributes that the model's classes set or call. Without them, weights would silently be lost or initialized
# differently.
NEEDED_ATTRIBUTES = (
    (PreTrainedConfig, "_attn_implementation"),
    (PreTrainedModel, "_can_record_outputs"),
    (PreTrainedModel, "_init_weights"),
    (PreTrainedModel, "_tied_weights_keys"),
)
# Methods that resize a vocabulary, and the parameters that the model passes to them.
RESIZING = {
    "_resize_token_embeddings": ("new_num_tokens", "pad_to_multiple_of", "mean_resizing"),
    "_get_resized_embeddings": ("old_embeddings", "new_num_tokens", "pad_to_multiple_of", "mean_resizing"),
    "_get_resized_lm_head": ("old_lm_head", "new_num_tokens", "mean_resizing"),
}


def _lacks(name: str) -> str:
    return f"transformers {transformers.__version__} has no `{name}` as this model's code knows it"


def _takes(function: Any, parameters: tuple[str, ...]) -> bool:
    return not parameters or set(parameters) <= set(inspect.signature(function).parameters)


def _find(module: str, name: str, parameters: tuple[str, ...]) -> Any:
    try:
        found = getattr(import_module(f"transformers.{module}"), name, None)
    except ImportError:
        return None
    return found if found is not None and _takes(found, parameters) else None


def _needed(module: str, name: str, *parameters: str) -> Any:
    """Return an object of transformers that the model needs.

    Raises:
        ImportError: it is missing, or does not take these parameters. The message says what to install.
    """
    found = _find(module, name, parameters)
    if found is None:
        raise ImportError(f"{_lacks(f'{module}.{name}')}, and the model needs it: {REMEDY}.")
    return found


def _optional(module: str, name: str, *parameters: str, without: str) -> Any:
    """Return an object of transformers that the model can work without. If it is missing, warn and return None.

    `without` says in the warning what is different without the object.
    """
    found = _find(module, name, parameters)
    if found is None:
        logger.warning(f"{_lacks(f'{module}.{name}')}: {without}. To avoid this: {REMEDY}.")
    return found


def _eager_experts(has_gate: bool, has_bias: bool) -> Callable[[type], type]:
    """Return a decorator for experts like `use_experts_implementation`, without the choice of implementations."""

    def decorate(experts_class: Any) -> type:
        experts_class.has_gate, experts_class.has_bias = has_gate, has_bias
        return experts_class

    return decorate


ACT2FN = _needed("activations", "ACT2FN")
ALL_ATTENTION_FUNCTIONS = _needed("modeling_utils", "ALL_ATTENTION_FUNCTIONS")
OutputRecorder = _needed("utils.output_capturing", "OutputRecorder", "target_class", "index")
can_return_tuple = _needed("utils", "can_return_tuple")
capture_outputs = _needed("utils.output_capturing", "capture_outputs")
create_bidirectional_mask = _needed(
    "masking_utils", "create_bidirectional_mask", "config", "inputs_embeds", "attention_mask", "encoder_hidden_states"
)
create_causal_mask = _needed(
    "masking_utils", "create_causal_mask", "config", "inputs_embeds", "attention_mask", "past_key_values"
)
# Whether a mask can be narrowed by a function. Without it, packed sequences have a dense mask in flex attention too.
combines_mask_functions = all(
    _takes(create, ("and_mask_function",)) for create in (create_bidirectional_mask, create_causal_mask)
)
install_recorders = _optional(
    "utils.output_capturing",
    "maybe_install_capturing_hooks",
    "model",
    without="torch.compile cannot compile a model as one graph if it trains routers or returns hidden states, attentions or "
    "router logits, unless a call before has returned them",
)
# which does nothing where autocast is off, and on the device "meta", which has none
maybe_autocast = _find("utils.generic", "maybe_autocast", ("device_type", "enabled")) or torch.autocast
merge_with_config_defaults = _needed("utils.generic", "merge_with_config_defaults")
for _owner, _name in NEEDED_ATTRIBUTES:
    if not hasattr(_owner, _name):
        raise ImportError(f"{_lacks(f'{_owner.__name__}.{_name}')}, and the model needs it: {REMEDY}.")

use_experts_implementation = (
    _optional(
        "integrations",
        "use_experts_implementation",
        "has_gate",
        "has_bias",
        without="experts are computed one after the other",
    )
    or _eager_experts
)
try:
    initialization = import_module("transformers.initialization")
except ImportError:
    # while transformers loads a model, it also keeps torch's own functions from initializing weights that it has read
    initialization = import_module("torch.nn.init")
# The keywords that transformers' own callers pass to `forward`. Without it, the check of keywords knows fewer of them.
TransformersKwargs = _find("utils", "TransformersKwargs", ())

_Class = TypeVar("_Class", bound=type)


def recorder_of_layers(layer_class: type, number: str) -> Any:
    """Return a recorder of the states between layers.

    Args:
        layer_class: the class of the layers.
        number: the field of the configuration with the number of layers, for requests that count them from the last. Versions of
            transformers that know no such requests do not take it.
    """
    counted = {"num_hidden_layers_key": number} if _takes(OutputRecorder, ("num_hidden_layers_key",)) else {}
    return OutputRecorder(layer_class, **counted)


def fit_to_transformers(model_class: _Class) -> _Class:
    """Remove overrides of methods that transformers no longer has, or whose parameters it has changed.

    This class decorator leaves such methods to transformers. If the methods that resize a vocabulary have changed,
    resizing raises an ImportError.

    Raises:
        ImportError: the model needs the override.
    """
    methods: Any = model_class
    left_out = []
    for name in REPLACED_METHODS:
        if name in vars(methods):
            theirs = getattr(super(methods, methods), name, None)
            if theirs is None or not _fits(getattr(methods, name), theirs):
                left_out.append(name)
                delattr(methods, name)
    if "_init_weights" in left_out:
        raise ImportError(f"{_lacks('_init_weights')}, and the model needs it: {REMEDY}.")
    can_resize = all(
        hasattr(PreTrainedModel, name) and _takes(getattr(PreTrainedModel, name), parameters)
        for name, parameters in RESIZING.items()
    )
    if issubclass(methods, PreTrainedModel) and not can_resize:
        left_out.append("resize_token_embeddings")
        for name in ("resize_token_embeddings", *RESIZING):
            setattr(methods, name, _refuse_resizing)
    if left_out:
        logger.warning(
            f"{_lacks('`, `'.join(left_out))}: the model's own version is not used. To avoid this: {REMEDY}."
        )
    return model_class


def _fits(ours: Any, theirs: Any) -> bool:
    """Return whether an override takes the parameters of transformers' method, and can pass all of them on."""
    parameters = inspect.signature(ours).parameters.values()
    others = list(inspect.signature(theirs).parameters)
    named = [each.name for each in parameters if each.kind not in (each.VAR_POSITIONAL, each.VAR_KEYWORD)]
    in_order = [each.name for each in parameters if each.kind is each.POSITIONAL_OR_KEYWORD]
    takes_more = any(each.kind is each.VAR_KEYWORD for each in parameters)
    return (
        others[: len(in_order)] == in_order and set(named) <= set(others) and (takes_more or len(others) == len(named))
    )


def _refuse_resizing(self, *args, **kwargs):
    raise ImportError(f"{_lacks('_resize_token_embeddings')}: the model cannot resize its vocabulary: {REMEDY}.")
