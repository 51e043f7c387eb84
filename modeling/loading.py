"""Checks of weights files, so that a model with random weights is never taken for a trained one."""

import json
import os
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from torch import nn
from transformers import logging

from ..common.rules import integer
from ..configuration.fields import TOKEN_IDS
from .moe import ExpertsBase
from .transformers_names import class_from_folder

logger = logging.get_logger(__name__)

# the names of weights files on the Hub
_WEIGHTS, _INDEX = "model.safetensors", "model.safetensors.index.json"


# More tensors than any file of weights has, and more bytes than their names and shapes take.
_MOST_TENSORS, _MOST_BYTES = 100_000, 20 << 20


class TooManyTensors(ValueError):
    """A file has more tensors than any file of weights."""


def check_number(file: Path, number: int) -> None:
    """Raise [`TooManyTensors`] if a file has more tensors than any file of weights."""
    if number > _MOST_TENSORS:
        raise TooManyTensors(f"{file} has more than {_MOST_TENSORS:,} tensors: it is not a file of weights.")


def check_header(file: Path) -> None:
    """Read the header of a safetensors file, unless it is too long.

    Raises:
        TooManyTensors: as in [`check_number`]. SafetensorError: the file is damaged.
    """
    with file.open("rb") as raw:
        size = int.from_bytes(raw.read(8), "little")
    if _MOST_BYTES < size < file.stat().st_size:  # another number is damage
        check_number(file, size)
    with safe_open(file, framework="pt") as weights:
        check_number(file, len(weights.keys()))


def _shard_names(index: Path) -> list[str]:
    try:
        names = sorted(set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()))
    except (ValueError, KeyError, AttributeError, TypeError) as error:
        raise ValueError(
            f"{index} is not a readable index of weights files ({error}): copy the folder again."
        ) from error
    for name in names:
        if not isinstance(name, str) or os.path.basename(name) != name:
            raise ValueError(f"{index} points outside its folder, to {name!r}: do not use this folder.")
        if not (index.parent / name).is_file():
            raise ValueError(f"{index} names {name}, but {index.parent / name} does not exist: copy the folder again.")
    return names


def check_weights_files(folder: Path) -> list[Path]:
    """Return the safetensors files of a local folder, after reading the header of each.

    Raises:
        ValueError: a file is truncated, empty or not a safetensors file, has too many tensors, or a shard is missing.
            The message names the file.
    """
    index, single = folder / _INDEX, folder / _WEIGHTS
    files = (
        [folder / name for name in _shard_names(index)] if index.is_file() else [single] if single.is_file() else []
    )
    for file in files:
        try:
            check_header(file)
        except SafetensorError as error:
            raise ValueError(
                f"{file} is not a complete safetensors file ({error}): copy or download it again."
            ) from error
    return files


class LoadingMixin:
    """`from_pretrained` that raises an error for weights that are damaged, incomplete or of another model."""

    @classmethod
    def from_pretrained(
        cls, pretrained_model_name_or_path, *model_args, allow_missing_weights: bool = False, **kwargs
    ):
        r"""Load a model as `PreTrainedModel.from_pretrained` does. Missing weights raise an error, whereas
        transformers warns and initializes them at random.

        Two kinds of weights may be missing: the head, if the file is from a base model, and the biases of balanced
        routing. Weights that the model lacks raise an error too, except the head for a base model. None of this is an
        error with `output_loading_info=True`, which lists the weights, or with an empty `state_dict`, which makes a
        new model.

        Args:
            pretrained_model_name_or_path (`str` or `os.PathLike`): a folder, or the name of a repository on the Hub.
            allow_missing_weights: initialize weights missing in the file at random, and skip weights unknown to the
                model. `ignore_mismatched_sizes=True` also allows missing weights, unless the file has unknown ones
                too.
            **kwargs: further arguments of `PreTrainedModel.from_pretrained`.

        Returns:
            The model, or a tuple of the model and a dictionary with `output_loading_info=True`.

        Raises:
            ValueError: a file is damaged, lacks weights, or contains weights of another model or of other shapes; or a
                subclass saved it, whose code may not run here.
        """
        if kwargs.get("trust_remote_code") and (subclass := _subclass_of(kwargs.get("config"), cls)):
            return _load_subclass(*subclass, pretrained_model_name_or_path, *model_args, **kwargs)
        folder = Path(str(pretrained_model_name_or_path or "")) / (kwargs.get("subfolder") or "")
        files: list[Any] = []
        if pretrained_model_name_or_path is not None and folder.is_dir():
            files = check_weights_files(folder)
        wants_info = kwargs.pop("output_loading_info", False)
        if not (allow_missing_weights or wants_info):
            _refuse_subclass(kwargs.get("config"), cls, pretrained_model_name_or_path)
        any_size = kwargs.pop("ignore_mismatched_sizes", False)
        model, info = super().from_pretrained(  # type: ignore[misc]
            pretrained_model_name_or_path,
            *model_args,
            output_loading_info=True,
            ignore_mismatched_sizes=True,
            **kwargs,
        )
        state_dict = kwargs.get("state_dict")
        source = ", ".join(str(file) for file in files or [pretrained_model_name_or_path or "The given `state_dict`"])
        if info["mismatched_keys"] and not any_size:
            name, shape, required_shape = min(info["mismatched_keys"])
            raise ValueError(
                f"{source} has {name} of shape {tuple(shape)}, but the configuration requires {tuple(required_shape)} "
                "(ignore_mismatched_sizes=True loads it)."
            )
        if not (allow_missing_weights or wants_info or state_dict == {}):
            _refuse_subclass(model.config, cls, pretrained_model_name_or_path)
            # transformers lists all names of a table if the file has none of them
            missing = info["missing_keys"] - may_be_new(model, info["missing_keys"]) - {*model.all_tied_weights_keys}
            others = sorted(info["unexpected_keys"])
            _refuse_missing(cls.__name__, source, sorted(missing), others, any_size)
            unused = [name for name in others if hasattr(model, "lm_head") or not name.startswith("lm_head.")]
            if unused:
                raise ValueError(
                    f"{source} has weights that a {cls.__name__} of this configuration lacks ({_some(unused)}): "
                    "allow_missing_weights=True leaves them out."
                )
        if (generation := getattr(model, "generation_config", None)) is not None:
            _check_token_ids(generation)
        if getattr(model, "hf_quantizer", None) is not None:
            warn_of_whole_experts(model)
        return (model, info) if wants_info else model

    def _adjust_missing_and_unexpected_keys(self, loading_info, *args, **kwargs):
        # Before None turned balancing off, 0 did, so a file may have no biases.
        biases = _selection_biases(self)
        config = self.config  # type: ignore[attr-defined]
        if biases and biases <= loading_info.missing_keys and config.router_bias_update_rate == 0:
            config.router_bias_update_rate = None
            for router in self.routers():  # type: ignore[attr-defined]
                router.remove_bias()
            loading_info.missing_keys -= biases
        super()._adjust_missing_and_unexpected_keys(loading_info, *args, **kwargs)  # type: ignore[misc]


def _check_token_ids(generation: Any) -> None:
    integer(0, optional=True).check("generation_config.pad_token_id", generation.pad_token_id)
    for name in ("bos_token_id", "eos_token_id", "decoder_start_token_id"):
        # transformers takes lists too, such as a start token for each row
        TOKEN_IDS.check(f"generation_config.{name}", getattr(generation, name))


def _subclass_of(config: Any, cls: type) -> tuple[str, str] | None:
    """Return the Auto class and the reference to the subclass that saved a model, None if `cls` is this class."""
    for auto_class, reference in (getattr(config, "auto_map", None) or {}).items():
        file, _, name = str(reference).rpartition("--")[2].partition(".")
        if auto_class.startswith("AutoModel") and file != "modeling_weft":
            return None if name in [kind.__name__ for kind in cls.__mro__] else (auto_class, str(reference))
    return None


def _refuse_subclass(config: Any, cls: type, source: Any) -> None:
    """Raise a ValueError if a subclass saved a model that another class is about to load."""
    if (subclass := _subclass_of(config, cls)) is None:
        return
    auto_class, reference = subclass
    file, _, name = reference.rpartition("--")[2].partition(".")
    raise ValueError(
        f"{source} was saved by the subclass {name}: read its {file}.py, and load it by {name}.from_pretrained or "
        f"{auto_class}.from_pretrained(..., trust_remote_code=True)."
    )


def _load_subclass(auto_class: str, reference: str, source: Any, *args, config: Any, **kwargs) -> Any:
    """Load a model by the code beside its weights.

    transformers takes the classes that are registered here, which do not know what the subclass has changed.
    """
    model_class = class_from_folder(reference, source, **kwargs)
    config_reference = config.auto_map.get("AutoConfig")
    config_class = model_class.config_class
    if config_reference is not None:
        config_class = class_from_folder(config_reference, source, **kwargs)
    new_config = config_class.from_dict(config.to_dict())
    new_config.name_or_path = config.name_or_path
    model_class.register_for_auto_class(auto_class)
    return model_class.from_pretrained(source, *args, config=new_config, **kwargs)


def warn_of_whole_experts(model: Any) -> None:
    """Warn if a quantizer, which usually replaces `nn.Linear` modules only, has left the experts of a model."""
    experts = [part for module in model.modules() if isinstance(module, ExpertsBase) for part in module.parameters()]
    num_whole = sum(
        weight.numel() for weight in experts if type(weight) is nn.Parameter and weight.is_floating_point()
    )
    if num_whole:
        logger.warning(
            f"The experts are not quantized: {num_whole:,} of {model.num_parameters():,} parameters stay in "
            f"{experts[0].dtype}, because this quantizer changes linear modules only."
        )


def _selection_biases(model: Any) -> set[str]:
    return {name for name, _ in model.named_buffers() if name.endswith(".selection_bias")}


def may_be_new(model: Any, missing_names: set[str]) -> set[str]:
    """Return the missing weights that may be new: a head on a base model, and the biases of balanced routing."""
    biases = _selection_biases(model)
    # if all of them are missing, the file is from a model whose routing was not yet balanced
    names = biases if biases <= missing_names else set()
    has_base = hasattr(model, model.base_model_prefix)
    if has_base and type(model).__name__ not in (model.config.architectures or ()):
        names |= {name for name in missing_names if not name.startswith(f"{model.base_model_prefix}.")}
    return names


def _refuse_missing(kind: str, source: str, missing: list[str], unexpected: list[str], any_size: bool) -> None:
    if missing and unexpected:
        raise ValueError(
            f"{source} has other weights than {kind}: it lacks {_some(missing)} and has {_some(unexpected)} "
            "(allow_missing_weights=True loads it)."
        )
    if missing and not any_size:
        raise ValueError(
            f"{source} lacks {len(missing)} of the weights of {kind} ({_some(missing)}): the file is incomplete "
            "(allow_missing_weights=True loads it)."
        )


def _some(names: list[str]) -> str:
    return ", ".join(names[:3]) + (", ..." if len(names) > 3 else "")
