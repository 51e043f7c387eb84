"""`weftformer demo`: a page in the browser that plans routes, writes texts and shows what the model looks at."""

from collections.abc import Sequence

from weftformer.demo.loading import load_models
from weftformer.scripts.arguments import move_to, take_shipped_model
from weftformer.scripts.parsers.demo import build_parser


def main(argv: Sequence[str] | None = None) -> None:
    """Load the models and show them until Ctrl-C.

    Raises:
        ValueError: as [`load_models`], or there is no such device. OSError: no such model, or the port is taken.
    """
    arguments = build_parser().parse_args(argv)
    if arguments.text_model is None:
        take_shipped_model(arguments)
    tasks = load_models(arguments.model, arguments.text_model)
    for task in filter(None, tasks):
        move_to(task, arguments.device)
    from weftformer.demo import LAUNCH, build_demo

    build_demo(*tasks).launch(server_name=arguments.host, server_port=arguments.port, share=arguments.share, **LAUNCH)


if __name__ == "__main__":
    main()
