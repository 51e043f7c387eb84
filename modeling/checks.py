"""Checks of inputs. An input that would crash or silently give nonsense raises a ValueError that names the remedy.

Every call checks the names and shapes of its inputs. Reading values waits for the device, so a model on another device
than the CPU checks the values of its first batch only. No values are read inside `torch.compile`, `torch.export` and
the transforms of `torch.func`.
"""

import inspect
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from transformers import logging
from transformers.modeling_outputs import ModelOutput, MoEModelOutput

from ..common.rules import closest
from ..configuration.configuration_weft import WeftConfig
from ..configuration.version import IS_EXPORTED
from .transformers_names import IS_LATER_RELEASE, TransformersKwargs, functorch_level

logger = logging.get_logger(__name__)

# Keywords that transformers' own callers (Trainer, GenerationMixin, decorators) pass to `forward` besides its
# parameters.
CALLER_KWARGS = frozenset(getattr(TransformersKwargs, "__annotations__", ())) | {
    "return_dict", "use_cache", "output_hidden_states", "output_attentions", "output_router_logits",
    "num_items_in_batch", "is_causal", "debug_io", "debug_io_dir", "prune_layers",
}  # fmt: skip


def is_tracing() -> bool:
    return torch.compiler.is_compiling() or torch.compiler.is_exporting() or torch.jit.is_tracing()


# Reading values from these devices takes a few microseconds.
READABLE_DEVICES = ("cpu",)


def has_values() -> bool:
    """Return whether tensors have values that can be read here."""
    return not is_tracing() and functorch_level() is None


def can_read(device: torch.device) -> bool:
    """Return whether values on this device can be read, and quickly."""
    return has_values() and device.type in READABLE_DEVICES


def reads_values(model: Any, device: torch.device) -> bool:
    """Return whether to check the values of inputs on this device in this call of a model."""
    if not has_values():
        return False
    is_first, model.has_checked_values = not model.has_checked_values, True
    return is_first or device.type in READABLE_DEVICES


def names_of(module: Any) -> set[str]:
    """Return the names of the inputs that a module's `forward` has, and those that it hands on to its base classes."""
    # a forward of a subclass may hand on keywords without naming them
    forwards = [module.forward, *(vars(kind).get("forward") for kind in type(module).__mro__)]
    names = {name for forward in forwards if forward is not None for name in inspect.signature(forward).parameters}
    return names - {"self", "args", "kwargs"}


def check_kwargs(
    kwargs: dict[str, Any], forward: Callable, where: str, added_inputs: Callable[[], set[str]] = set
) -> None:
    """Raise a ValueError for a keyword that nothing reads, which is usually a typo.

    Known keywords are the parameters of `forward`, the `added_inputs` of a subclass, and those that transformers
    passes. A transformers later than the tested ones may pass others. Then, and in code saved beside the weights, all
    unknown keywords are removed with a warning.
    """
    unknown_names = [name for name in kwargs if name not in CALLER_KWARGS]
    if not unknown_names:
        return
    inputs = added_inputs()
    for name in [name for name in unknown_names if name not in inputs]:
        if torch.compiler.is_compiling() and (IS_EXPORTED or IS_LATER_RELEASE):  # a warning would break the graph
            del kwargs[name]
            continue
        known_names = CALLER_KWARGS | inputs | set(inspect.signature(forward).parameters) - {"self", "kwargs"}
        problem = f"{where} got an unexpected keyword `{name}`.{closest(name, known_names)}"
        if not (IS_EXPORTED or IS_LATER_RELEASE):
            raise ValueError(problem)
        logger.warning_once(f"{problem} It is ignored.")
        del kwargs[name]


def as_encoder_outputs(outputs: Any) -> Any:
    """Copy the outputs of an encoder, given as an output, a dictionary, a tuple or a list."""
    if isinstance(outputs, dict):  # a `ModelOutput` is one too
        return (type(outputs) if isinstance(outputs, ModelOutput) else MoEModelOutput)(**outputs)
    return MoEModelOutput(*outputs)


def unwrap_embedding(table: nn.Module) -> nn.Embedding:
    """Return the embedding table itself, even if an adapter wraps it."""
    return next(part for part in table.modules() if isinstance(part, nn.Embedding))


def check_inputs(ids: torch.Tensor | None, embeds: torch.Tensor | None, table: nn.Module, name: str) -> torch.Tensor:
    """Return ids (B, T) or embeddings (B, T, D), after a check that exactly one of them is given, and is not empty."""
    embeds_name = name.replace("input_ids", "inputs_embeds")
    if (ids is None) == (embeds is None):
        count = "neither" if ids is None else "both"
        raise ValueError(f"Give either `{name}` or `{embeds_name}`: got {count}.")
    inputs = ids if embeds is None else embeds
    assert inputs is not None
    if not is_tracing() and embeds is None:
        _check_shape(inputs, name)
    elif not is_tracing():
        check_states(inputs, unwrap_embedding(table).embedding_dim, embeds_name)
    return inputs


def _check_shape(ids: torch.Tensor, name: str) -> None:
    """Check that ids are (B, T) and not empty."""
    if ids.ndim != 2 or ids.dtype not in (torch.int64, torch.int32):
        raise ValueError(f"`{name}` must be integers of shape (batch, length): got {tuple(ids.shape)} of {ids.dtype}.")
    if 0 in ids.shape:
        raise ValueError(
            f"`{name}` is empty: its shape is {tuple(ids.shape)}, but batch and length must both be at least 1."
        )


def _range(ids: torch.Tensor) -> tuple[int, int]:
    """Return the lowest and the highest id, with one read from the device. On the device "meta" both are 0."""
    if ids.device.type == "meta":
        return 0, 0
    low, high = torch.stack(torch.aminmax(ids)).tolist()
    return low, high


def check_ids(ids: torch.Tensor, vocab_size: int, name: str) -> None:
    """Read the ids, and raise a ValueError if the vocabulary lacks one of them."""
    low, high = _range(ids)
    if low < 0 or high >= vocab_size:
        # a user who gave only labels does not know this input
        origin = " In training, it defaults to `labels` shifted right." if name == "decoder_input_ids" else ""
        rule = "Use -100 for positions" if name == "labels" else "Only labels may contain -100, for positions"
        raise ValueError(
            f"`{name}` contains the id {low if low < 0 else high}, but the vocabulary has {vocab_size} tokens (0 to "
            f"{vocab_size - 1}): use this model's tokenizer.{origin} {rule} that the loss ignores."
        )


def check_states(states: torch.Tensor, width: int, name: str, batch: int | None = None) -> None:
    """Check that states are (B, T, width) and not empty, and that B is `batch` if that is given."""
    if is_tracing():
        return
    if states.ndim != 3 or 0 in states.shape or states.shape[2] != width or batch not in (None, states.shape[0]):
        shape = f"({'batch' if batch is None else batch}, length, {width})"
        raise ValueError(
            f"`{name}` must have shape {shape}, with batch and length at least 1: got {tuple(states.shape)}."
        )


def inferred_mask(config: WeftConfig, mask: torch.Tensor | None, ids: torch.Tensor | None) -> torch.Tensor | None:
    """Return the mask, or if it is None and `infer_attention_mask` is set, a mask of the pads in `ids`."""
    if mask is None and ids is not None and config.infer_attention_mask:
        return mask_of_pads(ids, config.pad_token_id, config.eos_token_id)
    return mask


def mask_of_pads(ids: torch.Tensor, pad_token_id: int | None, *ends: int | list[int] | None) -> torch.Tensor | None:
    """Return a mask that is False at pads.

    As in transformers, return None if there is no pad token or if it is also an end token, because end tokens count.
    """
    is_end = any(pad_token_id in end if isinstance(end, list) else pad_token_id == end for end in ends)
    return None if pad_token_id is None or is_end else ids.ne(pad_token_id)


def check_mask(mask: torch.Tensor | None, batch: int, heads: int, queries: int, keys: int, name: str) -> None:
    """Check that a mask is (batch, keys), or 4-D (batch or 1, heads or 1, queries, keys)."""
    if mask is None or is_tracing():
        return
    is_allowed = tuple(mask.shape) == (batch, keys) if mask.ndim == 2 else (
        mask.ndim == 4 and mask.shape[0] in (1, batch) and mask.shape[1] in (1, heads)
        and tuple(mask.shape[2:]) == (queries, keys)
    )  # fmt: skip
    if not is_allowed:
        raise ValueError(
            f"`{name}` has shape {tuple(mask.shape)}, but must be ({batch}, {keys}), with cached positions, or 4-D "
            f"({batch} or 1, {heads} or 1, {queries}, {keys})."
        )


def with_batch_dimension(values: torch.Tensor, batch: int, length: int, name: str) -> torch.Tensor:
    """Return values of shape (T,), (1, T) or (B, T) as (1, T) or (B, T). Raise a ValueError for any other shape."""
    values_BT = values[None] if values.ndim == 1 else values
    if values_BT.ndim != 2 or values_BT.shape[0] not in (1, batch) or values_BT.shape[1] != length:
        raise ValueError(f"`{name}` has shape {tuple(values.shape)}, but must be ({length},) or ({batch}, {length}).")
    return values_BT


def check_positions(ids: torch.Tensor, limit: int, field: str, length: int | None, reads: bool) -> None:
    """Raise a ValueError if a table of `limit` rows has no row for one of the positions.

    Args:
        ids: the positions.
        limit, field: the number of rows, and the field that sets it.
        length: the number of columns, cached ones included, from which positions were counted. None if they were
            given.
        reads: whether to read positions that were given. Counted ones are read only if there are more columns than
            rows.
    """
    # in this order: an exported graph would keep the comparison
    if not (reads if length is None else has_values() and length > limit):
        return
    low, high = _range(ids)
    if high >= limit:  # the usual reason is a sequence that is too long
        tokens = min(length or ids.shape[1], high + 1)
        if tokens > limit:
            raise ValueError(
                f"A sequence of {tokens} tokens is longer than the position table of {limit} rows (`{field}`)."
            )
    if low < 0 or high >= limit:
        raise ValueError(
            f"Position {low if low < 0 else high} is outside the learned position table of {limit} rows (`{field}`)."
        )


def check_condition_values(config: WeftConfig, values: torch.Tensor | None, batch: int) -> None:
    features = config.num_condition_features
    if values is None or is_tracing():
        return
    if features == 0:
        raise ValueError("This model has no `condition_values` (num_condition_features=0): leave them out.")
    if tuple(values.shape) != (batch, features):
        raise ValueError(f"`condition_values` must have shape ({batch}, {features}): got {tuple(values.shape)}.")


def check_labels(model: Any, labels: torch.Tensor, decoder_inputs: torch.Tensor | None) -> None:
    _check_shape(labels, "labels")
    if decoder_inputs is not None and decoder_inputs.shape[:2] != labels.shape:
        raise ValueError(
            f"`labels` of shape {tuple(labels.shape)} need an input of the decoder of that shape, or none: got "
            f"{tuple(decoder_inputs.shape)}."
        )
    if reads_values(model, labels.device):
        check_ids(labels.masked_fill(labels == -100, 0), model.config.target_vocab_size, "labels")


def check_side(labels: torch.Tensor) -> None:
    """Raise a ValueError if labels begin with -100: the first one that counts would be predicted from pads."""
    if bool(((labels[:, 0] == -100) & (labels != -100).any(dim=1)).any()):
        raise ValueError(
            'The labels begin with -100: pad them on the right (tokenizer.padding_side = "right"), or give '
            "`decoder_input_ids` and a `decoder_attention_mask`."
        )


def check_merged(model: Any) -> None:
    """Raise a ValueError if a model has an adapter (PEFT), which code that copies weights would leave out."""
    if getattr(model, "peft_config", None):
        raise ValueError("The model has an adapter (PEFT): merge it first (`model = model.merge_and_unload()`).")


def trains_tokens(module: Any) -> bool:
    """Return whether a module is that of PEFT around a table or a head of which it trains single rows."""
    return hasattr(module, "token_adapter") or hasattr(module, "trainable_tokens_delta")


def check_head_bias(head: Any) -> None:
    """Raise a ValueError if PEFT computes the scores of a head without its bias, which is not 0."""
    original = getattr(head, "original_module", getattr(head, "base_layer", None))
    bias = getattr(original, "bias", None)
    copies = getattr(head, "modules_to_save", {}).values()
    lacks_bias = trains_tokens(head) or any(getattr(copy, "bias", None) is None for copy in copies)
    if lacks_bias and bias is not None and not bias.is_meta and bool(bias.any()):
        raise ValueError(
            "PEFT leaves out the bias of the head (lm_head_bias=True) where it trains single tokens of the head, or a "
            "table that is tied to it, so that the model would compute something else. Train whole tables: "
            'modules_to_save=["embed_tokens", "lm_head"], without ensure_weight_tying.'
        )


def check_router_losses(config: WeftConfig, from_trainer: bool) -> None:
    """Raise a ValueError if a Trainer leaves the router losses out, and warn if other code does."""
    weights = ("router_aux_loss_coef", "router_z_loss_coef")
    if not any(getattr(config, name) for name in weights):
        return
    remedy = (
        "Request output_router_logits=True and add `router_aux_loss_coef * output.aux_loss + router_z_loss_coef * "
        "output.z_loss` to your loss, or set both weights to 0."
    )
    if from_trainer:
        raise ValueError(
            "The Trainer calls this sparse model without `labels`, so its routers have no losses: use WeftTrainer, "
            f"and override `compute_loss` instead of passing compute_loss_func. {remedy}"
        )
    if not is_tracing():
        logger.warning_once(f"This sparse model is trained without `labels`, so its routers have no losses. {remedy}")
