"""The arguments of `weftformer export`."""

import argparse
from pathlib import Path

from ..arguments import Parser


def build_parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="weftformer export",
        description="Write a Weft model for another runtime, read it back and compare it before it gets its name.",
    )
    add = parser.add_argument
    add("model", type=Path, metavar="MODEL", help="folder of a Weft model")
    add("out", type=Path, metavar="OUT", help="folder to write; it must not hold anything yet")
    add("--format", choices=("torch", "onnx", "ctranslate2"), required=True,
        help="torch: `torch.export` files; onnx: for onnxruntime; ctranslate2: dense models only")  # fmt: skip
    return parser
