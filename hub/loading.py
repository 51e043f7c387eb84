"""Loads models and tokenizers that other people may have written, without running their code."""

from __future__ import annotations

from os import PathLike
from typing import Any

from transformers import AutoConfig, PreTrainedTokenizerBase

from ..configuration import WeftConfig


def load(kind: Any, folder_or_hub_id: str | PathLike | None, **options: Any) -> Any:
    """Load a model or a tokenizer without running code from its folder or repository.

    Without `trust_remote_code`, transformers asks on standard input whether that code may run, and takes the first
    line of a command's input as the answer.

    Args:
        kind: a class with `from_pretrained`, such as `AutoTokenizer`.
        folder_or_hub_id: the folder or repository. None for a new model, if `kind` allows that.
        options: other arguments of `from_pretrained`. `trust_remote_code=True` runs the code.

    Raises:
        ValueError: it cannot be loaded without its code, is damaged, or is not of this kind.
        OSError: the folder or repository does not exist.
    """
    try:
        loaded = kind.from_pretrained(folder_or_hub_id, **{"trust_remote_code": False} | options)
        if isinstance(loaded, PreTrainedTokenizerBase):
            loaded("")  # reads settings that loading does not
        return loaded
    except Exception as error:
        if type(error) is ValueError or isinstance(error, OSError):  # their messages are readable
            raise
        reason = f"{type(error).__name__}: {error}".splitlines()[0]
        raise ValueError(
            f"{folder_or_hub_id} cannot be loaded ({reason}): a file is damaged, or needs something that this machine lacks."
        ) from error


def check_family(folder_or_hub_id: str | PathLike) -> None:
    """Check that a folder or repository contains a Weft model.

    Raises:
        ValueError: the model is of another family.
        OSError: there is no such model.
    """
    model_type = load(AutoConfig, folder_or_hub_id).model_type
    if model_type != WeftConfig.model_type:
        raise ValueError(
            f"{folder_or_hub_id} is a {model_type} model, not a Weft model: convert it with `weftformer convert`."
        )


def check_finite(model: Any, name: str) -> None:
    """Check that the weights of a model are finite.

    Args:
        model: a `torch.nn.Module`.
        name: its name in the message.

    Raises:
        ValueError: some weights are NaN or infinite.
    """
    wrong = [key for key, weight in model.named_parameters() if not weight.isfinite().all()]
    if wrong:
        raise ValueError(
            f"{name} has weights that are NaN or infinite, {wrong[0]} and {len(wrong) - 1} other tensors: its output "
            "would be meaningless."
        )
