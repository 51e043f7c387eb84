"""`weftformer adapt`: a decoder-only checkpoint as an encoder-decoder's folder, complete or not at all."""

from collections.abc import Sequence
from pathlib import Path

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


def main(argv: Sequence[str] | None = None) -> None:
    arguments = build_parser().parse_args(argv)
    check_model(arguments.model, "MODEL")
    if arguments.out.resolve() == Path(arguments.model).resolve():
        raise ValueError(f"{arguments.out} is the folder of the checkpoint: choose another output folder.")
    with whole_folder(arguments.out, replace=arguments.overwrite) as staging:
        folder = checkpoint_folder(arguments.model, with_weights=False)
        # what cannot be is said before weights are read
        source_config = read_source_config(folder)
        layers = {f"{stack}_layers": getattr(arguments, f"num_{stack}_layers") for stack in ("encoder", "decoder")}
        layers = {name: number for name, number in layers.items() if number is not None}
        adapted_config(source_config, layers)
        tokenizer = read_tokenizer(folder)
        ids = special_token_ids(tokenizer, source_config, arguments.pad_token)
        overrides = ids | layers | parse_overrides(arguments.config_overrides)
        adapted_config(source_config, overrides)
        weights = read_weights(checkpoint_folder(arguments.model))
        dtype = getattr(torch, arguments.dtype) if arguments.dtype else None
        try:
            model = adapt(weights, source_config, overrides=overrides, dtype=dtype, is_shown=True)
        except DoesNotFit as error:
            print(error.found.describe())
            raise ValueError(error.summary) from error
        model.save_pretrained(staging)
        if tokenizer is not None:
            tokenizer.save_pretrained(staging)
        card = adapted_card(model, arguments.out.resolve().name, arguments.model, has_tokenizer=tokenizer is not None)
        card.save(staging / "README.md")
    size = sum(parameter.numel() for parameter in model.parameters())
    print(
        f"An encoder-decoder of {size:,} parameters is in {arguments.out}. It has to be trained before use: weftformer pretrain "
        f"--model-name-or-path {arguments.out} --objective ul2 --train-file TEXTS ..."
    )


if __name__ == "__main__":
    main()
