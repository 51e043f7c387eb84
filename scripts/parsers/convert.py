"""The arguments of `weftformer convert`."""

import argparse
from pathlib import Path

from ..arguments import Parser

# As in `conversion`, which needs torch.
SOURCES = {
    "dms": "DirectMultiStep",
    "symm": "symm-learning's transformer",
    "haiku": "a transformer of Haiku modules",
    "tutorial": "the English-to-Persian tutorial",
    "notebook": "the lecture notebook's transformer",
    "torch": "torch.nn.Transformer",
    "bart": "transformers' BART family (BART, mBART, Pegasus, Marian, M2M100, NLLB, NLLB-MoE)",
    "t5": "transformers' T5 family (T5, T5 1.1, Flan-T5, ByT5, mT5)",
}
READABLE = (".safetensors", ".pt", ".pth", ".ckpt", ".bin", ".npz")

_EXAMPLES = """examples:
  weftformer convert flash.ckpt runs/flash
  weftformer convert dms flex.ckpt runs/flex --preset dms-flex-20m
  weftformer convert bart folder-of-bart-base runs/bart
  weftformer convert torch encoder_decoder.pt runs/mine --heads 8 --config-overrides norm_first=true
"""


def build_parser() -> argparse.ArgumentParser:
    sources = "\n".join(f"  {name:<10}{title}" for name, title in SOURCES.items())
    parser = Parser(
        prog="weftformer convert",
        usage="weftformer convert [SOURCE] PATH OUT [--option value ...]",
        description="Turn another family's weights into the folder of a Weft model, complete or not at all.\n\n"
        f"sources:\n{sources}",
        epilog=_EXAMPLES,
    )
    add = parser.add_argument
    add("source", nargs="?", choices=list(SOURCES), metavar="SOURCE",
        help="where the weights come from (default: told by their keys)")  # fmt: skip
    add("path", type=Path, metavar="PATH", help=f"a file of weights ({', '.join(READABLE)}), or a folder with them")
    add("out", type=Path, metavar="OUT", help="folder to write; it must not hold anything yet")
    add("--preset", help="take the configuration of this preset instead of reading it off the weights")
    add("--heads", type=int, metavar="N", help="attention heads of both stacks, where the weights do not tell")
    add("--config-overrides", metavar="A=1,B=2", help="fields of the Weft configuration that win over all others")
    add("--source-config", type=Path, metavar="FILE",
        help="the source's own configuration, JSON or YAML (default: config.json beside the weights)")  # fmt: skip
    add("--rename", action="append", default=[], metavar="PATTERN=REPLACEMENT",
        help="regular expression to replace in every key first; may be given several times")  # fmt: skip
    return parser
