"""Make an encoder-decoder from a decoder-only checkpoint, complete or not at all, as in T5Gemma (arXiv:2504.06225):
both stacks begin with its layers, and cross-attention with its self-attention."""

import argparse
import sys
from pathlib import Path
from typing import Any

from weftformer.scripts import cli
from weftformer.scripts.arguments import check_model

# The torch dtypes that weights are written in. `conversion/adaptation.py`, which needs torch, has them as `DTYPES`.
DTYPES = ("float32", "bfloat16", "float16", "float64")

EPILOG = """Families: llama, mixtral, qwen3, gemma (the `model_type` of the config.json). The model has to be trained before use.

examples:
  weftformer adapt llama-3.2-1b runs/adapted --pad-token '<|finetune_right_pad_id|>'
  weftformer pretrain --model-name-or-path runs/adapted --train-file corpus.txt.gz \\
      --max-source-length 512 --max-target-length 512 --max-steps 20000 --output-dir runs/pretrained"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("model", metavar="MODEL", help="folder or Hub id of a decoder-only checkpoint of transformers")
    add("out", type=Path, metavar="OUT", help="folder to write")
    add("--pad-token", metavar="TOKEN",
        help="token of the vocabulary that no text has, to pad with (default: the checkpoint's)")  # fmt: skip
    add("--encoder", metavar="MODEL2",
        help="second checkpoint of the same family, vocabulary and width, for the encoder")  # fmt: skip
    for stack in ("encoder", "decoder"):
        add(f"--num-{stack}-layers", type=int, metavar="N",
            help=f"take N of the layers for the {stack}, evenly spaced (default: all)")  # fmt: skip
    add("--dtype", choices=DTYPES, help="of the weights to write (default: the checkpoint's; Gemma: float32)")
    add("--config-overrides", metavar="A=1,B=2", help="fields of the Weft configuration that win over all others")
    add("--overwrite", action="store_true", help="write over OUT where it holds something")


def main(args: argparse.Namespace) -> None:
    """Write the folder.

    Raises:
        ValueError, OSError: there is no such checkpoint, or it does not fit.
    """
    import torch

    from weftformer.common.atomic import atomic_folder
    from weftformer.conversion import DoesNotFit, adapt, checkpoint_folder, read_weights
    from weftformer.hub import adapted_card

    for option, model in (("MODEL", args.model), ("--encoder", args.encoder)):
        if model is not None:
            check_model(model, option)
            if args.out.resolve() == Path(model).resolve():
                raise ValueError(f"{args.out} is the folder of a checkpoint: choose another output folder.")
    with atomic_folder(args.out, replace=args.overwrite) as staging:
        source_config, encoder_config, tokenizer, fields = _read_settings(args)
        weights = read_weights(checkpoint_folder(args.model))
        encoder = (read_weights(checkpoint_folder(args.encoder)), encoder_config) if encoder_config else None
        dtype = getattr(torch, args.dtype) if args.dtype else None
        try:
            model = adapt(weights, source_config, encoder=encoder, overrides=fields, dtype=dtype, is_shown=True)
        except DoesNotFit as error:
            print(error.found.describe())
            raise ValueError(error.summary) from error
        model.save_pretrained(staging)
        if tokenizer is not None:
            tokenizer.save_pretrained(staging)
        name, has_tokenizer = args.out.resolve().name, tokenizer is not None
        card = adapted_card(model, name, args.model, args.encoder, has_tokenizer=has_tokenizer)
        card.save(staging / "README.md")
    print(
        f"An encoder-decoder of {model.num_parameters():,} parameters is in {args.out}. It has to be trained before use: "
        f"weftformer pretrain --model-name-or-path {args.out} --train-file TEXTS ..."
    )


def _read_settings(args: argparse.Namespace) -> tuple[dict[str, Any], dict[str, Any] | None, Any, dict[str, Any]]:
    """Return configurations, tokenizer and fields, after checking all that can be checked without weights."""
    from weftformer.common.overrides import parse_overrides
    from weftformer.conversion import (
        adapted_config,
        checkpoint_folder,
        read_source_config,
        read_tokenizer,
        special_token_ids,
    )

    folder = checkpoint_folder(args.model, with_weights=False)
    other = checkpoint_folder(args.encoder, with_weights=False) if args.encoder else None
    source_config, encoder_config = read_source_config(folder), read_source_config(other) if other else None
    layers = {f"{stack}_layers": getattr(args, f"num_{stack}_layers") for stack in ("encoder", "decoder")}
    layers = {name: number for name, number in layers.items() if number is not None}
    adapted_config(source_config, layers, encoder_config)
    tokenizer, encoders = read_tokenizer(folder), read_tokenizer(other) if other else None
    if tokenizer is not None and encoders is not None and tokenizer.get_vocab() != encoders.get_vocab():
        raise ValueError(f"{args.encoder} has another vocabulary than {args.model}: the two have to be of one family.")
    ids = special_token_ids(tokenizer, source_config, args.pad_token)
    fields = ids | layers | parse_overrides(args.config_overrides)
    adapted_config(source_config, fields, encoder_config)
    return source_config, encoder_config, tokenizer, fields


if __name__ == "__main__":
    sys.exit(cli.main(["adapt", *sys.argv[1:]]))
