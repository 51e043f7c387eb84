"""The arguments of `weftformer estimate`."""

import argparse
from pathlib import Path

from ..arguments import GPUS, Parser


def build_parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="weftformer estimate",
        description="Say what a model costs before anybody pays for it: parameters, memory of each process, operations, days and\n"
        "energy of training, and the same for decoding. Nothing is computed with data, and no GPU is needed.",
        epilog="examples:\n"
        "  weftformer estimate --preset modern-base-moe --distributed-config fsdp_size=8,ep_size=8 --gpu h100 --tokens 1e11\n"
        "  weftformer estimate --model runs/mine --gpu rtx-4090 --tokens 1e9 --source-length 128 --target-length 128\n"
        "  weftformer estimate --preset modern-small --gpu cpu,memory_gb=16,bandwidth_gbs=40,fp32_tflops=0.2 --json -",
    )
    add = parser.add_argument_group("the model").add_argument
    add("--preset", metavar="NAME", help="a named size, such as modern-base")
    add("--model", metavar="MODEL", help="the folder or Hub id of a trained model")
    add("--config-overrides", metavar="A=1,B=2", help="fields of the configuration to change, such as vocab_size=8000")
    add = parser.add_argument_group("the machines").add_argument
    add(
        "--gpu",
        default="h100",
        metavar="NAME",
        help=f"{', '.join(GPUS)}, or numbers of another (default: %(default)s)",
    )
    add("--num-processes", type=int, metavar="N", help="processes with a whole model each (DDP; default: 1)")
    add("--distributed-config", metavar="A=1,B=2", help="how processes share the model, as in `weftformer train`")
    add = parser.add_argument_group("the training").add_argument
    add("--tokens-per-batch", type=int, default=65_536, metavar="N",
        help="tokens of a step of all processes, source and target together (default: %(default)s)")  # fmt: skip
    add("--source-length", type=int, metavar="N", help="tokens of a source (default: 512, or what the model takes)")
    add("--target-length", type=int, metavar="N", help="tokens of a target (likewise)")
    add("--tokens", type=float, metavar="N", help="tokens of the whole training, for days and energy")
    add(
        "--precision", choices=("bf16", "fp32"), help="bf16 is --bf16 of training (default: bf16 where the GPU has it)"
    )
    add("--gradient-checkpointing", action="store_true", help="layers are computed again in the backward pass")
    add("--gradient-accumulation-steps", type=int, default=1, metavar="N", help="batches a step (default: 1)")
    add("--no-loss-in-pieces", dest="loss_in_pieces", action="store_false", help="keep the logits of a whole batch")
    add(
        "--utilization", type=float, default=0.4, metavar="SHARE", help="of the peak arithmetic (default: %(default)s)"
    )
    add(
        "--pue",
        type=float,
        default=1.1,
        metavar="N",
        help="power of the data centre over the GPUs' (default: %(default)s)",
    )
    add = parser.add_argument_group("the rest").add_argument
    add("--num-beams", type=int, default=5, metavar="N", help="beams of a search when decoding (default: %(default)s)")
    add("--json", type=Path, metavar="FILE", help="write all numbers to a file, or - to print nothing else")
    return parser
