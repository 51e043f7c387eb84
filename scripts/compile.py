"""Compile greedy search for a model, once for all weights of its configuration. `generate`, `serve` and Python then use it for every
request that fits. This needs a C++ compiler and takes some minutes. The code is stored in your cache folder."""

import argparse

from weftformer.scripts.arguments import check_model


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", metavar="MODEL", help="folder or Hub id of a trained text model")


def main(args: argparse.Namespace) -> None:
    """Compile the graphs for one text and for several.

    Raises:
        ValueError, OSError: there is no such model, or it cannot be compiled.
    """
    check_model(args.model)
    from weftformer.modeling.decoding.compiled import compiled_folder
    from weftformer.modeling.decoding.dispatch import reason_against_graphs
    from weftformer.modeling.decoding.graph import GraphSearch
    from weftformer.serving.tasks import load_on

    model = load_on(args.model, "texts", "cpu").model
    if reason := reason_against_graphs(model):
        raise ValueError(f"{args.model}: {reason}.")
    graphs = GraphSearch(model)
    for is_single in (True, False):
        graphs.packages(is_single, compiles=True)
    print(f"Greedy search is compiled: {compiled_folder()}")
