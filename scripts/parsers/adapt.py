"""The arguments of `weftformer adapt`."""

import argparse
from pathlib import Path

from ..arguments import Parser

# As in `conversion/adaptation.py`, which needs torch.
FAMILIES = ("llama", "mixtral", "qwen3", "gemma")
DTYPES = ("float32", "bfloat16", "float16", "float64")

_EXAMPLES = """The model has to be trained before use. examples:
  weftformer adapt llama-3.2-1b runs/adapted --pad-token '<|finetune_right_pad_id|>'
  weftformer pretrain --model-name-or-path runs/adapted --train-file corpus.txt.gz --objective ul2 \\
      --max-source-length 512 --max-target-length 512 --max-steps 20000 --output-dir runs/pretrained
"""


def build_parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="weftformer adapt",
        description="Make an encoder-decoder from a decoder-only checkpoint, complete or not at all, as in T5Gemma "
        "(arXiv:2504.06225):\nboth stacks begin with its layers, and cross-attention with its self-attention.\n\n"
        f"families: {', '.join(FAMILIES)} (the `model_type` of the config.json)",
        epilog=_EXAMPLES,
    )
    add = parser.add_argument
    add("model", metavar="MODEL", help="folder or Hub id of a decoder-only checkpoint of transformers")
    add("out", type=Path, metavar="OUT", help="folder to write")
    add("--pad-token", metavar="TOKEN",
        help="token of the vocabulary that no text has, to pad with (default: the checkpoint's)")  # fmt: skip
    add(
        "--encoder",
        metavar="MODEL2",
        help="second checkpoint of the same family, vocabulary and width, for the encoder",
    )
    for stack in ("encoder", "decoder"):
        add(f"--num-{stack}-layers", type=int, metavar="N",
            help=f"take N of the layers for the {stack}, evenly spaced (default: all)")  # fmt: skip
    add("--dtype", choices=DTYPES, help="of the weights to write (default: the checkpoint's; Gemma: float32)")
    add("--config-overrides", metavar="A=1,B=2", help="fields of the Weft configuration that win over all others")
    add("--overwrite", action="store_true", help="write over OUT where it holds something")
    return parser
