"""Show models on a page in the browser, which plans routes and writes texts. Or write the folder of a Space on the Hub with
the same page."""

import argparse
from pathlib import Path

EPILOG = """examples:
  weftformer app                                               # the route model that comes with Weft
  weftformer app --model runs/routes --text-model runs/de-en
  weftformer app --model runs/routes --space runs/space        # ready for `hf upload NAME runs/space --repo-type space`"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--model", metavar="MODEL", help="folder or Hub id of a route model (default: the one that comes with Weft)")
    add("--text-model", metavar="MODEL", help="folder or Hub id of a model of texts")
    add("--device", help="where the models run, e.g. cuda:0 (default: cuda where there is one)")
    add("--host", help="address to listen at; 0.0.0.0 is every one of this machine's (default: 127.0.0.1)")
    add("--port", type=int, metavar="N", help="port to listen at (default: the first from 7860 that is free)")
    add("--share", action="store_true", help="also open it to the world, through gradio's servers, for a week")
    add = parser.add_argument_group("as a Space").add_argument
    add("--space", type=Path, metavar="FOLDER",
        help="show nothing, and write the folder of a Space: a model of a folder is copied, one of the Hub is downloaded when the "
        "Space starts; the folder must not hold anything yet")  # fmt: skip
    add("--title", default="Weft", help="of the Space (default: %(default)s)")


def main(args: argparse.Namespace) -> None:
    """Load the models and show them until Ctrl-C, or write the Space.

    Raises:
        ValueError: as [`load_models`] and [`write_space`], or there is no such device. OSError: no such model, or the port is taken.
    """
    from weftformer.demo import LAUNCH, build_demo, write_space
    from weftformer.demo.loading import load_models
    from weftformer.scripts.arguments import move_to, take_shipped_model

    if args.text_model is None:
        take_shipped_model(args)
    if args.space is not None:
        write_space(args.space, args.model, args.text_model, title=args.title)
        print(_how_to_push(args))
        return
    tasks = load_models(args.model, args.text_model)
    for task in filter(None, tasks):
        move_to(task, args.device)
    build_demo(*tasks).launch(server_name=args.host, server_port=args.port, share=args.share, **LAUNCH)


def _how_to_push(args: argparse.Namespace) -> str:
    lines = [
        f"{name} is no folder here: the Space downloads it from the Hub when it starts."
        for name in (args.model, args.text_model)
        if name is not None and not Path(name).is_dir()
    ]
    lines.append(
        f"The Space is in {args.space}. Try it: `python {args.space / 'app.py'}`. Push it: "
        f"`hf repos create NAME --type space --space-sdk gradio`, then `hf upload NAME {args.space} --repo-type space`."
    )
    return "\n".join(lines)
