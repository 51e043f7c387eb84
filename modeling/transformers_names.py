"""The names that the model imports from transformers' internals. When transformers changes, look here first.

Code that was pushed with weights stays the same while transformers changes, so its private imports are in this file.
If transformers has changed the parameters of a private method, the model's override of it is removed
([`fit_to_transformers`]).
"""

import inspect
from typing import Any, TypeVar

import transformers
from transformers import logging

REMEDY = 'pip install "transformers>=5.23,<6"; or pip install -U weftformer, and import weftformer before loading'
try:
    from transformers import initialization
    from transformers.activations import ACT2FN
    from transformers.integrations import use_experts_implementation
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

logger = logging.get_logger(__name__)

_Class = TypeVar("_Class", bound=type)


def fit_to_transformers(model_class: _Class) -> _Class:
    """Remove overrides of private methods whose parameters transformers has changed, and log a warning.

    Use it as a class decorator. The class then has transformers' own methods.
    """
    methods: Any = model_class
    for name in [name for name in vars(methods) if name.startswith("_") and not name.startswith("__")]:
        ours, theirs = getattr(methods, name), getattr(super(methods, methods), name, None)
        if inspect.isroutine(ours) and inspect.isroutine(theirs) and not _fits(ours, theirs):
            delattr(methods, name)
            logger.warning(
                f"transformers {transformers.__version__} has another `{name}`, which is used instead of the model's own. To "
                f"avoid this: {REMEDY}."
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
