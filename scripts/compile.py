"""`weftformer compile`: the decoding step of a model, compiled for this machine and kept for later processes."""

import time
from collections.abc import Sequence
from itertools import product

import torch
from transformers import AutoModelForSeq2SeqLM

import weftformer
from weftformer.common.progress import Progress
from weftformer.modeling.decoding.compiled import compiled_folder
from weftformer.scripts.arguments import check_model
from weftformer.scripts.parsers.compile import build_parser

# Tokens that are written to meet a compiled step: the first ones of a text are not compiled.
_TOKENS = 6
_SOURCE = 8


def main(argv: Sequence[str] | None = None) -> None:
    """Compile a step for each number of beams and each batch size.

    Raises:
        ValueError: an argument does not fit, or the model cannot be compiled.
        OSError: there is no such model.
    """
    arguments = build_parser().parse_args(argv)
    for name in ("beams", "batch_size", "threads"):
        given = getattr(arguments, name)
        if given is not None and min(given if isinstance(given, list) else [given]) < 1:
            raise ValueError(f"--{name.replace('_', '-')} must be at least 1.")
    check_model(arguments.model)
    if arguments.threads:
        torch.set_num_threads(arguments.threads)
    model = AutoModelForSeq2SeqLM.from_pretrained(arguments.model).eval()
    if not isinstance(model, weftformer.WeftForConditionalGeneration):
        raise ValueError(f"{arguments.model} is a {type(model).__name__}, and no model of this family.")
    weftformer.fast_decoding(model)
    asked = list(product(dict.fromkeys(arguments.beams), dict.fromkeys(arguments.batch_size)))
    with Progress("compile", len(asked), "shapes") as progress:
        for beams, batch_size in asked:
            started = time.perf_counter()
            decode(model, beams, batch_size)
            seconds = time.perf_counter() - started
            print(f"{beams} beam{'s' * (beams > 1)}, batch of {batch_size}: ready after {seconds:.1f} s")
            progress.update(1)
    print(f"The compiled steps are in {compiled_folder()}.")


def decode(model: weftformer.WeftForConditionalGeneration, beams: int, batch_size: int) -> None:
    """Write some tokens with sources of different lengths, as a batch of texts has."""
    config = model.config
    ids = torch.arange(batch_size * _SOURCE).view(batch_size, _SOURCE) % config.vocab_size
    mask = torch.ones_like(ids)
    mask[1:, -1] = 0
    inputs = {"input_ids": ids, "attention_mask": mask}
    if config.num_condition_features:
        inputs["condition_values"] = torch.ones(batch_size, config.num_condition_features)
    model.generate(**inputs, num_beams=beams, max_new_tokens=_TOKENS, min_new_tokens=_TOKENS, do_sample=False)


if __name__ == "__main__":
    main()
