"""`python -m weftformer.routes.benchmarks` measures planning, as `benchmarks/decoding.py` describes."""

import sys
from collections.abc import Sequence

from weftformer.benchmarks import decoding
from weftformer.routes.benchmarks.planning import RoutesCase
from weftformer.scripts.cli import Parser, run_script

CASES = {"routes": RoutesCase("planning, beam 10")}


def main(argv: Sequence[str] | None = None) -> int:
    """Read the arguments and measure.

    Returns:
        The exit code, as in [`run_script`].
    """
    parser = Parser(prog="python -m weftformer.routes.benchmarks", description=decoding.__doc__)
    decoding.add_arguments(parser, CASES)
    parser.add_argument("--routes", metavar="FILE", help="a file of routes")
    return run_script("benchmarks", lambda arguments: decoding.main(arguments, CASES), parser.parse_args(argv))


if __name__ == "__main__":
    sys.exit(main())
