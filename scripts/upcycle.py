"""Turn a dense Weft model into a mixture of experts that starts with the same outputs."""

import argparse
from pathlib import Path

from weftformer.scripts.arguments import add_trust_option, positive


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("model", type=Path, metavar="MODEL", help="folder of a dense Weft model")
    add("out", type=Path, metavar="OUT", help="folder to write; it must be empty or not exist")
    add("--experts", type=int, default=8, metavar="N", help="experts per sparse layer (default: %(default)s)")
    add("--experts-per-token", type=int, default=2, metavar="N", help="experts per token (default: %(default)s)")
    add("--every", type=positive, metavar="N",
        help="make every Nth layer of both stacks sparse (default: 2, or 1 in a stack of one layer)")  # fmt: skip
    add("--seed", type=int, default=0, help="seed of the routers' initial weights (default: %(default)s)")
    add_trust_option(add)


def main(args: argparse.Namespace) -> None:
    if not args.model.is_dir():
        raise FileNotFoundError(f"{args.model} is not a folder.")
    from transformers import AutoModelForSeq2SeqLM

    from weftformer.common.atomic import atomic_folder
    from weftformer.conversion import read_tokenizer, upcycle
    from weftformer.hub import loadable_name, upcycled_card
    from weftformer.hub.loading import check_family, load

    check_family(args.model, args.trust_remote_code)
    with atomic_folder(args.out) as staging:
        dense = load(AutoModelForSeq2SeqLM, args.model, trust_remote_code=args.trust_remote_code)
        sparse = upcycle(dense, args.experts, args.experts_per_token, every=args.every, seed=args.seed)
        tokenizer = read_tokenizer(args.model)
        if tokenizer is not None:
            tokenizer.save_pretrained(staging)
        sparse.save_pretrained(staging)
        names = loadable_name(args.out), args.model.resolve().name
        upcycled_card(sparse, *names, has_tokenizer=tokenizer is not None).save(staging / "README.md")
    sizes = [f"{model.num_parameters():,}" for model in (dense, sparse)]
    print(f"Saved the sparse model in {args.out}: {sizes[1]} parameters, {sizes[0]} before.")
