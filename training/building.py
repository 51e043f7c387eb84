"""Tokenizer, configuration and model of a training run, made to fit each other."""

import logging
from collections.abc import Iterable
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import torch
from accelerate.utils import broadcast_object_list
from transformers import AutoConfig, AutoTokenizer, PreTrainedTokenizerBase, PreTrainedTokenizerFast
from transformers.distributed import DistributedConfig

from ..common.overrides import parse_overrides
from ..common.rules import closest, integer
from ..common.words import counted, first_line
from ..configuration import WeftConfig
from ..configuration.presets import COPYING
from ..hub.loading import check_family, check_generates, check_size, load
from ..modeling import WeftForConditionalGeneration
from ..modeling.parallel import check_release, data_parallel_size
from ..tokenization import train_tokenizer
from .arguments import WeftTrainingArguments
from .options import ModelArguments
from .pairs import Pairs

logger = logging.getLogger(__name__)

# From this number of pairs on, a new model is larger by default.
_MANY_PAIRS = 100_000
# The included small model, pretrained on noisy and clean forms of short texts, and the data that it is for.
STARTER = Path(__file__).parent / "starter"
_STARTER_PAIRS = 10_000
_STARTER_BYTES = 150


def starts_from_starter(args: ModelArguments, pairs: Pairs) -> bool:
    """Return whether the default is to begin from the included starter: for few pairs of short texts, without numeric
    columns, if the arguments choose neither a model nor a vocabulary.
    """
    choices = (args.from_scratch, args.model_name_or_path, args.preset, args.config_overrides, args.tokenizer_name,
              args.tokenizer_vocab_size)  # fmt: skip
    if any(choices) or pairs.args.streaming or pairs.columns.conditions or len(pairs) >= _STARTER_PAIRS:
        return False
    lengths = [len(text.encode()) for text in pairs.texts()]
    return bool(np.quantile(lengths, 0.95) <= _STARTER_BYTES)


def build_tokenizer(
    args: ModelArguments, texts: Iterable[str], is_main_process: bool = True, checkpoint: str | None = None
) -> PreTrainedTokenizerFast:
    """Load the tokenizer of the checkpoint, of `tokenizer_name`, or of the model, or train one.

    One process trains it, and the others receive it. Padding is on the right, whatever the tokenizer was saved with,
    because labels are shifted to the right.

    Args:
        texts: the training texts, which are read once, and only for a new vocabulary.

    Raises:
        ValueError: it cannot be loaded, or has no pad or no eos token.
    """
    name = checkpoint or args.tokenizer_name or args.model_name_or_path
    if name:
        if args.tokenizer_vocab_size and not checkpoint:
            logger.warning(f"The vocabulary is that of {name}: --tokenizer-vocab-size has no effect.")
        tokenizer = _load_tokenizer(name)
    else:
        answer: list[Any] = [None]
        if is_main_process:
            logger.info("Training a vocabulary on the training texts.")
            tokenizer = train_tokenizer(texts, vocab_size=args.tokenizer_vocab_size)
            num_merged = sum(len(token) > 1 for token in tokenizer.get_vocab()) - len(tokenizer.all_special_tokens)
            logger.info(f"The vocabulary has {len(tokenizer):,} tokens, {num_merged:,} of them longer than a byte.")
            answer = [tokenizer]
        (tokenizer,) = broadcast_object_list(answer)
    for token in ("pad", "eos"):
        if getattr(tokenizer, f"{token}_token_id") is None:
            raise ValueError(f"The tokenizer {name} has no {token} token, which a Weft model needs.")
    tokenizer.padding_side = "right"
    return tokenizer


def build_config(
    args: ModelArguments, tokenizer: PreTrainedTokenizerBase, num_conditions: int = 0, num_pairs: int | None = None
) -> WeftConfig:
    """Return the configuration of the model to train, with the tokenizer's vocabulary.

    Args:
        num_conditions: the number of condition columns, which is the `num_condition_features` of a new model.
        num_pairs: the number of training pairs, which determines the preset if it is not given.

    Raises:
        ValueError: there is no such model, preset or field, the model is not a Weft model, or its vocabulary or number
            of condition features does not fit the tokenizer and the data.
    """
    overrides = parse_overrides(args.config_overrides)
    if args.model_name_or_path:
        config = _load_config(args.model_name_or_path, overrides, args.trust_remote_code)
    else:
        start = tokenizer.pad_token_id if tokenizer.bos_token_id is None else tokenizer.bos_token_id
        preset = args.preset
        if preset is None and num_pairs is not None and "d_model" not in overrides:
            preset = "modern-tiny" if num_pairs < _MANY_PAIRS else "modern-small"
            logger.info(f"The new model is a {preset}, the default for {counted(num_pairs, 'pair')} (--preset).")
            overrides = COPYING | overrides
        fields = {
            "vocab_size": len(tokenizer),
            "pad_token_id": tokenizer.pad_token_id,
            "bos_token_id": tokenizer.bos_token_id,
            "eos_token_id": tokenizer.eos_token_id,
            "decoder_start_token_id": start,
            "num_condition_features": num_conditions,
            # if the collator passes no mask, the model infers it from the pads
            "infer_attention_mask": "attention_mask" not in tokenizer.model_input_names,
        }
        fields |= overrides
        config = WeftConfig.from_preset(preset, **fields) if preset else WeftConfig(**fields)
    _check_fit(config, tokenizer, num_conditions)
    if not args.distributed_config:
        check_size(config, "The model")
    return config


def build_model(
    args: ModelArguments, config: WeftConfig, distributed_config: DistributedConfig | None = None
) -> WeftForConditionalGeneration:
    """Build a new model with random weights, or load the trained one, in float32 (mixed precision is the Trainer's).

    Args:
        distributed_config: how processes share the model. Each process must call this function. For a new model, the
            seed must be the same on all of them. The weights are then those of a model built on one process.

    Raises:
        ValueError: the weights cannot be read or do not fit the overridden configuration, or the model cannot be split
            in this way.
    """
    options: dict[str, Any] = {"dtype": torch.float32, "trust_remote_code": args.trust_remote_code}
    if args.attn_implementation:
        options["attn_implementation"] = args.attn_implementation
    if not args.model_name_or_path:
        del options["trust_remote_code"]
        model = WeftForConditionalGeneration._from_config(config, **options)
        if distributed_config is None:
            return model
        # transformers splits a model only while loading it, so this process loads its part of the weights that it drew
        options["state_dict"] = model.state_dict()
    if distributed_config is not None:
        options["distributed_config"] = distributed_config
    model = load(WeftForConditionalGeneration, args.model_name_or_path, config=config, **options)
    model.config.name_or_path = args.model_name_or_path or ""
    if args.model_name_or_path and distributed_config is None:
        check_generates(model, args.model_name_or_path)  # now, and not in the first evaluation
    return model


def _read_sizes(options: dict[str, Any]) -> DistributedConfig:
    check_release()
    names = [field.name for field in fields(DistributedConfig)]
    for name, value in options.items():
        if name not in names:
            raise ValueError(f"distributed_config has no key `{name}`.{closest(name, names)}")
        if name.endswith("_size"):
            integer(1, optional=True).check(f"distributed_config {name}", value)
    sizes = DistributedConfig(**options)
    if sizes.pp_size > 1:
        raise ValueError(f"distributed_config pp_size={sizes.pp_size} is not supported: use fsdp_size or tp_size.")
    return sizes


def build_distributed_config(args: ModelArguments, training_args: WeftTrainingArguments) -> DistributedConfig | None:
    """Read `--distributed-config` of a training run. Return None if nothing is to be split.

    Raises:
        ValueError: a key is unknown, a size is not allowed, the number of processes is another, or the Trainer cannot
            train a model that is split in this way.
    """
    options = parse_overrides(args.distributed_config, "distributed_config")
    if not options:
        return None
    sizes = _read_sizes(options)
    processes = data_parallel_size(sizes) * sizes.tp_size
    if processes == 1 and training_args.world_size == 1:
        return None
    if processes != training_args.world_size:
        raise ValueError(
            f"distributed_config is for {processes} processes (dp_replicate_size={sizes.dp_replicate_size} x "
            f"fsdp_size={sizes.fsdp_size} x tp_size={sizes.tp_size}), and there are {training_args.world_size}: start "
            f"it with torchrun --nproc_per_node {processes}."
        )
    is_cpu = training_args.device.type == "cpu"
    if is_cpu and sizes.tp_size > 1:
        raise ValueError(f"distributed_config tp_size={sizes.tp_size} needs GPUs: use fsdp_size and ep_size.")
    if is_cpu and torch.accelerator.is_available():
        raise ValueError("distributed_config does not work with --use-cpu: hide the GPUs (CUDA_VISIBLE_DEVICES=).")
    return sizes


def set_generation_defaults(
    model: WeftForConditionalGeneration, max_target_length: int, training_args: WeftTrainingArguments
) -> None:
    """Give the model's `generation_config` its special tokens, its `max_length` and its number of beams.

    Args:
        max_target_length: the largest number of tokens of a generated text, including its end but not its start.
    """
    generation, config = model.generation_config, model.config
    for name in ("pad_token_id", "bos_token_id", "eos_token_id", "decoder_start_token_id"):
        setattr(generation, name, getattr(config, name))
    generation.max_length = training_args.generation_max_length or max_target_length + 1
    generation.num_beams = training_args.generation_num_beams or generation.num_beams or 1
    generation.__dict__.pop("routes", None)  # facts about a route model that the training continues from


def _load_tokenizer(name: str) -> PreTrainedTokenizerFast:
    try:
        return load(AutoTokenizer, name)
    except (OSError, ValueError, KeyError) as error:
        raise ValueError(f"There is no tokenizer in {name}: {first_line(error)}") from error


def _load_config(name: str, overrides: dict[str, Any], trust_remote_code: bool) -> WeftConfig:
    if name[0] in "./~" and not Path(name).is_dir():
        raise ValueError(f"--model-name-or-path {name}: there is no such folder.")
    try:
        check_family(name, trust_remote_code)
    except OSError as error:
        raise ValueError(f"--model-name-or-path {name} cannot be loaded: {first_line(error)}") from error
    kind = AutoConfig if trust_remote_code else WeftConfig
    return load(kind, name, trust_remote_code=trust_remote_code, **overrides)


def _check_fit(config: WeftConfig, tokenizer: PreTrainedTokenizerBase, num_conditions: int) -> None:
    size = min(config.vocab_size, config.target_vocab_size)
    if len(tokenizer) > size:
        raise ValueError(f"The tokenizer has {len(tokenizer)} tokens and the model {size}: use that of the model.")
    for name in ("pad_token_id", "eos_token_id"):
        ids = getattr(config, name)
        if getattr(tokenizer, name) not in (ids if isinstance(ids, list) else [ids]):
            raise ValueError(
                f"The tokenizer's {name} is {getattr(tokenizer, name)} and the model's is {ids}: use the model's "
                "tokenizer, or change the id by --config-overrides."
            )
    features = config.num_condition_features
    if num_conditions and num_conditions != features:
        raise ValueError(f"--condition-columns has {num_conditions} columns, and num_condition_features={features}.")
    if features and not num_conditions:
        logger.warning(f"The model has num_condition_features={features}, and no --condition-columns are given.")
