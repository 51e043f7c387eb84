"""Judge reactions by recorded ones: whether their transformation is recorded, what speaks against them, and the usual
reagents. Exit status: 0, 3 when at least one reaction is not recorded, 2 for a wrong option, 1 after any other error.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from weftformer.common.options import add_options
from weftformer.routes.planning.settings import PlanSettings

if TYPE_CHECKING:
    from weftformer.routes.tree import Route

EPILOG = """examples:
  weftformer routes judge 'CC(=O)O.NCc1ccccc1>>CC(=O)NCc1ccccc1'
  weftformer routes judge --input-file reactions.csv --json-lines > judged.jsonl"""

NOT_RECORDED = 3


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = "%(prog)s (REACTION ... | --input-file FILE) [--json-lines] [--library FILE]"
    add = parser.add_argument
    add("reactions", nargs="*", metavar="REACTION", help="reaction SMILES, or several of a route between blanks")
    add("--input-file", type=Path, metavar="FILE", help="reactions or routes, in a format of `routes prepare`")
    add("--json-lines", action="store_true", help="print a line of JSON for each reaction, with its examples")
    add_options(parser, PlanSettings, "library")


def main(args: argparse.Namespace) -> int:
    """Print the judgement of each reaction.

    Raises:
        ValueError, OSError: an argument is not a reaction, or a file cannot be read.
    """
    from weftformer.routes.judging import judge_route

    library, status = PlanSettings(library=args.library).transformations, 0
    for route in _routes(args):
        for number, step in enumerate(judge_route(route, library), 1):
            if args.json_lines:
                print(json.dumps(step.to_dict(), ensure_ascii=False), flush=True)
            else:
                print(f"{step.reaction}\n{step.words(f'step {number}')}", flush=True)
            status = status if step.evidence == "recorded" else NOT_RECORDED
    return status


def _routes(args: argparse.Namespace) -> Iterator[Route]:
    from weftformer.routes.chemistry.molecules import canonical_route
    from weftformer.routes.files import read_routes
    from weftformer.routes.files.reaction_lines import from_reaction_line

    if bool(args.reactions) == (args.input_file is not None):
        raise ValueError("Give reactions, or --input-file FILE.")
    routes = map(from_reaction_line, args.reactions) if args.input_file is None else read_routes(args.input_file)
    yield from map(canonical_route, routes)
