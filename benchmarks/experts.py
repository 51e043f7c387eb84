"""Measure what experts are worth: a sparse model beside a dense one that computes as much for a token.

    python -m weftformer.benchmarks.experts --train pairs.csv --validation more.csv --output-dir runs/experts

In the sparse model every feed-forward has `--experts` experts. A token uses `--experts-per-token` of them, which together
are as wide as the dense model's feed-forward. Both see the same pairs in the same order, for equally many steps.
"""

import json
import sys
from collections.abc import Sequence
from typing import Any

from weftformer.benchmarks.studies import build_parser, compare, parse
from weftformer.common.overrides import parse_overrides
from weftformer.configuration.presets import preset_fields
from weftformer.scripts.cli import run_script


def main(argv: Sequence[str] | None = None) -> None:
    """Train the models, and print their losses and scores."""
    parser = build_parser("weftformer.benchmarks.experts", __doc__)
    add = parser.add_argument
    add("--config-overrides", default="", metavar="A=1,B=2", help="fields of both configurations")
    add("--experts", type=int, default=8, metavar="N", help="experts of each feed-forward (default: %(default)s)")
    add("--experts-per-token", type=int, default=2, metavar="N", help="of which a token uses (default: %(default)s)")
    add("--learning-rate", type=float, default=1e-3, help="highest learning rate (default: %(default)s)")
    add("--metrics", default="bleu", metavar="A,B", help="scores of what is written (default: %(default)s)")
    args = parse(parser, argv)
    overrides = parse_overrides(args.config_overrides)
    fields = preset_fields(args.preset) | overrides
    width = fields["encoder_ffn_dim"]
    if fields["decoder_ffn_dim"] != width:  # the experts of both stacks have one width
        parser.error(f"encoder_ffn_dim={width} and decoder_ffn_dim={fields['decoder_ffn_dim']} must be equal.")
    if args.experts_per_token < 1 or width % args.experts_per_token:
        parser.error(
            f"--experts-per-token {args.experts_per_token} must divide the width of the feed-forward, {width}."
        )
    experts = {
        "encoder_mlp_layer_types": "sparse",
        "decoder_mlp_layer_types": "sparse",
        "num_experts": args.experts,
        "num_experts_per_tok": args.experts_per_token,
        "moe_intermediate_size": width // args.experts_per_token,
    }
    shared = ["--preset", args.preset, "--learning-rate", args.learning_rate, "--predict-with-generate",
              "--generation-metrics", args.metrics, "--generation-num-beams", 1]  # fmt: skip

    def with_fields(fields: dict[str, Any]) -> list[Any]:
        return [*shared, "--config-overrides", json.dumps(fields)]

    ways: dict[str, Sequence[Any]] = {
        "dense": with_fields(overrides) if overrides else shared,
        f"{args.experts} experts, {args.experts_per_token} a token": with_fields(overrides | experts),
    }
    compare(args, "model", lambda seed: ways)


if __name__ == "__main__":
    sys.exit(run_script("benchmark experts", main))
