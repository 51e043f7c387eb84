"""`weftformer adapt`: a decoder-only checkpoint as an encoder-decoder's folder, complete or not at all."""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from weftformer.common.whole_files import whole_folder
from weftformer.conversion import (
    DoesNotFit,
    adapt,
    adapted_config,
    checkpoint_folder,
    read_source_config,
    read_tokenizer,
    read_weights,
    special_token_ids,
)
from weftformer.hub import adapted_card
from weftformer.scripts.arguments import check_model
from weftformer.scripts.parsers.adapt import build_parser
from weftformer.training.parsing import parse_overrides


def _read_settings(arguments: argparse.Namespace) -> tuple[dict[str, Any], dict[str, Any] | None, Any, dict[str, Any]]:
    """Return configurations, tokenizer and fields, after checking all that can be checked without weights."""
    folder = checkpoint_folder(arguments.model, with_weights=False)
    other = checkpoint_folder(arguments.encoder, with_weights=False) if arguments.encoder else None
    source_config, encoder_config = read_source_config(folder), read_source_config(other) if other else None
    layers = {f"{stack}_layers": getattr(arguments, f"num_{stack}_layers") for stack in ("encoder", "decoder")}
    layers = {name: number for name, number in layers.items() if number is not None}
    adapted_config(source_config, layers, encoder_config)
    tokenizer, encoders = read_tokenizer(folder), read_tokenizer(other) if other else None
    if tokenizer is not None and encoders is not None and tokenizer.get_vocab() != encoders.get_vocab():
        raise ValueError(
            f"{arguments.encoder} has another vocabulary than {arguments.model}: the two have to be of one family."
        )
    ids = special_token_ids(tokenizer, source_config, arguments.pad_token)
    fields = ids | layers | parse_overrides(arguments.config_overrides)
    adapted_config(source_config, fields, encoder_config)
    return source_config, encoder_config, tokenizer, fields


def main(argv: Sequence[str] | None = None) -> None:
    arguments = build_parser().parse_args(argv)
    for option, model in (("MODEL", arguments.model), ("--encoder", arguments.encoder)):
        if model is not None:
            check_model(model, option)
            if arguments.out.resolve() == Path(model).resolve():
                raise ValueError(f"{arguments.out} is the folder of a checkpoint: choose another output folder.")
    with whole_folder(arguments.out, replace=arguments.overwrite) as staging:
        source_config, encoder_config, tokenizer, fields = _read_settings(arguments)
        weights = read_weights(checkpoint_folder(arguments.model))
        encoder = (read_weights(checkpoint_folder(arguments.encoder)), encoder_config) if encoder_config else None
        dtype = getattr(torch, arguments.dtype) if arguments.dtype else None
        try:
            model = adapt(weights, source_config, encoder=encoder, overrides=fields, dtype=dtype, is_shown=True)
        except DoesNotFit as error:
            print(error.found.describe())
            raise ValueError(error.summary) from error
        model.save_pretrained(staging)
        if tokenizer is not None:
            tokenizer.save_pretrained(staging)
        name, has_tokenizer = arguments.out.resolve().name, tokenizer is not None
        card = adapted_card(model, name, arguments.model, arguments.encoder, has_tokenizer=has_tokenizer)
        card.save(staging / "README.md")
    print(
        f"An encoder-decoder of {model.num_parameters():,} parameters is in {arguments.out}. It has to be trained before use: "
        f"weftformer pretrain --model-name-or-path {arguments.out} --objective ul2 --train-file TEXTS ..."
    )


if __name__ == "__main__":
    main()
