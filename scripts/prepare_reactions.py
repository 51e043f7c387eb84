"""`weftformer prepare-reactions`: the reactions of route files as pairs, to train a model that predicts products."""

import sys
from collections.abc import Sequence

from weftformer.routes.data.forward_pairs import write_forward_pairs
from weftformer.scripts.arguments import check_folders
from weftformer.scripts.cli import run_script
from weftformer.scripts.parsers.prepare_reactions import build_parser


def main(argv: Sequence[str] | None = None) -> None:
    """Write the pairs, and print how many there are.

    Raises:
        ValueError, OSError: as in `weftformer.routes.data.forward_pairs.write_forward_pairs`.
    """
    arguments = build_parser().parse_args(argv)
    if arguments.texts < 1:
        raise ValueError(f"--texts must be at least 1: got {arguments.texts}.")
    check_folders(arguments, "output_file")
    counts = write_forward_pairs(
        arguments.files,
        arguments.output_file,
        exclude=arguments.exclude,
        texts=arguments.texts,
        seed=arguments.seed,
        progress=not arguments.no_progress,
    )
    print(
        f"{counts['read']:,} routes read, {counts['unreadable']:,} of them unreadable; {counts['excluded']:,} reactions excluded.\n"
        f"{counts['pairs']:,} pairs of {counts['reactions']:,} reactions are in {arguments.output_file}."
    )


if __name__ == "__main__":
    sys.exit(run_script("prepare-reactions", main))
