"""Train a model that writes synthesis routes, test it on held-out targets, and plan one of them. By default, it
is trained on the included sample of recorded routes.
"""

import argparse

from weftformer.routes.training.arguments import RouteArguments, RouteTrainingOptions
from weftformer.scripts.arguments import add_common_options

EPILOG = """These are the most used options. `weftformer routes train --help-all` shows all options.

example:
  weftformer routes train --train-file data/routes --test-file held-out.jsonl.gz --preset dms-flash-10m \\
      --output-dir runs/flash"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = (
        "%(prog)s [FILE.yaml] [--train-file ROUTES --test-file ROUTES] [--output-dir FOLDER] [--option value ...]"
    )
    add_common_options(parser, RouteArguments, RouteTrainingOptions)


def main(args: argparse.Namespace) -> None:
    """Read the arguments, train, test and plan.

    Raises:
        ValueError, FileNotFoundError: the arguments or the routes are not valid.
    """
    from weftformer.routes.training.fitting import train
    from weftformer.routes.training.training_data import RouteTrainingArguments
    from weftformer.scripts.parsing import parse_dataclasses

    train(*parse_dataclasses(args.words, RouteArguments, RouteTrainingArguments, prog="weftformer routes train"))
