"""Write a Weft model for another runtime, load it and compare the outputs. An export that fails writes nothing."""

import argparse
from pathlib import Path

from weftformer.scripts.arguments import add_trust_option


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("model", type=Path, metavar="MODEL", help="folder of a Weft model")
    add("out", type=Path, metavar="OUT", help="folder to write; it must be empty or not exist")
    add("--format", choices=("search", "ctranslate2"), required=True,
        help="search: compiled code, for C++ without Python; ctranslate2: not the default of train")  # fmt: skip
    add_trust_option(add)


def main(args: argparse.Namespace) -> None:
    if not args.model.is_dir():
        raise FileNotFoundError(f"{args.model} is not a folder.")
    import torch
    from transformers import AutoConfig, AutoModelForSeq2SeqLM

    from weftformer.common.atomic import atomic_folder
    from weftformer.conversion import read_tokenizer
    from weftformer.exporting import (
        TOLERANCE,
        check_expressible,
        compare_ctranslate2,
        differing_outputs,
        write_ctranslate2,
        write_search,
    )
    from weftformer.hub.loading import check_family, load

    check_family(args.model, trust := args.trust_remote_code)
    if args.format == "ctranslate2":  # before the weights are read
        check_expressible(load(AutoConfig, args.model, trust_remote_code=trust))
    model = load(AutoModelForSeq2SeqLM, args.model, dtype=torch.float32, trust_remote_code=trust).eval()
    tokenizer = read_tokenizer(args.model)
    with atomic_folder(args.out) as staging:
        if args.format == "ctranslate2":
            write_ctranslate2(model, staging, tokenizer)
            difference = compare_ctranslate2(model, staging, tokenizer)
            measure = "largest difference"
        else:
            write_search(model, staging)
            difference = differing_outputs(model, staging)
            measure = "share of texts that differ"
        comparison = f"{measure} {difference:.1e}"
        if not difference <= TOLERANCE:  # NaN too
            raise ValueError(f"The exported model writes other outputs, and was deleted: {comparison}.")
        if tokenizer is not None:
            tokenizer.save_pretrained(staging)
    print(f"{args.out}: {', '.join(sorted(file.name for file in args.out.iterdir()))}\n{comparison}")
