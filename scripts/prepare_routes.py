"""`weftformer prepare-routes`: route files of any kind as one data set to train on, and a report of what was left out and why."""

from collections.abc import Sequence

from weftformer.routes.data.preparation import Preparation, prepare
from weftformer.scripts.parsers.prepare_routes import build_parser


def main(argv: Sequence[str] | None = None) -> None:
    """Parse the arguments, prepare the data set, print the report.

    Raises:
        ValueError, OSError: as in `weftformer.routes.data.preparation.prepare`.
    """
    arguments = build_parser().parse_args(argv)
    settings = Preparation(
        permutations=arguments.permutations,
        aligned=arguments.aligned,
        sub_routes=arguments.sub_routes,
        weights=tuple(arguments.weights),
        starting_material=arguments.starting_material,
        max_source_length=arguments.max_source_length,
        max_target_length=arguments.max_target_length,
        min_depth=arguments.min_depth,
        max_depth=arguments.max_depth,
        deduplicate=not arguments.keep_duplicates,
        exclude_by=arguments.exclude_by,
        validation=arguments.validation,
        seed=arguments.seed,
    )
    report = prepare(
        arguments.files,
        arguments.out,
        settings,
        exclude=arguments.exclude,
        workers=arguments.workers,
        overwrite=arguments.overwrite,
        progress=not arguments.no_progress,
    )
    rows = ", ".join(f"{count:,} rows for {name}" for name, count in report.rows.items())
    print(
        f"{report.format_table()}\n{rows}, in {arguments.out}; counts and examples in {arguments.out / 'report.json'}"
    )


if __name__ == "__main__":
    main()
