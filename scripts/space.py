"""`weftformer space`: the folder of a Space on the Hub that shows models, ready for `hf upload`."""

from collections.abc import Sequence
from pathlib import Path

from weftformer.demo.space import write_space
from weftformer.scripts.parsers.space import build_parser


def main(argv: Sequence[str] | None = None) -> None:
    """Write the folder and say how it gets to the Hub.

    Raises:
        ValueError, OSError: as [`write_space`].
    """
    arguments = build_parser().parse_args(argv)
    write_space(arguments.out, arguments.model, arguments.text_model, title=arguments.title)
    for name in (arguments.model, arguments.text_model):
        if name is not None and not Path(name).is_dir():
            print(f"{name} is no folder here: the Space downloads it from the Hub when it starts.")
    print(
        f"The Space is in {arguments.out}. Try it: `python {arguments.out / 'app.py'}`. Push it: "
        f"`hf repos create NAME --type space --space-sdk gradio`, "
        f"then `hf upload NAME {arguments.out} --repo-type space`."
    )


if __name__ == "__main__":
    main()
