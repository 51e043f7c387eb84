"""Loads models and tokenizers that other people may have written, without running their code."""

import copy
import os
from contextlib import suppress
from os import PathLike
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForSeq2SeqLM, AutoTokenizer, GenerationConfig, PreTrainedTokenizerBase

from ..common.panics import is_panic, panics_as_errors
from ..common.rules import integer
from ..configuration import WeftConfig
from ..modeling import fast_decoding
from .card import writes_routes


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
        instance = kind.from_pretrained(folder_or_hub_id, **{"trust_remote_code": False} | options)
        if isinstance(instance, PreTrainedTokenizerBase):
            with panics_as_errors("the tokenizer fails"):
                instance("")  # reads settings that loading does not
        return instance
    except BaseException as error:
        if isinstance(error, ValueError) and "trust_remote_code" in str(error):
            raise ValueError(
                f"{folder_or_hub_id} has code of its own. Read it, then pass --trust-remote-code (in Python "
                f"trust_remote_code=True): {error}"
            ) from error
        readable = type(error) is ValueError or isinstance(error, OSError)
        if readable or not (isinstance(error, Exception) or is_panic(error)):
            raise
        reason = f"{type(error).__name__}: {error}".splitlines()[0]
        raise ValueError(f"{folder_or_hub_id} cannot be loaded ({reason}): it is damaged or unsupported.") from error


def load_generator(
    name: str,
    kind: str | None = None,
    *,
    device: str | None = None,
    dtype: str = "auto",
    trust_remote_code: bool = False,
) -> tuple[Any, Any]:
    """Load a model that generates, and its tokenizer.

    Args:
        name: the folder or repository.
        kind: the required kind of output, "routes" or "texts" (default: either).
        device: as in [`to_device`].
        dtype: the precision of the weights, as in `from_pretrained`.
        trust_remote_code: whether to run the code beside the weights.

    Raises:
        ValueError: the model is of another family, has the other kind of output or weights that are NaN, or cannot
            generate; or there is no such device.
        OSError: there is no such model.
    """
    check_family(name, trust_remote_code)
    tokenizer = load(AutoTokenizer, name, trust_remote_code=trust_remote_code)
    model = load(AutoModelForSeq2SeqLM, name, dtype=dtype, trust_remote_code=trust_remote_code)
    check_finite(model, name)
    check_generates(model, name)
    output = kind_of_output(model, tokenizer)
    if kind not in (None, output):
        commands = "routes plan` or `routes evaluate" if output == "routes" else "generate` or `evaluate"
        raise ValueError(f"{name} writes {output}, not {kind}: use `weftformer {commands}`.")
    to_device(model, device)
    return model, tokenizer


def kind_of_output(model: Any, tokenizer: Any) -> str:
    """Return "routes" for a model with the route vocabulary, unless it was trained on pairs, else "texts"."""
    return "routes" if writes_routes(model.config) and "text_columns" not in tokenizer.init_kwargs else "texts"


def to_device(model: Any, device: str | None) -> None:
    """Move a model to a device, by default a GPU if there is one, where [`fast_decoding`] is turned on if possible.

    Raises:
        ValueError: there is no such device.
    """
    try:
        model.to(device or ("cuda" if torch.cuda.is_available() else "cpu"))
    except (RuntimeError, AssertionError) as error:  # raised by torch for a missing device
        raise ValueError(f"--device {device}: {error}") from error
    with suppress(ValueError):  # the model cannot take the fast path
        fast_decoding(model.eval())


# In parameters. A step of a smaller model gains little from a second thread (docs/speed.md has the measurements).
_SMALL = 5_000_000


def use_threads(model: Any, threads: int | None) -> None:
    """Set the number of torch's threads.

    Args:
        model: the model that computes.
        threads: the number. None for OMP_NUM_THREADS if it is set, else for one thread for a small model, and torch's
            own number for another.
    """
    threads = chosen_threads(model.num_parameters(), threads)
    if threads is not None:
        torch.set_num_threads(threads)


def chosen_threads(num_parameters: int, threads: int | None) -> int | None:
    """Return the number of threads that [`use_threads`] sets for a model of this size, or None for torch's own."""
    if threads is None and "OMP_NUM_THREADS" not in os.environ and num_parameters < _SMALL:
        return 1
    return threads


def check_family(folder_or_hub_id: str | PathLike, trust_remote_code: bool = False) -> None:
    """Check that a folder or repository contains a Weft model.

    Args:
        trust_remote_code: whether to run the code beside the weights.

    Raises:
        ValueError: the model is of another family, or its code may not run.
        OSError: there is no such model.
    """
    config = load(AutoConfig, folder_or_hub_id, trust_remote_code=trust_remote_code)
    # code that travels with weights has the family's classes in a module of its own
    if WeftConfig.__name__ not in [kind.__name__ for kind in type(config).__mro__]:
        raise ValueError(f"{folder_or_hub_id} is a {config.model_type} model: use `weftformer convert`.")
    check_size(config, str(folder_or_hub_id))


def check_size(config: Any, name: str) -> None:
    """Check that the memory of this machine can hold a model, before its weights are made.

    Only tables and feed-forwards are counted, with two bytes for a weight.

    Args:
        config: the configuration.
        name: the name of the model in the message.

    Raises:
        ValueError: it cannot.
    """
    rows = config.vocab_size
    if config.has_position_table:
        rows += config.max_source_positions + config.max_target_positions
    for stack in ("encoder", "decoder"):
        ffn = getattr(config, f"{stack}_ffn_dim")
        experts = config.num_experts * (config.moe_intermediate_size or ffn)
        types = getattr(config, f"{stack}_mlp_layer_types")
        rows += sum(2 * (experts if kind == "sparse" else ffn) for kind in types)
    needed = 2 * config.d_model * rows
    try:
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):  # not on every system
        return
    if needed > memory:
        fields = ("d_model", "vocab_size", "encoder_ffn_dim", "decoder_ffn_dim", "num_experts", "max_source_positions")
        largest = max(fields, key=lambda field: getattr(config, field))
        raise ValueError(
            f"{name} would need at least {needed / 1e9:,.0f} GB for its weights, and this machine has "
            f"{memory / 1e9:,.0f} GB: is {largest}={getattr(config, largest):,} right?"
        )


def check_generates(model: Any, name: str | PathLike) -> None:
    """Check that a model generates with the settings that were saved with it, by two tokens with two beams.

    Args:
        model: a `WeftForConditionalGeneration`.
        name: its folder or repository, for the message.

    Raises:
        ValueError: it does not.
    """
    features, own_settings = model.config.num_condition_features, model.generation_config
    source = torch.full((1, 1), (model.config.pad_token_id or 0) + 1, device=model.device) % model.config.vocab_size
    condition = {"condition_values": torch.zeros(1, features, device=model.device)} if features else {}

    def failure(settings: GenerationConfig) -> Exception | None:
        trial = model.generation_config = copy.deepcopy(settings)
        if isinstance(trial.decoder_start_token_id, list):  # one for each row of a batch
            trial.decoder_start_token_id = trial.decoder_start_token_id[0]
        trial.stop_strings = trial.token_healing = None  # they need a tokenizer
        trial.max_length, trial.max_new_tokens, trial.do_sample = None, 2, False
        trial.num_beams, trial.num_return_sequences = 2, 1
        try:
            for count in ("num_beams", "num_return_sequences"):  # of which the trial has others
                integer(0, optional=True).check(count, getattr(settings, count))
            model.generate(source, **condition)
            return None
        except Exception as error:
            return error
        finally:
            model.generation_config = own_settings

    error = failure(own_settings)
    # if the usual settings fail too, the saved ones are not the cause
    if error is not None and failure(GenerationConfig.from_model_config(model.config)) is None:
        reason = f"{type(error).__name__}: {error}".splitlines()[0]
        raise ValueError(f"{name} cannot generate ({reason}): correct its generation_config.json.") from error


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
        raise ValueError(f"{name} has NaN or infinite weights, {wrong[0]} and {len(wrong) - 1} others: load another.")
