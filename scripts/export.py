"""`weftformer export`: a Weft model for other runtimes, written, read back and compared before it gets its name."""

from collections.abc import Sequence

import torch
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

import weftformer  # noqa: F401 (makes the Auto classes know the family)
from weftformer.common.whole_files import whole_folder
from weftformer.exporting import (
    compare_ctranslate2,
    largest_difference,
    load_onnx,
    load_torch,
    write_ctranslate2,
    write_onnx,
    write_torch,
)
from weftformer.scripts.parsers.export import build_parser

# of logits and logarithms of probabilities, in fp32: what is measured is a thousandth of it
TOLERANCE = 1e-3
_GRAPHS = {"torch": (write_torch, load_torch), "onnx": (write_onnx, load_onnx)}


def main(argv: Sequence[str] | None = None) -> None:
    arguments = build_parser().parse_args(argv)
    if not arguments.model.is_dir():
        raise FileNotFoundError(f"{arguments.model} is no folder.")
    model = AutoModelForSeq2SeqLM.from_pretrained(arguments.model, dtype=torch.float32).eval()
    has_tokenizer = (arguments.model / "tokenizer.json").is_file()
    tokenizer = AutoTokenizer.from_pretrained(arguments.model) if has_tokenizer else None
    with whole_folder(arguments.out) as staging:
        if arguments.format == "ctranslate2":
            write_ctranslate2(model, staging, tokenizer)
            difference, same, samples = compare_ctranslate2(model, staging, tokenizer)
            found = f"largest difference of log-probabilities {difference:.1e}, same top beam for {same} of {samples} sources"
            is_right = difference <= TOLERANCE and same == samples
        else:
            # the ways that ONNX has operators for; with eager experts a token meets only its own, where "batched_mm" would
            # gather their weights for it
            model.set_experts_implementation("eager")
            if arguments.format == "onnx":
                model.set_attn_implementation("eager")
            write, load = _GRAPHS[arguments.format]
            write(model, staging)
            difference = largest_difference(model, load(staging))
            found = f"largest difference {difference:.1e}"
            is_right = difference <= TOLERANCE
        if not is_right:
            raise ValueError(f"What was written does not do what the model does, and is deleted: {found}.")
        if tokenizer is not None:
            tokenizer.save_pretrained(staging)
    print(f"{arguments.out}: {', '.join(sorted(file.name for file in arguments.out.iterdir()))}\n{found}")


if __name__ == "__main__":
    main()
