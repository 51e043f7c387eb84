"""`weftformer upcycle`: a dense Weft model as a mixture of experts that starts with the same outputs."""

import shutil
from collections.abc import Sequence

from transformers import AutoModelForSeq2SeqLM

import weftformer  # noqa: F401 (makes the Auto classes know the family)
from weftformer.common.whole_files import whole_folder
from weftformer.conversion import upcycle
from weftformer.hub import upcycled_card
from weftformer.scripts.parsers.upcycle import build_parser


def main(argv: Sequence[str] | None = None) -> None:
    arguments = build_parser().parse_args(argv)
    if arguments.every < 1:
        raise ValueError(f"--every must be at least 1: got {arguments.every}.")
    if not arguments.model.is_dir():
        raise FileNotFoundError(f"{arguments.model} is no folder.")
    with whole_folder(arguments.out) as staging:
        dense = AutoModelForSeq2SeqLM.from_pretrained(arguments.model)
        layer_types = {
            f"{stack}_mlp_layer_types": [
                "sparse" if (index + 1) % arguments.every == 0 else "dense"
                for index in range(getattr(dense.config, f"{stack}_layers"))
            ]
            for stack in ("encoder", "decoder")
        }
        sparse = upcycle(dense, arguments.experts, arguments.experts_per_token, seed=arguments.seed, **layer_types)
        tokenizer_files = [file for file in arguments.model.glob("*token*") if file.is_file()]
        for file in tokenizer_files:
            shutil.copy2(file, staging / file.name)
        sparse.save_pretrained(staging)
        names = [folder.resolve().name for folder in (arguments.out, arguments.model)]
        upcycled_card(sparse, *names, has_tokenizer=bool(tokenizer_files)).save(staging / "README.md")
    sizes = [f"{model.num_parameters():,}" for model in (dense, sparse)]
    print(f"{sizes[0]} parameters became {sizes[1]}; the sparse model is in {arguments.out}.")


if __name__ == "__main__":
    main()
