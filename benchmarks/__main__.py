"""`python -m weftformer.benchmarks` measures what `decoding.py` describes."""

import sys
from collections.abc import Sequence

from weftformer.benchmarks import decoding
from weftformer.scripts.cli import Parser, run_script


def main(argv: Sequence[str] | None = None) -> int:
    """Read the arguments and measure.

    Returns:
        The exit code, as in [`run_script`].
    """
    parser = Parser(prog="python -m weftformer.benchmarks", description=decoding.__doc__)
    decoding.add_arguments(parser)
    return run_script("benchmarks", decoding.main, parser.parse_args(argv))


if __name__ == "__main__":
    sys.exit(main())
