"""Compile the search for a model, once for all weights of its configuration. `generate`, `serve` and Python then use
it for every request that fits. This needs a C++ compiler and takes two to four minutes. For the included starter, it
pays off after about 2,000 texts, one at a time, or 20,000 in batches of 16. The code is for this processor or GPU, and
is stored in your cache folder.
"""

import argparse

from weftformer.scripts.arguments import add_model_options, add_threads_option, check_model, positive


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("model", metavar="MODEL", help="folder or Hub id of a trained model, which needs no tokenizer")
    add(
        "--beams",
        type=positive,
        metavar="N",
        help="width of the search, 1 for greedy search (default: as saved with the model)",
    )
    add_model_options(add)
    add_threads_option(add)


def main(args: argparse.Namespace) -> None:
    """Compile the graphs for one text and for several, with the other settings that are saved with the model.

    Raises:
        ValueError, OSError: there is no such model, or it cannot be compiled.
    """
    check_model(args.model)
    from transformers import AutoModelForSeq2SeqLM

    from weftformer.common.progress import Progress
    from weftformer.hub.loading import check_family, load, to_device, use_threads
    from weftformer.modeling.decoding.compiled import compiled_folder
    from weftformer.modeling.decoding.continuous import continuous_settings
    from weftformer.modeling.decoding.dispatch import reason_against_graphs
    from weftformer.modeling.decoding.graph import GraphSearch, kind_of

    check_family(args.model, args.trust_remote_code)
    model = load(AutoModelForSeq2SeqLM, args.model, dtype=args.dtype, trust_remote_code=args.trust_remote_code)
    to_device(model, args.device)
    use_threads(model, args.threads)  # the code is compiled for this number
    if reason := reason_against_graphs(model):
        raise ValueError(f"{args.model}: {reason}.")
    settings = continuous_settings(model, {} if args.beams is None else {"num_beams": args.beams})
    graphs = GraphSearch(model)
    with Progress("compiling the search", 2, "parts") as progress:
        for is_single in (True, False):
            progress.begin("for one text" if is_single else "for several texts")
            graphs.packages(kind_of(settings), is_single, compiles=True)
        progress.n += 1
    search = "Greedy search" if settings.num_beams == 1 else f"Beam search with {settings.num_beams} beams"
    print(f"{search} is compiled: {compiled_folder()}")
